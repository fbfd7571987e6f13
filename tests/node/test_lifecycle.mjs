/* Suspend, resume, snapshots: nothing unproven is handed out. */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { memoryPlatform, noHandlesLeft, sandbox } from './place.mjs';

const uri = memoryPlatform();
let client;

before(async () => { client = await sandbox.Client.open(uri); });
after(async () => {
  await client.close();
  await noHandlesLeft();
});

async function withWorkspace(use, options) {
  const workspace = await client.createWorkspace({ ...options, temporary: true });
  try {
    await use(workspace);
  } finally {
    await workspace[Symbol.asyncDispose]();
  }
}

test('a suspended workspace comes back with its processes, proven', () => withWorkspace(async (workspace) => {
  const counter = await workspace.start('n=0; while :; do echo $n; n=$((n+1)); sleep 0.02; done', { role: 'service' });
  const lines = counter.lines();
  const first = [];
  for (let n = 0; n < 3; n++) first.push((await lines.next()).value.text);
  const slept = await workspace.suspend({ keep: 'memory' });
  assert.equal(slept.kept, 'memory');
  assert.equal(slept.whyFiles, '');
  assert.equal((await workspace.inspect()).state, 'suspended');
  await assert.rejects(workspace.run('true'), sandbox.SuspendedError);
  const woke = await workspace.resume();
  assert.deepEqual([woke.restored, woke.proof, woke.kept, woke.snapshot], [true, 'memory', 'memory', slept.snapshot]);
  for (let n = 0; n < 3; n++) first.push((await lines.next()).value.text);
  assert.deepEqual(first, ['0', '1', '2', '3', '4', '5'], 'without a gap');
  await lines.return();
}));

test('files alone are kept where that is asked for', () => withWorkspace(async (workspace) => {
  await workspace.writeFile('kept', 'x');
  const slept = await workspace.suspend({ keep: 'files' });
  assert.equal(slept.kept, 'files');
  const woke = await workspace.resume();
  assert.deepEqual([woke.restored, woke.proof], [true, 'files']);
  assert.equal(await workspace.readFile('kept', { encoding: 'utf8' }), 'x');
}));

test('a snapshot is verified, listed, gone back to and deleted', () => withWorkspace(async (workspace) => {
  await workspace.writeFile('state', 'one');
  const one = await workspace.checkpoint();
  await workspace.writeFile('state', 'two');
  const two = await workspace.checkpoint();
  const list = await workspace.listSnapshots();
  assert.deepEqual(list.map(({ id, isRecoveryPoint }) => [id, isRecoveryPoint]), [[two.snapshot, true], [one.snapshot, false]]);
  const verified = await workspace.verifySnapshot();
  assert.deepEqual([verified.verdict, verified.snapshot], ['intact', two.snapshot]);
  await workspace.suspend({ spare: one.snapshot });
  await workspace.resume({ snapshot: one.snapshot, accept: 'files' });
  assert.equal(await workspace.readFile('state', { encoding: 'utf8' }), 'one');
  await assert.rejects(workspace.verifySnapshot('0'.repeat(32)), { reason: 'no-such-snapshot' });
  await workspace.deleteSnapshot(two.snapshot);
  assert.ok(!(await workspace.listSnapshots()).some(({ id }) => id === two.snapshot));
}));

test('what is damaged is not restored: blocked, the snapshot kept, the caller told', () => withWorkspace(async (workspace) => {
  await workspace.writeFile('state', 'precious');
  const slept = await workspace.suspend({ keep: 'files' });
  const place = path.dirname(uri.slice('memory:'.length));
  const damaged = fs.readdirSync(place, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile() && (each.parentPath ?? each.path).includes(slept.snapshot))
    .map((each) => path.join(each.parentPath ?? each.path, each.name));
  assert.ok(damaged.length > 0, 'the snapshot lies in the platform\'s directory');
  for (const file of damaged) {
    const data = fs.readFileSync(file);
    if (data.includes('precious')) fs.writeFileSync(file, data.toString('latin1').replace('precious', 'Precious'), 'latin1');
  }
  assert.equal((await workspace.verifySnapshot()).verdict, 'damaged');
  const failure = await workspace.resume().catch((error) => error);
  assert.ok(failure instanceof sandbox.NotRestoredError, String(failure));
  assert.equal(failure.reason, 'snapshot-damaged');
  assert.equal((await workspace.inspect()).state, 'blocked');
  assert.equal((await workspace.listSnapshots()).length, 1);
}));

