/**
 * Workspaces for harness SDKs: sessions and a provider as `@ai-sdk/harness` wants them.
 *
 * The types are written out here and match those of that package by their shape, so that it need
 * not be installed: `HarnessSession` is a `HarnessV1NetworkSandboxSession`, `HarnessProvider` a
 * `HarnessV1SandboxProvider`. What maps to what, and what each failure means: doc/harness.md.
 */
import type {
  CallOptions, Client, ResumeOptions, ResumeResult, SuspendOptions, SuspendResult, Workspace,
  WorkspaceOptions,
} from './index.js';

export interface HarnessCommand {
  /** A line for bash. */
  command: string;
  /** Absolute, or relative to the session's working directory, which is the default. */
  workingDirectory?: string;
  /** Over the session's and the workspace's own. */
  env?: Record<string, string>;
  /** Kills the command and all it started; the promise then rejects with the signal's reason. */
  abortSignal?: AbortSignal;
}

export interface HarnessProcess {
  /** Its number inside the workspace. */
  readonly pid?: number;
  /** Live bytes. cancel() goes on reading for the process's sake: it does not close the pipe. */
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  /** Rejects with the reason where the command was aborted. 128 + N for what signal N ended. */
  wait(): Promise<{ exitCode: number }>;
  /** Ends it with all it started. May be called again, and after its end. */
  kill(): Promise<void>;
}

export interface HarnessFile {
  /** Absolute, or relative to the session's working directory. */
  path: string;
  abortSignal?: AbortSignal;
}

/** Files and processes alone: what `restricted()` gives, and what a tool of an agent may have. */
export interface RestrictedHarnessSession {
  readonly description: string;
  /** The readers answer null where there is no such file. */
  readFile(options: HarnessFile): Promise<ReadableStream<Uint8Array> | null>;
  readBinaryFile(options: HarnessFile): Promise<Uint8Array | null>;
  /** Lines are counted from 1 and both ends belong to the range. Default encoding: UTF-8. */
  readTextFile(options: HarnessFile & {
    encoding?: string; startLine?: number; endLine?: number;
  }): Promise<string | null>;
  /** The writers make missing directories and replace what is there, in one step. */
  writeFile(options: HarnessFile & { content: ReadableStream<Uint8Array> }): Promise<void>;
  writeBinaryFile(options: HarnessFile & { content: Uint8Array }): Promise<void>;
  writeTextFile(options: HarnessFile & { content: string; encoding?: string }): Promise<void>;
  /** Starts a command of role `service`: it does not keep the workspace from being suspended. */
  spawn(options: HarnessCommand): Promise<HarnessProcess>;
  /** Runs a command to its end. Output past the session's `outputLimit` is an error. */
  run(options: HarnessCommand): Promise<{ exitCode: number; stdout: string; stderr: string }>;
}

export type HarnessNetworkPolicy =
  | { mode: 'allow-all' }
  | { mode: 'deny-all' }
  | { mode: 'custom'; allowedHosts: readonly string[]; allowedCIDRs?: readonly string[]; deniedCIDRs?: readonly string[] }
  | { mode: 'custom'; allowedHosts?: readonly string[]; allowedCIDRs: readonly string[]; deniedCIDRs?: readonly string[] };

export type HarnessMatcher = { exact: string } | { startsWith: string } | { regex: string };

export interface HarnessRequestTransformation {
  readonly match: {
    readonly host: string;
    readonly path?: HarnessMatcher;
    readonly method?: readonly string[];
    readonly queryString?: readonly { key?: HarnessMatcher; value?: HarnessMatcher }[];
    readonly headers?: readonly { key?: HarnessMatcher; value?: HarnessMatcher }[];
  };
  readonly transform: { readonly headers: Readonly<Record<string, string>> };
}

