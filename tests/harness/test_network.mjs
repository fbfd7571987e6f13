/* What a session says its workspace may reach, as the harness's own words have it. */
import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { Client, createHarnessProvider, openPlace, toHarnessSession, whyNot } from './place.mjs';

const problem = whyNot.gvisor;
const rule = (value, secret) => ({
  match: { host: 'api.example.com', path: { startsWith: '/v1' },
    headers: [{ key: { exact: 'Authorization' }, value: { exact: value } }] },
  transform: { headers: { Authorization: secret } },
});
let place;
let session;
let workspace;

before(async () => {
  if (problem) return;
  place = await openPlace('gvisor');
  const provider = createHarnessProvider({ uri: place.uri, ports: [] });
  session = await provider.createSession({ sessionId: 'net' });
  workspace = session.workspace;
});
after(async () => {
  await session?.destroy();
  await place?.close();
});

test('where nothing can be reached the members are not there', async () => {
  const plainPlace = await openPlace('memory');
  const client = await Client.open(plainPlace.uri);
  const plain = await toHarnessSession(await client.createWorkspace());
  for (const name of ['setNetworkPolicy', 'setRequestTransformations', 'addRequestTransformations'])
    assert.ok(!(name in plain), name);
  await plain.destroy();
  await client.close();
  await plainPlace.close();
});

test('policies', { skip: problem }, async () => {
  await session.setNetworkPolicy({ mode: 'custom', allowedHosts: ['api.example.com', '*.example.net'] });
  let told = await workspace.inspectEgress();
  assert.deepEqual([told.mode, told.allow, told.http],
    ['custom', ['api.example.com', '*.example.net'], ['api.example.com', '*.example.net']]);
  await session.setNetworkPolicy({ mode: 'deny-all' });
  told = await workspace.inspectEgress();
  assert.deepEqual([told.mode, told.allow], ['deny-all', []]);
  await session.setNetworkPolicy({ mode: 'custom', allowedHosts: ['*'] });
  assert.equal((await workspace.inspectEgress()).mode, 'allow-all');
  for (const wrong of [{ mode: 'custom', allowedCIDRs: ['10.0.0.0/8'] },
    { mode: 'custom', allowedHosts: ['a.example'], deniedCIDRs: ['10.0.0.0/8'] }])
    await assert.rejects(session.setNetworkPolicy(wrong), { name: 'AI_HarnessCapabilityUnsupportedError' });
  await assert.rejects(session.setNetworkPolicy({ mode: 'open' }), TypeError);
  assert.ok(!('setNetworkPolicy' in session.restricted()));
});

test('transformations, whatever is set first', { skip: problem }, async () => {
  await Promise.all([
    session.addRequestTransformations([rule('Bearer one', 'Bearer real-one-0123')]),
    session.addRequestTransformations([rule('Bearer two', 'Bearer real-two-0123')]),
    session.setNetworkPolicy({ mode: 'custom', allowedHosts: ['api.example.com'] }),
  ]);
  let told = await workspace.inspectEgress();
  assert.deepEqual([told.allow, told.credentials.length], [['api.example.com'], 2]);
  await session.setRequestTransformations([rule('Bearer one', 'Bearer real-one-0123')]);
  told = await workspace.inspectEgress();
  assert.deepEqual(told.credentials, ['api.example.com: Authorization']);
  await assert.rejects(session.run({ command: 'echo real-one-0123' }), { reason: 'credential' });
  await assert.rejects(session.addRequestTransformations([{
    match: { host: 'a.example', headers: [{ key: { startsWith: 'x-' } }] }, transform: { headers: { a: 'b' } } }]),
  { name: 'AI_HarnessCapabilityUnsupportedError' });
  await session.stop();
  session = await createHarnessProvider({ uri: place.uri, ports: [] }).resumeSession({ sessionId: 'net' });
  told = await session.workspace.inspectEgress();
  assert.deepEqual([told.allow, told.credentials, told.registered], [['api.example.com'], [], true]);
});
