/* The same for `import`: a list that a reader of the module can see before it runs. */
import sandbox from './index.js';

export default sandbox;
export const {
  applyManifests, Client, Connection, doctor, FileReader, FileWatch, FileWriter, Forward, openHandles,
  Process, renderManifests, SandboxError, setLog, version, Watch, Workspace,
  BusyError, CancelledError, ClosedError, ConflictError, DeniedError, ExistsError, FailedError,
  InterruptedError, InvalidError, LimitError, NoMemoryError, NotFoundError, NotRestoredError,
  SuspendedError, TimedOutError, UnavailableError, UnknownError, UnsupportedError,
} = sandbox;
