/*
 * `npm install`: builds the addon and the programs that belong to it, and puts them into dist/.
 *
 * With meson, as everything here; node-gyp would download headers. What is missing is said in one line.
 */
'use strict';

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const root = path.join(__dirname, '../..');
const dist = path.join(root, 'dist');

/* A program or library that the build needs, and the Debian package that has it. */
const programs = {
  meson: 'meson', ninja: 'ninja-build', 'pkg-config': 'pkg-config', cc: 'gcc', swig: 'swig',
  'protoc-c': 'protobuf-c-compiler', python3: 'python3',
};
const libraries = {
  libuv: 'libuv1-dev', libnghttp2: 'libnghttp2-dev', 'libprotobuf-c': 'libprotobuf-c-dev', libcjson: 'libcjson-dev',
  libcurl: 'libcurl4-openssl-dev', libcares: 'libc-ares-dev', libcrypto: 'libssl-dev', 'yaml-0.1': 'libyaml-dev',
};
/* These come without a file for pkg-config. */
const headers = { 'mbedtls/md.h': 'libmbedtls-dev', 'wslay/wslay.h': 'libwslay-dev' };

/* What the package is at run time, of the build's folder. */
const modules = /^[a-z]+(\.c?js|\.mjs|\.d\.ts|\.node)$/;
const helpers = ['agent/sandbox-agent', 'shim/sandbox-shim.so', 'memory-platform/sandbox-memory-platform',
  'egress-proxy/sandbox-egress-proxy', 'egress-carrier/sandbox-egress-carrier'];

function fail(sentence) {
  console.error(`libsandbox: ${sentence}`);
  process.exit(1);
}

function works(program, ...given) {
  return spawnSync(program, given, { stdio: 'ignore' }).status === 0;
}

function checkTools() {
  if (process.platform !== 'linux') fail(`it runs on Linux only, this is ${process.platform}`);
  const missing = [];
  for (const [program, from] of Object.entries(programs)) {
    if (!process.env.PATH.split(':').some((folder) => fs.existsSync(path.join(folder, program)))) missing.push([program, from]);
  }
  if (!missing.some(([program]) => program === 'pkg-config')) {
    for (const [library, from] of Object.entries(libraries)) {
      if (!works('pkg-config', '--exists', library)) missing.push([library, from]);
    }
  }
  if (!missing.some(([program]) => program === 'cc')) {
    for (const [header, from] of Object.entries(headers)) {
      if (spawnSync('cc', ['-E', '-'], { input: `#include <${header}>\n`, stdio: ['pipe', 'ignore', 'ignore'] }).status !== 0) {
        missing.push([header, from]);
      }
    }
  }
  if (missing.length === 0) return;
  const what = missing.map(([name]) => name).join(', ');
  const from = missing.map(([, name]) => name).join(' ');
  fail(`cannot be built without ${what}; on Debian or Ubuntu: apt-get install ${from}`);
}

/* Beside the program where it came with them, else from the package that has nothing else. */
function nodeHeaders() {
  const beside = path.resolve(process.execPath, '../../include/node');
  if (fs.existsSync(path.join(beside, 'node_api.h'))) return beside;
  try {
    return require('node-api-headers').include_dir;
  } catch {
    return fail('cannot be built without node_api.h; npm install node-api-headers');
  }
}

/* Quiet, unless it fails. */
function run(program, ...given) {
  const { status, stdout, stderr } = spawnSync(program, given, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 });
  if (status === 0) return;
  console.error(`${stdout}${stderr}`.trimEnd().split('\n').slice(-30).join('\n'));
  fail(`${program} failed, see above`);
}

function copyInto(folder, from, names) {
  fs.mkdirSync(folder, { recursive: true });
  for (const name of names) fs.copyFileSync(path.join(from, name), path.join(folder, path.basename(name)));
}

function modulesOf(folder) {
  return fs.readdirSync(folder).filter((name) => modules.test(name));
}

function build() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'libsandbox-build-'));
  try {
    run('meson', 'setup', folder, root, '--buildtype=release', '--wrap-mode=nodownload', '-Dtests=false',
      '-Dpython=disabled', '-Dnode=enabled', `-Dnode_headers=${nodeHeaders()}`);
    run('ninja', '-C', folder, 'node-package');
    fs.rmSync(dist, { recursive: true, force: true });
    const made = path.join(folder, 'bindings/node');
    copyInto(dist, made, modulesOf(made));
    copyInto(path.join(dist, 'harness'), path.join(made, 'harness'), modulesOf(path.join(made, 'harness')));
    /* Where the library looks for its own programs first: beside itself. */
    copyInto(path.join(dist, 'libsandbox'), path.join(folder, 'programs'), helpers);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

checkTools();
build();
