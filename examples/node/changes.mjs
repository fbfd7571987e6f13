/*
 * changes [URI]: watches a folder of a workspace, changes it in every way there is, and shows what
 * the watch tells.
 */
import { Client } from 'libsandbox';

async function change(workspace) {
  await workspace.makeDirectory('watched/inner', { recursive: true });
  await workspace.writeFile('watched/draft', 'text\n');
  await workspace.setFileMode('watched/draft', 0o600);
  await workspace.renameFile('watched/draft', 'watched/final');
  await workspace.linkFile('final', 'watched/newest');
  await workspace.removeFile('watched/inner', { recursive: true });
  /* The sign by which the reader below knows that it has seen everything. */
  await workspace.writeFile('watched/end', '');
}

try {
  const client = await Client.open(process.argv[2]);
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    await workspace.makeDirectory('watched');
    const watch = await workspace.watchFiles('watched');
    await change(workspace);
    for await (const { change: what, path, newPath } of watch) {
      console.log(what, path, newPath);
      if ((newPath || path).startsWith('end') || what === 'overflow') break;
    }
    await watch.close();
  } finally {
    await workspace.delete();
  }
} catch (error) {
  console.error(`changes: ${error.message}`);
  process.exitCode = 1;
}
