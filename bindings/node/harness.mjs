/* Workspaces for harness SDKs: see harness.d.ts and doc/harness.md. */

import harness from './harness.cjs';

export const { createHarnessProvider, toHarnessSession } = harness;
