/* What the generated glue stands on: the addon, handles, errors, and how a call is begun. */
'use strict';

const path = require('node:path');
const { types } = require('node:util');

const native = load();

/* Of the class that belongs to its status, with what the library said about it. */
class SandboxError extends Error {
  constructor(status, message, reason, driver, httpStatus, systemError, processId) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.driver = driver;
    this.httpStatus = httpStatus;
    this.systemError = systemError;
    this.processId = processId;
  }
}
Object.defineProperty(SandboxError.prototype, 'name', { value: 'SandboxError', configurable: true, writable: true });
Object.defineProperty(SandboxError.prototype, 'code', { value: 'SANDBOX_UNKNOWN_STATUS', configurable: true, writable: true });

let external;

/* A thing of the library. Only the binding makes them. */
class Handle {
  #external;

  static {
    external = (handle) => handle.#external;
  }

  constructor(handle) {
    if (!types.isExternal(handle)) throw new TypeError('Illegal constructor');
    this.#external = handle;
  }

  close() {
    return native.close(this.#external);
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

/* What index.js and its neighbours have made of the generated classes, by name. */
const classes = Object.create(null);

async function make(name, promise) {
  return new classes[name](await promise);
}

function call(method, self, options, ...given) {
  const signal = options?.signal ?? undefined;
  if (signal !== undefined) return callWithSignal(method, self, options, signal, given);
  try {
    return method(self, undefined, options, ...given);
  } catch (error) {
    return Promise.reject(error);
  }
}

/* `signal` may be several, for what ends with its handle too. */
async function callWithSignal(method, self, options, signal, given) {
  const signals = Array.isArray(signal) ? signal : [signal];
  for (const each of signals) {
    if (typeof each.addEventListener !== 'function') throw new TypeError("'signal' must be an AbortSignal");
    each.throwIfAborted();
  }
  const token = native.newToken();
  signals.forEach((each) => listen(each, token));
  try {
    return await method(self, token, options, ...given);
  } catch (error) {
    const aborted = signals.find((each) => each.aborted);
    throw aborted && error instanceof SandboxError && error.code === 'SANDBOX_CANCELLED' ? aborted.reason : error;
  } finally {
    signals.forEach((each) => leave(each, token));
  }
}

/* One listener a signal, however many calls it serves: a listener each would look like a leak. */
const listening = new WeakMap();

function listen(signal, token) {
  let heard = listening.get(signal);
  if (heard === undefined) {
    const tokens = new Set();
    heard = { tokens, abort: () => tokens.forEach((each) => native.trigger(each)) };
    listening.set(signal, heard);
    signal.addEventListener('abort', heard.abort, { once: true });
  }
  heard.tokens.add(token);
}

function leave(signal, token) {
  const heard = listening.get(signal);
  heard.tokens.delete(token);
  if (heard.tokens.size > 0) return;
  listening.delete(signal);
  signal.removeEventListener('abort', heard.abort);
}

function defineErrors(rows) {
  const byStatus = new Map();
  const errors = { SandboxError };
  for (const [status, code, name] of rows) {
    const defined = { [name]: class extends SandboxError {} }[name];
    Object.defineProperty(defined.prototype, 'name', { value: name, configurable: true, writable: true });
    Object.defineProperty(defined.prototype, 'code', { value: code, configurable: true, writable: true });
    byStatus.set(status, defined);
    errors[name] = defined;
  }
  native.setErrorMaker((status, ...rest) => new (byStatus.get(status) ?? SandboxError)(status, ...rest));
  return errors;
}

/* The addon lies beside this file: `npm install` and the build put it there. */
function load() {
  const file = path.join(__dirname, 'sandbox.node');
  try {
    return require(file);
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    throw new Error(`libsandbox is not built: ${file} is missing; install the package again, with its scripts`);
  }
}

/* The program ends: what is under way is cancelled and waited for, and handles are given back. */
process.on('exit', () => native.shutDown(1000));

module.exports = { Handle, SandboxError, call, classes, defineErrors, external, make, native };
