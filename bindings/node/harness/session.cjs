'use strict';
/* Sessions: views of a workspace as `@ai-sdk/harness` wants them. */

const { randomBytes } = require('node:crypto');
const { capabilityError, isGone } = require('./errors.cjs');
const { createFiles } = require('./files.cjs');
const { openListener } = require('./listener.cjs');
const { createNetwork } = require('./network.cjs');
const { createProcesses, drainProcesses, endProcesses } = require('./processes.cjs');

const PORTS_MAX = 64;
/* Whoever calls stop() has decided: traffic a moment ago, as of every bridge, is no reason. */
const SUSPEND_OPTIONS = { keep: 'best', force: true };

/**
 * A session over a workspace that runs. Asks it for its working directory, changes nothing.
 */
async function toHarnessSession(workspace, options = {}) {
  return openSession(workspace, options);
}

/* `lastResume`: what proved it, where the workspace was resumed for this session. */
async function openSession(workspace, options, lastResume) {
  const ports = checkedPorts(options.ports ?? []);
  const directory = options.workingDirectory ?? await askForDirectory(workspace, options);
  const network = await createNetwork(workspace, options);
  const shared = { workspace, directory, options, lastResume, network, views: new Set() };
  return createView(shared, { ports, env: options.env });
}

async function askForDirectory(workspace, { abortSignal }) {
  const { exitCode, stdout } = await workspace.run('pwd',
    { encoding: 'utf8', signal: abortSignal });
  const directory = stdout.replace(/\n$/, '');
  if (exitCode !== 0 || !directory.startsWith('/'))
    throw new Error(`workspace '${workspace.name}' does not say where its commands run`);
  return directory;
}

/* `parent`: the view that this one was forked from; it alone may suspend and delete. */
function createView(shared, { ports, env, parent }) {
  const { workspace, directory, options } = shared;
  const view = {
    shared, parent, ports, env,
    tag: randomBytes(4).toString('hex'),
    listeners: new Map(), // by port: a promise of a listener
    drained: false,
    stopping: undefined,
  };
  shared.views.add(view);
  const core = {
    ...createFiles(workspace, directory),
    ...createProcesses(workspace, { directory, env, outputLimit: options.outputLimit,
      tag: view.tag }),
  };
  const description = describe(workspace, directory);
  return {
    ...core,
    id: workspace.name,
    description,
    defaultWorkingDirectory: directory,
    get ports() { return [...view.ports]; },
    getPortEndpoint: request => endpointOf(view, request),
    getPortUrl: async request => (await endpointOf(view, request)).url,
    setPorts: (wanted, settings) => setPorts(view, wanted, settings),
    ...shared.network,
    stop: () => once(view, parent === undefined ? suspend : endView),
    destroy: () => parent === undefined ? destroy(view) : once(view, endView),
    restricted: () => ({ ...core, description }),
    fork: settings => fork(view, settings),
    killAllProcesses: () => endProcesses(workspace),
    workspace,
    get lastSuspend() { return shared.lastSuspend; },
    get lastResume() { return shared.lastResume; },
    get lastError() { return shared.lastError; },
  };
}

/* For an agent's instructions. What isolates it, and what it can reach, is its platform's. */
function describe(workspace, directory) {
  return `Linux workspace '${workspace.name}'. Commands run in bash, by default in ${directory}; ` +
    'files there and in $HOME are kept.';
}

/* ---- ports ---- */

async function endpointOf(view, { port, protocol = 'http' }) {
  if (!view.ports.includes(port))
    throw capabilityError(`port ${port} is not one of this session's: ` +
      `${view.ports.join(', ') || 'it has none'}. Give it in the option ports, or setPorts.`);
  if (!view.listeners.has(port)) {
    const opening = openListener(view.shared.workspace, port);
    view.listeners.set(port, opening);
    opening.catch(() => view.listeners.delete(port));
  }
  const listener = await view.listeners.get(port);
  await drainOthers(view);
  return listener.endpoint(protocol);
}

