/*
 * The real adapter of pi: its agent runs beside this test and asks a double of a model, and its
 * tools work in a workspace, which is suspended and resumed between turns. Over memory: a workspace
 * has no home of its own, and pi wants one.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fromPackages, packages, whyNoPackages } from './packages.mjs';
import { createHarnessProvider, openPlace, suite, whyNot } from './place.mjs';

const why = whyNoPackages || whyNoPi() || whyNot.gvisor;

function whyNoPi() {
  if (!existsSync(path.join(packages, 'node_modules/@ai-sdk/harness-pi')))
    return 'pi takes 400 MB, so it is got with tools/check --long alone';
  return Number(process.versions.node.split('.')[0]) < 22 && 'pi needs Node 22 or newer';
}

suite('gvisor', why, () => {
  let place, model, agent;
  before(async () => {
    place = await openPlace('gvisor');
    const double = fileURLToPath(new URL('../doubles/model_double.py', import.meta.url));
    model = spawn('/usr/bin/python3', [double], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [, port] = /ready (\d+)/.exec((await once(model.stdout, 'data'))[0]);
    const { HarnessAgent } = await fromPackages('@ai-sdk/harness/agent');
    const { createPi } = await fromPackages('@ai-sdk/harness-pi');
    const fake = {
      baseUrl: `http://127.0.0.1:${port}/v1`, apiKey: 'none', api: 'openai-completions',
      models: [{
        id: 'fake-1', name: 'Fake', reasoning: false, input: ['text'], contextWindow: 32000,
        maxTokens: 4096, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
      }],
    };
    agent = new HarnessAgent({
      harness: createPi({ providers: { fake } }), model: 'fake/fake-1',
      sandbox: createHarnessProvider({ uri: place.uri, ports: [] }),
    });
  });
  after(async () => {
    model?.kill();
    assert.deepEqual(await place.close(), [], 'nothing is left behind');
  });

  test('its tools work in the workspace, before and after a suspend', async () => {
    const ask = async (session, prompt) => (await agent.generate({ session, prompt })).text;
    let session = await agent.createSession({ sessionId: 'pi' });
    assert.match(await ask(session, 'hello'), /pong/);
    assert.match(await ask(session, 'RUN echo from-inside >file; cat file; id -u'),
      /from-inside\s+1000/);
    const resumeFrom = JSON.parse(JSON.stringify(await session.stop()));
    session = await agent.createSession({ sessionId: 'pi', resumeFrom });
    assert.match(await ask(session, 'RUN cat file'), /from-inside/);
    await session.destroy();
  });
});
