/*
 * A session as a harness uses it: commands, files, streams, by the words of the interface that
 * `@ai-sdk/harness` publishes. Over every platform that can be used here.
 */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createHarnessProvider, eventually, openPlace, platforms, suite, textOf, whyNot }
  from './place.mjs';

const NAMES = ['description', 'readFile', 'readBinaryFile', 'readTextFile', 'writeFile',
  'writeBinaryFile', 'writeTextFile', 'spawn', 'run'];
const MORE_NAMES = ['id', 'defaultWorkingDirectory', 'ports', 'getPortEndpoint', 'getPortUrl',
  'stop', 'destroy', 'restricted'];

for (const platform of platforms) {
  suite(platform, whyNot[platform], () => {
    let place, provider, session, view;
    before(async () => {
      place = await openPlace(platform);
      provider = createHarnessProvider({ uri: place.uri, ports: [4310] });
      session = await provider.createSession({ sessionId: 'one' });
      view = session.restricted();
    });
    after(async () => {
      await session?.destroy();
      assert.deepEqual(await place.close(), [], 'nothing is left behind');
    });

    test('has the 17 members, and of the optional ones only what it can do', () => {
      for (const name of [...NAMES, ...MORE_NAMES])
        assert.ok(name in session, name);
      for (const name of ['setNetworkPolicy', 'setRequestTransformations',
        'addRequestTransformations'])
        assert.equal(name in session, platform === 'gvisor', name);
      assert.ok(!('then' in session));
      assert.equal(typeof session.setPorts, 'function');
      assert.deepEqual(Object.keys(view).sort(), [...NAMES].sort());
    });

    test('functions work without their object, as a tool may take them', async () => {
      const { run } = view;
      assert.equal((await run({ command: 'echo free' })).stdout, 'free\n');
    });

    test('run gives both streams and the code, and bash understands the command', async () => {
      const command = '[[ abc == a* ]] && echo out; echo err >&2; exit 9';
      assert.deepEqual(await view.run({ command }),
        { exitCode: 9, stdout: 'out\n', stderr: 'err\n' });
    });

    test('a command that a signal ends has its shell\'s code', async () => {
      assert.equal((await view.run({ command: 'kill -TERM $$' })).exitCode, 143);
    });

    test('commands run where the session says, and elsewhere if asked', async () => {
      const here = await view.run({ command: 'pwd' });
      assert.equal(here.stdout, `${session.defaultWorkingDirectory}\n`);
      await view.writeTextFile({ path: 'below/file', content: '' });
      const below = await view.run({ command: 'pwd', workingDirectory: 'below' });
      assert.equal(below.stdout, `${session.defaultWorkingDirectory}/below\n`);
    });

    test('the environment of a command needs no quoting and keeps the rest', async () => {
      const value = 'a "b" $(c) \'d\'\né';
      const { stdout } = await view.run(
        { command: 'printf "%s|%s" "$VALUE" "${HOME:0:1}"', env: { VALUE: value } });
      assert.equal(stdout, `${value}|/`);
    });

    test('a command that reads finds the end at once', async () => {
      assert.equal((await view.run({ command: 'cat; echo end' })).stdout, 'end\n');
    });

    test('characters of several bytes are whole in a long output', async () => {
      const { stdout } = await view.run({ command: 'yes "äöü€😀" | head -n 60000' });
      assert.equal(stdout, 'äöü€😀\n'.repeat(60000));
    });

    test('output past the limit is an error that has what was kept', async () => {
      const narrow = createHarnessProvider({ uri: place.uri, outputLimit: 1000 });
      const other = await narrow.createSession();
      try {
        await assert.rejects(other.run({ command: 'head -c 5000 /dev/zero; exit 3' }),
          { code: 'SANDBOX_LIMIT', exitCode: 3, stdout: '\0'.repeat(1000) });
      } finally {
        await other.destroy();
      }
    });

    test('an abort ends the command with all it started, and says the reason', async () => {
      const controller = new AbortController();
      const running = view.run({
        command: 'sleep 54321 & echo $! >started; wait', abortSignal: controller.signal,
      });
      running.catch(() => {});
      const pid = await eventually(async () =>
        (await view.readTextFile({ path: 'started' }))?.trim(), 'the command runs');
      controller.abort(new Error('enough'));
      await assert.rejects(running, /enough/);
      await eventually(async () =>
        (await view.run({ command: `! kill -0 ${pid}` })).exitCode === 0, 'its child has ended');
    });

    test('what was aborted before is not begun', async () => {
      const abortSignal = AbortSignal.abort(new Error('before'));
      await assert.rejects(view.run({ command: 'touch begun', abortSignal }), /before/);
      await assert.rejects(view.spawn({ command: 'touch begun', abortSignal }), /before/);
      await assert.rejects(view.readFile({ path: 'x', abortSignal }), /before/);
      await assert.rejects(
        view.writeTextFile({ path: 'begun', content: '', abortSignal }), /before/);
      assert.equal(await view.readTextFile({ path: 'begun' }), null);
    });

    test('twenty commands at once have each their own output', async () => {
      const numbers = Array.from({ length: 20 }, (_, number) => number);
      const all = await Promise.all(numbers.map(number => view.run({ command: `echo ${number}` })));
      assert.deepEqual(all.map(({ stdout }) => stdout), numbers.map(number => `${number}\n`));
    });

    test('what is not there is null: no file, no directory, a file in its way', async () => {
      await view.writeTextFile({ path: 'plain', content: 'x' });
      for (const path of ['missing', 'no/such/directory', 'plain/below']) {
        for (const name of ['readFile', 'readBinaryFile', 'readTextFile'])
          assert.equal(await view[name]({ path }), null, `${name} ${path}`);
      }
    });

    test('a directory is no missing file', async () => {
      await assert.rejects(view.readTextFile({ path: '.' }), { name: /Error/ });
    });

    test('an empty file is there: the mark of a bootstrap is one', async () => {
      await view.writeTextFile({ path: 'mark', content: '' });
      assert.equal(await view.readTextFile({ path: 'mark' }), '');
      assert.equal((await view.readBinaryFile({ path: 'mark' })).length, 0);
      assert.equal(await textOf(await view.readFile({ path: 'mark' })), '');
    });

    test('writers make directories and replace what is longer', async () => {
      await view.writeTextFile({ path: 'a/b/c', content: 'a long text' });
      await view.writeTextFile({ path: 'a/b/c', content: 'short' });
      const path = `${session.defaultWorkingDirectory}/a/b/c`;
      assert.equal(await view.readTextFile({ path }), 'short');
    });

    test('a relative path may go through a link that leads elsewhere', async () => {
      // Not below the home, which is not the workspace's own over memory:.
      const made = await view.run({ command: 'mktemp -d' });
      const elsewhere = made.stdout.trim();
      try {
        await view.run({ command: `ln -sfn ${elsewhere} link` });
        await view.writeTextFile({ path: 'link/file', content: 'there' });
        assert.equal(await view.readTextFile({ path: `${elsewhere}/file` }), 'there');
      } finally {
        await view.run({ command: `rm -r ${elsewhere}` });
      }
    });

    test('bytes come back as they were, also of a view into a larger buffer', async () => {
      const all = Uint8Array.from({ length: 100_000 }, (_, index) => index * 7);
      await view.writeBinaryFile({ path: 'bytes', content: all.subarray(5, 99_000) });
      const back = await view.readBinaryFile({ path: 'bytes' });
      assert.equal(back.constructor, Uint8Array);
      assert.ok(Buffer.from(back).equals(Buffer.from(all.subarray(5, 99_000))));
    });

    test('streams go both ways', async () => {
      const parts = ['first ', 'second ', 'third'];
      const content = new ReadableStream({
        pull(controller) {
          if (parts.length === 0)
            controller.close();
          else
            controller.enqueue(new TextEncoder().encode(parts.shift()));
        },
      });
      await view.writeFile({ path: 'streamed', content });
      assert.equal(await textOf(await view.readFile({ path: 'streamed' })), 'first second third');
    });

    test('a stream that fails leaves the old file', async () => {
      await view.writeTextFile({ path: 'old', content: 'old' });
      const content = new ReadableStream({
        start(controller) { controller.enqueue(new Uint8Array(9)); },
        pull() { throw new Error('torn'); },
      });
      await assert.rejects(view.writeFile({ path: 'old', content }), /torn/);
      assert.equal(await view.readTextFile({ path: 'old' }), 'old');
    });

    test('lines are counted from 1, both ends belong to the range', async () => {
      for (const [content, range, expected] of [
        ['a\nb\nc\n', { startLine: 2, endLine: 3 }, 'b\nc'],
        ['a\nb\nc\n', { startLine: 3, endLine: 99 }, 'c\n'],
        ['a\r\nb\r\nc', { startLine: 2 }, 'b\r\nc'],
        ['a\rb\rc', { endLine: 2 }, 'a\rb'],
        ['a\n', {}, 'a\n'],
      ]) {
        await view.writeTextFile({ path: 'lines', content });
        assert.equal(await view.readTextFile({ path: 'lines', ...range }), expected);
      }
    });

    test('other encodings both ways, and an unknown one is refused', async () => {
      await view.writeTextFile({ path: 'latin', content: 'é', encoding: 'latin1' });
      assert.deepEqual([...await view.readBinaryFile({ path: 'latin' })], [0xe9]);
      assert.equal(await view.readTextFile({ path: 'latin', encoding: 'latin1' }), 'é');
      await assert.rejects(
        view.writeTextFile({ path: 'latin', content: 'x', encoding: 'klingon' }), RangeError);
      assert.deepEqual([...await view.readBinaryFile({ path: 'latin' })], [0xe9]);
    });

    test('spawn: the first line comes while the command runs', async () => {
      const process = await view.spawn(
        { command: 'echo first; until [ -e go ]; do sleep 0.05; done; echo more; exit 4' });
      const reader = process.stdout.getReader();
      const first = await reader.read();
      assert.equal(new TextDecoder().decode(first.value), 'first\n');
      reader.releaseLock();
      await view.writeTextFile({ path: 'go', content: '' });
      const [rest, errors, end] = await Promise.all(
        [textOf(process.stdout), textOf(process.stderr), process.wait()]);
      assert.deepEqual([rest, errors, end], ['more\n', '', { exitCode: 4 }]);
    });

    test('spawn: a reader that comes late gets every byte', async () => {
      // More than is kept on both sides: the command waits, and nothing is dropped.
      const process = await view.spawn({ command: 'head -c 50000000 /dev/zero; echo end >&2' });
      const late = textOf(process.stderr);
      await eventually(async () => (await session.workspace.listProcesses())
        .some(({ pid, outputBytes }) => pid === process.pid && outputBytes > 10_000_000),
      'it writes');
      let size = 0;
      for await (const part of process.stdout)
        size += part.length;
      assert.equal(size, 50_000_000);
      assert.equal(await late, 'end\n');
      assert.deepEqual(await process.wait(), { exitCode: 0 });
    });

    test('spawn: who takes no more output does not end the command', async () => {
      // A bridge is found ready by its file, and its output is of no interest any more.
      const process = await view.spawn(
        { command: 'head -c 40000000 /dev/zero && echo well >after' });
      await process.stdout.cancel();
      assert.equal((await process.wait()).exitCode, 0);
      assert.equal(await view.readTextFile({ path: 'after' }), 'well\n');
    });

    test('spawn: kill may be repeated and ends descendants', async () => {
      const process = await view.spawn({ command: 'setsid sleep 54322 & echo $!; wait' });
      const reader = process.stdout.getReader();
      const pid = new TextDecoder().decode((await reader.read()).value).trim();
      await process.kill();
      await process.kill();
      assert.equal((await process.wait()).exitCode, 137);
      await process.kill();
      await eventually(async () =>
        (await view.run({ command: `! kill -0 ${pid}` })).exitCode === 0, 'the descendant ended');
    });

    test('spawn: an abort ends it, and wait says the reason', async () => {
      const controller = new AbortController();
      const process = await view.spawn(
        { command: 'sleep 54323', abortSignal: controller.signal });
      const waiting = process.wait();
      controller.abort(new Error('no more'));
      await assert.rejects(waiting, /no more/);
      await assert.rejects(process.wait(), /no more/);
    });

    test('spawn: what runs is no work that keeps the workspace awake', async () => {
      const process = await view.spawn({ command: 'sleep 54324' });
      assert.equal((await session.workspace.activity()).tasks, 0);
      await process.kill();
    });

    test('what sessions started is found and ended again', async () => {
      // As after a crash of the program: nobody has a handle on it any more.
      const process = await view.spawn({ command: 'sleep 54325' });
      const other = await session.workspace.start('sleep 54326');
      assert.ok(await session.killAllProcesses() >= 1);
      assert.equal((await process.wait()).exitCode, 137);
      const running = (await session.workspace.listProcesses()).filter(each => each.running);
      assert.deepEqual(running.map(({ id }) => id), [other.id], 'what others started goes on');
      await other.kill('SIGKILL');
    });
  });
}
