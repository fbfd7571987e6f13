'use strict';
/* A provider: makes a workspace for each session of a harness, and brings suspended ones back. */

const { createHash } = require('node:crypto');
const { acquisitionError } = require('./errors.cjs');
const { checkedPorts, openSession, tell } = require('./session.cjs');

const PROVIDER_ID = 'libsandbox';
const DEFAULT_PORTS = [4000];
const NAME_MAX = 63;
const SLUG_MAX = 24;

/**
 * What `new HarnessAgent({ sandbox })` takes. Does nothing but check its options; the platform is
 * opened by the first session.
 */
function createHarnessProvider(options = {}) {
  const settings = { namePrefix: 'harness-', requiredCommands: [], ...options };
  settings.ports = checkedPorts(options.ports ?? DEFAULT_PORTS);
  if (!/^[a-z0-9](?:[a-z0-9-]{0,20})$/.test(settings.namePrefix))
    throw new TypeError('namePrefix must be 1 to 21 of a-z, 0-9 and -, not beginning with -');
  const provider = { settings, client: undefined };
  return {
    specificationVersion: 'harness-sandbox-v1',
    providerId: PROVIDER_ID,
    createSession: wanted => acquired(() => createSession(provider, wanted ?? {})),
    resumeSession: wanted => acquired(() => resumeSession(provider, wanted)),
  };
}

async function acquired(work) {
  try {
    return await work();
  } catch (error) {
    throw acquisitionError(error, PROVIDER_ID);
  }
}

async function createSession(provider, { sessionId, abortSignal, onFirstCreate }) {
  abortSignal?.throwIfAborted();
  const { settings } = provider;
  const client = await openClient(provider);
  const workspace = await client.createWorkspace({
    ...settings.workspace,
    name: sessionId === undefined ? undefined : nameOf(settings.namePrefix, sessionId),
    env: environmentOf(settings),
    signal: abortSignal,
  });
  try {
    const session = await openSession(workspace, { ...sessionOptions(settings), abortSignal });
    await requireCommands(session, settings.requiredCommands, abortSignal);
    await onFirstCreate?.(session.restricted(), { abortSignal });
    return session;
  } catch (error) {
    await deleteHalfMade(workspace, settings);
    throw error;
  }
}

async function resumeSession(provider, { sessionId, abortSignal }) {
  abortSignal?.throwIfAborted();
  const { settings } = provider;
  const client = await openClient(provider);
  const workspace = await client.findWorkspace(nameOf(settings.namePrefix, sessionId),
    { signal: abortSignal });
  const resumed = await workspace.resume(
    { env: environmentOf(settings), ...settings.resume, signal: abortSignal });
  return openSession(workspace, { ...sessionOptions(settings), abortSignal }, resumed);
}

/* One for all sessions; a failure is tried again by the next one. */
async function openClient(provider) {
  const { settings } = provider;
  if (settings.client !== undefined)
    return settings.client;
  provider.client ??= require('../index.js').Client.open(settings.uri);
  try {
    return await provider.client;
  } catch (error) {
    provider.client = undefined;
    throw error;
  }
}

function sessionOptions({ ports, suspend, outputLimit, onError }) {
  return { ports, suspend, outputLimit, onError };
}

/* Given again at each resume, since it is kept in no snapshot's record. Undefined: none at all.
   Claude Code refuses to work as root, unless it is told that this is a sandbox. */
function environmentOf({ workspace }) {
  const isRoot = workspace?.user === 'root';
  const env = { ...(isRoot ? { IS_SANDBOX: '1' } : {}), ...workspace?.env };
  return Object.keys(env).length === 0 ? undefined : env;
}

/* A bridge whose program is missing would only be noticed when its start times out. */
async function requireCommands(session, commands, abortSignal) {
  if (commands.length === 0)
    return;
  const { stdout } = await session.run({
    command: 'for name in $WANTED; do command -v -- "$name" >/dev/null || echo "$name"; done',
    env: { WANTED: commands.join(' ') },
    abortSignal,
  });
  const missing = stdout.split('\n').filter(line => line !== '');
  if (missing.length > 0)
    throw Object.assign(new Error(`the workspace has no ${missing.join(', no ')}: give it an ` +
      'image that has, or install it on this machine'), { code: 'LIBSANDBOX_IMAGE', missing });
}

async function deleteHalfMade(workspace, { onError }) {
  try {
    await workspace.delete();
  } catch (error) {
    tell(onError, `workspace '${workspace.name}' is left behind`, error);
  }
}

/*
 * A session id may be any text; a name may not. What can be a name is one, so that people find it;
 * what cannot is told by its digest. A literal one never has '--', so the two never meet.
 */
function nameOf(prefix, sessionId) {
  const isName = /^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(sessionId);
  if (isName && prefix.length + sessionId.length <= NAME_MAX)
    return prefix + sessionId;
  const slug = String(sessionId).toLowerCase().replace(/[^a-z0-9]+/g, '-').slice(0, SLUG_MAX)
    .replace(/^-|-$/g, '');
  const digest = createHash('sha256').update(String(sessionId)).digest('hex').slice(0, 16);
  return `${prefix}${slug || 'x'}--${digest}`;
}

module.exports = { createHarnessProvider };
