'use strict';
/* The six file functions of a session: missing files are null, writers make parents. */

const path = require('node:path');
const { isMissingFile } = require('./errors.cjs');

function createFiles(workspace, directory) {
  // Absolute, since a relative path may not follow a link out of the workspace's directory.
  const absolute = name => path.posix.resolve(directory, name);

  async function readFile({ path: name, abortSignal }) {
    abortSignal?.throwIfAborted();
    return orNull(() => openedStream(workspace.readable(absolute(name), { signal: abortSignal })));
  }

  async function readBinaryFile({ path: name, abortSignal }) {
    abortSignal?.throwIfAborted();
    return orNull(async () => {
      const bytes = await workspace.readFile(absolute(name), { signal: abortSignal });
      return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    });
  }

  async function readTextFile({ encoding = 'utf-8', startLine, endLine, ...options }) {
    const bytes = await readBinaryFile(options);
    return bytes === null ? null : selectLines(decode(bytes, encoding), startLine, endLine);
  }

  async function writeFile({ path: name, content, abortSignal }) {
    abortSignal?.throwIfAborted();
    const writable = await workspace.writable(absolute(name), { signal: abortSignal });
    await content.pipeTo(writable, { signal: abortSignal });
  }

  async function writeBinaryFile({ path: name, content, abortSignal }) {
    abortSignal?.throwIfAborted();
    await workspace.writeFile(absolute(name), content, { signal: abortSignal });
  }

  async function writeTextFile({ content, encoding = 'utf-8', ...options }) {
    if (!Buffer.isEncoding(encoding))
      throw new RangeError(`text cannot be written in the encoding '${encoding}'`);
    await writeBinaryFile({ ...options, content: Buffer.from(content, encoding) });
  }

  return { readFile, readBinaryFile, readTextFile, writeFile, writeBinaryFile, writeTextFile };
}

async function orNull(read) {
  try {
    return await read();
  } catch (error) {
    if (isMissingFile(error))
      return null;
    throw error;
  }
}

/* A stream tells only at its first piece that there is no such file. */
async function openedStream(opening) {
  const reader = (await opening).getReader();
  let first = await reader.read();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = first ?? await reader.read();
      first = undefined;
      if (done)
        controller.close();
      else
        controller.enqueue(value);
    },
    cancel: reason => reader.cancel(reason),
  }, { highWaterMark: 0 });
}

function decode(bytes, encoding) {
  // Buffer's latin1 is what was written as latin1; TextDecoder's is another table.
  if (Buffer.isEncoding(encoding) && !/^utf-?8$/i.test(encoding))
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(encoding);
  return new TextDecoder(encoding, { ignoreBOM: true }).decode(bytes);
}

/** Lines are counted from 1, both ends belong to the range; a range past the end is cut. */
function selectLines(text, startLine, endLine) {
  if (startLine === undefined && endLine === undefined)
    return text;
  const ending = ['\r\n', '\n', '\r'].find(each => text.includes(each)) ?? '\n';
  const lines = text.split(ending);
  return lines.slice(Math.max(1, startLine ?? 1) - 1, endLine ?? lines.length).join(ending);
}

module.exports = { createFiles };
