/* How calls and programs end: aborts, deadlines, exits with work in flight, worker threads. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { count, memoryPlatform, noHandlesLeft, packageDirectory, sandbox, until } from './place.mjs';

const uri = memoryPlatform();
const packageUrl = pathToFileURL(path.join(packageDirectory, 'index.mjs')).href;
let client;
let workspace;

before(async () => {
  client = await sandbox.Client.open(uri);
  workspace = await client.createWorkspace({ name: 'ends' });
});
after(async () => {
  await workspace.delete();
  await workspace.close();
  await client.close();
  await noHandlesLeft();
});

test('a signal that is aborted already ends a call before it begins', async () => {
  const reason = { any: 'thing' };
  const signal = AbortSignal.abort(reason);
  assert.equal(await workspace.run('touch never', { signal }).catch((error) => error), reason);
  await assert.rejects(workspace.statFile('never'), sandbox.NotFoundError);
  await assert.rejects(workspace.inspect({ signal: AbortSignal.abort() }), { name: 'AbortError' });
  await assert.rejects(workspace.inspect({ signal: 5 }), TypeError);
  assert.equal((await workspace.inspect({ signal: null })).name, 'ends');
});

test('an abort ends a wait within 100 ms, and a hundred of them', async () => {
  const process = await workspace.start('sleep 600');
  const abort = new AbortController();
  const waits = Array.from({ length: 100 }, () => process.wait({ signal: abort.signal }).catch((error) => error));
  const reason = new Error('enough');
  const begun = performance.now();
  abort.abort(reason);
  for (const end of await Promise.all(waits)) assert.equal(end, reason);
  assert.ok(performance.now() - begun < 1000);
  await process.kill('SIGKILL');
});

test('a deadline is the call\'s own error, AbortSignal.timeout() has its reason', async () => {
  const process = await workspace.start('sleep 600');
  const begun = performance.now();
  await assert.rejects(process.wait({ timeout: 100 }), { code: 'SANDBOX_TIMED_OUT' });
  assert.ok(performance.now() - begun >= 99);
  await assert.rejects(process.wait({ timeout: 0 }), sandbox.TimedOutError);
  await assert.rejects(process.wait({ signal: AbortSignal.timeout(20) }), { name: 'TimeoutError' });
  await process.kill('SIGKILL');
});

test('a signal that serves many calls holds on to none of them', async () => {
  const abort = new AbortController();
  const warnings = [];
  const listen = (warning) => warnings.push(warning);
  process.on('warning', listen);
  for (let round = 0; round < 10; round++) {
    await Promise.all(Array.from({ length: 20 }, () => workspace.inspect({ signal: abort.signal })));
  }
  await new Promise(setImmediate);
  process.off('warning', listen);
  assert.deepEqual(warnings, []);
});

test('calls, closes and aborts in any order', async () => {
  const process = await workspace.start('sleep 600');
  for (let round = 0; round < count(20, 200); round++) {
    const own = await sandbox.Client.open(uri);
    const handle = await own.findWorkspace('ends');
    const found = await handle.findProcess(process.id);
    const abort = new AbortController();
    const waits = [found.wait({ signal: abort.signal }), found.wait({ signal: abort.signal }),
      handle.inspect({ signal: abort.signal })].map((wait) => wait.catch((error) => error));
    const steps = [() => own.close(), () => handle.close(), () => found.close(), () => abort.abort()];
    for (let left = steps.length; left > 0; left--) {
      steps.splice((round * 7 + left) % left, 1)[0]();
    }
    assert.equal((await waits[0]).name, 'AbortError');
    await Promise.all(waits);
  }
  await process.kill('SIGKILL');
});

/* Runs a program of its own over the same platform. */
function program(text, options = {}) {
  return new Promise((resolve) => {
    const begun = performance.now();
    execFile(process.execPath, ['--input-type=module', '-e', `
      import { Client } from ${JSON.stringify(packageUrl)};
      const client = await Client.open(${JSON.stringify(uri)});
      const workspace = await client.findWorkspace('ends');
      const sleeper = await workspace.start('sleep 600', { role: 'service' });
      const kept = []; // a promise that nothing holds can give no answer, and its suspend fails
      ${text}`], { timeout: 30_000, ...options }, (error, stdout, stderr) => {
      resolve({ code: error ? error.code : 0, signal: error?.signal ?? null, stdout, stderr, ms: performance.now() - begun });
    });
  });
}

