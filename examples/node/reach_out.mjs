/* reach_out [URI]: a workspace that may reach one host, with a credential that it never sees. */
import { Client } from 'libsandbox';

/* Inside there is PLACEHOLDER alone; on the way to this host the real key takes its place. */
const rule = {
  match: { host: 'api.example.com', headers: [{ name: 'x-api-key', value_exact: 'PLACEHOLDER' }] },
  set: { 'x-api-key': 'the-real-key-of-this-example' },
};
/* The route of a host that is not allowed. */
const another = 'curl -sS -m 20 http://127.0.0.1:3128/https/elsewhere.example.net/';

async function reachOut(client) {
  if (!client.can('reach-out')) {
    console.log('this platform gives workspaces no way out');
    return;
  }
  const egress = { allow: ['api.example.com'], transformations: [rule] };
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000, egress });
  try {
    const told = await workspace.inspectEgress();
    for (const host of told.allow) console.log(`may reach ${host}`);
    for (const known of told.credentials) console.log(`a credential for ${known}`);
    process.stdout.write((await workspace.run(another)).stdout);
    for (const { host, reason } of await workspace.readEgressLog()) console.log(`refused: ${host}, ${reason}`);
  } finally {
    await workspace.delete();
  }
}

try {
  const client = await Client.open(process.argv[2]);
  await reachOut(client);
  await client.close();
} catch (error) {
  console.error(`reach_out: ${error.message}`);
  process.exitCode = 1;
}
