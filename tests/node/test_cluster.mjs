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

test('a cluster is asked over TLS, and its refusal is told', { skip: !certificate() && 'there is no openssl' }, async () => {
  const asked = [];
  const server = https.createServer({
    key: fs.readFileSync(path.join(place, 'key')), cert: fs.readFileSync(path.join(place, 'certificate')),
  }, (request, response) => {
    asked.push([request.url, request.headers.authorization]);
    response.writeHead(403, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'Forbidden', code: 403, message: 'not you' }));
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
  try {
    const client = await sandbox.Client.open('gke://here/agents?pool=pool');
    const failure = await client.listWorkspaces().catch((error) => error);
    assert.ok(failure instanceof sandbox.DeniedError, String(failure));
    assert.deepEqual([failure.reason, failure.httpStatus], ['kubernetes-denied', 403]);
    assert.doesNotMatch(failure.message, /a-token/);
    assert.equal(asked.at(-1)[1], 'Bearer a-token-of-this-process');
    await client.close();
  } finally {
    server.close();
    server.closeAllConnections();
  }
});
