/* many [URI]: several workspaces at once over one client. */
import { Client } from 'libsandbox';

async function compute(client, number) {
  const workspace = await client.createWorkspace({ expiresAfterMs: 10 * 60_000 });
  try {
    const { stdout } = await workspace.run(`echo $((${number} * ${number}))`, { encoding: 'utf8' });
    return stdout.trim();
  } finally {
    await workspace.delete();
  }
}

try {
  const client = await Client.open(process.argv[2]);
  const numbers = [1, 2, 3, 4];
  const answers = await Promise.allSettled(numbers.map((number) => compute(client, number)));
  answers.forEach(({ value, reason }, index) => {
    if (reason) console.error(`many: ${numbers[index]}: ${reason.message}`);
    console.log(`${numbers[index]} squared is ${value ?? 'not known'}`);
  });
  process.exitCode = answers.every(({ status }) => status === 'fulfilled') ? 0 : 1;
} catch (error) {
  console.error(`many: ${error.message}`);
  process.exitCode = 1;
}