export interface HarnessPortEndpoint {
  /** On 127.0.0.1 of this machine, with a token in the query: enough by itself. */
  readonly url: string;
  /** The same token as a header, for requests to other paths of that address. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface HarnessSession extends RestrictedHarnessSession {
  /** The workspace's name. */
  readonly id: string;
  readonly defaultWorkingDirectory: string;
  readonly ports: ReadonlyArray<number>;
  /**
   * An address of this machine that leads to a port of the workspace. It serves until `stop()`, the
   * port's removal, or the end of this program.
   */
  getPortEndpoint(options: {
    port: number; protocol?: 'http' | 'https' | 'ws';
  }): Promise<HarnessPortEndpoint>;
  /** @deprecated getPortEndpoint; this is its `url`. */
  getPortUrl(options: { port: number; protocol?: 'http' | 'https' | 'ws' }): Promise<string>;
  /**
   * What commands may reach. It survives stop(). Like the next two it is there only where the platform
   * gives workspaces a way out: see doc/egress.md. Ranges of addresses are refused.
   */
  setNetworkPolicy?(policy: HarnessNetworkPolicy): Promise<void>;
  /** Credentials that are put in on the way out, in place of all that were there. stop() forgets them. */
  setRequestTransformations?(rules: ReadonlyArray<HarnessRequestTransformation>): Promise<void>;
  /** Beside those that are there. */
  addRequestTransformations?(rules: ReadonlyArray<HarnessRequestTransformation>): Promise<void>;
  /** Replaces all ports. The addresses of those that are left out end, with their connections. */
  setPorts(ports: ReadonlyArray<number>, options?: { abortSignal?: AbortSignal }): Promise<void>;
  /**
   * Suspends the workspace, processes included where that can be. Resolves when its snapshot is
   * complete and verified. Of a forked view: ends what it started, and suspends nothing.
   */
  stop(): Promise<void>;
  /** Deletes the workspace, in whatever state it is. Of a forked view: as stop(). */
  destroy(): Promise<void>;
  restricted(): RestrictedHarnessSession;

  /**
   * Another view of the same workspace, for another harness session at the same time: with ports of
   * its own, since two bridges cannot listen on one. Default: one port that no view has.
   */
  fork(options?: { ports?: ReadonlyArray<number>; env?: Record<string, string> }): HarnessSession;
  /** Ends what sessions started here, also in earlier programs. Resolves to how many there were. */
  killAllProcesses(): Promise<number>;
  readonly workspace: Workspace;
  /** Of the last `stop()`: what was kept, and why not more. */
  readonly lastSuspend?: SuspendResult;
  /** Of `resumeSession()`: what proved that it is the same. */
  readonly lastResume?: ResumeResult;
  /** Why the last `stop()` or `destroy()` failed; a harness does not say. */
  readonly lastError?: Error;
}

export interface HarnessSessionOptions {
  /** That `getPortEndpoint` may give. The first is what a bridge listens on. Default: none. */
  ports?: ReadonlyArray<number>;
  /** For every command of the session. */
  env?: Record<string, string>;
  /** Absolute. Default: the workspace's own, which is asked for. */
  workingDirectory?: string;
  /** Of each stream of `run`. Default: 64 MiB. */
  outputLimit?: number;
  /** For `stop()`, over `{keep: 'best', force: true}`. */
  suspend?: SuspendOptions & CallOptions;
  /** Told what `stop()` and `destroy()` fail with. Default: a warning of the process. */
  onError?: (error: Error, sentence: string) => void;
  abortSignal?: AbortSignal;
}

/** A session over a running workspace that stays the caller's. */
export function toHarnessSession(workspace: Workspace, options?: HarnessSessionOptions):
  Promise<HarnessSession>;

export interface HarnessProviderOptions {
  /** Where workspaces live. Default: `gvisor:`. */
  uri?: string;
  /** In place of `uri`: a client that stays the caller's. */
  client?: Client;
  /** Of every session. Default: `[4000]`. */
  ports?: ReadonlyArray<number>;
  /** How workspaces are made: image, user, env, limits, labels, … `env` is given at resumes too. */
  workspace?: Omit<WorkspaceOptions, 'name'>;
  /** For `stop()`, over `{keep: 'best', force: true}`. */
  suspend?: SuspendOptions & CallOptions;
  /** For `resumeSession()`. Default: nothing but the proven snapshot is accepted. */
  resume?: ResumeOptions & CallOptions;
  /** Programs that a new workspace must have, like `['node', 'pnpm']`. Default: none. */
  requiredCommands?: ReadonlyArray<string>;
  /** Of the workspaces' names, before the session's id. Default: `harness-`. */
  namePrefix?: string;
  outputLimit?: number;
  onError?: (error: Error, sentence: string) => void;
}

export interface HarnessProvider {
  readonly specificationVersion: 'harness-sandbox-v1';
  readonly providerId: string;
  /** A new workspace; that of a session id that has one is an `ExistsError`. */
  createSession(options?: {
    sessionId?: string;
    abortSignal?: AbortSignal;
    /** Not used: the library keeps no templates. */
    identity?: string;
    /** Run in each new workspace. If it fails, the workspace is deleted. */
    onFirstCreate?: (session: RestrictedHarnessSession,
                     options: { abortSignal?: AbortSignal }) => Promise<void>;
  }): Promise<HarnessSession>;
  /** Resumes the session's workspace, and verifies that it is the same. */
  resumeSession(options: { sessionId: string; abortSignal?: AbortSignal }):
    Promise<HarnessSession>;
}

/** What `new HarnessAgent({ sandbox })` takes. Opens nothing before the first session. */
export function createHarnessProvider(options?: HarnessProviderOptions): HarnessProvider;
