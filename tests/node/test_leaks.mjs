/* Nothing is left behind, and nothing in the way: memory, handles, threads, libuv's own. */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import fsp from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { count, memoryPlatform, noHandlesLeft, sandbox, until } from './place.mjs';

const uri = memoryPlatform();
let client;
let workspace;

before(async () => {
  client = await sandbox.Client.open(uri);
  workspace = await client.createWorkspace({ name: 'leaks' });
  await workspace.writeFile('small', 'x');
  await workspace.writeFile('large', Buffer.alloc(1 << 20));
});
after(async () => {
  await workspace.delete();
  await workspace.close();
  await client.close();
  await noHandlesLeft();
});

async function memory() {
  for (let round = 0; round < 3; round++) {
    globalThis.gc();
    await new Promise(setImmediate);
  }
  return process.memoryUsage().rss;
}

/* Does it `times` times after a third as a start, and sees that memory stays within `mib` MiB. */
async function staysFlat(times, mib, act) {
  for (let n = 0; n < times / 3; n++) await act(n);
  const before = await memory();
  for (let n = 0; n < times; n++) await act(n);
  const grown = (await memory()) - before;
  assert.ok(grown < mib << 20, `${(grown / 1048576).toFixed(1)} MiB more after ${times}`);
}

test('10,000 calls leave nothing, those that fail neither', async () => {
  await staysFlat(count(2000, 10_000), 12, async (n) => {
    if (n % 4 === 0) await workspace.readFile('nothing').catch(() => {});
    else if (n % 4 === 1) await workspace.statFile('small');
    else if (n % 4 === 2) await workspace.readFile('small', { limit: -1 }).catch(() => {});
    else await workspace.listDirectory('.');
  });
});

test('content of a megabyte is given back', async () => {
  await staysFlat(count(100, 1000), 24, async () => {
    assert.equal((await workspace.readFile('large')).length, 1 << 20);
    await workspace.writeFile('copy', Buffer.alloc(1 << 20));
    for await (const piece of workspace.readable('large')) void piece;
  });
});

test('1,000 clients and handles, closed or forgotten, leave none', async () => {
  const handles = sandbox.openHandles();
  const areGone = () => until(() => {
    globalThis.gc();
    return sandbox.openHandles() <= handles + 2; /* the last ones may still be seen from here */
  }, 'the end of the forgotten');
  await staysFlat(count(150, 1000), 24, async (n) => {
    const own = await sandbox.Client.open(uri);
    const handle = await own.findWorkspace('leaks');
    await handle.readFile('nothing').catch(() => {});
    if (n % 4 > 0) await Promise.all([own.close(), handle.close()]);
    if (n % 20 === 19) await areGone();
  });
  await areGone();
});

test('1,000 processes and their streams leave nothing', async () => {
  await staysFlat(count(60, 1000), 16, async (n) => {
    const started = await workspace.start('echo x; echo y >&2');
    if (n % 3 === 0) await started.stdout.cancel();
    for await (const piece of n % 3 === 1 ? started : started.stderr) void piece;
    await started.wait();
    await started.close();
  });
});

test('200 cancelled waits leave nothing', async () => {
  const sleeper = await workspace.start('sleep 600');
  await staysFlat(count(10, 20), 8, async () => {
    const abort = new AbortController();
    const waits = Array.from({ length: 20 }, (_, n) =>
      (n % 2 ? sleeper.wait({ signal: abort.signal }) : workspace.run('sleep 600', { signal: abort.signal }))
        .catch((error) => error));
    abort.abort();
    for (const end of await Promise.all(waits)) assert.equal(end.name, 'AbortError');
  });
  await sleeper.kill('SIGKILL');
});

/* Those of the pool, and a few of the library's own that were started by one of them. */
function threads() {
  return fs.readdirSync('/proc/self/task').map((task) => {
    try {
      return fs.readFileSync(`/proc/self/task/${task}/comm`, 'utf8').trim();
    } catch {
      return '';
    }
  }).filter((name) => name === 'sandbox-call').length;
}

/* Milliseconds that so many reads and name look-ups of the program's own take: the quickest of five. */
async function ownWork(file) {
  let best = Infinity;
  for (let round = 0; round < 5; round++) {
    const begun = performance.now();
    for (let n = 0; n < 50; n++) await fsp.readFile(file);
    best = Math.min(best, performance.now() - begun);
  }
  return best;
}

test('a file of the program is read beside 64 waiting calls as fast as alone', async () => {
  const file = path.join(os.tmpdir(), `sandbox-node-own-${process.pid}`);
  fs.writeFileSync(file, Buffer.alloc(100_000));
  const sleeper = await workspace.start('sleep 600');
  const alone = await ownWork(file);
  const abort = new AbortController();
  const waits = Array.from({ length: 64 }, () => sleeper.wait({ signal: abort.signal }).catch(() => {}));
  await until(() => threads() >= 64, 'the threads');
  const beside = await ownWork(file);
  const begun = performance.now();
  assert.equal((await workspace.statFile('small')).fileSize, 1, 'and so are calls');
  const call = performance.now() - begun;
  abort.abort();
  await Promise.all(waits);
  await sleeper.kill('SIGKILL');
  fs.rmSync(file);
  console.log(`50 reads: ${alone.toFixed(2)} ms alone, ${beside.toFixed(2)} ms beside 64 waiting calls; a call ${call.toFixed(2)} ms`);
  assert.ok(beside < 3 * alone + 5, `${beside} ms beside, ${alone} ms alone`);
});

test('a timer of the program is not held up by calls', async () => {
  let most = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    most = Math.max(most, performance.now() - last);
    last = performance.now();
  }, 1);
  await Promise.all(Array.from({ length: 16 }, () => workspace.run('sleep 0.2')));
  clearInterval(timer);
  assert.ok(most < 150, `${most} ms`);
});

test('threads that nobody needs go', async () => {
  await until(() => threads() < 16, 'the end of the threads');
});
