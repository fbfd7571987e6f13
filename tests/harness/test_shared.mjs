/*
 * A suite of behaviour for any provider that others wrote: SANDBOX_TEST_SHARED names its folder,
 * or it lies in ../shared/tests/harness beside the repository. Without it there is nothing to run.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isLong, packages, whyNoPackages } from './packages.mjs';
import { freePorts, openPlace, packageFolder, platforms, textOf, whyNot } from './place.mjs';

const suite = path.join(process.env.SANDBOX_TEST_SHARED ??
  fileURLToPath(new URL('../../../shared/tests/harness', import.meta.url)), 'conformance.mjs');
const why = whyNoPackages || (!existsSync(suite) && `there is no ${suite}`);

for (const platform of platforms) {
  const skip = why || whyNot[platform] ||
    (platform === 'gvisor' && !isLong && 'some 40 s of many small writes: tools/check --long');
  test(`the shared suite of behaviour holds over ${platform}`, { skip }, async t => {
    const place = await openPlace(platform);
    const [port] = await freePorts(1);
    // Beside the packages, where their names lead to them.
    const folder = mkdtempSync(path.join(packages, 'shared-'));
    try {
      copyFileSync(suite, path.join(folder, 'conformance.mjs'));
      writeFileSync(path.join(folder, 'provider.mjs'), `
        import harness from ${JSON.stringify(path.join(packageFolder, 'harness.cjs'))};
        export const makeProvider = async () => harness.createHarnessProvider(
          { uri: ${JSON.stringify(place.uri)}, ports: [${port}] });\n`);
      const { NODE_TEST_CONTEXT: _, ...env } = process.env;
      const run = spawn(process.execPath, ['--test-reporter=tap', 'conformance.mjs'],
        { cwd: folder, env: { ...env, PROVIDER: './provider.mjs' },
          stdio: ['ignore', 'pipe', 'pipe'] });
      const output = Promise.all([run.stdout, run.stderr].map(stream =>
        textOf(ReadableStream.from(stream))));
      const [code] = await once(run, 'exit');
      const said = (await output).join('');
      t.diagnostic(said.match(/^# (pass|fail|skipped) \d+$/gm)?.join(', ') ?? 'it said nothing');
      assert.equal(code, 0, said);
      assert.match(said, /^# pass 35$/m);
      assert.match(said, /^# skipped 0$/m);
    } finally {
      rmSync(folder, { recursive: true, force: true });
      await place.close();
    }
  });
}
