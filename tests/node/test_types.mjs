/* index.d.ts, as TypeScript's own compiler sees it: with Node's types and without. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { getPackages, packageDirectory, sandbox } from './place.mjs';

const source = process.env.SANDBOX_SOURCE;
const got = await getPackages('types', ['typescript@5.8.3', '@types/node@22.15.3']);

function compile(options) {
  const place = fs.mkdtempSync(path.join(got.folder, 'uses-'));
  after(() => fs.rmSync(place, { recursive: true }));
  fs.copyFileSync(path.join(source, 'tests/node/uses.mts'), path.join(place, 'uses.mts'));
  fs.writeFileSync(path.join(place, 'tsconfig.json'), JSON.stringify({
    compilerOptions: {
      strict: true, noEmit: true, module: 'nodenext', moduleResolution: 'nodenext', esModuleInterop: true,
      paths: { libsandbox: [path.join(packageDirectory, 'index.d.ts')] }, ...options,
    },
    files: ['uses.mts'],
  }));
  return new Promise((resolve) => {
    execFile(process.execPath, [path.join(got.folder, 'node_modules/typescript/bin/tsc'), '-p', place],
      (error, stdout, stderr) => resolve(stdout + stderr));
  });
}

test('the types fit their uses, with Node\'s own', { skip: got.reason }, async () => {
  assert.equal(await compile({ target: 'es2022', lib: ['es2023'], types: ['node'], skipLibCheck: false }), '');
});

test('the types fit their uses, with those of a browser', { skip: got.reason }, async () => {
  assert.equal(await compile({ target: 'es2022', lib: ['es2023', 'dom', 'dom.asynciterable'], types: [], skipLibCheck: false }), '');
});

test('what is exported has a type, and what has a type is exported', () => {
  const text = fs.readFileSync(path.join(packageDirectory, 'index.d.ts'), 'utf8');
  const typed = [...text.matchAll(/^export (?:declare )?(?:class|function|const) (\w+)/gm)].map(([, name]) => name);
  const exported = Object.keys(sandbox).filter((name) => name !== 'default');
  assert.deepEqual([...new Set(typed)].sort(), exported.sort());
});

test('every method has a type, and every type of a method its method', () => {
  const text = fs.readFileSync(path.join(packageDirectory, 'index.d.ts'), 'utf8');
  for (const name of ['Client', 'Workspace', 'Process', 'FileReader', 'FileWriter', 'FileWatch', 'Connection', 'Forward', 'Watch']) {
    const bodies = [...text.matchAll(new RegExp(`^export (?:class|interface) ${name}\\b[^{]*\\{\\n([^]*?)^\\}`, 'gm'))];
    const typed = bodies.flatMap(([, body]) => [...body.matchAll(/^  (?:readonly )?(\w+)[(:]/gm)].map(([, member]) => member));
    const had = new Set();
    for (let at = sandbox[name].prototype; at !== Object.prototype; at = Object.getPrototypeOf(at)) {
      Object.getOwnPropertyNames(at).forEach((member) => had.add(member));
    }
    had.delete('constructor');
    typed.splice(0, typed.length, ...typed.filter((member) => member !== 'constructor'));
    assert.deepEqual([...new Set(typed)].sort(), [...had].sort(), name);
  }
});
