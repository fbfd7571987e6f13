/*
 * The agent of these tests, which runs inside the workspace behind the SDK's own bridge. A prompt
 * "RUN command" is answered with what the command said, "COUNT n" with numbers, one as soon as the
 * file "next" is gone again that whoever follows the turn removes; any other one with what it is,
 * how many turns it has had, and this process's number.
 *
 * Bundled into one file by get-packages.
 */

import { exec } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { runBridge } from '@ai-sdk/harness/bridge';

const { values: { workdir, 'bridge-state-dir': bridgeStateDir } } = parseArgs({
  options: { 'workdir': { type: 'string' }, 'bridge-state-dir': { type: 'string' } },
});
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
let turns = 0;

async function* replyTo(prompt, signal) {
  const [, verb, rest] = /^(RUN|COUNT) (.*)/s.exec(prompt) ?? [];
  if (verb === 'RUN') {
    const done = await promisify(exec)(rest, { cwd: workdir }).catch(error => error);
    yield done.stdout + done.stderr;
  } else if (verb === 'COUNT') {
    for (let number = 1; number <= Number(rest) && !signal.aborted; number++) {
      yield `${number} `;
      await taken(signal);
    }
  } else {
    yield `turn ${turns} of process ${process.pid}: ${prompt}`;
  }
}

/* Goes on when the host says so: no test depends on how fast a machine is. */
async function taken(signal) {
  const next = path.join(workdir, 'next');
  writeFileSync(next, '');
  while (existsSync(next) && !signal.aborted)
    await new Promise(resolve => setTimeout(resolve, 20));
}

await runBridge({
  bridgeType: 'clerk',
  bridgeStateDir,
  async onStart({ prompt }, turn) {
    const id = `text-${++turns}`;
    turn.emit({ type: 'stream-start' });
    turn.emit({ type: 'text-start', id });
    for await (const delta of replyTo(prompt, turn.abortSignal))
      turn.emit({ type: 'text-delta', id, delta });
    turn.emit({ type: 'text-end', id });
    turn.emit({ type: 'finish-step', finishReason: { unified: 'stop' }, usage });
    turn.emit({ type: 'finish', finishReason: { unified: 'stop' }, totalUsage: usage });
  },
  onStop: () => ({ turns }),
});
