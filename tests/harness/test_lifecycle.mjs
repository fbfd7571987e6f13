/*
 * A provider and its sessions from beginning to end: made, suspended, brought back and proven,
 * forked, deleted; and who hears of what goes wrong.
 */

import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Client, createHarnessProvider, openPlace, platforms, suite, textOf, toHarnessSession, whyNot }
  from './place.mjs';

test('making a provider opens nothing, and refuses options that make no sense', () => {
  const provider = createHarnessProvider({ uri: 'memory:/nowhere/at/all' });
  assert.equal(provider.specificationVersion, 'harness-sandbox-v1');
  assert.equal(typeof provider.providerId, 'string');
  assert.throws(() => createHarnessProvider({ ports: ['4000'] }), TypeError);
  assert.throws(() => createHarnessProvider({ ports: Array(65).fill(1) }), RangeError);
  assert.throws(() => createHarnessProvider({ namePrefix: 'Not A Name' }), TypeError);
});

test('credentials that do not work are told as the harness wants them', async () => {
  const place = await openPlace('memory');
  const config = path.join(place.folder, 'config');
  writeFileSync(config, JSON.stringify({
    'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'c',
    'clusters': [{ name: 'c', cluster: { server: 'https://127.0.0.1:1' } }],
    'users': [{ name: 'u', user: { exec: {
      apiVersion: 'client.authentication.k8s.io/v1', command: '/no/such/plugin',
    } } }],
    'contexts': [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
  }));
  const before = process.env.KUBECONFIG;
  process.env.KUBECONFIG = config;
  try {
    const provider = createHarnessProvider({ uri: 'gke://c/default?pool=agents' });
    await assert.rejects(provider.createSession({ sessionId: 'x' }), error =>
      error.name === 'AI_HarnessSandboxAuthenticationError' &&
      error.sandboxProviderId === provider.providerId &&
      error[Symbol.for('vercel.ai.error.AI_HarnessSandboxAuthenticationError')] === true &&
      error.cause.code === 'SANDBOX_DENIED');
  } finally {
    if (before === undefined)
      delete process.env.KUBECONFIG;
    else
      process.env.KUBECONFIG = before;
    await place.close();
  }
});

for (const platform of platforms) {
  suite(platform, whyNot[platform], () => {
    let place, client;
    before(async () => {
      place = await openPlace(platform);
      client = await Client.open(place.uri);
    });
    after(async () => {
      await client?.close();
      assert.deepEqual(await place.close(), [], 'nothing is left behind');
    });

    const provide = options => createHarnessProvider({ client, ports: [4320], ...options });
    const stateOf = async session => {
      const found = await client.findWorkspace(session.id);
      return (await found.inspect()).state;
    };

    test('stop suspends, resumeSession proves, destroy deletes; each may be repeated', async () => {
      const session = await provide().createSession({ sessionId: 'whole' });
      const sleeper = await session.spawn({ command: 'sleep 54330; echo woke' });
      await session.writeTextFile({ path: 'kept', content: 'kept' });
      await Promise.all([session.stop(), session.stop()]);
      await session.stop();
      assert.equal(await stateOf(session), 'suspended');
      assert.equal(session.lastSuspend.kept, 'memory');
      await assert.rejects(session.run({ command: 'true' }), { code: 'SANDBOX_SUSPENDED' });

      const back = await provide().resumeSession({ sessionId: 'whole' });
      assert.deepEqual([back.id, back.defaultWorkingDirectory],
        [session.id, session.defaultWorkingDirectory]);
      assert.equal(back.lastResume.restored, true);
      assert.equal(back.lastResume.proof, 'memory');
      assert.equal(await back.readTextFile({ path: 'kept' }), 'kept');
      assert.equal((await back.run({ command: `kill -0 ${sleeper.pid}` })).exitCode, 0,
        'what was spawned goes on');
      await back.stop();
      await back.destroy();
      await back.destroy();
      await back.stop();
      await assert.rejects(provide().resumeSession({ sessionId: 'whole' }),
        { reason: 'no-such-workspace' });
    });

    test('the output of what was killed ends with a suspend, that of the others fails', async () => {
      const session = await provide().createSession({ sessionId: 'ended' });
      const killed = await session.spawn({ command: 'sleep 54331' });
      const other = await session.spawn({ command: 'sleep 54331' });
      await killed.kill();
      await session.stop();
      assert.equal(await textOf(killed.stdout), '');
      assert.equal(await textOf(killed.stderr), '');
      await assert.rejects(textOf(other.stdout), { code: 'SANDBOX_SUSPENDED' });
      const back = await provide().resumeSession({ sessionId: 'ended' });
      await back.destroy();
    });

    test('with files alone processes end, and that is proven too', async () => {
      const provider = provide({ suspend: { keep: 'files', force: true } });
      const session = await provider.createSession({ sessionId: 'files' });
      const process = await session.spawn({ command: 'sleep 54331' });
      await session.writeTextFile({ path: 'kept', content: 'kept' });
      await session.stop();
      const back = await provider.resumeSession({ sessionId: 'files' });
      assert.equal(back.lastResume.proof, 'files');
      assert.equal(back.lastResume.restored, true);
      assert.equal(await back.readTextFile({ path: 'kept' }), 'kept');
      assert.notEqual((await back.run({ command: `kill -0 ${process.pid}` })).exitCode, 0);
      await back.destroy();
    });

    test('a session that is there is never made again', async () => {
      const session = await provide().createSession({ sessionId: 'twice' });
      await session.writeTextFile({ path: 'mine', content: '' });
      await assert.rejects(provide().createSession({ sessionId: 'twice' }),
        { code: 'SANDBOX_EXISTS' });
      assert.equal(await session.readTextFile({ path: 'mine' }), '');
      await session.destroy();
    });

    test('any session id finds its own workspace', async () => {
      const ids = ['plain', 'Plain', 'with space', 'with_space', 'a--b', 'x'.repeat(300), 'ü', '-'];
      const sessions = await Promise.all(ids.map(sessionId =>
        provide().createSession({ sessionId })));
      assert.equal(new Set(sessions.map(({ id }) => id)).size, ids.length);
      assert.equal(sessions[0].id, 'harness-plain');
      for (const { id } of sessions)
        assert.match(id, /^[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$/);
      const back = await provide().resumeSession({ sessionId: 'with space' });
      assert.equal(back.id, sessions[2].id, 'one that runs is found as it is');
      await Promise.all(sessions.map(session => session.destroy()));
    });

    test('onFirstCreate runs once, before the session is handed out', async () => {
      let times = 0;
      const session = await provide().createSession({
        sessionId: 'first', identity: '0123456789abcdef',
        onFirstCreate: async view => {
          times++;
          assert.ok(!('stop' in view) && !('getPortEndpoint' in view));
          await view.writeTextFile({ path: 'recipe', content: 'done' });
        },
      });
      assert.equal(times, 1);
      assert.equal(await session.readTextFile({ path: 'recipe' }), 'done');
      await session.destroy();
    });

    test('a workspace whose first steps fail is not left behind', async () => {
      const onFirstCreate = async () => { throw new Error('no recipe'); };
      await assert.rejects(provide().createSession({ sessionId: 'torn', onFirstCreate }),
        /no recipe/);
      const strict = provide({ requiredCommands: ['bash', 'no-such-tool', 'nor-this'] });
      await assert.rejects(strict.createSession({ sessionId: 'torn' }),
        { code: 'LIBSANDBOX_IMAGE', missing: ['no-such-tool', 'nor-this'] });
      await assert.rejects(client.findWorkspace('harness-torn'), { reason: 'no-such-workspace' });
    });

    test('an abort ends createSession with its reason, and leaves nothing', async () => {
      const abortSignal = AbortSignal.abort(new Error('not now'));
      await assert.rejects(provide().createSession({ sessionId: 'abort', abortSignal }), /not now/);
      const controller = new AbortController();
      const onFirstCreate = (view, { abortSignal: given }) => {
        controller.abort(new Error('in the middle'));
        return view.run({ command: 'sleep 54332', abortSignal: given });
      };
      await assert.rejects(provide().createSession(
        { sessionId: 'abort', abortSignal: controller.signal, onFirstCreate }), /in the middle/);
      await assert.rejects(client.findWorkspace('harness-abort'), { reason: 'no-such-workspace' });
    });

    test('the environment of workspaces is there after every resume', async () => {
      for (const keep of ['memory', 'files']) {
        const provider = provide({
          workspace: { user: 'root', env: { GREETING: 'hello' } }, suspend: { keep, force: true },
        });
        const session = await provider.createSession({ sessionId: `env-${keep}` });
        await session.stop();
        const back = await provider.resumeSession({ sessionId: `env-${keep}` });
        const { stdout } = await back.run({ command: 'echo "$GREETING $IS_SANDBOX"' });
        assert.equal(stdout, 'hello 1\n');
        await back.destroy();
      }
    });

    test('who suspends is told when it fails, though a harness says nothing', async () => {
      const heard = [];
      const provider = provide({
        suspend: { force: false }, onError: (error, sentence) => heard.push([error, sentence]),
      });
      const session = await provider.createSession({ sessionId: 'busy' });
      const process = await session.workspace.start('sleep 54333');
      await assert.rejects(session.stop(), { code: 'SANDBOX_BUSY', reason: 'active' });
      assert.equal(await stateOf(session), 'running');
      assert.equal(heard.length, 1);
      assert.equal(heard[0][0], session.lastError);
      assert.match(heard[0][1], /harness-busy/);
      await process.kill('SIGKILL');
      await process.wait();
      await session.stop();
      await session.destroy();
      assert.equal(heard.length, 1);
    });

    test('a snapshot that was damaged is refused, kept, and told', async t => {
      if (platform !== 'memory') {
        t.skip('the folder of snapshots is known of the memory platform');
        return;
      }
      const session = await provide().createSession({ sessionId: 'damaged' });
      await session.writeTextFile({ path: 'data', content: 'as it was' });
      await session.stop();
      const snapshots = path.join(place.folder, 'socket.state', 'snapshots', session.workspace.id);
      const [snapshot] = readdirSync(snapshots);
      writeFileSync(path.join(snapshots, snapshot, 'files', 'data'), 'not as it was');
      await assert.rejects(provide().resumeSession({ sessionId: 'damaged' }),
        { code: 'SANDBOX_NOT_RESTORED', reason: 'snapshot-damaged' });
      assert.equal(await stateOf(session), 'blocked');
      assert.equal((await session.workspace.listSnapshots()).length, 1);
      writeFileSync(path.join(snapshots, snapshot, 'files', 'data'), 'as it was');
      await session.destroy();
    });

    test('C129: forked views share a workspace, and end apart', async () => {
      const session = await provide().createSession({ sessionId: 'forks' });
      const view = session.fork(), third = view.fork({ env: { WHO: 'third' } });
      assert.deepEqual([session.ports, view.ports, third.ports], [[4320], [4321], [4322]]);
      assert.throws(() => session.fork({ ports: [4321] }), /4321/);
      await assert.rejects(third.setPorts([4320]), /4320/);
      await view.writeTextFile({ path: 'one', content: 'for all' });
      assert.equal(await session.readTextFile({ path: 'one' }), 'for all');
      assert.equal((await third.run({ command: 'echo $WHO' })).stdout, 'third\n');
      assert.ok(!('fork' in view.restricted()));

      const ours = await session.spawn({ command: 'sleep 54334' });
      const theirs = await view.spawn({ command: 'sleep 54335' });
      await view.stop();
      assert.equal((await theirs.wait()).exitCode, 137, 'what it started ends');
      assert.equal(await stateOf(session), 'running', 'the workspace goes on');
      assert.equal((await session.run({ command: `kill -0 ${ours.pid}` })).exitCode, 0);
      assert.deepEqual(session.fork().ports, [4321], 'its port is free again');
      await third.destroy();
      assert.equal(await stateOf(session), 'running');
      await session.destroy();
    });

    test('a workspace of the caller\'s own becomes a session', async () => {
      const workspace = await client.createWorkspace();
      const session = await toHarnessSession(workspace, { env: { MINE: 'yes' } });
      assert.equal(session.id, workspace.name);
      assert.deepEqual(session.ports, []);
      assert.equal((await session.run({ command: 'echo $MINE' })).stdout, 'yes\n');
      await session.stop();
      await workspace.resume();
      assert.equal((await session.run({ command: 'echo on' })).stdout, 'on\n',
        'it goes on with its workspace');
      await session.destroy();
      await assert.rejects(workspace.run('true'), { code: 'SANDBOX_CLOSED' });
    });

    test('a bridge whose host went away can write on when a new one comes', async () => {
      const session = await provide().createSession({ sessionId: 'talker' });
      const host = await toHarnessSession(await client.findWorkspace(session.id));
      // More than what is kept of output: it stands still until somebody takes it.
      await host.spawn({
        command: 'head -c 30000000 /dev/zero; echo done >finished; exec sleep 54336',
      });
      assert.equal(await session.readTextFile({ path: 'finished' }), null);
      await session.getPortEndpoint({ port: 4320 });
      const { stdout } = await session.run(
        { command: 'until [ -e finished ]; do sleep 0.1; done; cat finished' });
      assert.equal(stdout, 'done\n');
      await session.destroy();
    });
  });
}
