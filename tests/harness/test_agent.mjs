/*
 * The real HarnessAgent of `@ai-sdk/harness`, with an adapter that runs its bridge in a workspace:
 * whole sessions, with a suspend and a verified resume in their middle.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fromPackages, whyNoPackages } from './packages.mjs';
import { Client, createHarnessProvider, eventually, freePorts, openPlace, platforms, suite, whyNot }
  from './place.mjs';

const hostProgram = fileURLToPath(new URL('host.mjs', import.meta.url));
const [port, secondPort] = await freePorts(2);
const { HarnessAgent } = whyNoPackages ? {} : await fromPackages('@ai-sdk/harness/agent');
const clerk = whyNoPackages ? {} : await import('./clerk.mjs');

for (const platform of platforms) {
  suite(platform, whyNoPackages || whyNot[platform], () => {
    let place, client;
    before(async () => {
      place = await openPlace(platform);
      client = await Client.open(place.uri);
    });
    after(async () => {
      await client?.close();
      assert.deepEqual(await place.close(), [], 'nothing is left behind');
    });

    const provide = options => createHarnessProvider({ client, ports: [port], ...options });
    const agentOver = sandbox => new HarnessAgent({ harness: clerk.createClerk(), sandbox });
    const ask = async (agent, session, prompt) =>
      (await agent.generate({ session, prompt })).text;
    const copyOf = state => JSON.parse(JSON.stringify(state)); // as it comes out of a database
    const stateOf = async name =>
      (await (await client.findWorkspace(name)).inspect()).state;
    const processOf = text => Number(/of process (\d+)/.exec(text)[1]);

    test('a session of the agent: made, detached, stopped, resumed, destroyed', async () => {
      const sessionId = 'whole';
      const agent = agentOver(provide());
      let session = await agent.createSession({ sessionId });
      const first = await ask(agent, session, 'hello');
      assert.match(first, /^turn 1 of process \d+: hello$/);
      const ran = await ask(agent, session, 'RUN pwd; echo kept >file');
      assert.match(ran, /clerk-whole\n$/);

      const detached = copyOf(await session.detach());
      session = await agent.createSession({ sessionId, resumeFrom: detached });
      assert.equal(clerk.lastStart, 'attached');
      assert.equal(processOf(await ask(agent, session, 'again')), processOf(first));

      const stopped = copyOf(await session.stop());
      assert.equal(await stateOf('harness-whole'), 'suspended');
      session = await agent.createSession({ sessionId, resumeFrom: stopped });
      assert.equal(clerk.lastStart, 'started');
      assert.equal(await ask(agent, session, 'RUN cat file'), 'kept\n');

      await session.destroy();
      await assert.rejects(client.findWorkspace('harness-whole'), { reason: 'no-such-workspace' });
    });

    test('a turn that is aborted ends, and its session goes on', async () => {
      const agent = agentOver(provide());
      const session = await agent.createSession({ sessionId: 'abort' });
      const controller = new AbortController();
      const stream = await agent.stream(
        { session, prompt: 'COUNT 9', abortSignal: controller.signal });
      const reading = (async () => {
        for await (const delta of stream.textStream) {
          if (delta === '1 ')
            controller.abort(new Error('enough'));
        }
      })();
      await reading.catch(() => {});
      assert.ok(controller.signal.aborted);
      await session.destroy();
    });

    for (const keep of ['memory', 'files']) {
      test(`between turns: suspended with ${keep}, resumed and proven`, async () => {
        const sessionId = `between-${keep}`;
        const provider = provide({ suspend: { keep, force: true } });
        const agent = agentOver();
        const sandbox = await provider.createSession({ sessionId });
        let session = await agent.createSession({ sessionId, sandboxSession: sandbox });
        const first = await ask(agent, session, 'hello');
        await ask(agent, session, 'RUN echo kept >file');
        const detached = copyOf(await session.detach());

        await sandbox.stop();
        assert.equal(await stateOf(sandbox.id), 'suspended');
        assert.equal(sandbox.lastSuspend.kept, keep);
        const back = await provider.resumeSession({ sessionId });
        assert.deepEqual([back.lastResume.restored, back.lastResume.proof], [true, keep]);

        session = await agent.createSession(
          { sessionId, sandboxSession: back, resumeFrom: detached });
        const again = await ask(agent, session, 'again');
        if (keep === 'memory') {
          assert.equal(clerk.lastStart, 'attached');
          assert.match(again, /^turn 3 /);
          assert.equal(processOf(again), processOf(first), 'the very same bridge');
        } else {
          assert.equal(clerk.lastStart, 'started');
          assert.match(again, /^turn 1 /);
        }
        assert.equal(await ask(agent, session, 'RUN cat file'), 'kept\n');
        await session.destroy();
        await back.destroy();
      });
    }

    test('in the middle of a turn: it goes on after the resume, and loses no word', async () => {
      const sessionId = 'middle';
      const provider = provide();
      const agent = agentOver();
      const sandbox = await provider.createSession({ sessionId });
      const workDir = `${sandbox.defaultWorkingDirectory}/clerk-${sessionId}`;
      let session = await agent.createSession({ sessionId, sandboxSession: sandbox });
      const stream = await agent.stream({ session, prompt: 'COUNT 6' });
      let before = '', suspended;
      for await (const delta of stream.textStream) {
        before += delta;
        if (before.endsWith('3 '))
          suspended ??= session.suspendTurn();
        else if (suspended === undefined)
          await sandbox.run({ command: `rm -f ${workDir}/next` });
      }
      const continueFrom = copyOf(await suspended);
      await sandbox.stop();
      assert.equal(sandbox.lastSuspend.kept, 'memory');

      const back = await provider.resumeSession({ sessionId });
      assert.equal(back.lastResume.proof, 'memory');
      session = await agent.createSession({ sessionId, sandboxSession: back, continueFrom });
      assert.equal(clerk.lastStart, 'attached');
      const rest = await agent.continueStream({ session });
      const stepping = eventually(async () => {
        await back.run({ command: `rm -f ${workDir}/next` });
        return finished;
      }, 'the turn ends');
      let finished = false, after = '';
      for await (const delta of rest.textStream)
        after += delta;
      finished = true;
      await stepping;
      assert.equal(before + after, '1 2 3 4 5 6 ');
      await session.destroy();
      await back.destroy();
    });

    /* Another program that has the session, and what it said first. */
    async function startHost(sessionId) {
      const host = spawn(process.execPath, [hostProgram, place.uri, String(port), sessionId],
        { stdio: ['pipe', 'pipe', 'inherit'] });
      const lines = createInterface({ input: host.stdout })[Symbol.asyncIterator]();
      const nextLine = async () => JSON.parse((await lines.next()).value);
      return { host, nextLine, said: await nextLine() };
    }

    test('a program that detaches and ends leaves the bridge to the next one', async () => {
      const sessionId = 'handed';
      const { host, nextLine, said } = await startHost(sessionId);
      const ended = once(host, 'exit');
      host.stdin.end('go\n');
      const resumeFrom = await nextLine();
      assert.deepEqual(await ended, [0, null]);
      const agent = agentOver(provide());
      const session = await agent.createSession({ sessionId, resumeFrom });
      assert.equal(clerk.lastStart, 'attached');
      assert.equal(processOf(await ask(agent, session, 'on')), processOf(said));
      await session.destroy();
    });

    test('a program that crashes leaves a bridge that can be ended', async () => {
      const sessionId = 'crashed';
      const { host, said } = await startHost(sessionId);
      host.kill('SIGKILL');
      await once(host, 'exit');
      const sandbox = await provide().resumeSession({ sessionId });
      assert.equal(await sandbox.killAllProcesses(), 1);
      const agent = agentOver();
      const session = await agent.createSession({ sessionId, sandboxSession: sandbox });
      assert.equal(clerk.lastStart, 'started', 'its port is free');
      assert.notEqual(processOf(await ask(agent, session, 'on')), processOf(said));
      await session.destroy();
      await sandbox.destroy();
    });

    test('C129: two agents at once in one workspace, each with its bridge', async () => {
      const provider = provide();
      const one = await provider.createSession({ sessionId: 'both' });
      const two = one.fork({ ports: [secondPort] });
      const agent = agentOver();
      const sessions = await Promise.all([one, two].map((sandboxSession, index) =>
        agent.createSession({ sessionId: `both-${index}`, sandboxSession })));
      const said = await Promise.all(sessions.map(session => ask(agent, session, 'who')));
      assert.notEqual(processOf(said[0]), processOf(said[1]));
      await two.stop();
      assert.match(await ask(agent, sessions[0], 'still'), /^turn 2 /);
      await sessions[0].destroy();
      await one.destroy();
    });
  });
}
