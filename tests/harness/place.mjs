/*
 * Places where the tests' workspaces live: one of each platform that can be used here, in a folder
 * of its own that is gone afterwards with all that ran there.
 */

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
export const packageFolder = process.env.SANDBOX_NODE_PACKAGE ??
  fileURLToPath(new URL('../../bindings/node', import.meta.url));
export const { Client, doctor } = require(path.join(packageFolder, 'index.js'));
export const { createHarnessProvider, toHarnessSession } =
  require(path.join(packageFolder, 'harness.cjs'));

/** What a test waits at most for one thing; only a failure ever waits that long. */
export const WAIT_MS = 90_000;

/** The names of the platforms that can be used here. */
export const platforms = ['memory', ...gvisorCanBeUsed() ? ['gvisor'] : []];

function gvisorCanBeUsed() {
  if (process.getuid() !== 0)
    return false;
  try {
    execFileSync(process.env.SANDBOX_RUNSC ?? 'runsc', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Makes one: `{uri, close()}`. */
export function openPlace(platform) {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandbox-harness-'));
  chmodSync(folder, 0o711); // the memory platform's commands run as another user
  const runsc = process.env.SANDBOX_RUNSC;
  const uri = platform === 'memory' ? `memory:${folder}/socket`
    : `gvisor:${folder}/state${runsc === undefined ? '' : `?runsc=${runsc}`}`;
  return { uri, folder, close: () => closePlace(uri, folder) };
}

async function closePlace(uri, folder) {
  const client = await Client.open(uri);
  const left = await client.listWorkspaces();
  await Promise.all(left.map(async ({ name }) =>
    (await client.findWorkspace(name)).delete()));
  await client.close();
  for (const pid of processesNaming(folder)) {
    try {
      process.kill(pid, 'SIGTERM');
    } catch {
      // it has ended meanwhile
    }
  }
  rmSync(folder, { recursive: true, force: true });
  return left.map(({ name }) => name);
}

/* The memory platform of a place is known by its socket's path, which is in its command line. */
function processesNaming(text) {
  return readdirSync('/proc').filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter(name => commandLine(name).includes(text)).map(Number);
}

function commandLine(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** Ports that nothing listens on: the workspaces of memory: share those of this machine. */
export async function freePorts(count) {
  const servers = Array.from({ length: count }, () => net.createServer().listen(0));
  await Promise.all(servers.map(server => once(server, 'listening')));
  const ports = servers.map(server => server.address().port);
  await Promise.all(servers.map(server => once(server.close(), 'close')));
  return ports;
}

/** Until `ask` gives something, which it returns. */
export async function eventually(ask, what) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const found = await ask();
    if (found)
      return found;
    if (Date.now() > end)
      throw new Error(`not within ${WAIT_MS / 1000} s: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

/** All that a stream holds, as text. */
export async function textOf(stream) {
  let text = '';
  for await (const part of stream.pipeThrough(new TextDecoderStream()))
    text += part;
  return text;
}

/** The folder with the npm packages of tests/harness/packages, or undefined and a reason. */
export const packages = process.env.SANDBOX_TEST_HARNESS_PACKAGES;
export const whyNoPackages = packages !== undefined && existsSync(packages) ? false
  : 'SANDBOX_TEST_HARNESS_PACKAGES names no folder: tests/harness/get-packages makes one';

/** A package out of that folder. */
export async function fromPackages(name) {
  const resolve = createRequire(path.join(packages, 'package.json')).resolve;
  return import(resolve(name));
}
