/* What the tests share: a platform of their own, and what they wait for. */
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { after } from 'node:test';

export const packageDirectory = process.env.SANDBOX_NODE_PACKAGE;
export const sandbox = await import(pathToFileURL(path.join(packageDirectory, 'index.mjs')).href);

/* How often what is done many times is done: all of it with --long, a part of it else. */
export function count(usual, whole) {
  return process.env.SANDBOX_TEST_COUNT ? whole : usual;
}

/* A memory: platform in a directory of its own; it ends with the tests. */
export function memoryPlatform() {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-'));
  fs.chmodSync(directory, 0o711); /* commands run as another user */
  process.on('exit', () => end(directory)); /* after every hook of the tests */
  return `memory:${directory}/socket`;
}

/* By its own directory: nobody else's has that in its command line. */
function end(directory) {
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    let line = '';
    try {
      line = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    } catch {
      continue; /* it has ended */
    }
    if (Number(pid) === process.pid || !line.includes(directory)) continue;
    process.kill(Number(pid), 'SIGTERM');
    /* Else it would write into the directory that is being removed. */
    const end = Date.now() + 10_000;
    while (isRunning(pid) && Date.now() < end) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
  }
  fs.rmSync(directory, { recursive: true, force: true });
}

function isRunning(pid) {
  try {
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/* A gVisor platform of its own, or a sentence that says why there is none. */
export async function gvisorPlatform() {
  if (process.getuid() !== 0) return { reason: 'gVisor needs root' };
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-'));
  const runsc = process.env.SANDBOX_RUNSC ? `?runsc=${process.env.SANDBOX_RUNSC}` : '';
  const uri = `gvisor:${directory}/state${runsc}`;
  const problem = (await sandbox.doctor(uri)).find((finding) => finding.severity === 'problem');
  if (problem) {
    fs.rmSync(directory, { recursive: true, force: true });
    return { reason: `gVisor cannot be used here: ${problem.text}` };
  }
  after(async () => {
    const client = await sandbox.Client.open(uri);
    for (const { name } of await client.listWorkspaces()) {
      await (await client.findWorkspace(name)).delete();
    }
    await client.close();
    end(directory); /* its egress proxy would wait ten minutes for another workspace */
  });
  return { uri };
}

/* Until it holds; only a failure waits to the end. */
export async function until(holds, what = 'it') {
  const end = Date.now() + 60_000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`${what} did not come to pass`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export async function collect(iterable) {
  const all = [];
  for await (const one of iterable) all.push(one);
  return all;
}

export async function bytesOf(stream) {
  return Buffer.concat(await collect(stream));
}

/* What was forgotten is given back by the garbage collector; nothing else may be left. */
export async function noHandlesLeft() {
  await until(() => {
    globalThis.gc();
    return sandbox.openHandles() === 0;
  }, 'the end of every handle');
}

/* Packages that only a test needs, kept from one run to the next; or why they cannot be had. */
export async function getPackages(name, packages) {
  const folder = path.join(process.env.SANDBOX_NODE_SCRATCH ?? os.tmpdir(), `sandbox-node-${name}`);
  const mark = path.join(folder, 'got');
  if (fs.existsSync(mark) && fs.readFileSync(mark, 'utf8') === packages.join(' ')) return { folder };
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, 'package.json'), '{"private": true}\n');
  const given = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund', ...packages];
  const { status, error } = spawnSync('npm', given, { stdio: 'ignore', timeout: 300_000 });
  if (status !== 0) return { reason: `${packages.join(', ')} cannot be had: ${error?.code ?? `npm ended with ${status}`}` };
  fs.writeFileSync(mark, packages.join(' '));
  return { folder };
}
