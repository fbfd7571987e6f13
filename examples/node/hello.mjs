/* hello [URI]: makes a workspace, runs one command in it, shows what it said, deletes it. */
import { Client } from 'libsandbox';

try {
  const client = await Client.open(process.argv[2]);
  /* If this program dies, the workspace goes by itself. */
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    const { stdout, exitCode } = await workspace.run(['echo', 'Hello from inside']);
    process.stdout.write(stdout);
    process.exitCode = exitCode;
  } finally {
    await workspace.delete();
  }
} catch (error) {
  console.error(`hello: ${error.message}`);
  process.exitCode = 1;
}
