'use strict';
/* Workspaces for harness SDKs: see harness.d.ts and doc/harness.md. */

const { createHarnessProvider } = require('./harness/provider.cjs');
const { toHarnessSession } = require('./harness/session.cjs');

module.exports = { createHarnessProvider, toHarnessSession };
