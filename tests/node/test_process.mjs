/* Commands: results, events, text, web streams, input, signals. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test, { after, before } from 'node:test';
import { bytesOf, collect, count, memoryPlatform, noHandlesLeft, sandbox, until } from './place.mjs';

const uri = memoryPlatform();
let client;
let workspace;

before(async () => {
  client = await sandbox.Client.open(uri);
  workspace = await client.createWorkspace();
});
after(async () => {
  await workspace.delete();
  await workspace.close();
  await client.close();
  await noHandlesLeft();
});

const python = (program) => ['python3', '-c', program];

test('a command is run to its end; its exit code is a result', async () => {
  const result = await workspace.run('echo out; echo err >&2; exit 3');
  assert.ok(Buffer.isBuffer(result.stdout));
  assert.equal(result.stdout.toString(), 'out\n');
  assert.equal(result.stderr.toString(), 'err\n');
  assert.equal(result.exitCode, 3);
  assert.equal(result.signal, null);
  assert.equal(result.timedOut, false);
  const killed = await workspace.run('kill -9 $$');
  assert.deepEqual([killed.exitCode, killed.signal], [-1, 'SIGKILL']);
  const late = await workspace.run('sleep 60', { deadlineMs: 50 });
  assert.equal(late.timedOut, true);
});

test('words go to the program as they are, bytes too', async () => {
  const result = await workspace.run(['printf', '%s|', 'a b', '$HOME', Buffer.from([0xff])]);
  assert.deepEqual([...result.stdout], [...Buffer.from('a b|$HOME|'), 0xff, 0x7c]);
  const where = await workspace.run('pwd', { directory: '/tmp', encoding: 'utf8' });
  assert.equal(where.stdout, '/tmp\n');
});

test('what a command reads is given with it, as text, bytes or nothing', async () => {
  const big = Buffer.alloc(3 << 20, 'x');
  for (const input of ['text\n', new Uint8Array([0, 255]), new Uint8Array(0), big, big.buffer]) {
    const expected = typeof input === 'string' ? Buffer.from(input) : Buffer.from(input);
    const { stdout } = await workspace.run('cat', { input });
    assert.equal(Buffer.compare(stdout, expected), 0);
  }
  assert.equal((await workspace.run('cat', { encoding: 'utf8' })).stdout, '', 'P025: end of file at once');
});

test('P002, P003: each stream has its own budget, and what was cut is told', async () => {
  const program = 'import sys; sys.stdout.write("x" * 100001); print("the reason", file=sys.stderr); sys.exit(1)';
  const result = await workspace.run(python(program), { outputLimit: 100_000, encoding: 'utf8' });
  assert.equal(result.stdout.length, 100_000);
  assert.equal(result.stdoutTotal, 100_001);
  assert.equal(result.stdoutTruncated, true);
  assert.equal(result.stderr, 'the reason\n');
  assert.equal(result.stderrTruncated, false);
  assert.equal(result.exitCode, 1);
});

test('P074: text that is cut off inside a character has no replacement in it', async () => {
  const { stdout } = await workspace.run(python('print("€" * 10)'), { outputLimit: 10, encoding: 'utf8' });
  assert.equal(stdout, '€€€');
});

test('P074: a character that comes in pieces is one, in every place where it can be cut', async () => {
  const program = `
import os, time
def piece(fd, data):
    os.write(fd, data); time.sleep(0.02)
for byte in '≤'.encode(): piece(1, bytes([byte]))
for cut in (1, 2, 3):
    piece(1, '😀'.encode()[:cut]); piece(2, '日本'.encode()[:cut]); piece(1, '😀'.encode()[cut:]); piece(2, '日本'.encode()[cut:])
piece(1, b'\\xe2\\x89')`;
  const text = { stdout: '', stderr: '' };
  let pieces = 0;
  const process = await workspace.start(python(program));
  for await (const event of process.text()) {
    if (event.kind !== 'exit') text[event.kind] += event.text;
    pieces++;
  }
  assert.ok(pieces > 4, 'it did come in pieces');
  assert.equal(text.stderr, '日本日本日本');
  assert.equal(text.stdout, '≤😀😀😀\ufffd', 'only what was never finished is replaced, at the end');
});

test('P074: a web stream gives bytes that a decoder of its own puts together', async () => {
  const process = await workspace.start(python(`
import os, time
for byte in '≤日本😀'.encode(): os.write(1, bytes([byte])); time.sleep(0.01)`));
  const text = (await collect(process.stdout.pipeThrough(new TextDecoderStream()))).join('');
  assert.equal(text, '≤日本😀');
});

test('P075: one line of a megabyte is one line', async () => {
  const process = await workspace.start(python(`
import json
print(json.dumps({"text": "שלום世界" * 60000}, ensure_ascii=False)); print("{}"); print("[1]", end="")`));
  const lines = (await collect(process.lines())).filter((event) => event.kind === 'stdout').map((event) => event.text);
  assert.equal(JSON.parse(lines[0]).text.length, 6 * 60000);
  assert.deepEqual(lines.slice(1), ['{}', '[1]']);
});

test('a line that does not end is an error, not all of the memory', async () => {
  const process = await workspace.start("head -c 68000000 /dev/zero | tr '\\0' x; sleep 1000");
  await assert.rejects(collect(process.lines()), { code: 'SANDBOX_LIMIT', reason: 'line-too-long' });
  await process.kill('SIGKILL');
  await process.close();
});

test('P156: blank lines stay', async () => {
  const { stdout } = await workspace.run("printf 'a\\n\\n\\nb\\r\\n\\n'", { encoding: 'utf8' });
  assert.equal(stdout, 'a\n\n\nb\r\n\n');
});

test('events come while the command runs, and the exit comes last', async () => {
  const process = await workspace.start('echo one; read line; echo "two $line" >&2; exit 7', { input: 'pipe' });
  const events = [];
  for await (const event of process) {
    events.push(event);
    if (events.length === 1) {
      await process.write('go\n');
    }
  }
  assert.equal(events[0].kind, 'stdout');
  assert.ok(events[0].data instanceof Uint8Array);
  assert.deepEqual([events[0].offset, events[0].dropped], [0, 0]);
  assert.equal(Buffer.from(events[1].data).toString(), 'two go\n');
  assert.deepEqual(events.at(-1), { kind: 'exit', exitCode: 7, signal: null, timedOut: false });
  assert.deepEqual(await process.wait(), { exitCode: 7, signal: null, timedOut: false });
  assert.match(process.id, /^[0-9a-f]{32}$/);
  assert.ok(process.pid > 0);
});

test('an iteration that is broken off goes on where it was', async () => {
  const process = await workspace.start('for n in 1 2 3 4; do echo $n; sleep 0.05; done');
  let text = '';
  for await (const event of process.text()) {
    text += event.text;
    break;
  }
  for await (const event of process.text()) text += event.kind === 'exit' ? '' : event.text;
  assert.equal(text, '1\n2\n3\n4\n');
});

test('P005: a process is found again by its id, and its output from the first byte', async () => {
  const started = await workspace.start('echo early; sleep 0.2; echo late');
  await started.close();
  const found = await workspace.findProcess(started.id);
  assert.equal((await bytesOf(found.stdout)).toString(), 'early\nlate\n');
  assert.equal((await found.wait()).exitCode, 0);
  const info = (await workspace.listProcesses()).find(({ id }) => id === started.id);
  assert.deepEqual([info.running, info.exitCode, info.role, info.outputBytes], [false, 0, 'task', 11]);
});

test('P016: streams are read side by side, and end with the process', async () => {
  const process = await workspace.start(python(
    'import sys; sys.stderr.write("e" * 1000000); sys.stderr.flush(); sys.stdout.write("o" * 1000000)'));
  const [out, err, exit] = await Promise.all([bytesOf(process.stdout), bytesOf(process.stderr), process.wait()]);
  assert.deepEqual([out.length, err.length, exit.exitCode], [1_000_000, 1_000_000, 0]);
});

test('a stream that nobody reads holds the process up, and no memory', async () => {
  const process = await workspace.start(python(
    'import os\nfor n in range(64): os.write(1, b"x" * (1 << 20))'), { bufferBytes: 1 << 18 });
  const reader = process.stdout.getReader();
  let size = (await reader.read()).value.length;
  const before = global.process.memoryUsage().rss;
  const waited = process.wait({ timeout: 300 }).catch((error) => error);
  assert.ok((await waited) instanceof sandbox.TimedOutError, 'it waits for its reader');
  assert.ok(global.process.memoryUsage().rss - before < 24 << 20);
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) size += piece.value.length;
  assert.equal(size, 64 << 20);
});

test('a cancelled stream is drained: the process neither waits nor loses its pipe', async () => {
  const process = await workspace.start(python(
    'import os, sys\nfor n in range(16): os.write(1, b"x" * (1 << 20))\nos.write(2, b"all written")'));
  const reader = process.stdout.getReader();
  await reader.read();
  await reader.cancel();
  assert.equal((await bytesOf(process.stderr)).toString(), 'all written');
  assert.equal((await process.wait()).exitCode, 0);
});

test('both streams cancelled: the process goes on to its end', async () => {
  const process = await workspace.start(python('import os\nfor n in range(8): os.write(1, b"x" * (1 << 20))'));
  await Promise.all([process.stdout.cancel(), process.stderr.cancel()]);
  assert.equal((await process.wait()).exitCode, 0);
});

test('the output is taken in one way; a second one is refused', async () => {
  const process = await workspace.start('echo x');
  const streamed = bytesOf(process.stdout);
  await assert.rejects(collect(process), { name: 'TypeError', message: /in one way/ });
  assert.equal((await streamed).toString(), 'x\n');
  const other = await workspace.start('echo x; sleep 5');
  const events = other.events();
  await events.next();
  assert.throws(() => other.stdout, TypeError);
  await events.return();
  await other.kill('SIGKILL');
});

test('P004: a slow reader gets every byte', async () => {
  const expected = createHash('sha256').update(
    Array.from({ length: 100_000 }, (_, n) => `${n + 1}\n`).join('')).digest('hex');
  for (let round = 0; round < count(3, 200); round++) {
    const process = await workspace.start('seq 1 100000');
    const hash = createHash('sha256');
    for await (const piece of process.stdout) {
      hash.update(piece);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    assert.equal(hash.digest('hex'), expected);
  }
});

test('P010: every wait comes back, many at a time', async () => {
  for (let round = 0; round < count(4, 20); round++) {
    const codes = await Promise.all(Array.from({ length: 50 }, async (_, n) => {
      const process = await workspace.start(['sh', '-c', `exit ${n}`]);
      const { exitCode } = await process.wait({ timeout: 30_000 });
      await process.close();
      return exitCode;
    }));
    assert.deepEqual(codes, Array.from({ length: 50 }, (_, n) => n));
  }
});

test('input goes through a web stream too', async () => {
  const process = await workspace.start('cat', { input: 'pipe' });
  const written = new Blob(['a'.repeat(300_000)]).stream().pipeTo(process.stdin);
  assert.equal((await bytesOf(process.stdout)).length, 300_000);
  await written;
});

test('a terminal is resized, and its exit code is told (P152)', async () => {
  const process = await workspace.start('stty size; read line; stty size; exit 7',
    { terminal: true, rows: 20, columns: 60 });
  let shown = '';
  let isResized = false;
  for await (const event of process.text()) {
    if (event.kind === 'exit') assert.equal(event.exitCode, 7);
    else shown += event.text;
    if (shown.includes('20 60') && !isResized) {
      isResized = true;
      await process.resize(90, 30);
      await process.write('\n');
    }
  }
  assert.match(shown, /20 60[\s\S]*30 90/);
});

test('P027: a program that is not there leaves nothing that runs', async () => {
  for (let round = 0; round < 20; round++) {
    await assert.rejects(workspace.start(['/no/such/program']), { reason: 'no-such-program' });
  }
  assert.deepEqual((await workspace.listProcesses()).filter(({ running }) => running), []);
  await assert.rejects(workspace.run('true', { directory: '/missing' }), { reason: 'no-such-directory' });
});

test('kill sends what it is told, once and again', async () => {
  const process = await workspace.start("trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done");
  const lines = process.lines();
  assert.equal((await lines.next()).value.text, 'ready');
  await process.kill();
  let line = await lines.next();
  while (line.value.kind === 'stderr') line = await lines.next(); /* the shell tells of its sleep's end */
  assert.equal(line.value.text, 'caught');
  assert.equal((await process.wait()).exitCode, 9);
  await process.kill('SIGKILL');
  await assert.rejects(process.kill('SIGNOTHING'), TypeError);
  await lines.return();
});

