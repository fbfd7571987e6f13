from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from io import RawIOBase
from os import PathLike
from subprocess import CalledProcessError, CompletedProcess, TimeoutExpired
from types import TracebackType
from typing import Any, AnyStr, Literal, TypeAlias, final, overload

from _typeshed import ReadableBuffer, WriteableBuffer, structseq
from typing_extensions import Self

__all__ = [
    "Activity",
    "Busy",
    "Cancel",
    "Cancelled",
    "Client",
    "Closed",
    "CommandFailed",
    "CommandTimedOut",
    "Completed",
    "Conflict",
    "Connection",
    "CopyProgress",
    "CopyResult",
    "Denied",
    "EgressInfo",
    "EgressRefusal",
    "Error",
    "Event",
    "Exists",
    "Failed",
    "FileEvent",
    "FileInfo",
    "FileReader",
    "FileWatch",
    "FileWriter",
    "Files",
    "Finding",
    "Forward",
    "IdleResult",
    "Interrupted",
    "Invalid",
    "Limit",
    "Manifest",
    "NoMemory",
    "NotFound",
    "NotRestored",
    "Opencode",
    "PortInfo",
    "Ports",
    "Process",
    "ProcessEvent",
    "ProcessExit",
    "ProcessInfo",
    "ResumeResult",
    "SnapshotInfo",
    "SuspendResult",
    "Suspended",
    "TimedOut",
    "Unavailable",
    "Unknown",
    "Unsupported",
    "Verification",
    "Watch",
    "Workspace",
    "WorkspaceInfo",
    "WorkspaceStats",
    "apply_manifests",
    "doctor",
    "render_manifests",
    "set_log",
    "version",
]

__version__: str

_Duration: TypeAlias = float | timedelta
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_Pairs: TypeAlias = Mapping[str, str] | Iterable[str]
_Command: TypeAlias = str | bytes | Sequence[_Path]
_Check: TypeAlias = Callable[[Workspace], object] | Opencode

_Ability: TypeAlias = Literal["limit-memory", "limit-cpu", "limit-processes", "limit-disk", "use-images",
                              "keep-files", "keep-memory", "reach-out"]
_Accept: TypeAlias = Literal["proven", "files", "cold"]
_CopyLinks: TypeAlias = Literal["inside", "keep", "skip"]
_Egress: TypeAlias = Mapping[str, Any]
_EgressEch: TypeAlias = Literal["unset", "deny", "allow-grease"]
_EgressMode: TypeAlias = Literal["unset", "custom", "allow-all", "deny-all"]
_EventKind: TypeAlias = Literal["state", "step", "progress", "lost"]
_FileChange: TypeAlias = Literal["created", "modified", "removed", "moved", "overflow"]
_FileKind: TypeAlias = Literal["other", "regular", "directory", "link"]
_From: TypeAlias = Literal["nothing", "live-files", "snapshot"]
_Input: TypeAlias = Literal["none", "pipe"]
_Keep: TypeAlias = Literal["best", "memory", "files"]
_LogLevel: TypeAlias = Literal["off", "error", "warning", "info", "debug"]
_ProcessEventKind: TypeAlias = Literal["stdout", "stderr", "exit"]
_Proof: TypeAlias = Literal["none", "memory", "files"]
_Role: TypeAlias = Literal["task", "service"]
_Severity: TypeAlias = Literal["good", "note", "problem"]
_State: TypeAlias = Literal["creating", "running", "interrupted", "deleting", "gone", "suspending",
                            "suspended", "resuming", "blocked"]
_Transformations: TypeAlias = Sequence[Mapping[str, Any]] | str
_Verdict: TypeAlias = Literal["intact", "damaged", "missing", "cannot-tell"]
_WhenFull: TypeAlias = Literal["block", "drop-oldest"]

