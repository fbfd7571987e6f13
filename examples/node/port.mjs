/* port [URI]: starts a web server in a workspace and asks it for a page, through a port of this machine. */
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'libsandbox';

const page = "echo 'a page from inside' >index.html; exec python3 -m http.server 8421 --bind 127.0.0.1";

/* It is not listening at once. */
async function waitForServer(workspace) {
  for (let tries = 0; ; tries++) {
    try {
      const connection = await workspace.dial(8421);
      await connection.close();
      return;
    } catch (error) {
      if (error.reason !== 'connection-refused' || tries === 600) throw error;
      await pause(100);
    }
  }
}

try {
  const client = await Client.open(process.argv[2]);
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    /* A service: the workspace counts as idle although it runs. */
    await workspace.start(page, { role: 'service', whenFull: 'drop-oldest' });
    await waitForServer(workspace);
    const forward = await workspace.forward(8421);
    const answer = await fetch(`http://127.0.0.1:${forward.hostPort}/`);
    console.log(answer.status, answer.statusText);
    process.stdout.write(await answer.text());
    await forward.close();
  } finally {
    await workspace.delete();
  }
} catch (error) {
  console.error(`port: ${error.message}`);
  process.exitCode = 1;
}