test('P155: an aborted command is gone, with all that it started', async () => {
  const abort = new AbortController();
  const mark = 'sleep 7155';
  const running = workspace.run(`sh -c '${mark} | cat'`, { signal: abort.signal });
  const runs = async () => (await workspace.run(`ps ax -o args | grep -c '^${mark}' || true`, { encoding: 'utf8' })).stdout.trim();
  await until(async () => (await runs()) === '1', 'the command');
  const reason = new Error('enough');
  abort.abort(reason);
  assert.equal(await running.catch((error) => error), reason);
  await until(async () => (await runs()) === '0', 'the end of the command');
});

test('P054: an abort in the middle of a stream, and a deletion under a command, are told as such', async () => {
  const own = await client.createWorkspace();
  const process = await own.start('while :; do echo x; sleep 0.01; done');
  const abort = new AbortController();
  const events = process.events({ signal: abort.signal });
  await events.next();
  const reason = new Error('no more');
  const next = (async () => { for (;;) await events.next(); })();
  abort.abort(reason);
  assert.equal(await next.catch((error) => error), reason);
  assert.equal((await process.events().next()).value.kind, 'stdout', 'it goes on for the next reader');
  const running = own.run('sleep 60');
  await until(async () => (await own.listProcesses()).filter((each) => each.running).length === 2, 'the command');
  const [failure] = await Promise.all([running.catch((error) => error), own.delete()]);
  assert.ok(failure instanceof sandbox.SandboxError, String(failure));
  assert.ok(['SANDBOX_CLOSED', 'SANDBOX_INTERRUPTED', 'SANDBOX_UNAVAILABLE'].includes(failure.code), failure.code);
  await Promise.all([process.close(), own.close()]);
});

test('P030: a workspace that is deleted ends twenty streams with an error each', async () => {
  const own = await client.createWorkspace();
  const processes = await Promise.all(Array.from({ length: 20 }, () => own.start('while :; do echo x; sleep 0.02; done')));
  const ends = processes.map((process) => bytesOf(process.stdout).then(() => null, (error) => error));
  await until(async () => (await own.listProcesses()).every((each) => each.outputBytes > 0), 'output');
  await own.delete();
  for (const end of await Promise.all(ends)) {
    assert.ok(end === null || end instanceof sandbox.SandboxError, String(end));
  }
  await Promise.all(processes.map((process) => process.close()));
  await own.close();
});

test('a process that is closed ends its readers', async () => {
  const process = await workspace.start('sleep 60');
  const reading = bytesOf(process.stdout).catch((error) => error);
  await process.close();
  assert.ok((await reading) instanceof sandbox.ClosedError);
  const found = await workspace.findProcess(process.id);
  await found.kill('SIGKILL');
  assert.equal((await found.wait()).signal, 'SIGKILL');
});
