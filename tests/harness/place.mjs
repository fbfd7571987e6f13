/*
 * Places where the tests' workspaces live: one of each platform that can be used here, in a folder
 * of its own that is gone afterwards with all that ran there.
 */

import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync }
  from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
export const packageFolder = process.env.SANDBOX_NODE_PACKAGE ??
  fileURLToPath(new URL('../../bindings/node', import.meta.url));
export const { Client, doctor } = require(path.join(packageFolder, 'index.js'));
export const { createHarnessProvider, toHarnessSession } =
  require(path.join(packageFolder, 'harness.cjs'));

const folders = [];
const sharedBase = process.env.SANDBOX_TEST_BASE ?? '';

/** What a test waits at most for one thing; only a failure ever waits that long. */
export const WAIT_MS = 90_000;

/** The platforms, and why one cannot be used here, or false: for a test's `skip`. */
export const platforms = ['memory', 'gvisor'];
export const whyNot = { memory: false, gvisor: await whyNoGvisor() };

async function whyNoGvisor() {
  if (process.getuid() !== 0)
    return 'gVisor needs root';
  const problem = (await doctor(uriIn('gvisor', path.join(tmpdir(), 'sandbox-harness-look'))))
    .find(({ severity }) => severity === 'problem');
  return problem === undefined ? false : `gVisor cannot be used here: ${problem.text}`;
}

function uriIn(platform, folder) {
  const runsc = process.env.SANDBOX_RUNSC;
  return platform === 'memory' ? `memory:${folder}/socket`
    : `gvisor:${folder}/state${runsc === undefined ? '' : `?runsc=${runsc}`}`;
}

/** Tests that belong together, or, where `why` says why they cannot be run, one that is skipped. */
export function suite(name, why, body) {
  if (why)
    test(name, { skip: why });
  else
    describe(name, body);
}

/** Makes one: `{uri, folder, close()}`. */
export async function openPlace(platform) {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandbox-harness-'));
  chmodSync(folder, 0o711); // the memory platform's commands run as another user
  folders.push(folder);
  const uri = uriIn(platform, folder);
  if (platform === 'gvisor') {
    await (await Client.open(uri)).close(); // makes its folder
    handOn(path.join(sharedBase, 'base'), path.join(folder, 'state', 'base'));
  }
  return { uri, folder, close: () => closePlace(uri, folder) };
}

/*
 * gVisor's base takes seconds to make and to remove, and is the same for all: tests that run one
 * after the other hand it on. Whoever finds none makes one.
 */
function handOn(from, to) {
  try {
    if (sharedBase !== '')
      renameSync(from, to);
  } catch {
    // another has it, or has put one there
  }
}

async function closePlace(uri, folder) {
  const client = await Client.open(uri);
  const left = await client.listWorkspaces();
  await Promise.all(left.map(async ({ name }) =>
    (await client.findWorkspace(name)).delete()));
  await client.close();
  handOn(path.join(folder, 'state', 'base'), path.join(sharedBase, 'base'));
  return left.map(({ name }) => name);
}

/*
 * Not before: a call that is under way, and notices late that its workspace is gone, would start
 * the platform of memory: anew.
 */
process.on('exit', () => {
  for (const folder of folders) {
    for (const pid of processesNaming(folder)) {
      try {
        process.kill(pid, 'SIGTERM');
      } catch {
        // it has ended meanwhile
      }
    }
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
});

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
