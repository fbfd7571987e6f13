/*
 * As a user gets it: packed, installed into an empty folder, at work there without anything of the
 * environment; and what is said where it cannot be built.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { getPackages, gvisorPlatform } from './place.mjs';

const source = process.env.SANDBOX_SOURCE;
const place = fs.mkdtempSync(path.join(os.tmpdir(), 'sandbox-node-package-'));
after(() => fs.rmSync(place, { recursive: true }));
const description = JSON.parse(fs.readFileSync(path.join(source, 'package.json'), 'utf8'));
const tarball = path.join(place, `libsandbox-${description.version}.tgz`);
const empty = path.join(place, 'empty');
const installed = path.join(empty, 'node_modules/libsandbox');
const hasNpm = spawnSync('npm', ['--version'], { stdio: 'ignore' }).status === 0;
const hasRegistry = hasNpm && !(await getPackages('registry', ['node-api-headers@1.5.0'])).reason;
const gvisor = await gvisorPlatform();

function run(program, given, options = {}) {
  const { status, stdout, stderr } = spawnSync(program, given, { encoding: 'utf8', timeout: 300_000, ...options });
  return { status, stdout, stderr };
}

test('it has the version of the library', () => {
  const meson = fs.readFileSync(path.join(source, 'meson.build'), 'utf8');
  assert.equal(description.version, /version: '([^']+)'/.exec(meson)[1]);
});

test('it is packed with the sources that it needs, and no others', { skip: !hasNpm && 'there is no npm' }, () => {
  const { status, stderr } = run('npm', ['pack', source, '--pack-destination', place]);
  assert.equal(status, 0, stderr);
  const names = run('tar', ['-tzf', tarball]).stdout.split('\n');
  for (const name of ['LICENSE', 'README.md', 'bindings/sandbox.i', 'bindings/node/install.js', 'include/sandbox/sandbox.h', 'meson.build']) {
    assert.ok(names.includes(`package/${name}`), name);
  }
  assert.deepEqual(names.filter((name) => /__pycache__|\.node$|package\/(build|tests\/(?!meson))/.test(name)), []);
});

test('it is installed into an empty folder and works there', { skip: !hasRegistry && 'npm cannot reach its registry' }, async (t) => {
  fs.mkdirSync(empty);
  const { status, stderr } = run('npm', ['install', '--no-audit', '--no-fund', '--foreground-scripts', tarball], { cwd: empty });
  assert.equal(status, 0, stderr);
  const clean = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: place };
  const program = `const { Client, version } = await import('libsandbox');
    const client = await Client.open(process.argv[1]);
    const workspace = await client.createWorkspace();
    console.log(version, (await workspace.run('echo inside', { encoding: 'utf8' })).stdout.trim());
    await workspace.suspend();
    console.log((await workspace.resume()).proof);
    await workspace.delete();`;
  await t.test('over gVisor, from a module', { skip: gvisor.reason }, () => {
    const said = run(process.execPath, ['--input-type=module', '-e', program, gvisor.uri], { cwd: empty, env: clean });
    assert.deepEqual([said.stderr, said.stdout], ['', `${description.version} inside\nmemory\n`]);
  });
  await t.test('from CommonJS, and its harness', () => {
    const said = run(process.execPath, ['-p', "typeof require('libsandbox').Client.open + typeof require('libsandbox/harness').toHarnessSession"],
      { cwd: empty, env: clean });
    assert.deepEqual([said.stderr, said.stdout], ['', 'functionfunction\n']);
  });
  await t.test('with what is missing named in one line, and the remedy', () => {
    const programs = path.join(place, 'bin');
    fs.mkdirSync(programs);
    for (const name of ['meson', 'ninja', 'pkg-config', 'cc', 'protoc-c', 'python3']) {
      fs.symlinkSync(run('which', [name]).stdout.trim(), path.join(programs, name));
    }
    const said = run(process.execPath, [path.join(installed, 'bindings/node/install.js')], { env: { PATH: programs } });
    assert.equal(said.status, 1);
    assert.equal(said.stderr, 'libsandbox: cannot be built without swig; on Debian or Ubuntu: apt-get install swig\n');
  });
  await t.test('and says so where it was not built', () => {
    fs.rmSync(path.join(installed, 'dist/sandbox.node'));
    const said = run(process.execPath, ['-p', "require('libsandbox')"], { cwd: empty, env: clean });
    assert.match(said.stderr, /libsandbox is not built: .*install the package again/);
  });
});
