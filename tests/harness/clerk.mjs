/*
 * A harness adapter as those for real coding agents are made: it writes its bridge into the
 * workspace, starts it there, and speaks to it over a WebSocket through a port of the session.
 */

import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fromPackages, packages } from './packages.mjs';

const { WebSocket } = (await fromPackages('ws')).default;
const { z } = await fromPackages('zod/v4');
const { harnessV1BridgeOutboundMessageSchema: outboundSchema } =
  await fromPackages('@ai-sdk/harness');
const {
  SandboxChannel, classifyDiskLog, createBridgeToken, drainBridgeProcessStream,
  getRestrictedSandboxSession, markBridgeStarting, resolveSandboxDefaultWorkingDirectory,
  shellQuote, waitForBridgeReady, withBridgeToken,
} = await fromPackages('@ai-sdk/harness/utils');

const ID = 'clerk', FOLDER = '.clerk';
const HELLO_MS = 20_000, START_MS = 60_000, END_MS = 5_000;
const TURN_EVENTS = ['stream-start', 'text-start', 'text-delta', 'text-end', 'finish-step', 'error',
  'finish'];

/** How the last doStart() came to its bridge: 'attached', 'replayed' or 'started'. */
export let lastStart;

export function createClerk() {
  return {
    specificationVersion: 'harness-v1',
    harnessId: ID,
    builtinTools: {},
    lifecycleStateSchema: z.looseObject({}),
    getBootstrap: async () => ({
      harnessId: ID,
      bootstrapDir: FOLDER,
      files: [{
        path: `${FOLDER}/bridge.mjs`,
        content: await readFile(path.join(packages, 'bridge.mjs'), 'utf8'),
      }],
      commands: [{ command: 'node --check bridge.mjs' }],
    }),
    doStart,
  };
}

async function doStart(options) {
  const before = options.continueFrom ?? options.resumeFrom;
  const place = {
    session: options.sandboxSession,
    files: getRestrictedSandboxSession(options.sandboxSession),
    directory: await resolveSandboxDefaultWorkingDirectory(
      { sandboxSession: options.sandboxSession, abortSignal: options.abortSignal }),
    ...options,
  };
  place.stateFolder = `${place.directory}/.clerk-runs/${options.sessionId}`;
  const known = before?.data?.bridge;
  const bridge = await attach(place, known) ?? await start(place, known);
  return sessionOver(bridge, options, before !== undefined);
}

/* To a bridge that still runs: after a detach, or in a workspace that came back with memory. */
async function attach(place, known) {
  if (known === undefined)
    return undefined;
  try {
    const channel = await open(place, known, {
      initialLastSeenEventId: known.lastSeenEventId, resume: place.continueFrom !== undefined,
    });
    lastStart = 'attached';
    return { ...known, channel };
  } catch {
    return undefined;
  }
}

async function start(place, known) {
  const { files, session, stateFolder, directory, abortSignal } = place;
  const log = await files.readTextFile({ path: `${stateFolder}/event-log.ndjson` });
  const isReplay = known !== undefined && place.continueFrom !== undefined &&
    await classifyDiskLog(log) === 'replay';
  const token = createBridgeToken();
  await markBridgeStarting(
    { sandbox: files, bridgeStateDir: stateFolder, bridgeType: ID, abortSignal });
  const process = await files.spawn({
    command: ['node', `${directory}/${FOLDER}/bridge.mjs`, '--workdir', place.sessionWorkDir,
      '--bridge-state-dir', stateFolder].map(word => shellQuote(word)).join(' '),
    env: {
      BRIDGE_CHANNEL_TOKEN: token, BRIDGE_WS_PORT: String(session.ports[0]),
      ...(isReplay ? { BRIDGE_REPLAY_FROM_DISK: '1' } : {}),
    },
    abortSignal,
  });
  void drainBridgeProcessStream(process.stderr);
  const { port } = await waitForBridgeReady({
    proc: process, sandbox: files, bridgeStateDir: stateFolder, bridgeType: ID, timeoutMs: START_MS,
    abortSignal,
  });
  void drainBridgeProcessStream(process.stdout);
  const channel = await open(place, { port, token },
    isReplay ? { initialLastSeenEventId: known.lastSeenEventId, resume: true } : {});
  lastStart = isReplay ? 'replayed' : 'started';
  return { port, token, channel, process };
}

async function open({ session }, { port, token }, { initialLastSeenEventId, resume }) {
  const endpoint = withBridgeToken(
    { endpoint: await session.getPortEndpoint({ port, protocol: 'ws' }), token });
  const channel = new SandboxChannel(
    { connect: () => connect(endpoint), outboundSchema, initialLastSeenEventId });
  await channel.open(resume ? { resume } : undefined);
  return channel;
}

function connect({ url, headers }) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { headers, handshakeTimeout: HELLO_MS });
    const end = error => {
      clearTimeout(timer);
      socket.removeAllListeners('close');
      if (error === undefined)
        resolve(socket);
      else
        reject(error);
    };
    const timer = setTimeout(() => {
      socket.terminate();
      end(new Error('the bridge does not say hello'));
    }, HELLO_MS);
    socket.once('message', data => {
      const isHello = JSON.parse(data).type === 'bridge-hello';
      end(isHello ? undefined : new Error('this is no bridge'));
    });
    socket.on('error', end);
    socket.once('close', code => end(new Error(`the bridge closed with ${code}`)));
  });
}

function sessionOver({ port, token, channel, process }, { sessionId }, isResume) {
  const state = (type, data) =>
    ({ type, harnessId: ID, specificationVersion: 'harness-v1', data });
  const whereItIs = async () =>
    ({ bridge: { port, token, lastSeenEventId: await channel.suspend() } });
  const reap = async () => {
    const ended = process?.wait().catch(() => {});
    await Promise.race([ended, new Promise(resolve => setTimeout(resolve, END_MS).unref())]);
    await process?.kill();
    channel.close();
  };
  return {
    sessionId,
    isResume,
    doPromptTurn: async request => turn(channel, request, {
      type: 'start',
      prompt: typeof request.prompt === 'string' ? request.prompt : request.prompt.content,
    }),
    doContinueTurn: async request => turn(channel, request),
    doCompact: async () => {},
    doDetach: async () => state('resume-session', await whereItIs()),
    doSuspendTurn: async () => state('continue-turn', await whereItIs()),
    async doStop() {
      channel.beginClose();
      const data = await new Promise(resolve => {
        channel.on('bridge-stop', message => resolve(message.data));
        channel.send({ type: 'stop' });
      });
      await reap();
      return state('resume-session', data);
    },
    async doDestroy() {
      channel.beginClose();
      channel.send({ type: 'destroy' });
      await reap();
    },
  };
}

function turn(channel, { emit, abortSignal }, message) {
  const listening = [];
  const done = new Promise((resolve, reject) => {
    for (const type of TURN_EVENTS) {
      listening.push(channel.on(type, event => {
        emit(event);
        if (type === 'finish')
          resolve();
      }));
    }
    channel.onClose((code, reason) => reason === 'suspended' ? resolve()
      : reject(new Error(`the bridge closed with ${code}: ${reason}`)));
    abortSignal?.addEventListener('abort', () => {
      channel.send({ type: 'abort' });
      reject(abortSignal.reason);
    }, { once: true });
  }).finally(() => listening.forEach(stop => stop()));
  if (message !== undefined)
    channel.send(message);
  return { submitToolResult: async () => {}, done };
}
