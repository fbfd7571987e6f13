/* The same addon on newer Node.js than it was built for: Node-API is what makes that so. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import test from 'node:test';
import { collect, count, getPackages } from './place.mjs';

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const machine = { x64: 'linux-x64', arm64: 'linux-arm64' }[process.arch];

const names = count(['api', 'ends'], ['api', 'cluster', 'ends', 'files', 'leaks', 'lifecycle', 'ports', 'process']);

/* The program alone, from the package that npm has for this machine. */
for (const version of ['22.23.3', '24.21.0']) {
  const got = await getPackages(`node-${version}`, [`node-${machine}@${version}`]);
  test(`what there is works on Node ${version}`, { skip: got.reason }, async (t) => {
    const node = path.join(got.folder, `node_modules/node-${machine}/bin/node`);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    for (const name of names) {
      await t.test(name, async () => {
        const run = spawn(node, ['--expose-gc', '--test-reporter=tap', path.join(here, `test_${name}.mjs`)], { env });
        const said = Promise.all([collect(run.stdout), collect(run.stderr)]);
        const ended = await once(run, 'exit');
        const text = Buffer.concat((await said).flat()).toString();
        /* From what failed on; a program that crashed says so at its end. */
        const story = text.slice(Math.max(text.search(/^not ok/m), 0)).slice(0, 6000) + text.slice(-2000);
        assert.deepEqual(ended, [0, null], story);
        assert.match(text, /^# pass [1-9]/m);
        assert.match(text, /^# fail 0$/m);
        assert.doesNotMatch(text, /^not ok/m);
      });
    }
  });
}
