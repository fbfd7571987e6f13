/* The quick start of bindings/node/README.md. */
import { Client } from 'libsandbox';

const client = await Client.open();                       // 'gvisor:', on this machine, as root
const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
try {
  const result = await workspace.run('uname -sr; id', { encoding: 'utf8' });
  console.log(result.stdout, result.exitCode);

  await workspace.writeFile('notes/hello.txt', 'kept\n');
  await workspace.suspend();                              // no sandbox now; a verified snapshot
  const woke = await workspace.resume();                  // another sandbox, proven to hold it
  console.log(woke.restored, woke.proof);                 // true 'memory'
  console.log(await workspace.readFile('notes/hello.txt', { encoding: 'utf8' }));
} finally {
  await workspace.delete();
}
