/* Clients, workspaces, options, errors: what every call has in common. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { memoryPlatform, noHandlesLeft, packageDirectory, sandbox, until } from './place.mjs';

const { Client } = sandbox;
const uri = memoryPlatform();
let client;
let workspace;

before(async () => {
  client = await Client.open(uri);
  workspace = await client.createWorkspace({ name: 'shared', labels: { owner: 'tests' }, env: { GREETING: 'hello' } });
});
after(async () => {
  await workspace.delete();
  await workspace.close();
  await client.close();
  await noHandlesLeft();
});

test('a client says where it is connected and what can be done there', () => {
  assert.equal(client.uri, uri);
  assert.equal(client.driver, 'memory');
  assert.equal(client.can('keep-memory'), true);
  assert.equal(client.can('limit-disk'), false);
  assert.throws(() => client.can('fly'), TypeError);
});

test('import and require give one and the same package', () => {
  const required = createRequire(import.meta.url)(path.join(packageDirectory, 'index.js'));
  assert.deepEqual(Object.keys(required).sort(), Object.keys(sandbox).filter((name) => name !== 'default').sort());
  assert.equal(required.Client, Client);
  assert.match(sandbox.version, /^\d+\.\d+\.\d+$/);
});

test('a workspace is found, listed by its labels, inspected and measured', async () => {
  const found = await client.findWorkspace(workspace.id);
  assert.equal(found.name, 'shared');
  const [info] = await client.listWorkspaces({ labels: { owner: 'tests' } });
  assert.equal(info.id, workspace.id);
  assert.deepEqual(info.labels, { owner: 'tests' });
  assert.deepEqual(await client.listWorkspaces({ labels: ['owner=nobody'] }), []);
  const now = await found.inspect();
  assert.equal(now.state, 'running');
  assert.ok(Math.abs(now.createdMs - Date.now()) < 120_000);
  assert.ok((await found.measure()).diskFreeBytes > 0);
  assert.equal((await found.activity()).tasks, 0);
  await found.renew(3_600_000n);
  assert.ok((await found.inspect()).expiresMs > Date.now());
  await found.renew(0);
  assert.equal((await found.inspect()).expiresMs, 0);
  await found.close();
});

test('open makes a workspace once and finds it from then on', async () => {
  const one = await client.openWorkspace('opened');
  const two = await client.openWorkspace('opened', { timeout: 30_000 });
  assert.equal(one.id, two.id);
  await one.delete();
  await assert.rejects(two.run('true'), sandbox.ClosedError);
  await Promise.all([one.close(), two.close()]);
});

test('a failure is of the class of its status and carries what is known', async () => {
  const failure = await workspace.readFile('nothing/here').catch((error) => error);
  assert.ok(failure instanceof sandbox.NotFoundError);
  assert.ok(failure instanceof sandbox.SandboxError && failure instanceof Error);
  assert.equal(failure.name, 'NotFoundError');
  assert.equal(failure.code, 'SANDBOX_NOT_FOUND');
  assert.equal(failure.status, -2);
  assert.equal(failure.reason, 'no-such-file');
  assert.equal(failure.httpStatus, 0);
  assert.match(failure.message, /nothing\/here/);
  await assert.rejects(client.createWorkspace({ name: 'shared' }), sandbox.ExistsError);
  await assert.rejects(client.findWorkspace('nobody'), { code: 'SANDBOX_NOT_FOUND', reason: 'no-such-workspace' });
  await assert.rejects(Client.open('nonsense:'), sandbox.UnsupportedError);
});

test('an option that is not known, or not of its kind, is refused', async () => {
  const rejects = (options, expected) => assert.rejects(client.createWorkspace(options), expected);
  await rejects({ nmae: 'typo' }, { name: 'TypeError', message: "there is no option 'nmae'" });
  await rejects({ name: 5 }, { name: 'TypeError', message: /'name' must be a string/ });
  await rejects({ memoryMib: -1 }, { name: 'RangeError', message: /'memoryMib' must be a whole number from 0 to 4294967295/ });
  await rejects({ memoryMib: 1.5 }, RangeError);
  await rejects({ memoryMib: '1' }, TypeError);
  await rejects({ expiresAfterMs: 2n ** 64n }, RangeError);
  await rejects({ expiresAfterMs: 2 ** 53 + 2 }, RangeError);
  await rejects({ from: 'somewhere' }, { name: 'TypeError', message: /'from' must be one of 'nothing', 'live-files', 'snapshot'/ });
  await rejects({ labels: 'a=b' }, TypeError);
  await rejects('shared', TypeError);
  await rejects({ get name() { throw new Error('mine'); } }, { message: 'mine' });
  await assert.rejects(workspace.readFile(), { name: 'TypeError', message: /'path'/ });
  await assert.rejects(workspace.readFile('a\0b'), { name: 'TypeError', message: /zero/ });
  await assert.rejects(workspace.run('true', { encoding: 'latin1' }), TypeError);
  const left = await client.listWorkspaces();
  assert.deepEqual(left.map((info) => info.name), ['shared'], 'nothing was made');
});

test('P158: a time that cannot be kept is refused, not turned into another', async () => {
  for (const timeout of [-1, NaN, 2 ** 32, 1e300]) {
    await assert.rejects(workspace.inspect({ timeout }), RangeError);
  }
  await assert.rejects(workspace.inspect({ timeout: '5' }), TypeError);
  await assert.rejects(workspace.run('true', { deadlineMs: 2 ** 64 }), RangeError);
  assert.equal((await workspace.inspect({ timeout: Infinity })).name, 'shared');
  assert.equal((await workspace.inspect({ timeout: 30_000.5 })).name, 'shared');
});

test('P190: the environment is data: no name that breaks out of it, newlines kept', async () => {
  const show = (env) => workspace.run(['/bin/sh', '-c', 'printf %s "$OK"'], { env, encoding: 'utf8' });
  assert.equal((await show({ OK: 'a\nb', LEFT_OUT: undefined })).stdout, 'a\nb');
  assert.equal((await show(['OK=x=y'])).stdout, 'x=y');
  assert.equal((await workspace.run('echo $GREETING', { encoding: 'utf8' })).stdout, 'hello\n');
  await assert.rejects(show({ 'A=B': 'x' }), { name: 'TypeError' });
  await assert.rejects(show({ OK: 'a\0b' }), { name: 'TypeError' });
  await assert.rejects(show({ '': 'y' }), sandbox.InvalidError);
});

test('a secret in an option is in no message', async () => {
  const secret = 'hush-hush-7';
  const failures = await Promise.allSettled([
    workspace.run('true', { env: { 'A=B': secret } }),
    workspace.run('true', { env: { '': secret } }),
    workspace.run('true', { user: 'nobody-of-that-name', env: { TOKEN: secret } }),
  ]);
  for (const { reason } of failures) assert.doesNotMatch(JSON.stringify(reason) + reason.stack, /hush/);
});

test('a closed handle answers with an error, whoever closes it how often', async () => {
  const handle = await client.findWorkspace('shared');
  await handle.close();
  await handle.close();
  assert.equal(handle.name, 'shared');
  await assert.rejects(handle.inspect(), sandbox.ClosedError);
  assert.throws(() => new sandbox.Workspace(), TypeError);
  assert.throws(() => sandbox.Workspace.prototype.inspect.call({}), TypeError);
});

test('calls that are under way finish although the handle is closed meanwhile', async () => {
  const own = await Client.open(uri);
  const handle = await own.findWorkspace('shared');
  const running = handle.run('sleep 0.3; echo done', { encoding: 'utf8' });
  await Promise.all([handle.close(), own.close()]);
  assert.equal((await running).stdout, 'done\n');
});

test('a temporary workspace is deleted with its block', async () => {
  const workspaces = async () => (await client.listWorkspaces()).map((info) => info.name);
  const kept = await client.createWorkspace({ name: 'kept' });
  await kept[Symbol.asyncDispose]();
  const gone = await client.createWorkspace({ name: 'gone', temporary: true });
  await gone[Symbol.asyncDispose]();
  assert.deepEqual(await workspaces(), ['kept', 'shared']);
  await (await client.findWorkspace('kept')).delete();
});

test('what has run out is swept, what was left half done is recovered', async () => {
  const brief = await client.createWorkspace({ name: 'brief' });
  await brief.renew(1);
  await brief.close();
  await until(async () => await client.sweep() === 1, 'the end of what has run out');
  assert.equal(await client.recover(), 0);
});

test('doctor says what it found, and cluster set-ups are printed', async () => {
  const findings = await sandbox.doctor(uri);
  assert.ok(findings.length > 0);
  for (const { severity, subject, text } of findings) {
    assert.ok(['good', 'note', 'problem'].includes(severity) && subject && text);
  }
  await assert.rejects(sandbox.doctor(uri, { save: '/nowhere/description.json' }), { reason: 'no-description' });
  await assert.rejects(sandbox.doctor(undefined, { from: '/dev/null' }));
  const manifests = await sandbox.renderManifests('gke://here/agents?pool=pool', {
    bucket: 'snapshots', agentImage: `registry.example/agent@sha256:${'0'.repeat(64)}`, memoryMib: 2048,
  });
  assert.ok(manifests.some(({ kind, text }) => kind === 'SandboxTemplate' && text.includes('kind: SandboxTemplate')));
  await assert.rejects(sandbox.renderManifests('memory:', { bucket: 'b', agentImage: 'a' }), { reason: 'no-manifests' });
});

test('the log goes to one listener until it is turned off', async () => {
  const lines = [];
  sandbox.setLog('debug', (level, line) => lines.push([level, line]));
  await workspace.run('true');
  const more = await client.createWorkspace();
  await more.delete();
  sandbox.setLog('off');
  for (const [level, line] of lines) assert.ok(['error', 'warning', 'info', 'debug'].includes(level) && line);
  assert.throws(() => sandbox.setLog('loud'), TypeError);
});
