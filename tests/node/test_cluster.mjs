/*
 * The library's TLS beside Node's own, in one process: a cluster's API over HTTPS, with a token of a
 * program that gets this process's environment.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import os from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { sandbox } from './place.mjs';

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-cluster-'));
after(() => fs.rmSync(place, { recursive: true }));

function certificate() {
  return spawnSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost',
    '-addext', 'subjectAltName=DNS:localhost', '-keyout', path.join(place, 'key'), '-out', path.join(place, 'certificate')],
  { stdio: 'ignore' }).status === 0;
}

/* A cluster that answers each request as `answer` says, and what it was asked. */
async function withCluster(answer, use) {
  const asked = [];
  const server = https.createServer({
    key: fs.readFileSync(path.join(place, 'key')), cert: fs.readFileSync(path.join(place, 'certificate')),
  }, (request, response) => {
    asked.push({ url: request.url, token: request.headers.authorization, at: performance.now() });
    const { status, body, ...headers } = answer(asked.length);
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.write(JSON.stringify(body).slice(0, 10)); /* its size is not told: it comes in chunks */
    response.end(JSON.stringify(body).slice(10));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const plugin = path.join(place, 'plugin');
  fs.writeFileSync(plugin, `#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'"$SANDBOX_TEST_TOKEN"'"}}'
`, { mode: 0o755 });
  fs.writeFileSync(path.join(place, 'config'), JSON.stringify({
    apiVersion: 'v1', kind: 'Config', 'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
    clusters: [{ name: 'c', cluster: { server: `https://localhost:${server.address().port}`, 'certificate-authority': path.join(place, 'certificate') } }],
    users: [{ name: 'u', user: { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: plugin, interactiveMode: 'Never' } } }],
  }));
  process.env.KUBECONFIG = path.join(place, 'config');
  process.env.SANDBOX_TEST_TOKEN = 'a-token-of-this-process';
  const client = await sandbox.Client.open('gke://here/agents?pool=pool');
  try {
    await use(client, asked);
  } finally {
    await client.close();
    server.close();
    server.closeAllConnections();
  }
}

const refusal = { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'Forbidden', code: 403, message: 'not you' };
const nothing = { kind: 'ConfigMapList', apiVersion: 'v1', metadata: { resourceVersion: '1' }, items: [] };
const later = { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'TooManyRequests', code: 429, message: 'later' };
const skip = !certificate() && 'there is no openssl';

test('a cluster is asked over TLS, and its refusal is told', { skip }, () =>
  withCluster(() => ({ status: 403, body: refusal }), async (client, asked) => {
    const failure = await client.listWorkspaces().catch((error) => error);
    assert.ok(failure instanceof sandbox.DeniedError, String(failure));
    assert.deepEqual([failure.reason, failure.httpStatus], ['kubernetes-denied', 403]);
    assert.doesNotMatch(failure.message, /a-token/);
    assert.equal(asked.at(-1).token, 'Bearer a-token-of-this-process');
  }));

test('P178: an answer that comes in chunks is read whole', { skip }, () =>
  withCluster(() => ({ status: 200, body: nothing }), async (client) => {
    assert.deepEqual(await client.listWorkspaces(), []);
  }));

test('P056: a cluster that says when to come again is asked then, within the deadline', { skip }, () =>
  withCluster((count) => (count === 1 ? { status: 429, body: later, 'retry-after': '1' } : { status: 200, body: nothing }),
    async (client, asked) => {
      assert.deepEqual(await client.listWorkspaces(), []);
      assert.ok(asked[1].at - asked[0].at >= 990, `${asked[1].at - asked[0].at} ms`);
    }));

test('P056: and a deadline that is shorter ends the wait', { skip }, () =>
  withCluster(() => ({ status: 429, body: later, 'retry-after': '30' }), async (client) => {
    const begun = performance.now();
    await assert.rejects(client.listWorkspaces({ timeout: 500 }), { code: 'SANDBOX_UNAVAILABLE', httpStatus: 429 });
    assert.ok(performance.now() - begun < 5000);
  }));
