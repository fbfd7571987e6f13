/* The package: the generated classes, and what JavaScript expects of them beside. */
'use strict';

const glue = require('./glue.js');
const { classes, native, SandboxError } = require('./runtime.js');
const { Process } = require('./process.js');
const streams = require('./streams.js');

class Client extends glue.Client {
  static open(uri, options) {
    return glue.raw.open_client(uri, options);
  }

  async createWorkspace(options) {
    const workspace = await glue.raw.client_create_workspace(this, reaching(options));
    return options?.temporary === true ? Workspace.temporary(workspace) : workspace;
  }

  openWorkspace(name, options) {
    return super.openWorkspace(name, reaching(options));
  }

  suspendIdle(options) {
    return asking(options, (changed) => super.suspendIdle(changed));
  }
}

class Workspace extends glue.Workspace {
  #isTemporary = false;

  /* For Client.createWorkspace(). */
  static temporary(workspace) {
    workspace.#isTemporary = true;
    return workspace;
  }

  async run(command, options) {
    const encoding = textOf(options);
    const result = await glue.raw.workspace_run(this, command, options);
    if (encoding) {
      /* What was cut off may have cut a character: that is no character, so it is not shown. */
      result.stdout = new TextDecoder().decode(result.stdout, { stream: result.stdoutTruncated });
      result.stderr = new TextDecoder().decode(result.stderr, { stream: result.stderrTruncated });
    }
    return result;
  }

  async start(command, options) {
    return Process.keep(await glue.raw.workspace_start(this, command, options), options?.bufferBytes);
  }

  async readFile(path, options) {
    const encoding = textOf(options);
    const data = await glue.raw.workspace_read_file(this, path, options);
    return encoding ? new TextDecoder('utf-8', { ignoreBOM: true }).decode(data) : data;
  }

  readable(path, options) {
    return streams.readable(this, path, options);
  }

  writable(path, options) {
    return streams.writable(this, path, options);
  }

  suspend(options) {
    return asking(options, (changed) => super.suspend(changed));
  }

  resume(options) {
    return super.resume(reaching(options));
  }

  setEgress(options) {
    return super.setEgress(asText(options));
  }

  async [Symbol.asyncDispose]() {
    if (this.#isTemporary) await this.delete();
    await this.close();
  }
}

/* Options with `egress`, as the engine takes it. */
function reaching(options) {
  return options?.egress ? { ...options, egress: asText(options.egress) } : options;
}

/* Credentials are JSON there. */
function asText(egress) {
  const changed = { ...egress };
  for (const name of ['transformations', 'addTransformations']) {
    if (Array.isArray(changed[name])) changed[name] = JSON.stringify(changed[name]);
  }
  return changed;
}

/* Whether text is wanted. */
function textOf(options) {
  const encoding = options?.encoding ?? null;
  if (encoding === null || encoding === 'buffer') return false;
  if (encoding === 'utf8' || encoding === 'utf-8') return true;
  throw new TypeError("'encoding' must be 'utf8' or 'buffer'");
}

/*
 * Checks that are functions: each is asked with a workspace of its own, which is taken back with the
 * answer. What one throws is what the suspend rejects with.
 */
async function asking(options, begin) {
  if (!Array.isArray(options?.checks)) return begin(options);
  const thrown = [];
  const checks = options.checks.map((check) => (typeof check !== 'function' ? check : (lent, question) => {
    answer(check, lent).then(
      (who) => native.answer(question, who !== '', who, ''),
      (error) => {
        thrown.push(error);
        native.answer(question, false, '', String(error?.message || 'a check has failed'));
      });
  }));
  try {
    return await begin({ ...options, checks });
  } catch (error) {
    throw thrown.length > 0 && error instanceof glue.errors.FailedError ? thrown[0] : error;
  }
}

/* Who works there: a sentence, or "" for nobody. */
async function answer(check, lent) {
  const found = await check(new Workspace(lent));
  return typeof found === 'string' ? found : found ? 'a check of the caller' : '';
}

const levels = ['off', 'error', 'warning', 'info', 'debug'];

function setLog(level, listener) {
  if (!levels.includes(level)) throw new TypeError(`'level' must be one of ${levels.join(', ')}`);
  if (listener !== undefined && listener !== null && typeof listener !== 'function') {
    throw new TypeError("'listener' must be a function");
  }
  native.setLog(level, level === 'off' ? undefined : listener ?? undefined);
}

Object.assign(classes, {
  Client,
  Workspace,
  Process,
  Watch: streams.Watch,
  FileWatch: streams.FileWatch,
  FileReader: streams.FileReader,
  FileWriter: streams.FileWriter,
  Connection: streams.Connection,
  Forward: streams.Forward,
});

module.exports = {
  ...classes,
  ...glue.errors,
  SandboxError,
  applyManifests: glue.applyManifests,
  doctor: glue.doctor,
  openHandles: native.openHandles,
  renderManifests: glue.renderManifests,
  setLog,
  version: glue.version,
};
