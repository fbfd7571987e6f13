/* Files: whole, in pieces, as streams, trees, links, watches. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { bytesOf, collect, memoryPlatform, noHandlesLeft, sandbox } from './place.mjs';

const uri = memoryPlatform();
const here = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-files-'));
let client;
let workspace;

before(async () => {
  client = await sandbox.Client.open(uri);
  workspace = await client.createWorkspace();
});
after(async () => {
  await workspace.delete();
  await workspace.close();
  await client.close();
  fs.rmSync(here, { recursive: true });
  await noHandlesLeft();
});

test('what is written is read back, byte by byte', async () => {
  for (const size of [0, 1, 65_535, 65_536, 5 << 20]) {
    const data = randomBytes(size);
    await workspace.writeFile('some/where/data', data);
    const read = await workspace.readFile('some/where/data');
    assert.ok(Buffer.isBuffer(read));
    assert.equal(Buffer.compare(read, data), 0, `${size} bytes`);
  }
  await workspace.writeFile('text', 'grüße\n');
  assert.equal(await workspace.readFile('text', { encoding: 'utf8' }), 'grüße\n');
  await workspace.writeFile('text', new Uint8Array([1, 2, 3, 4]).subarray(1, 3));
  assert.deepEqual([...await workspace.readFile('text')], [2, 3]);
  await workspace.writeFile('text', new DataView(new ArrayBuffer(2)));
  assert.deepEqual([...await workspace.readFile('text')], [0, 0]);
  await assert.rejects(workspace.writeFile('text', new Uint16Array(2)), TypeError);
  await assert.rejects(workspace.writeFile('text', 5), TypeError);
});

test('a part is read, a file is added to, and neither is taken for the other', async () => {
  await workspace.writeFile('log', 'abc');
  await workspace.writeFile('log', 'def', { append: true });
  assert.equal(await workspace.readFile('log', { offset: 2, length: 3n, encoding: 'utf8' }), 'cde');
  await assert.rejects(workspace.writeFile('log', '', { exclusive: true }), sandbox.ExistsError);
  await assert.rejects(workspace.writeFile('no/parent', '', { noParents: true }), { reason: 'no-such-file' });
  await assert.rejects(workspace.readFile('log', { limit: 3 }), sandbox.LimitError);
  await assert.rejects(workspace.readFile('no'), { code: 'SANDBOX_NOT_FOUND', reason: 'no-such-file' });
});

test('what is known of files is told, also of names that are not text', async () => {
  await workspace.makeDirectory('names/inner', { recursive: true });
  await workspace.writeFile(Buffer.from('names/\xff', 'latin1'), 'x', { mode: 0o600 });
  await workspace.linkFile('nowhere', 'names/link');
  const list = await workspace.listDirectory('names');
  assert.deepEqual(list.map(({ kind }) => kind).sort(), ['directory', 'link', 'regular']);
  const odd = list.find(({ kind }) => kind === 'regular');
  assert.equal(odd.name, '\ufffd');
  assert.deepEqual([...odd.nameBytes], [0xff]);
  assert.deepEqual([odd.mode, odd.fileSize], [0o600, 1]);
  assert.equal(list.find(({ kind }) => kind === 'link').target, 'nowhere');
  assert.equal(list.find(({ kind }) => kind === 'directory').nameBytes, undefined);
  const stat = await workspace.statFile(Buffer.concat([Buffer.from('names/'), odd.nameBytes]));
  assert.equal(stat.kind, 'regular');
  assert.ok(Math.abs(stat.modifiedMs - Date.now()) < 120_000);
});

test('files are renamed, linked, changed and removed', async () => {
  await workspace.writeFile('a', '1');
  await workspace.writeFile('b', '2');
  await assert.rejects(workspace.renameFile('a', 'b'), sandbox.ExistsError);
  await workspace.renameFile('a', 'b', { replace: true });
  assert.equal(await workspace.readFile('b', { encoding: 'utf8' }), '1');
  await workspace.linkFile('b', 'hard', { hardLink: true });
  assert.equal((await workspace.statFile('hard')).links, 2);
  await workspace.setFileMode('hard', 0o640);
  assert.equal((await workspace.statFile('b')).mode, 0o640);
  await workspace.makeDirectory('full');
  await workspace.writeFile('full/file', '');
  await assert.rejects(workspace.removeFile('full'), { reason: 'not-empty' });
  await workspace.removeFile('full', { recursive: true });
  await assert.rejects(workspace.statFile('full'), sandbox.NotFoundError);
});

test('a file is a web stream, in and out', async () => {
  const data = randomBytes(3 << 20);
  const source = new Blob([data]).stream();
  await source.pipeTo(workspace.writable('streamed'));
  assert.equal(Buffer.compare(await bytesOf(workspace.readable('streamed')), data), 0);
  const part = await bytesOf(workspace.readable('streamed', { offset: 10, length: 20 }));
  assert.equal(Buffer.compare(part, data.subarray(10, 30)), 0);
  await assert.rejects(bytesOf(workspace.readable('no')), sandbox.NotFoundError);
  const reader = workspace.readable('streamed').getReader();
  await reader.read();
  await reader.cancel();
});

test('P034: what is large goes through a stream without a limit and without the memory for it', async () => {
  await workspace.run('truncate -s 200M large');
  const before = process.memoryUsage().rss;
  let size = 0;
  let most = 0;
  for await (const piece of workspace.readable('large')) {
    size += piece.length;
    most = Math.max(most, process.memoryUsage().rss - before);
  }
  assert.equal(size, 200 << 20);
  assert.ok(most < 100 << 20, `${most >> 20} MiB`);
});

test('a stream that is aborted changes nothing', async () => {
  await workspace.writeFile('kept', 'old');
  const writer = workspace.writable('kept').getWriter();
  await writer.write('new');
  assert.equal(await workspace.readFile('kept', { encoding: 'utf8' }), 'old');
  await writer.abort();
  assert.equal(await workspace.readFile('kept', { encoding: 'utf8' }), 'old');
});

test('readers and writers can be used piece by piece', async () => {
  const writer = await workspace.openWriter('pieces');
  await writer.write('one ');
  await writer.write(Buffer.from('two'));
  await writer.commit();
  await writer.close();
  const reader = await workspace.openReader('pieces');
  const pieces = await collect(reader);
  assert.equal(Buffer.concat(pieces).toString(), 'one two');
  assert.equal(await reader.next(), null);
  await reader.close();
});

test('a watch tells what happens, until it is closed', async () => {
  await workspace.makeDirectory('watched');
  const watch = await workspace.watchFiles('watched', { recursive: true });
  await workspace.makeDirectory('watched/inner');
  await workspace.renameFile('watched/inner', 'watched/other');
  const seen = [];
  for await (const event of watch) {
    if (event.change !== 'modified') seen.push(event);
    if (event.change === 'moved') break;
  }
  assert.deepEqual(seen.map(({ change, path: name, newPath }) => [change, name, newPath]),
    [['created', 'inner', ''], ['moved', 'inner', 'other']]);
  const waiting = collect(watch);
  await watch.close();
  assert.deepEqual(await waiting, []);
  await assert.rejects(workspace.watchFiles('nothing-here'), sandbox.NotFoundError);
});

test('trees are copied both ways, and say how far they are', async () => {
  fs.mkdirSync(path.join(here, 'tree/inner'), { recursive: true });
  const data = randomBytes(2 << 20);
  fs.writeFileSync(path.join(here, 'tree/inner/data'), data);
  fs.symlinkSync('/etc/passwd', path.join(here, 'tree/out'));
  const told = [];
  const up = await workspace.upload(path.join(here, 'tree'), 'copy', { progress: (one) => told.push(one) });
  assert.deepEqual([up.bytes, up.skipped], [data.length, 1]);
  assert.equal(told.at(-1).bytes, data.length);
  assert.equal(typeof told.at(-1).path, 'string');
  const down = await workspace.download('copy', path.join(here, 'back'));
  assert.equal(down.bytes, data.length);
  assert.equal(Buffer.compare(fs.readFileSync(path.join(here, 'back/inner/data')), data), 0);
  await assert.rejects(workspace.download('copy', path.join(here, 'few'), { maxBytes: 10 }), { reason: 'max-bytes' });
  assert.equal(fs.existsSync(path.join(here, 'few')), false);
  await assert.rejects(workspace.upload(here, 'x', { progress: 5 }), TypeError);
});
