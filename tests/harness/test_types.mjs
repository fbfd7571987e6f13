/* What harness.d.ts says fits the types of `@ai-sdk/harness`, as its own compiler sees them. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packages, whyNoPackages } from './packages.mjs';
import { packageFolder } from './place.mjs';

const USES = `
import type { HarnessV1NetworkSandboxSession, HarnessV1SandboxProvider } from '@ai-sdk/harness';
import { HarnessAgent } from '@ai-sdk/harness/agent';
import { createHarnessProvider, toHarnessSession } from 'libsandbox/harness';
import type { HarnessProvider, HarnessSession } from 'libsandbox/harness';
import { Client } from 'libsandbox';

declare const session: HarnessSession;
export const asSession: HarnessV1NetworkSandboxSession = session;
declare const made: HarnessProvider;
export const asProvider: HarnessV1SandboxProvider = made;

export async function use() {
  const client = await Client.open('memory:');
  const workspace = await client.createWorkspace();
  const mine = await toHarnessSession(workspace, { ports: [4000], suspend: { keep: 'files' } });
  const proof: string | undefined = mine.lastResume?.proof;
  const sandbox = createHarnessProvider({
    client, workspace: { memoryMib: 512, env: { A: 'b' } }, resume: { from: 'live-files' },
  });
  type Settings = ConstructorParameters<typeof HarnessAgent>[0];
  const settings: Pick<Settings, 'sandbox'> = { sandbox };
  // @ts-expect-error: there is nothing that a policy could be set on
  mine.setNetworkPolicy({ mode: 'deny-all' });
  // @ts-expect-error: the narrow view cannot end the workspace
  mine.restricted().destroy();
  return [proof, settings];
}
`;

test('sessions and providers are what the harness wants', { skip: whyNoPackages }, async () => {
  const folder = mkdtempSync(path.join(packages, 'types-'));
  try {
    writeFileSync(path.join(folder, 'use.mts'), USES);
    writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({
      compilerOptions: {
        strict: true, noEmit: true, skipLibCheck: true, target: 'es2022', lib: ['es2023', 'dom'],
        module: 'nodenext', moduleResolution: 'nodenext', types: [],
        paths: {
          'libsandbox': [path.join(packageFolder, 'index.d.ts')],
          'libsandbox/harness': [path.join(packageFolder, 'harness.d.ts')],
        },
      },
      files: ['use.mts'],
    }));
    const compiler = path.join(packages, 'node_modules/typescript/bin/tsc');
    const said = await new Promise(resolve => execFile(process.execPath,
      [compiler, '-p', folder], (error, stdout, stderr) => resolve(stdout + stderr)));
    assert.equal(said, '');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
