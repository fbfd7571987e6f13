/*
 * event_loop [URI]: a command's output, a connection to a port and the program's own timer, side by
 * side: nothing here waits for another.
 */
import { Client } from 'libsandbox';

/* It says "ready" once it listens, answers one connection with what it is sent, and ends. */
const server = `
import socket
s = socket.socket(); s.bind(('127.0.0.1', 8422)); s.listen(1); print('ready', flush=True)
c = s.accept()[0]
while data := c.recv(4096): c.sendall(data.upper())`;

async function ask(workspace) {
  const connection = await workspace.dial(8422);
  const writer = connection.writable.getWriter();
  await writer.write('a question\n');
  await writer.close(); /* the server reads to the end, so it must be told that there is one */
  for await (const piece of connection.readable) process.stdout.write(piece);
  await connection.close();
}

try {
  const client = await Client.open(process.argv[2]);
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  let ticks = 0;
  const timer = setInterval(() => { ticks++; }, 1);
  try {
    const command = await workspace.start(['python3', '-c', server]);
    console.log(`process ${command.pid}`);
    let asking;
    for await (const event of command.lines()) {
      if (event.kind === 'exit') console.log(`ended with ${event.exitCode}`);
      else console.log(event.text);
      if (event.text === 'ready') asking = ask(workspace);
    }
    await asking;
    console.log(`and the timer went on: ${ticks > 1}`);
  } finally {
    clearInterval(timer);
    await workspace.delete();
  }
} catch (error) {
  console.error(`event_loop: ${error.message}`);
  process.exitCode = 1;
}