test('a program ends by itself once nothing is under way, although handles are open', async () => {
  const end = await program("await client.watch(); await workspace.forward(1); console.log('end');");
  assert.deepEqual([end.code, end.stdout, end.stderr], [0, 'end\n', '']);
});

test('process.exit() with calls, streams and watches in flight ends at once', async () => {
  for (let round = 0; round < count(3, 20); round++) {
    const end = await program(`
      for (let n = 0; n < 64; n++) sleeper.wait();
      sleeper.stdout.getReader().read();
      (async () => { for await (const event of await client.watch()) ; })();
      workspace.run('sleep 600');
      client.createWorkspace({ expiresAfterMs: 60_000 });
      const asked = await client.createWorkspace({ expiresAfterMs: 60_000 });
      asked.suspend({ checks: [() => new Promise((resolve) => kept.push(resolve))] });
      setTimeout(() => process.exit(5), ${round * 7});`);
    assert.deepEqual([end.code, end.signal, end.stderr], [5, null, '']);
    assert.ok(end.ms < 10_000, `${end.ms} ms`);
  }
});

test('an uncaught exception with calls in flight is the program\'s end, not a crash', async () => {
  const end = await program("sleeper.wait(); workspace.run('sleep 600'); setTimeout(() => { throw new Error('mine'); }, 10);");
  assert.equal(end.code, 1);
  assert.match(end.stderr, /Error: mine/);
});

test('a program that is interrupted ends by the signal', async () => {
  const abort = new AbortController();
  const running = program("console.log('ready'); await sleeper.wait();", { signal: abort.signal, killSignal: 'SIGINT' });
  await until(async () => (await workspace.listProcesses()).length > 0);
  abort.abort();
  const end = await running;
  assert.ok(end.ms < 20_000);
});

/* A worker thread that has the workspace. */
function workerOf(text) {
  const source = `
    import { parentPort } from 'node:worker_threads';
    import { Client, openHandles } from ${JSON.stringify(packageUrl)};
    const client = await Client.open(${JSON.stringify(uri)});
    const workspace = await client.findWorkspace('ends');
    ${text}`;
  return new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`));
}

test('worker threads use the package side by side, each with its own handles', async () => {
  const answers = await Promise.all(Array.from({ length: 4 }, (_, n) => new Promise((resolve, reject) => {
    const thread = workerOf(`parentPort.postMessage(
      [(await workspace.run('echo ${n}', { encoding: 'utf8' })).stdout, openHandles()]);`);
    thread.on('message', resolve);
    thread.on('error', reject);
  })));
  assert.deepEqual(answers, [0, 1, 2, 3].map((n) => [`${n}\n`, 2]));
});

test('a worker thread is terminated in the middle of calls', async () => {
  for (let round = 0; round < count(5, 50); round++) {
    const thread = workerOf(`
      const sleeper = await workspace.start('sleep 600', { role: 'service' });
      const kept = [];
      for (let n = 0; n < 16; n++) sleeper.wait();
      sleeper.stdout.getReader().read();
      client.watch().then((watch) => watch.next());
      const asked = await client.createWorkspace({ expiresAfterMs: 60_000 });
      asked.suspend({ checks: [() => new Promise((resolve) => kept.push(resolve))] });
      parentPort.postMessage('busy');
      setInterval(() => workspace.inspect().catch(() => {}), 1);`);
    await new Promise((resolve, reject) => {
      thread.on('message', resolve);
      thread.on('error', reject);
    });
    await thread.terminate();
  }
  assert.equal((await workspace.inspect()).name, 'ends', 'this thread has noticed nothing');
});
