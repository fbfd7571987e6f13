/*
 * The real opencode as a server in a workspace: its web page answers through `sandbox port-forward`
 * and through a session's endpoint. Runs where SANDBOX_TEST_OPENCODE names the program
 * (tools/opencode gets it); it is some 180 MB, and slow in gVisor.
 */

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Client, eventually, freePorts, openPlace, suite, toHarnessSession, whyNot }
  from './place.mjs';

const program = process.env.SANDBOX_TEST_OPENCODE;
const cli = process.env.SANDBOX_CLI;
const why = program ? whyNot.gvisor
  : 'SANDBOX_TEST_OPENCODE names no program: tools/opencode gets it';
const [PORT] = await freePorts(1);

suite('gvisor', why, () => {
  let place, client, workspace;
  const sandbox = (...words) => promisify(execFile)(cli, ['-u', place.uri, ...words]);
  before(async () => {
    place = await openPlace('gvisor');
    client = await Client.open(place.uri);
    await sandbox('create', 'coder');
    workspace = await client.findWorkspace('coder');
    await workspace.upload(program, 'bin/opencode', { timeout: Infinity });
    const server = await workspace.start(
      'mkdir -p project && cd project && export OPENCODE_DISABLE_MODELS_FETCH=1 ' +
      'OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1 && ' +
      `exec ../bin/opencode serve --hostname 127.0.0.1 --port ${PORT} 2>&1`,
      { role: 'service' });
    let said = '';
    for await (const event of server.text()) {
      said += event.text ?? '';
      if (said.includes('listening on'))
        break;
      assert.notEqual(event.kind, 'exit', said);
    }
  });
  after(async () => {
    await workspace?.delete();
    await client?.close();
    await place.close();
  });

  /* The page, and the program that it loads; not a fallback that answers everything. */
  async function requirePage(address, headers) {
    const page = await fetch(new URL('/', address), { headers });
    assert.equal(page.status, 200);
    assert.match(page.headers.get('content-type'), /^text\/html/);
    const [, script] = /<script[^>]+src="(\/assets\/[^"]+\.js)"/.exec(await page.text());
    const asset = await fetch(new URL(script, address), { headers });
    assert.match(asset.headers.get('content-type'), /javascript/);
    assert.ok((await asset.text()).length > 100_000);
    const health = await (await fetch(new URL('/global/health', address), { headers })).json();
    assert.equal(health.healthy, true);
  }

  test('its web page answers through sandbox port-forward', async () => {
    const forward = spawn(cli, ['-u', place.uri, 'port-forward', 'coder', `0:${PORT}`],
      { stdio: ['ignore', 'pipe', 'pipe'] });
    try {
      let said = '';
      for (const stream of [forward.stdout, forward.stderr])
        stream.on('data', data => { said += data; });
      const [, port] = await eventually(() => /127\.0\.0\.1:(\d+)/.exec(said), 'it listens');
      await requirePage(`http://127.0.0.1:${port}/`);
    } finally {
      forward.kill('SIGTERM');
      await once(forward, 'exit');
    }
  });

  test('its web page and its event stream answer through a session\'s endpoint', async () => {
    const session = await toHarnessSession(workspace, { ports: [PORT] });
    const { url, headers } = await session.getPortEndpoint({ port: PORT, protocol: 'http' });
    await requirePage(url, headers);
    const controller = new AbortController();
    const events = await fetch(new URL('/global/event', url),
      { headers, signal: controller.signal });
    const { value } = await events.body.getReader().read();
    assert.match(Buffer.from(value).toString(), /server\.connected/);
    controller.abort();
  });
});
