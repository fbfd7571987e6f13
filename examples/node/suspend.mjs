/*
 * suspend [URI]: suspends a workspace in which a process counts, and resumes it. The process goes on
 * where it was, and the handle on it reads on without a gap.
 */
import { Client } from 'libsandbox';

/* Shows what it prints until that many numbers have come. */
async function readNumbers(lines, count) {
  while (count-- > 0) console.log((await lines.next()).value.text);
}

try {
  const client = await Client.open(process.argv[2]);
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    /* A service does not count as work that must not be suspended. */
    const counter = await workspace.start('n=0; while sleep 0.1; do echo $n; n=$((n+1)); done', { role: 'service' });
    const lines = counter.lines();
    await readNumbers(lines, 5);
    const slept = await workspace.suspend();
    console.log(`suspended: no sandbox, all is in ${slept.bytes} bytes`);
    const woke = await workspace.resume();
    console.log(`resumed: ${woke.restored ? 'restored' : 'not restored'}, proven by ${woke.proof}`);
    await readNumbers(lines, 5);
    await lines.return();
  } finally {
    await workspace.delete();
  }
} catch (error) {
  console.error(`suspend: ${error.message}`);
  process.exitCode = 1;
}
