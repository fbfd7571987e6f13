/*
 * files [URI]: writes a file in a workspace, lets a command work on it, lists and reads what came
 * of it.
 */
import { Client } from 'libsandbox';

try {
  const client = await Client.open(process.argv[2]);
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    await workspace.writeFile('work/poem.txt', 'roses\nviolets\napples\n'); /* missing directories are made */
    const { exitCode } = await workspace.run('sort poem.txt >sorted.txt', { directory: 'work' });
    console.log(`sort ended with ${exitCode}`);
    for (const { name, fileSize } of await workspace.listDirectory('work')) console.log(`${name}: ${fileSize} bytes`);
    process.stdout.write(await workspace.readFile('work/sorted.txt'));
  } finally {
    await workspace.delete();
  }
} catch (error) {
  console.error(`files: ${error.message}`);
  process.exitCode = 1;
}
