/* A process: its output as events, as text, or as web streams. */
'use strict';

const os = require('node:os');
const glue = require('./glue.js');

const LINE_LIMIT = 64 << 20; /* characters of one line */
const KEPT_BYTES = 1 << 20; /* what one stream holds that nobody reads, as bufferBytes by default */

class Process extends glue.Process {
  #closing = new AbortController();
  #outputs = null;
  #takenBy = '';
  #stdin = null;
  #keptBytes = KEPT_BYTES;

  /* For Workspace.start(): a larger buffer inside is a larger one here. */
  static keep(process, bytes) {
    if (typeof bytes === 'number' && bytes > 0) process.#keptBytes = bytes;
    return process;
  }

  async *events(options) {
    this.#take('its events');
    try {
      for (;;) {
        const event = await this.#next(options);
        if (event === null) return;
        yield event;
        if (event.kind === 'exit') return;
      }
    } finally {
      this.#takenBy = '';
    }
  }

  [Symbol.asyncIterator]() {
    return this.events();
  }

  /* A character may come in two pieces, so each stream has a decoder of its own. */
  async *text(options) {
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    for await (const event of this.events(options)) {
      if (event.kind !== 'exit') {
        const { data, ...rest } = event;
        if (rest.dropped > 0) decoders[event.kind] = new TextDecoder();
        const text = decoders[event.kind].decode(data, { stream: true });
        if (text !== '') yield { ...rest, text };
        continue;
      }
      for (const kind of ['stdout', 'stderr']) {
        const text = decoders[kind].decode();
        if (text !== '') yield { kind, text, offset: NaN, dropped: 0 };
      }
      yield event;
    }
  }

  /* Whole lines, however they come; what follows the last newline is the last line. */
  async *lines(options) {
    const rest = { stdout: '', stderr: '' };
    for await (const event of this.text(options)) {
      if (event.kind === 'exit') {
        for (const kind of ['stdout', 'stderr']) if (rest[kind] !== '') yield { kind, text: rest[kind] };
        yield event;
        continue;
      }
      const { kind } = event;
      if (!event.text.includes('\n')) {
        rest[kind] += event.text;
        if (rest[kind].length > LINE_LIMIT) {
          throw new glue.errors.LimitError(-12, `a line is longer than ${LINE_LIMIT} characters`, 'line-too-long',
            '', 0, 0, this.id);
        }
        continue;
      }
      const lines = (rest[kind] + event.text).split('\n');
      rest[kind] = lines.pop();
      for (const text of lines) yield { kind, text };
    }
  }

  get stdout() {
    return this.#streams().stdout.stream;
  }

  get stderr() {
    return this.#streams().stderr.stream;
  }

  get stdin() {
    this.#stdin ??= new WritableStream({
      write: (chunk) => this.write(chunk, { timeout: Infinity }),
      close: () => this.endInput(),
      abort: () => this.endInput(),
    });
    return this.#stdin;
  }

  wait(options) {
    return glue.raw.process_wait(this, options);
  }

  async kill(signal = 'SIGTERM', options) {
    const number = typeof signal === 'string' ? os.constants.signals[signal] : signal;
    if (number === undefined) throw new TypeError(`there is no signal '${signal}'`);
    await glue.raw.process_signal(this, number, options);
  }

  close() {
    this.#closing.abort(new glue.errors.ClosedError(-14, 'the handle was closed', '', '', 0, 0, this.id));
    return super.close();
  }

  /* The next event, or null after the last. */
  async #next(options) {
    const closing = this.#closing.signal;
    const signal = options?.signal ? [options.signal, closing] : closing;
    let event;
    try {
      event = await glue.raw.process_next(this, { ...options, signal });
    } catch (error) {
      if (error instanceof glue.errors.ClosedError && !closing.aborted) return null;
      throw error;
    }
    const { kind, exitCode, signal: endedBy, timedOut, data, offset, dropped } = event;
    return kind === 'exit' ? { kind, exitCode, signal: endedBy, timedOut } : { kind, data, offset, dropped };
  }

  #take(way) {
    if (this.#takenBy !== '') {
      throw new TypeError(`the output is taken already, by ${this.#takenBy}: take it in one way`);
    }
    this.#takenBy = way;
  }

  #streams() {
    if (this.#outputs === null) {
      this.#take('its streams');
      const pump = () => this.#pump();
      this.#outputs = { stdout: new Output(pump, this.#keptBytes), stderr: new Output(pump, this.#keptBytes) };
    }
    return this.#outputs;
  }

  #isPumping = false;

  /*
   * Reads on while somebody waits for bytes, or has said that they are of no interest, and no stream
   * holds more than it may: then the process waits, as on a full pipe.
   */
  async #pump() {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const outputs = Object.values(this.#outputs);
    try {
      while (outputs.some((output) => output.isWanted) && !outputs.some((output) => output.isFull)) {
        const event = await this.#next();
        if (event === null || event.kind === 'exit') {
          outputs.forEach((output) => output.end());
          return;
        }
        this.#outputs[event.kind].give(event.data);
      }
    } catch (error) {
      outputs.forEach((output) => output.fail(error));
    } finally {
      this.#isPumping = false;
    }
  }
}

/* One stream of a process, with what has come and is not read yet. */
class Output {
  #waiting = [];
  #bytes = 0;
  #controller;
  #pulled = null;
  #isCancelled = false;
  #isEnded = false;

  constructor(pump, keptBytes) {
    this.keptBytes = keptBytes;
    this.pump = pump;
    this.stream = new ReadableStream({
      start: (controller) => { this.#controller = controller; },
      pull: () => this.#pull(),
      cancel: () => this.#cancel(),
    }, { highWaterMark: 0 });
  }

  get isWanted() {
    return !this.#isEnded && (this.#pulled !== null || this.#isCancelled);
  }

  get isFull() {
    return this.#bytes >= this.keptBytes;
  }

  give(data) {
    if (this.#isCancelled) return;
    if (this.#pulled !== null) {
      this.#controller.enqueue(data);
      this.#answer();
      return;
    }
    this.#waiting.push(data);
    this.#bytes += data.length;
  }

  end() {
    this.#isEnded = true;
    if (this.#pulled !== null || this.#waiting.length === 0) this.#close();
  }

  fail(error) {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#waiting = [];
    this.#bytes = 0;
    if (!this.#isCancelled) this.#controller.error(error);
    this.#answer();
  }

  #pull() {
    const data = this.#waiting.shift();
    if (data !== undefined) {
      this.#bytes -= data.length;
      this.#controller.enqueue(data);
      if (this.#isEnded && this.#waiting.length === 0) this.#close();
      else this.pump(); /* the other stream may have waited for room here */
      return undefined;
    }
    return new Promise((resolve) => {
      this.#pulled = resolve;
      this.pump();
    });
  }

  #cancel() {
    this.#isCancelled = true;
    this.#waiting = [];
    this.#bytes = 0;
    this.#answer();
    this.pump();
  }

  #close() {
    if (!this.#isCancelled) this.#controller.close();
    this.#answer();
  }

  #answer() {
    const resolve = this.#pulled;
    this.#pulled = null;
    resolve?.();
  }
}

module.exports = { Process };
