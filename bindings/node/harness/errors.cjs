'use strict';
/*
 * Errors as `@ai-sdk/harness` knows them. Its `isInstance()` looks for registered symbols, so they
 * need not come from that package, and this one does not depend on it.
 */

const HARNESS_ID = 'libsandbox';

/** What the workspace cannot do. The harness tells this apart from a failure. */
function capabilityError(message) {
  return marked(new Error(message), 'AI_HarnessCapabilityUnsupportedError',
    { harnessId: HARNESS_ID });
}

/** Credentials that are missing or refused; every other error is given back as it is. */
function acquisitionError(error, providerId) {
  if (!isAboutCredentials(error))
    return error;
  const harnessError = new Error(error.message, { cause: error });
  return marked(harnessError, 'AI_HarnessSandboxAuthenticationError',
    { sandboxProviderId: providerId });
}

/** Nothing is there to end: the workspace, or the instance that a process ran in, is gone. */
function isGone(error) {
  return hasCode(error, 'SANDBOX_CLOSED') || hasReason(error, 'no-such-workspace') ||
    hasReason(error, 'no-such-process');
}

/** No such file: what the interface answers with null. */
function isMissingFile(error) {
  return hasReason(error, 'no-such-file') || hasReason(error, 'not-a-directory');
}

const CREDENTIAL_REASONS = new Set(['credential-file', 'credential-plugin', 'credential-refused',
  'kubernetes-denied']);

function isAboutCredentials(error) {
  return error?.httpStatus === 401 || error?.httpStatus === 403 ||
    CREDENTIAL_REASONS.has(error?.reason);
}

function hasCode(error, code) {
  return error?.code === code;
}

function hasReason(error, reason) {
  return error?.reason === reason;
}

function marked(error, name, properties) {
  error.name = name;
  for (const marker of ['vercel.ai.error', 'vercel.ai.error.AI_HarnessError',
    `vercel.ai.error.${name}`])
    error[Symbol.for(marker)] = true;
  return Object.assign(error, properties);
}

module.exports = { capabilityError, acquisitionError, isGone, isMissingFile, hasCode };
