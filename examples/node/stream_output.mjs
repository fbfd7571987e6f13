/*
 * stream_output [URI]: shows a command's output while it runs, each stream under its own name, and
 * answers its question.
 */
import { Client } from 'libsandbox';

const line = "for i in 1 2 3; do echo line $i; echo note $i >&2; done; "
  + "echo 'your name?'; read name; echo \"hello $name\"; exit 7";

try {
  const client = await Client.open(process.argv[2]);
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    const command = await workspace.start(line, { input: 'pipe', deadlineMs: 60_000 });
    await command.write('Ada\n');
    /* Whole lines; `for await (const event of command)` gives bytes as they come. */
    for await (const event of command.lines()) {
      if (event.kind === 'exit') console.log(`[ended with ${event.exitCode}]`);
      else console.log(`[${event.kind}] ${event.text}`);
    }
  } finally {
    await workspace.delete();
  }
} catch (error) {
  console.error(`stream_output: ${error.message}`);
  process.exitCode = 1;
}