test('somebody who works there is not suspended, unless by force', () => withWorkspace(async (workspace) => {
  const process = await workspace.start('sleep 60');
  const failure = await workspace.suspend().catch((error) => error);
  assert.ok(failure instanceof sandbox.BusyError);
  assert.equal(failure.reason, 'active');
  assert.match(failure.message, /sleep 60/);
  assert.equal((await workspace.activity()).tasks, 1);
  await workspace.suspend({ force: true });
  await workspace.resume();
  await process.kill('SIGKILL');
}));

test('functions are asked whether somebody works there', () => withWorkspace(async (workspace) => {
  await workspace.writeFile('busy', 'an agent\'s turn');
  const asked = [];
  const check = async (lent) => {
    asked.push(lent);
    return lent.readFile('busy', { encoding: 'utf8' }).catch(() => false);
  };
  const failure = await workspace.suspend({ checks: [check] }).catch((error) => error);
  assert.ok(failure instanceof sandbox.BusyError);
  assert.match(failure.message, /an agent's turn/);
  await assert.rejects(asked[0].inspect(), sandbox.ClosedError, 'the handle was for the question alone');
  const mine = new Error('the check has no answer');
  await assert.rejects(workspace.suspend({ checks: [() => { throw mine; }] }), (error) => error === mine);
  assert.equal((await workspace.inspect()).state, 'running');
  const abort = new AbortController();
  const kept = [];
  const never = () => { setTimeout(() => abort.abort(), 20); return new Promise((resolve) => kept.push(resolve)); };
  await assert.rejects(workspace.suspend({ checks: [never], signal: abort.signal }), { name: 'AbortError' });
  await assert.rejects(workspace.suspend({ checks: [never], timeout: 300 }), sandbox.SandboxError);
  const forgotten = workspace.suspend({ checks: [() => new Promise(() => {})] });
  const collect = setInterval(globalThis.gc, 5);
  await assert.rejects(forgotten, { code: 'SANDBOX_FAILED', message: /nothing holds its promise/ });
  clearInterval(collect);
  await assert.rejects(workspace.suspend({ checks: [{ opencode: { prot: 1 } }] }), TypeError);
  await assert.rejects(workspace.suspend({ checks: ['opencode'] }), TypeError);
  await workspace.removeFile('busy');
  await workspace.suspend({ checks: [check, { opencode: { port: 4096 } }] });
  assert.equal((await workspace.inspect()).state, 'suspended');
}));

test('idle workspaces are suspended, those that a check calls busy are not', () => withWorkspace(async (workspace) => {
  const busy = await client.suspendIdle({ idleMs: 1, checks: [() => 'me'] });
  assert.deepEqual([busy.suspended, busy.active, busy.failed], [0, 1, 0]);
  const idle = await client.suspendIdle({ idleMs: 1, labels: { kind: 'test' }, checks: [() => false] });
  assert.deepEqual([idle.suspended, idle.failed], [1, 0]);
  assert.equal((await workspace.inspect()).state, 'suspended');
}, { labels: { kind: 'test' } }));

test('a watch tells what is done to workspaces, until it is closed', async () => {
  const watch = await client.watch();
  await withWorkspace(async (workspace) => {
    await workspace.suspend();
    const states = [];
    for await (const event of watch) {
      assert.equal(event.workspace, workspace.name);
      if (event.kind === 'state') states.push(event.state);
      if (event.state === 'suspended') break;
    }
    assert.deepEqual(states.slice(-2), ['suspending', 'suspended']);
  });
  await assert.rejects((async () => { for (;;) await watch.next({ timeout: 1 }); })(), sandbox.TimedOutError);
  const rest = (async () => { for await (const event of watch) assert.ok(event.kind); })();
  await watch.close();
  await rest;
});
