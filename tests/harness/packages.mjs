/* The harness SDK and its company from npm, or a sentence that says why they cannot be had. */

import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** All of them, and every platform, with --long; what is small and quick else. */
export const isLong = process.env.SANDBOX_TEST_COUNT !== undefined;

export const packages = process.env.SANDBOX_TEST_HARNESS_PACKAGES;
export const whyNoPackages = get();

function get() {
  if (packages === undefined)
    return 'SANDBOX_TEST_HARNESS_PACKAGES does not say where to put them';
  const script = fileURLToPath(new URL('get-packages', import.meta.url));
  const { status, stderr } = spawnSync(script, [packages, ...isLong ? ['--all'] : []],
    { encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'] });
  return status === 0 ? false : stderr.trim().split('\n').at(-1);
}

/** One of them. */
export async function fromPackages(name) {
  return import(createRequire(path.join(packages, 'package.json')).resolve(name));
}