/* Whoever asks for an endpoint may be about to attach to a bridge that an earlier program left. */
async function drainOthers(view) {
  if (view.drained)
    return;
  view.drained = true;
  try {
    await drainProcesses(view.shared.workspace, view.wasStopped ? undefined : view.tag);
  } catch (error) {
    view.drained = false;
    throw error;
  }
}

async function setPorts(view, wanted, { abortSignal } = {}) {
  abortSignal?.throwIfAborted();
  const ports = checkedPorts(wanted);
  checkFree(view.shared, ports, view);
  view.ports = ports;
  closeListeners(view, port => !ports.includes(port));
}

function closeListeners(view, which = () => true) {
  for (const [port, opening] of view.listeners) {
    if (which(port)) {
      view.listeners.delete(port);
      opening.then(listener => listener.close(), () => {});
    }
  }
}

function checkedPorts(ports) {
  const isPort = port => Number.isInteger(port) && port >= 1 && port <= 65535;
  if (!Array.isArray(ports) || !ports.every(isPort))
    throw new TypeError('ports must be an array of numbers from 1 to 65535');
  if (ports.length > PORTS_MAX)
    throw new RangeError(`a session has at most ${PORTS_MAX} ports`);
  return [...new Set(ports)];
}

/* ---- fork ---- */

/* Two bridges cannot listen on one port, so no two views have the same. */
function fork(view, { ports, env } = {}) {
  const wanted = ports === undefined ? [freePort(view)] : checkedPorts(ports);
  checkFree(view.shared, wanted);
  return createView(view.shared,
    { ports: wanted, env: { ...view.env, ...env }, parent: view.parent ?? view });
}

function freePort(view) {
  const taken = new Set([...view.shared.views].flatMap(each => each.ports));
  let port = (view.ports[0] ?? 3999) + 1;
  while (taken.has(port))
    port++;
  if (port > 65535)
    throw capabilityError('no port is free for another view');
  return port;
}

function checkFree(shared, ports, except) {
  for (const other of shared.views) {
    const both = other === except ? undefined : ports.find(port => other.ports.includes(port));
    if (both !== undefined)
      throw capabilityError(`port ${both} belongs to another view of this workspace`);
  }
}

/* ---- the end ---- */

function once(view, ending) {
  view.stopping ??= ending(view).finally(() => { view.stopping = undefined; });
  return view.stopping;
}

/* Listeners stay open where it fails: the session goes on, and so may who is connected. */
async function suspend(view) {
  const { shared } = view;
  try {
    shared.lastSuspend = await shared.workspace.suspend(
      { ...SUSPEND_OPTIONS, ...shared.options.suspend });
  } catch (error) {
    if (!isGone(error))
      throw told(shared, 'suspended', error);
  }
  shared.lastError = undefined;
  for (const each of shared.views) {
    closeListeners(each);
    each.drained = false; // reading ended with the suspend
    each.wasStopped = true;
  }
}

async function destroy(view) {
  const { shared } = view;
  await view.stopping?.catch(() => {});
  for (const each of shared.views)
    closeListeners(each);
  try {
    await shared.workspace.delete();
  } catch (error) {
    if (!isGone(error))
      throw told(shared, 'deleted', error);
  }
  shared.lastError = undefined;
}

/* Of a forked view: what it started ends, the workspace and its other views go on. */
async function endView(view) {
  const { shared } = view;
  closeListeners(view);
  shared.views.delete(view);
  view.ports = [];
  try {
    await endProcesses(shared.workspace, view.tag);
  } catch (error) {
    if (!isGone(error))
      throw told(shared, 'left by a view', error);
  }
}

/* The harness swallows what stop() and destroy() throw. Somebody has to hear of it all the same. */
function told(shared, what, error) {
  shared.lastError = error;
  tell(shared.options.onError, `workspace '${shared.workspace.name}' was not ${what}`, error);
  return error;
}

function tell(onError, sentence, error) {
  if (onError === undefined)
    process.emitWarning(`${sentence}: ${error.message}`, { code: 'LIBSANDBOX_HARNESS' });
  else
    onError(error, sentence);
}

module.exports = { toHarnessSession, openSession, checkedPorts, tell };
