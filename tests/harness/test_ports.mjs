/*
 * The addresses that a session gives for its ports: HTTP and upgrades, with the token in a header
 * or in the URL, and nobody gets through without it.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { createHarnessProvider, freePorts, openPlace, platforms, suite, textOf, whyNot }
  from './place.mjs';

const [PORT, QUIET_PORT, OTHER_PORT] = await freePorts(3);
const SERVER = readFileSync(new URL('server.py', import.meta.url), 'utf8');

async function startServer(session, port) {
  await session.writeTextFile({ path: 'server.py', content: SERVER });
  const process = await session.spawn({ command: `exec python3 server.py ${port}` });
  const reader = process.stdout.getReader();
  const { value } = await reader.read();
  assert.equal(new TextDecoder().decode(value), 'ready\n', await Promise.race([
    textOf(process.stderr), new Promise(resolve => setTimeout(resolve, 100, ''))]));
  reader.releaseLock();
  return process;
}

/* An upgrade as a WebSocket client asks for it: resolves to the socket, or to the refusal. */
async function upgraded(url, headers = {}) {
  const request = http.request(String(url).replace(/^ws:/, 'http:'),
    { headers: { ...headers, connection: 'Upgrade', upgrade: 'echo' } });
  request.end('');
  return new Promise((resolve, reject) => {
    request.on('upgrade', (response, socket, head) => resolve({ socket, head }));
    request.on('response', response => resolve({ status: response.statusCode, response }));
    request.on('error', reject);
  });
}

async function lineOf({ socket, head }) {
  let text = head.toString();
  while (!text.includes('\n'))
    text += (await once(socket, 'data'))[0];
  return JSON.parse(text);
}