@final
class Finding(structseq[Any], tuple[Any, ...]):
    @property
    def severity(self) -> _Severity: ...
    @property
    def subject(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def remedy(self) -> str: ...

@final
class WorkspaceInfo(structseq[Any], tuple[Any, ...]):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def state(self) -> _State: ...
    @property
    def epoch(self) -> int: ...
    @property
    def user(self) -> str: ...
    @property
    def image(self) -> str: ...
    @property
    def incarnation(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def memory_mib(self) -> int: ...
    @property
    def cpu_millis(self) -> int: ...
    @property
    def process_limit(self) -> int: ...
    @property
    def disk_mib(self) -> int: ...
    @property
    def created(self) -> float | None: ...
    @property
    def expires(self) -> float | None: ...
    @property
    def step(self) -> str: ...
    @property
    def snapshot(self) -> str: ...
    @property
    def snapshot_time(self) -> float | None: ...
    @property
    def snapshot_count(self) -> int: ...
    @property
    def retain(self) -> int: ...
    @property
    def suspend_after_idle(self) -> float: ...
    @property
    def checks(self) -> list[str]: ...

@final
class EgressInfo(structseq[Any], tuple[Any, ...]):
    @property
    def mode(self) -> _EgressMode: ...
    @property
    def ech(self) -> _EgressEch: ...
    @property
    def allow(self) -> list[str]: ...
    @property
    def http(self) -> list[str]: ...
    @property
    def credentials(self) -> list[str]: ...
    @property
    def available(self) -> bool: ...
    @property
    def registered(self) -> bool: ...
    @property
    def connections(self) -> int: ...
    @property
    def refused(self) -> int: ...

@final
class EgressRefusal(structseq[Any], tuple[Any, ...]):
    @property
    def time(self) -> float | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

@final
class WorkspaceStats(structseq[Any], tuple[Any, ...]):
    @property
    def uptime(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def agent_memory_bytes(self) -> int: ...
    @property
    def cpu(self) -> float: ...
    @property
    def disk_used_bytes(self) -> int: ...
    @property
    def disk_free_bytes(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def connections(self) -> int: ...
    @property
    def idle(self) -> float: ...
    @property
    def active_tasks(self) -> int: ...

@final
class Activity(structseq[Any], tuple[Any, ...]):
    @property
    def tasks(self) -> int: ...
    @property
    def terminals(self) -> int: ...
    @property
    def idle(self) -> float: ...
    @property
    def had_traffic(self) -> bool: ...
    @property
    def traffic_idle(self) -> float: ...
    @property
    def who(self) -> str: ...

@final
class SuspendResult(structseq[Any], tuple[Any, ...]):
    @property
    def snapshot(self) -> str: ...
    @property
    def kept(self) -> _Keep: ...
    @property
    def stopped(self) -> int: ...
    @property
    def parked(self) -> int: ...
    @property
    def took(self) -> float: ...
    @property
    def bytes(self) -> int: ...
    @property
    def why_files(self) -> str: ...

@final
class ResumeResult(structseq[Any], tuple[Any, ...]):
    @property
    def restored(self) -> bool: ...
    @property
    def clock_failed(self) -> bool: ...
    @property
    def entropy_failed(self) -> bool: ...
    @property
    def kept(self) -> _Keep: ...
    @property
    def proof(self) -> _Proof: ...
    @property
    def attempts(self) -> int: ...
    @property
    def snapshot(self) -> str: ...
    @property
    def took(self) -> float: ...
    @property
    def continued(self) -> int: ...
    @property
    def deadlines_kept(self) -> int: ...
    @property
    def connections_reset(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def hook_code(self) -> int: ...
    @property
    def skew(self) -> float: ...
    @property
    def asleep(self) -> float: ...

@final
class SnapshotInfo(structseq[Any], tuple[Any, ...]):
    @property
    def id(self) -> str: ...
    @property
    def kept(self) -> _Keep: ...
    @property
    def is_recovery_point(self) -> bool: ...
    @property
    def was_proven(self) -> bool: ...
    @property
    def has_seal(self) -> bool: ...
    @property
    def created(self) -> float | None: ...
    @property
    def bytes(self) -> int: ...

@final
class Verification(structseq[Any], tuple[Any, ...]):
    @property
    def verdict(self) -> _Verdict: ...
    @property
    def files(self) -> int: ...
    @property
    def snapshot(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def evidence(self) -> str: ...

@final
class IdleResult(structseq[Any], tuple[Any, ...]):
    @property
    def suspended(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def failed(self) -> int: ...

@final
class ProcessExit(structseq[Any], tuple[Any, ...]):
    @property
    def code(self) -> int: ...
    @property
    def signal(self) -> int: ...
    @property
    def timed_out(self) -> bool: ...

@final
class ProcessEvent(structseq[Any], tuple[Any, ...]):
    @property
    def kind(self) -> _ProcessEventKind: ...
    @property
    def data(self) -> bytes: ...
    @property
    def offset(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def exit(self) -> ProcessExit | None: ...

@final
class ProcessInfo(structseq[Any], tuple[Any, ...]):
    @property
    def id(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def running(self) -> bool: ...
    @property
    def exit(self) -> ProcessExit | None: ...
    @property
    def role(self) -> _Role: ...
    @property
    def terminal(self) -> bool: ...
    @property
    def command(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def started(self) -> float | None: ...
    @property
    def descendants(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def error_bytes(self) -> int: ...

@final
class FileInfo(structseq[Any], tuple[Any, ...]):
    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def kind(self) -> _FileKind: ...
    @property
    def mode(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def modified(self) -> float | None: ...
    @property
    def links(self) -> int: ...

@final
class FileEvent(structseq[Any], tuple[Any, ...]):
    @property
    def change(self) -> _FileChange: ...
    @property
    def path(self) -> str: ...
    @property
    def new_path(self) -> str: ...

@final
class CopyProgress(structseq[Any], tuple[Any, ...]):
    @property
    def bytes(self) -> int: ...
    @property
    def bytes_total(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def path(self) -> str: ...

@final
class CopyResult(structseq[Any], tuple[Any, ...]):
    @property
    def bytes(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def skipped(self) -> int: ...

@final
class PortInfo(structseq[Any], tuple[Any, ...]):
    @property
    def port(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int: ...

@final
class Event(structseq[Any], tuple[Any, ...]):
    @property
    def kind(self) -> _EventKind: ...
    @property
    def state(self) -> _State: ...
    @property
    def time(self) -> float | None: ...
    @property
    def workspace(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...

@final
class Manifest(structseq[Any], tuple[Any, ...]):
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def space(self) -> str: ...
    @property
    def text(self) -> str: ...


class Error(Exception):
    status: str
    message: str
    code: int
    reason: str
    http_status: int | None
    system_error: int | None
    driver: str
    process_id: str
    def __init__(
        self,
        message: str,
        code: int = 0,
        reason: str = "",
        http_status: int = 0,
        system_error: int = 0,
        driver: str = "",
        process_id: str = "",
    ) -> None: ...

class Invalid(Error, ValueError): ...
class NotFound(Error, LookupError): ...
class Exists(Error): ...
class Denied(Error, PermissionError): ...
class Unsupported(Error): ...
class NoMemory(Error, MemoryError): ...
class Unavailable(Error): ...
class TimedOut(Error, TimeoutError): ...
class Cancelled(Error): ...
class Busy(Error): ...
class Interrupted(Error): ...
class Limit(Error): ...
class Unknown(Error): ...
class Closed(Error): ...
class Conflict(Error): ...
class Failed(Error): ...
class Suspended(Error): ...
class NotRestored(Error): ...

class CommandFailed(CalledProcessError): ...

class CommandTimedOut(TimedOut, TimeoutExpired):
    cmd: Any
    timeout: float
    output: Any
    stderr: Any
    def __init__(self, message: str, cmd: Any, timeout: float, output: Any, stderr: Any) -> None: ...

class Completed(CompletedProcess[AnyStr]):
    signal: int | None
    timed_out: bool
    stdout: AnyStr
    stderr: AnyStr
    stdout_total: int
    stderr_total: int
    stdout_truncated: bool
    stderr_truncated: bool
    def __init__(self, args: _Command, found: Any, stdout: AnyStr, stderr: AnyStr) -> None: ...

class Cancel:
    def __init__(self) -> None: ...
    def trigger(self) -> None: ...
    @property
    def triggered(self) -> bool: ...

class _Handle:
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Opencode:
    def __init__(
        self, port: int | None = None, *, user: str | None = None, password: str | None = None
    ) -> None: ...

def version() -> str: ...
def set_log(level: _LogLevel, function: Callable[[_LogLevel, str], object] | None = None) -> None: ...
def doctor(
    uri: str | None = None,
    *,
    save: str | None = None,
    from_: str | None = None,
    timeout: _Duration | None = None,
    cancel: Cancel | None = None,
) -> list[Finding]: ...
def render_manifests(
    uri: str,
    *,
    image: str | None = None,
    agent_image: str | None = None,
    bucket: str | None = None,
    path: str | None = None,
    egress: str | None = None,
    machine_family: str | None = None,
    service_account: str | None = None,
    replicas: int | None = None,
    memory_mib: int | None = None,
    cpu_millis: int | None = None,
    own_nodes: bool | None = None,
) -> list[Manifest]: ...
def apply_manifests(
    uri: str,
    *,
    image: str | None = None,
    agent_image: str | None = None,
    bucket: str | None = None,
    path: str | None = None,
    egress: str | None = None,
    machine_family: str | None = None,
    service_account: str | None = None,
    replicas: int | None = None,
    memory_mib: int | None = None,
    cpu_millis: int | None = None,
    own_nodes: bool | None = None,
    force: bool | None = None,
    timeout: _Duration | None = None,
    cancel: Cancel | None = None,
) -> list[Manifest]: ...

class Client(_Handle):
    def __init__(
        self, uri: str | None = None, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> None: ...
    @property
    def uri(self) -> str: ...
    @property
    def driver(self) -> str: ...
    def can(self, ability: _Ability) -> bool: ...
    def create_workspace(
        self,
        name: str | None = None,
        *,
        image: _Path | None = None,
        user: str | None = None,
        env: _Pairs | None = None,
        labels: _Pairs | None = None,
        memory_mib: int | None = None,
        cpu_millis: int | None = None,
        process_limit: int | None = None,
        disk_mib: int | None = None,
        expires_after: _Duration | None = None,
        retain: int | None = None,
        suspend_after_idle: _Duration | None = None,
        checks: Iterable[str] | None = None,
        egress: _Egress | None = None,
        temporary: bool = False,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Workspace: ...
    def open_workspace(
        self,
        name: str,
        *,
        from_: _From | None = None,
        image: _Path | None = None,
        user: str | None = None,
        env: _Pairs | None = None,
        labels: _Pairs | None = None,
        memory_mib: int | None = None,
        cpu_millis: int | None = None,
        process_limit: int | None = None,
        disk_mib: int | None = None,
        expires_after: _Duration | None = None,
        retain: int | None = None,
        suspend_after_idle: _Duration | None = None,
        checks: Iterable[str] | None = None,
        egress: _Egress | None = None,
        temporary: bool = False,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Workspace: ...
    def find_workspace(
        self, name: str, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> Workspace: ...
    def list_workspaces(
        self,
        *,
        labels: _Pairs | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> list[WorkspaceInfo]: ...
    def sweep(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> int: ...
    def recover(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> int: ...
    def suspend_idle(
        self,
        *,
        idle: _Duration | None = None,
        max_busy: _Duration | None = None,
        labels: _Pairs | None = None,
        parallel: int | None = None,
        keep: _Keep | None = None,
        checks: Iterable[_Check] | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> IdleResult: ...
    def watch(self) -> Watch: ...

class Workspace(_Handle):
    def __init__(self, handle: Any, temporary: bool = False) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def files(self) -> Files: ...
    @property
    def ports(self) -> Ports: ...
    @overload
    def run(
        self,
        command: _Command,
        *,
        input: ReadableBuffer | str | None = None,
        text: Literal[True],
        encoding: str | None = None,
        errors: str | None = None,
        check: bool = False,
        env: _Pairs | None = None,
        directory: _Path | None = None,
        user: str | None = None,
        id: str | None = None,
        login_shell: bool | None = None,
        terminal: bool | None = None,
        terminal_type: str | None = None,
        rows: int | None = None,
        columns: int | None = None,
        role: _Role | None = None,
        deadline: _Duration | None = None,
        output_limit: int | None = None,
        leave_running: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Completed[str]: ...
    @overload
    def run(
        self,
        command: _Command,
        *,
        input: ReadableBuffer | str | None = None,
        text: bool = False,
        encoding: str,
        errors: str | None = None,
        check: bool = False,
        env: _Pairs | None = None,
        directory: _Path | None = None,
        user: str | None = None,
        id: str | None = None,
        login_shell: bool | None = None,
        terminal: bool | None = None,
        terminal_type: str | None = None,
        rows: int | None = None,
        columns: int | None = None,
        role: _Role | None = None,
        deadline: _Duration | None = None,
        output_limit: int | None = None,
        leave_running: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Completed[str]: ...
    @overload
    def run(
        self,
        command: _Command,
        *,
        input: ReadableBuffer | str | None = None,
        text: bool = False,
        encoding: str | None = None,
        errors: str,
        check: bool = False,
        env: _Pairs | None = None,
        directory: _Path | None = None,
        user: str | None = None,
        id: str | None = None,
        login_shell: bool | None = None,
        terminal: bool | None = None,
        terminal_type: str | None = None,
        rows: int | None = None,
        columns: int | None = None,
        role: _Role | None = None,
        deadline: _Duration | None = None,
        output_limit: int | None = None,
        leave_running: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Completed[str]: ...
    @overload
    def run(
        self,
        command: _Command,
        *,
        input: ReadableBuffer | None = None,
        text: Literal[False] = False,
        encoding: None = None,
        errors: None = None,
        check: bool = False,
        env: _Pairs | None = None,
        directory: _Path | None = None,
        user: str | None = None,
        id: str | None = None,
        login_shell: bool | None = None,
        terminal: bool | None = None,
        terminal_type: str | None = None,
        rows: int | None = None,
        columns: int | None = None,
        role: _Role | None = None,
        deadline: _Duration | None = None,
        output_limit: int | None = None,
        leave_running: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Completed[bytes]: ...
    def start(
        self,
        command: _Command,
        *,
        env: _Pairs | None = None,
        directory: _Path | None = None,
        user: str | None = None,
        id: str | None = None,
        login_shell: bool | None = None,
        terminal: bool | None = None,
        terminal_type: str | None = None,
        rows: int | None = None,
        columns: int | None = None,
        role: _Role | None = None,
        when_full: _WhenFull | None = None,
        input: _Input | None = None,
        deadline: _Duration | None = None,
        buffer_bytes: int | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Process: ...
    def find_process(
        self, id: str, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> Process: ...
    def list_processes(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> list[ProcessInfo]: ...
    def suspend(
        self,
        *,
        keep: _Keep | None = None,
        force: bool | None = None,
        interruptible: bool | None = None,
        quiet: _Duration | None = None,
        finish: _Duration | None = None,
        checks: Iterable[_Check] | None = None,
        spare: str | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> SuspendResult: ...
    def resume(
        self,
        *,
        accept: _Accept | None = None,
        from_: _From | None = None,
        snapshot: str | None = None,
        env: _Pairs | None = None,
        egress: _Egress | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> ResumeResult: ...
    def checkpoint(
        self,
        *,
        keep: _Keep | None = None,
        finish: _Duration | None = None,
        spare: str | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> SuspendResult: ...
    def restore(
        self,
        snapshot: str,
        *,
        force: bool | None = None,
        accept: _Accept | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> ResumeResult: ...
    def set_egress(
        self,
        *,
        mode: _EgressMode | None = None,
        ech: _EgressEch | None = None,
        allow: Iterable[str] | None = None,
        http: Iterable[str] | None = None,
        add_allow: Iterable[str] | None = None,
        add_http: Iterable[str] | None = None,
        remove: Iterable[str] | None = None,
        transformations: _Transformations | None = None,
        add_transformations: _Transformations | None = None,
        close_denied: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def inspect_egress(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> EgressInfo: ...
    def read_egress_log(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> list[EgressRefusal]: ...
    def list_snapshots(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> list[SnapshotInfo]: ...
    def verify(
        self,
        snapshot: str | None = None,
        *,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Verification: ...
    def delete_snapshot(
        self, snapshot: str, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> None: ...
    def inspect(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> WorkspaceInfo: ...
    def measure(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> WorkspaceStats: ...
    def activity(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> Activity: ...
    def renew(
        self,
        expires_after: _Duration | None,
        *,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def delete(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> None: ...

class Process(_Handle):
    def __init__(self, handle: Any) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def exit(self) -> ProcessExit | None: ...
    def fileno(self) -> int: ...
    def next(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> ProcessEvent: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> ProcessEvent: ...
    def text(
        self, encoding: str = "utf-8", errors: str = "replace"
    ) -> Iterator[tuple[_ProcessEventKind, str]]: ...
    @overload
    def lines(
        self, encoding: None, errors: str = "replace", limit: int = ...
    ) -> Iterator[tuple[_ProcessEventKind, bytes]]: ...
    @overload
    def lines(
        self, encoding: str = "utf-8", errors: str = "replace", limit: int = ...
    ) -> Iterator[tuple[_ProcessEventKind, str]]: ...
    def wait(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> ProcessExit: ...
    def write(
        self, data: ReadableBuffer, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> None: ...
    def end_input(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> None: ...
    def signal(
        self, number: int, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> None: ...
    def kill(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> None: ...
    def resize(
        self,
        columns: int,
        rows: int,
        *,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...

class Files:
    def __init__(self, workspace: Workspace) -> None: ...
    def read(
        self,
        path: _Path,
        *,
        offset: int | None = None,
        length: int | None = None,
        limit: int | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> bytes: ...
    def read_text(
        self,
        path: _Path,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        limit: int | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> str: ...
    def write(
        self,
        path: _Path,
        data: ReadableBuffer,
        *,
        mode: int | None = None,
        append: bool | None = None,
        exclusive: bool | None = None,
        no_parents: bool | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def write_text(
        self,
        path: _Path,
        text: str,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        mode: int | None = None,
        append: bool | None = None,
        exclusive: bool | None = None,
        no_parents: bool | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def reader(
        self,
        path: _Path,
        *,
        offset: int | None = None,
        length: int | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> FileReader: ...
    def writer(
        self,
        path: _Path,
        *,
        mode: int | None = None,
        append: bool | None = None,
        exclusive: bool | None = None,
        no_parents: bool | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> FileWriter: ...
    def stat(
        self, path: _Path, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> FileInfo: ...
    # Before `list`, since the word is the method's from there on.
    def remove(
        self,
        path: _Path,
        *,
        recursive: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def rename(
        self,
        path: _Path,
        new_path: _Path,
        *,
        replace: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def make_directory(
        self,
        path: _Path,
        *,
        recursive: bool | None = None,
        mode: int | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def set_mode(
        self, path: _Path, mode: int, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> None: ...
    def link(
        self,
        target: _Path,
        path: _Path,
        *,
        hard_link: bool | None = None,
        replace: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> None: ...
    def watch(
        self,
        path: _Path = ".",
        *,
        recursive: bool | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> FileWatch: ...
    def upload(
        self,
        host_path: _Path,
        guest_path: _Path,
        *,
        max_bytes: int | None = None,
        max_entries: int | None = None,
        max_depth: int | None = None,
        links: _CopyLinks | None = None,
        progress: Callable[[CopyProgress], object] | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> CopyResult: ...
    def download(
        self,
        guest_path: _Path,
        host_path: _Path,
        *,
        max_bytes: int | None = None,
        max_entries: int | None = None,
        max_depth: int | None = None,
        links: _CopyLinks | None = None,
        progress: Callable[[CopyProgress], object] | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> CopyResult: ...
    def list(
        self, path: _Path = ".", *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> list[FileInfo]: ...

class FileReader(RawIOBase):
    def __init__(self, handle: Any) -> None: ...
    def next(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> bytes: ...
    def readinto(self, buffer: WriteableBuffer) -> int: ...
    def __next__(self) -> bytes: ...

class FileWriter(_Handle):
    def __init__(self, handle: Any) -> None: ...
    def write(
        self, data: ReadableBuffer, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> int: ...
    def commit(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> None: ...

class FileWatch(_Handle):
    def __init__(self, handle: Any) -> None: ...
    def next(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> FileEvent: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> FileEvent: ...

class Watch(_Handle):
    def __init__(self, handle: Any) -> None: ...
    def next(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> Event: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...

class Ports:
    def __init__(self, workspace: Workspace) -> None: ...
    def dial(
        self, port: int, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> Connection: ...
    def forward(
        self,
        port: int,
        *,
        host_port: int | None = None,
        host_address: str | None = None,
        max_connections: int | None = None,
        timeout: _Duration | None = None,
        cancel: Cancel | None = None,
    ) -> Forward: ...
    def list(
        self, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> list[PortInfo]: ...

class Connection(_Handle):
    def __init__(self, handle: Any) -> None: ...
    def fileno(self) -> int: ...
    def read(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> bytes: ...
    def write(
        self, data: ReadableBuffer, *, timeout: _Duration | None = None, cancel: Cancel | None = None
    ) -> None: ...
    def end_output(self, *, timeout: _Duration | None = None, cancel: Cancel | None = None) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...

class Forward(_Handle):
    def __init__(self, handle: Any) -> None: ...
    @property
    def host_port(self) -> int: ...
