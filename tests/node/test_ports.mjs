/* Ports: connections into a workspace, and listeners that lead there. */
import assert from 'node:assert/strict';
import net from 'node:net';
import test, { after, before } from 'node:test';
import { bytesOf, memoryPlatform, noHandlesLeft, sandbox, until } from './place.mjs';

const uri = memoryPlatform();
let client;
let workspace;
let port;

/* Answers each connection with what it is sent, in capitals, to its end. */
const server = `
import socket, threading
listener = socket.socket()
listener.bind(('127.0.0.1', 0)); listener.listen(64)
print(listener.getsockname()[1], flush=True)
def serve(connection):
    while data := connection.recv(65536): connection.sendall(data.upper())
    connection.close()
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()`;

before(async () => {
  client = await sandbox.Client.open(uri);
  workspace = await client.createWorkspace();
  const process = await workspace.start(['python3', '-c', server], { role: 'service' });
  for await (const event of process.lines()) {
    port = Number(event.text);
    break;
  }
});
after(async () => {
  await workspace.delete();
  await workspace.close();
  await client.close();
  await noHandlesLeft();
});

test('what listens inside is told', async () => {
  const found = (await workspace.listPorts()).find((each) => each.port === port);
  assert.equal(found.address, '127.0.0.1');
  assert.ok(found.pid > 0);
});

test('a connection is a pair of web streams', async () => {
  const connection = await workspace.dial(port);
  const sent = new Blob(['ab'.repeat(1 << 19)]).stream().pipeTo(connection.writable);
  const answer = await bytesOf(connection.readable);
  await sent;
  assert.equal(answer.length, 1 << 20);
  assert.equal(answer.toString('latin1', 0, 4), 'ABAB');
  await connection.close();
});

test('a connection is read and written by hand, and a wait on it is ended', async () => {
  const connection = await workspace.dial(port);
  await connection.write('abc');
  assert.equal(Buffer.from(await connection.read()).toString(), 'ABC');
  await assert.rejects(connection.read({ timeout: 20 }), sandbox.TimedOutError);
  const reading = connection.read();
  await connection.close();
  await assert.rejects(reading, sandbox.ClosedError);
  await assert.rejects(workspace.dial(1), { reason: 'connection-refused' });
  await assert.rejects(workspace.dial(70_000), RangeError);
});

function ask(hostPort, text) {
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = net.connect(hostPort, '127.0.0.1', () => socket.end(text));
    socket.on('data', (data) => { answer += data; });
    socket.on('error', reject);
    socket.on('close', () => resolve(answer));
  });
}

test('a forward leads from a port of this machine into the workspace, until it is closed', async () => {
  const forward = await workspace.forward(port);
  const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => ask(forward.hostPort, `question ${n}`)));
  assert.deepEqual(answers, Array.from({ length: 20 }, (_, n) => `QUESTION ${n}`));
  await assert.rejects(workspace.forward(port, { hostPort: forward.hostPort }), { reason: 'port-taken' });
  await forward.close();
  await assert.rejects(ask(forward.hostPort, 'x'), { code: 'ECONNREFUSED' });
});

test('a forward that is forgotten stops listening', async () => {
  let hostPort = await (async () => (await workspace.forward(port)).hostPort)();
  await until(async () => {
    globalThis.gc();
    return ask(hostPort, 'x').then(() => false, () => true);
  }, 'the end of the forward');
});