for (const platform of platforms) {
  suite(platform, whyNot[platform], () => {
    let place, session, process;
    before(async () => {
      place = await openPlace(platform);
      const provider = createHarnessProvider({ uri: place.uri, ports: [PORT, QUIET_PORT] });
      session = await provider.createSession();
      process = await startServer(session, PORT);
    });
    after(async () => {
      await session?.destroy();
      await place.close();
    });

    const endpoint = (protocol = 'http', port = PORT) =>
      session.getPortEndpoint({ port, protocol });

    test('a port that is not the session\'s is told as a capability', async () => {
      for (const name of ['getPortEndpoint', 'getPortUrl']) {
        await assert.rejects(session[name]({ port: 22 }), error =>
          error.name === 'AI_HarnessCapabilityUnsupportedError' &&
          error[Symbol.for('vercel.ai.error.AI_HarnessCapabilityUnsupportedError')] === true &&
          error.message.includes(`${PORT}, ${QUIET_PORT}`));
      }
    });

    test('the URL alone is enough, and its other parameters stay as they are', async () => {
      const url = new URL(await session.getPortUrl({ port: PORT, protocol: 'http' }));
      assert.equal(url.hostname, '127.0.0.1');
      url.pathname = '/some/path';
      url.searchParams.set('agent_bridge_token', 't/0+k');
      const seen = await (await fetch(`${url}&raw=%7e+x`)).json();
      assert.equal(seen.path, '/some/path?agent_bridge_token=t%2F0%2Bk&raw=%7e+x');
      assert.ok(!JSON.stringify(seen).includes('libsandbox'), 'the workspace sees no token');
    });

    test('the header is enough for any path, and is not passed on', async () => {
      const { url, headers } = await endpoint();
      const seen = await (await fetch(new URL('/x?y=1', url), { headers })).json();
      assert.equal(seen.path, '/x?y=1');
      assert.ok(!JSON.stringify(seen).includes('libsandbox'));
    });

    test('bodies arrive, of a known length and in pieces', async () => {
      const { url } = await endpoint();
      const body = new ReadableStream({
        start(controller) {
          for (const part of ['in ', 'pieces'])
            controller.enqueue(new TextEncoder().encode(part));
          controller.close();
        },
      });
      const long = 'x'.repeat(300_000);
      assert.equal((await (await fetch(url, { method: 'POST', body: long })).json()).body, long);
      const seen = await (await fetch(url, { method: 'POST', body, duplex: 'half' })).json();
      assert.deepEqual([seen.method, seen.body], ['POST', 'in pieces']);
    });

    test('an answer comes as it is written, not when it ends', async () => {
      const { url, headers } = await endpoint();
      const answer = await fetch(new URL('/slow', url), { headers });
      const reader = answer.body.getReader();
      assert.equal(Buffer.from((await reader.read()).value).toString(), 'first');
      await (await fetch(new URL('/go', url), { headers })).text();
      assert.equal(Buffer.from((await reader.read()).value).toString(), 'last');
      assert.ok((await reader.read()).done);
    });

    test('an upgrade works with the URL alone and with the header', async () => {
      const { url, headers } = await endpoint('ws');
      assert.match(url, /^ws:\/\/127\.0\.0\.1:/);
      const other = new URL(url);
      other.search = '?agent_bridge_token=abc';
      for (const [address, sent] of [[`${url}&agent_bridge_token=abc`, {}], [other, headers]]) {
        const opened = await upgraded(address, sent);
        const seen = await lineOf(opened);
        assert.equal(seen.path, '/?agent_bridge_token=abc');
        assert.ok(!JSON.stringify(seen).includes('libsandbox'));
        opened.socket.write('and back');
        assert.equal((await once(opened.socket, 'data'))[0].toString(), 'and back');
        opened.socket.destroy();
      }
    });

    test('without the token, or with a wrong one, nothing gets through', async () => {
      const { url } = await endpoint();
      const { origin } = new URL(url);
      const wrong = `${url.slice(0, -1)}${url.endsWith('A') ? 'B' : 'A'}`;
      const header = { 'x-libsandbox-token': 'no' };
      for (const [address, headers] of [[`${origin}/go`, {}], [wrong, {}], [origin, header]]) {
        assert.equal((await fetch(address, { headers })).status, 401);
        const { status } = await upgraded(address, headers);
        assert.equal(status, 401);
      }
    });

    test('two sessions of one workspace do not take each other\'s token', async () => {
      const view = session.fork({ ports: [OTHER_PORT] });
      const theirs = await view.getPortEndpoint({ port: OTHER_PORT, protocol: 'http' });
      const { url } = await endpoint();
      assert.equal((await fetch(new URL('/', url), { headers: theirs.headers })).status, 401);
      await view.stop();
    });

    test('a port where nothing listens is refused at once', async () => {
      const { url } = await endpoint('http', QUIET_PORT);
      const answer = await fetch(url);
      assert.equal(answer.status, 502);
      assert.equal((await upgraded(url)).status, 502);
    });

    test('an answer that cannot be passed on is an error of that request alone', async () => {
      const { url, headers } = await endpoint();
      assert.equal((await fetch(new URL('/bad', url), { headers })).status, 502);
      assert.equal((await fetch(url)).status, 200);
    });

    test('many requests at once', async () => {
      const { url } = await endpoint();
      const numbers = Array.from({ length: 40 }, (_, number) => String(number));
      const bodies = await Promise.all(numbers.map(async body =>
        (await (await fetch(url, { method: 'POST', body })).json()).body));
      assert.deepEqual(bodies, numbers);
    });

    test('a server that ends cuts the connection', async () => {
      const opened = await upgraded((await endpoint('ws')).url);
      await lineOf(opened);
      const closed = once(opened.socket, 'close');
      opened.socket.resume();
      await process.kill();
      await closed;
      process = await startServer(session, PORT);
    });

    test('C130: setPorts replaces all, and cuts what is left out', async () => {
      const kept = await endpoint();
      const dropped = await endpoint('http', QUIET_PORT);
      const second = await startServer(session, QUIET_PORT);
      const opened = await upgraded(dropped.url);
      await lineOf(opened);
      const closed = once(opened.socket, 'close');

      await session.setPorts([PORT, OTHER_PORT]);
      await closed;
      assert.deepEqual(session.ports, [PORT, OTHER_PORT]);
      await assert.rejects(endpoint('http', QUIET_PORT), { name: /Capability/ });
      await assert.rejects(fetch(dropped.url), TypeError);
      assert.equal((await fetch(kept.url)).status, 200, 'one that stays is not disturbed');
      await session.setPorts([PORT, QUIET_PORT]);
      const again = await endpoint('http', QUIET_PORT);
      assert.equal((await fetch(again.url)).status, 200);
      await second.kill();

      await assert.rejects(session.setPorts([0]), TypeError);
      await assert.rejects(session.setPorts([70000]), TypeError);
      const abortSignal = AbortSignal.abort(new Error('not now'));
      await assert.rejects(session.setPorts([1], { abortSignal }), /not now/);
      assert.deepEqual(session.ports, [PORT, QUIET_PORT]);
    });
  });
}
