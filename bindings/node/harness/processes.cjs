'use strict';
/* `run` and `spawn` of a session, and how its processes are found again. */

const { randomBytes } = require('node:crypto');
const { constants } = require('node:os');
const { hasCode, isGone } = require('./errors.cjs');

/*
 * Process ids are ours to choose. This beginning tells what a harness session started from what
 * others did, in any later program: a bridge must be found again after its host has crashed.
 */
const MARK = 'ac5e5510';
/* Output that nobody takes: a bridge whose host is away goes on writing for that long. */
const SPAWN_BUFFER_BYTES = 16 * 1024 * 1024;
const RUN_OUTPUT_LIMIT = 64 * 1024 * 1024;

const ENDS = new Set(['SANDBOX_SUSPENDED', 'SANDBOX_INTERRUPTED']);

function createProcesses(workspace, { directory, env, outputLimit = RUN_OUTPUT_LIMIT, tag }) {
  const common = options => ({
    directory: options.workingDirectory ?? directory,
    env: { ...env, ...options.env },
    id: MARK + tag + randomBytes(8).toString('hex'),
  });

  async function run({ command, abortSignal, ...options }) {
    abortSignal?.throwIfAborted();
    const result = await workspace.run(command,
      { ...common(options), outputLimit, encoding: 'utf8', signal: abortSignal });
    abortSignal?.throwIfAborted();
    const finished = { exitCode: exitCodeOf(result), stdout: result.stdout, stderr: result.stderr };
    if (result.stdoutTruncated || result.stderrTruncated)
      throw outputError(outputLimit, finished);
    return finished;
  }

  async function spawn({ command, abortSignal, ...options }) {
    abortSignal?.throwIfAborted();
    // A service: a bridge that waits for its host must not keep the workspace awake.
    const started = { ...common(options), role: 'service', bufferBytes: SPAWN_BUFFER_BYTES };
    let process;
    try {
      process = await workspace.start(command, { ...started, signal: abortSignal });
    } catch (error) {
      if (hasCode(error, 'SANDBOX_UNKNOWN'))
        await end(workspace, started.id);
      throw error;
    }
    return handleOf(process, abortSignal);
  }

  return { run, spawn };
}

/** Ends what sessions started, or the session of one tag. Resolves to how many there were. */
async function endProcesses(workspace, tag = '') {
  const running = await listRunning(workspace, tag);
  await Promise.all(running.map(({ id }) => end(workspace, id)));
  return running.length;
}

/**
 * Takes the output of what runs since before this session, and throws it away: a bridge whose
 * buffer has filled up would wait for ever, and with it the turn that is resumed.
 */
async function drainProcesses(workspace, tag) {
  for (const { id } of await listRunning(workspace, '')) {
    if (!id.startsWith(MARK + tag))
      void drain(workspace, id);
  }
}

async function drain(workspace, id) {
  let process;
  try {
    process = await workspace.findProcess(id);
    for await (const event of process)
      void event;
  } catch {
    // Suspended, deleted or lost: whoever resumes it drains it anew.
  } finally {
    await process?.close();
  }
}

async function listRunning(workspace, tag) {
  const all = await workspace.listProcesses();
  return all.filter(({ id, running }) => running && id.startsWith(MARK + tag));
}

async function end(workspace, id) {
  let process;
  try {
    process = await workspace.findProcess(id);
    await process.kill('SIGKILL');
  } catch (error) {
    if (!isGone(error))
      throw error;
  } finally {
    await process?.close();
  }
}

function handleOf(process, abortSignal) {
  let isKilled = false;
  const kill = async () => {
    isKilled = true;
    try {
      await process.kill('SIGKILL');
    } catch (error) {
      if (!isGone(error) && !hasCode(error, 'SANDBOX_INTERRUPTED'))
        throw error;
    }
  };
  // What it runs into, wait() tells.
  const onAbort = () => void kill().catch(() => {});
  abortSignal?.addEventListener('abort', onAbort, { once: true });
  if (abortSignal?.aborted)
    onAbort();

  const wait = async () => {
    const result = await process.wait();
    abortSignal?.removeEventListener('abort', onAbort);
    abortSignal?.throwIfAborted();
    return { exitCode: exitCodeOf(result) };
  };
  const [stdout, stderr] = [process.stdout, process.stderr].map(each => endingStream(each, () => isKilled));
  return { pid: process.pid, stdout, stderr, wait, kill };
}

/*
 * Whoever kills a process and then stops the session has no more to learn from its output: there
 * it ends, it does not fail because the workspace was suspended before the process's end was told.
 */
function endingStream(stream, isKilled) {
  const reader = stream.getReader();
  return new ReadableStream({
    pull: async controller => {
      try {
        const { done, value } = await reader.read();
        if (done)
          controller.close();
        else
          controller.enqueue(value);
      } catch (error) {
        if (!isKilled() || !(isGone(error) || ENDS.has(error?.code)))
          throw error;
        controller.close();
      }
    },
    cancel: reason => reader.cancel(reason),
  }, { highWaterMark: 0 });
}

/* As a shell tells it: a number that is not 0 for what a signal ended. */
function exitCodeOf({ exitCode, signal }) {
  return signal ? 128 + (constants.signals[signal] ?? constants.signals.SIGKILL) : exitCode;
}

/* Cut output that looks whole would mislead an agent. */
function outputError(limit, finished) {
  const error = new Error(`the command ended with ${finished.exitCode} and wrote more than the ` +
    `${limit} bytes that are kept; send its output to a file, or use spawn`);
  return Object.assign(error, { code: 'SANDBOX_LIMIT', reason: 'output-limit', ...finished });
}

module.exports = { createProcesses, endProcesses, drainProcesses };
