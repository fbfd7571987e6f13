/* Not run: what the types take and what they refuse. */
import sandbox, { Client, NotFoundError, SandboxError, doctor, setLog, version } from 'libsandbox';
import type { CallOptions, Process, ProcessEvent, ResumeResult, Workspace, WorkspaceInfo } from 'libsandbox';

export async function use(): Promise<void> {
  const client: Client = await Client.open('memory:', { timeout: 5000, signal: AbortSignal.timeout(5) });
  const workspace: Workspace = await client.createWorkspace({ labels: { a: 'b' }, env: ['A=b'], memoryMib: 5, temporary: true });
  const state: WorkspaceInfo['state'] = (await workspace.inspect()).state;
  const text: string = (await workspace.run('true', { encoding: 'utf8' })).stdout;
  const bytes: Uint8Array = (await workspace.run(['true'], { input: new Uint8Array(1) })).stdout;
  const code: number = (await workspace.run('true')).exitCode;
  const process: Process = await workspace.start('true', { input: 'pipe', role: 'service' });
  for await (const event of process) {
    const shown: string | number = event.kind === 'exit' ? event.exitCode : event.data.length;
    void shown;
  }
  const event: ProcessEvent | undefined = (await process.events().next()).value ?? undefined;
  const stream: ReadableStream<Uint8Array> = process.stdout;
  await process.kill('SIGKILL');
  const woke: ResumeResult = await workspace.resume({ accept: 'files' });
  await workspace.suspend({ keep: 'memory', checks: [async (lent) => lent.name, { opencode: { port: 4096 } }] });
  await workspace.upload('a', 'b', { progress: ({ bytes: moved, path }) => void [moved, path], maxBytes: 5n });
  for await (const { change, newPath } of await workspace.watchFiles('x')) void [change, newPath];
  const forward = await workspace.forward(80, { hostPort: 0 });
  const port: number = forward.hostPort;
  await workspace.verifySnapshot();
  const file: string = await workspace.readFile('x', { encoding: 'utf8' });
  const options: CallOptions = { timeout: Infinity };
  setLog('debug', (level, line) => void [level, line]);
  const findings = await doctor(undefined, options);
  const caught: unknown = await client.findWorkspace('x').catch((error: unknown) => error);
  if (caught instanceof NotFoundError) void (caught.code satisfies 'SANDBOX_NOT_FOUND');
  if (caught instanceof SandboxError) void (caught.reason satisfies string);
  void [state, text, bytes, code, event, stream, woke, port, file, findings, version, sandbox.version];

  // @ts-expect-error: no such option
  await client.createWorkspace({ nmae: 'x' });
  // @ts-expect-error: no such word
  await workspace.suspend({ keep: 'everything' });
  // @ts-expect-error: a number of milliseconds
  await workspace.inspect({ timeout: '5' });
  // @ts-expect-error: only the binding makes them
  void new Client();
  // @ts-expect-error: a getter
  workspace.name = 'other';
  // @ts-expect-error: a port must be given
  await workspace.forward();
}
