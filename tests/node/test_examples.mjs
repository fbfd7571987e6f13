/* The examples do what they say, over every platform; the quick start is what the README shows. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { gvisorPlatform, memoryPlatform, packageDirectory, sandbox } from './place.mjs';

const source = process.env.SANDBOX_SOURCE;
/* As a user has them: beside node_modules/libsandbox. */
const place = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-examples-'));
after(() => fs.rmSync(place, { recursive: true }));
fs.cpSync(path.join(source, 'examples/node'), place, { recursive: true });
const installed = path.join(place, 'node_modules/libsandbox');
fs.mkdirSync(installed, { recursive: true });
fs.symlinkSync(packageDirectory, path.join(installed, 'dist'));
fs.copyFileSync(path.join(source, 'package.json'), path.join(installed, 'package.json'));

function run(name, ...given) {
  return new Promise((resolve) => {
    execFile(process.execPath, [path.join(place, `${name}.mjs`), ...given], { timeout: 120_000 },
      (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr }));
  });
}

const expected = {
  hello: (out) => assert.equal(out, 'Hello from inside\n'),
  files: (out) => assert.match(out, /^sort ended with 0\n[^]*sorted.txt: 21 bytes\n[^]*apples\nroses\nviolets\n$/),
  stream_output: (out) => assert.match(out, /\[stdout\] line 1\n[^]*\[stdout\] hello Ada\n[^]*\[ended with 7\]\n$/),
  port: (out) => assert.equal(out, '200 OK\na page from inside\n'),
  many: (out) => assert.equal(out, [1, 2, 3, 4].map((n) => `${n} squared is ${n * n}\n`).join('')),
  about: (out) => assert.match(out, /limits memory: (yes|no)\n[^]*whose id is [0-9a-f]{32}\n$/),
  changes: (out) => {
    for (const line of ['created inner', ' draft', 'moved draft final', 'created newest', 'removed inner', ' end']) {
      assert.ok(out.includes(line), line);
    }
  },
  event_loop: (out) => {
    for (const line of ['ready\n', 'A QUESTION\n', 'ended with 0\n', 'went on: true']) assert.ok(out.includes(line), line);
  },
  reach_out: (out, platform) => {
    if (platform === 'memory') {
      assert.equal(out, 'this platform gives workspaces no way out\n');
      return;
    }
    assert.match(out, /may reach api\.example\.com\na credential for api\.example\.com: x-api-key\n/);
    assert.match(out, /'elsewhere\.example\.net' is not allowed[^]*refused: elsewhere\.example\.net, host-not-allowed\n$/);
  },
  suspend: (out) => {
    assert.match(out, /suspended: no sandbox[^]*resumed: restored, proven by memory\n/);
    assert.deepEqual(out.split('\n').filter((line) => /^\d+$/.test(line)), Array.from({ length: 10 }, (_, n) => String(n)));
  },
};

const gvisor = await gvisorPlatform();
const platforms = { memory: memoryPlatform(), gvisor: gvisor.uri };

for (const [platform, uri] of Object.entries(platforms)) {
  for (const [name, look] of Object.entries(expected)) {
    test(`${name} on ${platform}`, { skip: uri === undefined && gvisor.reason }, async () => {
      const { code, stdout, stderr } = await run(name, uri);
      assert.equal(stderr, '');
      look(stdout, platform);
      assert.equal(code, 0);
      const client = await sandbox.Client.open(uri);
      assert.deepEqual(await client.listWorkspaces(), [], 'nothing is left');
      await client.close();
    });
  }
}

test('a platform that is not there is told', async () => {
  for (const name of Object.keys(expected)) {
    const { code, stderr } = await run(name, 'nonsense:');
    assert.equal(code, 1);
    assert.ok(stderr.startsWith(`${name}: `), stderr);
  }
});

test('the quick start is what the README shows, and works on gVisor', { skip: gvisor.reason }, async () => {
  const text = fs.readFileSync(path.join(place, 'readme.mjs'), 'utf8').replace(/^.*\n/, '');
  const readme = fs.readFileSync(path.join(source, 'bindings/node/README.md'), 'utf8');
  assert.ok(readme.includes(text.trim()), 'the two are the same');
  /* In a state directory of its own: the machine's is not the tests'. */
  fs.writeFileSync(path.join(place, 'quick.mjs'), text.replace('Client.open()', 'Client.open(process.argv[2])'));
  const { code, stdout, stderr } = await run('quick', gvisor.uri);
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^Linux [^]*uid=\d+[^]* 0\ntrue memory\nkept\n/);
});
