/*
 * What the binding adds to the library: getters, promises, loading. Not a test: figures depend on
 * the machine and on what else it does.
 *
 *     SANDBOX_NODE_PACKAGE=build/bindings/node node tests/node/bench.mjs
 */
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const packageUrl = pathToFileURL(path.join(process.env.SANDBOX_NODE_PACKAGE, 'index.mjs')).href;
const place = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-bench-'));
fs.chmodSync(place, 0o711);
const median = (numbers) => numbers.sort((one, other) => one - other)[numbers.length >> 1];
const show = (what, figure, unit) => console.log(`${what.padEnd(60)} ${figure.toFixed(figure < 10 ? 3 : 1)} ${unit}`);

function started(program) {
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
  return Number(stdout);
}

function loading() {
  const take = (before, what) => median(Array.from({ length: 9 }, () => started(`${before}
    const begun = performance.now(), rss = process.memoryUsage.rss();
    await import(${JSON.stringify(packageUrl)});
    console.log(${what});`)));
  show('import', take('', 'performance.now() - begun'), 'ms');
  show('import: memory', take('', '(process.memoryUsage.rss() - rss) / 1048576'), 'MiB');
}

async function each(times, act) {
  for (let n = 0; n < times / 5; n++) await act();
  const rounds = [];
  for (let round = 0; round < 7; round++) {
    const begun = process.hrtime.bigint();
    for (let n = 0; n < times; n++) await act();
    rounds.push(Number(process.hrtime.bigint() - begun) / times / 1000);
  }
  return median(rounds);
}

function getters(workspace, client) {
  const times = 3_000_000;
  let sum = 0;
  const take = (read) => median(Array.from({ length: 7 }, () => {
    const begun = process.hrtime.bigint();
    for (let n = 0; n < times; n++) sum += read();
    return Number(process.hrtime.bigint() - begun) / times / 1000;
  }));
  show('getter: workspace.name', take(() => workspace.name.length), 'µs');
  show("client.can('keep-memory')", take(() => Number(client.can('keep-memory'))), 'µs');
  return sum;
}

loading();
const { Client } = await import(packageUrl);
const client = await Client.open(`memory:${place}/socket`);
const workspace = await client.createWorkspace();
getters(workspace, client);
await workspace.writeFile('file', 'x');
const reader = await workspace.openReader('file');
while (await reader.next()) { /* to its end: from there on the library has nothing to do */ }
show('promise call, of which the library has nothing to do', await each(3000, () => reader.next()), 'µs');
const { signal } = new AbortController();
show('the same with a signal', await each(3000, () => reader.next({ signal })), 'µs');
show('32 of them at once, each', await each(200, () => Promise.all(Array.from({ length: 32 }, () => reader.next()))) / 32, 'µs');
show('statFile', await each(1000, () => workspace.statFile('file')), 'µs');
show('run true', await each(100, () => workspace.run(['true'])), 'µs');
await workspace.delete();
await client.close();
const platform = fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid).find((name) => {
  try {
    return fs.readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(place);
  } catch {
    return false;
  }
});
if (platform) process.kill(Number(platform));
fs.rmSync(place, { recursive: true, force: true });
