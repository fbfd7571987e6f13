/*
 * about [URI]: says what the platform behind a URI can do, and makes a workspace with the limits that
 * hold there.
 */
import { Client, version } from 'libsandbox';

const abilities = {
  'limit-memory': 'limits memory',
  'limit-cpu': 'limits processor time',
  'limit-processes': 'limits the number of processes',
  'limit-disk': 'limits disk space',
  'use-images': 'takes images',
};

try {
  const client = await Client.open(process.argv[2]);
  console.log(`libsandbox ${version}, driver ${client.driver}, at ${client.uri}`);
  for (const [ability, text] of Object.entries(abilities)) console.log(`  ${text}: ${client.can(ability) ? 'yes' : 'no'}`);
  /* What is asked for and cannot be enforced is refused, so it is asked for only where it can. */
  const workspace = await client.createWorkspace({
    expiresAfterMs: 10 * 60_000,
    memoryMib: client.can('limit-memory') ? 1024 : undefined,
    processLimit: client.can('limit-processes') ? 256 : undefined,
  });
  /* The name may be used again one day, the id never. */
  console.log(`made '${workspace.name}', whose id is ${workspace.id}`);
  await workspace.delete();
} catch (error) {
  console.error(`about: ${error.message}`);
  process.exitCode = 1;
}
