/* What is read or watched piece by piece: files, connections, events. */
'use strict';

const glue = require('./glue.js');

/* A handle on which one waits for one thing after another: close() ends the wait. */
function waiting(Base, next) {
  return class extends Base {
    #closing = new AbortController();

    async next(options) {
      const closing = this.#closing.signal;
      const signal = options?.signal ? [options.signal, closing] : closing;
      return next(this, { ...options, signal });
    }

    async *[Symbol.asyncIterator]() {
      for (;;) {
        let one;
        try {
          one = await this.next({ timeout: Infinity });
        } catch (error) {
          if (this.#closing.signal.aborted) return;
          throw error;
        }
        yield one;
      }
    }

    close() {
      this.#closing.abort(new glue.errors.ClosedError(-14, 'the handle was closed', '', '', 0, 0, ''));
      return super.close();
    }
  };
}

class Watch extends waiting(glue.Watch, glue.raw.watch_next) {}

class FileWatch extends waiting(glue.FileWatch, glue.raw.file_watch_next) {}

/* The next piece, or null at the end. */
async function piece(promise) {
  const data = await promise;
  return data.length === 0 ? null : data;
}

class FileReader extends glue.FileReader {
  next(options) {
    return piece(glue.raw.file_reader_next(this, options));
  }

  async *[Symbol.asyncIterator]() {
    for (let data = await this.next(); data !== null; data = await this.next()) yield data;
  }
}

class FileWriter extends glue.FileWriter {}

class Connection extends glue.Connection {
  #readable = null;
  #writable = null;
  #closing = new AbortController();

  read(options) {
    const closing = this.#closing.signal;
    const signal = options?.signal ? [options.signal, closing] : closing;
    return piece(glue.raw.connection_read(this, { ...options, signal }));
  }

  get readable() {
    this.#readable ??= new ReadableStream({
      pull: async (controller) => {
        const data = await this.read();
        if (data === null) controller.close();
        else controller.enqueue(data);
      },
    }, { highWaterMark: 0 });
    return this.#readable;
  }

  get writable() {
    this.#writable ??= new WritableStream({
      write: (chunk) => this.write(chunk, { timeout: Infinity }),
      close: () => this.endOutput(),
      abort: () => this.close(),
    });
    return this.#writable;
  }

  close() {
    this.#closing.abort(new glue.errors.ClosedError(-14, 'the handle was closed', '', '', 0, 0, ''));
    return super.close();
  }
}

class Forward extends glue.Forward {}

/* A file of a workspace as a stream; it is opened with the first read. */
function readable(workspace, path, options) {
  let reader = null;
  return new ReadableStream({
    async pull(controller) {
      reader ??= await workspace.openReader(path, options);
      const data = await reader.next({ signal: options?.signal });
      if (data !== null) {
        controller.enqueue(data);
        return;
      }
      controller.close();
      await reader.close();
    },
    cancel: () => reader?.close(),
  }, { highWaterMark: 0 });
}

/* Nobody sees its content before the stream is closed. */
function writable(workspace, path, options) {
  let writer = null;
  return new WritableStream({
    async start() {
      writer = await workspace.openWriter(path, options);
    },
    write: (chunk) => writer.write(chunk, { signal: options?.signal }),
    async close() {
      await writer.commit({ signal: options?.signal });
      await writer.close();
    },
    abort: () => writer?.close(),
  });
}

module.exports = { Connection, FileReader, FileWatch, FileWriter, Forward, Watch, readable, writable };
