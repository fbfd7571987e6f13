/* What a workspace may reach: options that nest, what is told of it, and what it was refused. */
import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { gvisorPlatform, memoryPlatform, sandbox } from './place.mjs';

const secret = 'sk-real-0123456789';
const rule = {
  match: { host: 'api.example.com', headers: [{ name: 'x-api-key', value_exact: 'PLACEHOLDER' }] },
  set: { 'x-api-key': secret },
};
const { uri, reason } = await gvisorPlatform();
let client;
let workspace;

before(async () => {
  if (reason) return;
  client = await sandbox.Client.open(uri);
  workspace = await client.createWorkspace({ egress: { allow: ['api.example.com'], transformations: [rule] } });
});
after(async () => {
  if (reason) return;
  await workspace.delete();
  await workspace.close();
  await client.close();
});

test('nested options are checked, and a driver without a way out says so', async () => {
  const other = await sandbox.Client.open(memoryPlatform());
  await assert.rejects(other.createWorkspace({ egress: { alow: [] } }), /egress has no option 'alow'/);
  await assert.rejects(other.createWorkspace({ egress: 'all' }), TypeError);
  await assert.rejects(other.createWorkspace({ egress: { mode: 'open' } }), /'mode' must be one of/);
  await assert.rejects(other.createWorkspace({ egress: { allow: ['a.example'] } }),
    { name: 'UnsupportedError', reason: 'no-egress' });
  assert.equal(other.can('reach-out'), false);
  await other.close();
});

test('a policy, credentials, and what was refused', { skip: reason }, async () => {
  let told = await workspace.inspectEgress();
  assert.deepEqual([told.mode, told.allow, told.credentials, told.registered],
    ['custom', ['api.example.com'], ['api.example.com: x-api-key'], true]);
  assert.ok(!JSON.stringify(told).includes(secret));
  await workspace.setEgress({ addAllow: ['*.example.net'], remove: ['api.example.com'], transformations: [] });
  told = await workspace.inspectEgress();
  assert.deepEqual([told.allow, told.credentials], [['*.example.net'], []]);
  await assert.rejects(workspace.setEgress({ allow: ['10.0.0.0/8'] }), { reason: 'cidrs-unsupported' });
  const said = await workspace.run('curl -s -m 20 http://127.0.0.1:3128/https/evil.example/', { encoding: 'utf8' });
  assert.match(said.stdout, /'evil.example' is not allowed/);
  const refused = (await workspace.readEgressLog()).at(-1);
  assert.deepEqual([refused.reason, refused.kind, refused.host], ['host-not-allowed', 'route', 'evil.example']);
});

test('a resume takes credentials, and no command does', { skip: reason }, async () => {
  await workspace.suspend();
  await workspace.resume({ egress: { allow: ['api.example.com'], transformations: JSON.stringify([rule]) } });
  const told = await workspace.inspectEgress();
  assert.deepEqual([told.allow, told.credentials], [['api.example.com'], ['api.example.com: x-api-key']]);
  await assert.rejects(workspace.run(['echo', secret]),
    (error) => error.reason === 'credential' && !error.message.includes(secret));
});
