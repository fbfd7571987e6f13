/*
 * A program that has a session and goes away: host.mjs URI PORT SESSION. Prints the reply to
 * "hello", then, if a line of input says so, detaches and prints the state. It ends by itself then.
 */

import { once } from 'node:events';
import { createClerk } from './clerk.mjs';
import { fromPackages } from './packages.mjs';
import { createHarnessProvider } from './place.mjs';

const [uri, port, sessionId] = process.argv.slice(2);
const { HarnessAgent } = await fromPackages('@ai-sdk/harness/agent');
const sandbox = createHarnessProvider({ uri, ports: [Number(port)] });
const agent = new HarnessAgent({ harness: createClerk(), sandbox });
const session = await agent.createSession({ sessionId });
const say = words => process.stdout.write(`${JSON.stringify(words)}\n`);
say((await agent.generate({ session, prompt: 'hello' })).text);
await once(process.stdin, 'data');
say(await session.detach());
process.exit();
