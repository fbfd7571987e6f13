/** Text is UTF-8; bytes are taken as they are. */
export type Text = string | Uint8Array;
export type Bytes = string | Uint8Array | ArrayBuffer | DataView;
/** `{NAME: 'value'}` or `['NAME=value']`. */
export type Pairs = Readonly<Record<string, string | undefined>> | readonly Text[];
/** Node's Buffer, where its types are known. */
export type NodeBuffer = typeof globalThis extends { Buffer: { alloc(size: number): infer Found } } ? Found : Uint8Array;
/** A line for the shell, or a program and its arguments without one. */
export type Command = Text | readonly Text[];

/** What every call that can wait takes. */
export interface CallOptions {
  /** Milliseconds for the whole call; `Infinity`: no deadline. Default: the call's own. */
  timeout?: number;
  /** Ends the call within 100 ms; it then rejects with the signal's reason. */
  signal?: AbortSignal | null;
}

/** What a failure of the library is; each status has a class of its own. */
export class SandboxError extends Error {
  /** The status's name in C: 'SANDBOX_NOT_FOUND'. */
  readonly code: string;
  /** The status's number in C. */
  readonly status: number;
  /** A stable word to branch on, like 'no-such-file', or ''. */
  readonly reason: string;
  /** Which driver reported it, or ''. */
  readonly driver: string;
  /** What the platform answered, or 0. */
  readonly httpStatus: number;
  /** An errno value where one is the cause, or 0. */
  readonly systemError: number;
  /** The process it is about, or ''. */
  readonly processId: string;
}

/** A credential that is put in on the way out; doc/egress.md describes it. */
export type Transformation = Readonly<Record<string, unknown>>;

/** Whether somebody works in a workspace: who, or whether at all. */
export type WorkspaceCheck = (workspace: Workspace) =>
  string | boolean | null | undefined | Promise<string | boolean | null | undefined>;
/** What to ask before a suspend: a function, or what knows opencode. */
export type Check = WorkspaceCheck | { opencode: Opencode };

export interface OutputEvent {
  readonly kind: 'stdout' | 'stderr';
  readonly data: Uint8Array;
  /** Of `data` in its stream. */
  readonly offset: number;
  /** Bytes of the stream that were lost just before `data`. */
  readonly dropped: number;
}
export interface TextEvent {
  readonly kind: 'stdout' | 'stderr';
  readonly text: string;
  readonly offset: number;
  readonly dropped: number;
}
export interface LineEvent {
  readonly kind: 'stdout' | 'stderr';
  readonly text: string;
}
/** The last event: all output came before it. */
export interface ExitEvent extends ProcessExit {
  readonly kind: 'exit';
}
export type ProcessEvent = OutputEvent | ExitEvent;

/** What a finished command gave. */
export interface RunResult<Output> extends ProcessExit {
  readonly stdout: Output;
  readonly stderr: Output;
  /** How many bytes there were, also what was cut off. */
  readonly stdoutTotal: number;
  readonly stderrTotal: number;
  readonly stdoutTruncated: boolean;
  readonly stderrTruncated: boolean;
}

export type Input = 'none' | 'pipe';
/** How to run a command: as how to start one, but that `input` is what it reads. */
export type RunCommandOptions = Omit<ProcessOptions, 'input'> & RunOptions & CallOptions;

export interface Client {
  createWorkspace(options?: WorkspaceOptions & CallOptions & {
    /** Delete it at the end of its `await using` block. */
    temporary?: boolean;
  }): Promise<Workspace>;
}
export namespace Client {
  /** Connect to the platform of a URI: 'gvisor:' (the default), 'gke://CONTEXT/NAMESPACE?pool=NAME', 'memory:'. */
  function open(uri?: Text | null, options?: CallOptions): Promise<Client>;
}

export interface Workspace {
  /** Run a command to its end. A non-zero exit is a result, no error. */
  run(command: Command, options: RunCommandOptions & { encoding: 'utf8' | 'utf-8' }): Promise<RunResult<string>>;
  run(command: Command, options?: RunCommandOptions & { encoding?: 'buffer' | null }): Promise<RunResult<NodeBuffer>>;
  /** Start a command and return once it runs. */
  start(command: Command, options?: ProcessOptions & CallOptions): Promise<Process>;
  readFile(path: Text, options: ReadOptions & CallOptions & { encoding: 'utf8' | 'utf-8' }): Promise<string>;
  readFile(path: Text, options?: ReadOptions & CallOptions & { encoding?: 'buffer' | null }): Promise<NodeBuffer>;
  /** A file as a stream; it is opened with the first read. */
  readable(path: Text, options?: ReadOptions & CallOptions): ReadableStream<Uint8Array>;
  /** `close()` puts the file in place, `abort()` changes nothing. */
  writable(path: Text, options?: WriteOptions & CallOptions): WritableStream<Bytes>;
}

export interface Process extends AsyncIterable<ProcessEvent> {
  /** Web streams, live. What nobody reads holds the process up, so read both, or `cancel()` one. */
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  readonly stdin: WritableStream<Bytes>;
  /** The output as it comes, and at last how the process ended. */
  events(options?: CallOptions): AsyncGenerator<ProcessEvent, void, void>;
  /** The same as text, decoded stream by stream. */
  text(options?: CallOptions): AsyncGenerator<TextEvent | ExitEvent, void, void>;
  /** The same line by line, without the newline. */
  lines(options?: CallOptions): AsyncGenerator<LineEvent | ExitEvent, void, void>;
  /** Wait for the end, whoever takes the output. */
  wait(options?: CallOptions): Promise<ProcessExit>;
  /** Send a signal to the process and its group; 'SIGKILL' also to every descendant that left it. */
  kill(signal?: SignalName | number, options?: CallOptions): Promise<void>;
}

export interface FileReader extends AsyncIterable<Uint8Array> {
  /** The next piece, or null at the end. */
  next(options?: CallOptions): Promise<Uint8Array | null>;
}
export interface FileWatch extends AsyncIterable<FileEvent> {
  next(options?: CallOptions): Promise<FileEvent>;
}
export interface Watch extends AsyncIterable<Event> {
  next(options?: CallOptions): Promise<Event>;
}
export interface Connection {
  readonly readable: ReadableStream<Uint8Array>;
  /** Its `close()` says that no more will be sent; reading goes on. */
  readonly writable: WritableStream<Bytes>;
  /** The next bytes, or null at the end. */
  read(options?: CallOptions): Promise<Uint8Array | null>;
}

/** The running library's version, "MAJOR.MINOR.PATCH". */
export const version: string;
/** The library's log: silent until this is called. The program's one log; the last call counts. */
export function setLog(level: LogLevel, listener?: (level: LogLevel, line: string) => void): void;
/** How many things of the library this thread holds: for tests that look for leaks. */
export function openHandles(): number;

