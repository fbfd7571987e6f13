from collections.abc import AsyncIterator, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Literal, overload

from _typeshed import ReadableBuffer
from typing_extensions import Self

from . import (
    Activity,
    Completed,
    CopyProgress,
    CopyResult,
    EgressInfo,
    EgressRefusal,
    Event,
    FileEvent,
    FileInfo,
    Finding,
    IdleResult,
    Manifest,
    PortInfo,
    ProcessEvent,
    ProcessExit,
    ProcessInfo,
    ResumeResult,
    SnapshotInfo,
    SuspendResult,
    Verification,
    WorkspaceInfo,
    WorkspaceStats,
    _Ability,
    _Accept,
    _Check,
    _Command,
    _CopyLinks,
    _Duration,
    _Egress,
    _EgressEch,
    _EgressMode,
    _From,
    _Input,
    _Keep,
    _Pairs,
    _Path,
    _ProcessEventKind,
    _Role,
    _Transformations,
    _WhenFull,
)

__all__ = [
    "Client",
    "Connection",
    "FileReader",
    "FileWatch",
    "FileWriter",
    "Files",
    "Forward",
    "Ports",
    "Process",
    "Watch",
    "Workspace",
    "apply_manifests",
    "doctor",
]

class _Handle:
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Client(_Handle):
    def __init__(self, uri: str | None = None, *, timeout: _Duration | None = None) -> None: ...
    def __await__(self) -> Generator[Any, None, Self]: ...
    @property
    def uri(self) -> str: ...
    @property
    def driver(self) -> str: ...
    def can(self, ability: _Ability) -> bool: ...
    async def create_workspace(
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
    ) -> Workspace: ...
    async def open_workspace(
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
    ) -> Workspace: ...
    async def find_workspace(
        self, name: str, *, timeout: _Duration | None = None
    ) -> Workspace: ...
    async def list_workspaces(
        self,
        *,
        labels: _Pairs | None = None,
        timeout: _Duration | None = None,
    ) -> list[WorkspaceInfo]: ...
    async def sweep(self, *, timeout: _Duration | None = None) -> int: ...
    async def recover(self, *, timeout: _Duration | None = None) -> int: ...
    async def suspend_idle(
        self,
        *,
        idle: _Duration | None = None,
        max_busy: _Duration | None = None,
        labels: _Pairs | None = None,
        parallel: int | None = None,
        keep: _Keep | None = None,
        checks: Iterable[_Check] | None = None,
        timeout: _Duration | None = None,
    ) -> IdleResult: ...
    def watch(self) -> Watch: ...

class Workspace(_Handle):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def files(self) -> Files: ...
    @property
    def ports(self) -> Ports: ...
    @overload
    async def run(
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
    ) -> Completed[str]: ...
    @overload
    async def run(
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
    ) -> Completed[str]: ...
    @overload
    async def run(
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
    ) -> Completed[str]: ...
    @overload
    async def run(
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
    ) -> Completed[bytes]: ...
    async def start(
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
    ) -> Process: ...
    async def find_process(
        self, id: str, *, timeout: _Duration | None = None
    ) -> Process: ...
    async def list_processes(
        self, *, timeout: _Duration | None = None
    ) -> list[ProcessInfo]: ...
    async def suspend(
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
    ) -> SuspendResult: ...
    async def resume(
        self,
        *,
        accept: _Accept | None = None,
        from_: _From | None = None,
        snapshot: str | None = None,
        env: _Pairs | None = None,
        egress: _Egress | None = None,
        timeout: _Duration | None = None,
    ) -> ResumeResult: ...
    async def checkpoint(
        self,
        *,
        keep: _Keep | None = None,
        finish: _Duration | None = None,
        spare: str | None = None,
        timeout: _Duration | None = None,
    ) -> SuspendResult: ...
    async def restore(
        self,
        snapshot: str,
        *,
        force: bool | None = None,
        accept: _Accept | None = None,
        timeout: _Duration | None = None,
    ) -> ResumeResult: ...
    async def set_egress(
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
    ) -> None: ...
    async def inspect_egress(
        self, *, timeout: _Duration | None = None
    ) -> EgressInfo: ...
    async def read_egress_log(
        self, *, timeout: _Duration | None = None
    ) -> list[EgressRefusal]: ...
    async def list_snapshots(
        self, *, timeout: _Duration | None = None
    ) -> list[SnapshotInfo]: ...
    async def verify(
        self,
        snapshot: str | None = None,
        *,
        timeout: _Duration | None = None,
    ) -> Verification: ...
    async def delete_snapshot(
        self, snapshot: str, *, timeout: _Duration | None = None
    ) -> None: ...
    async def inspect(
        self, *, timeout: _Duration | None = None
    ) -> WorkspaceInfo: ...
    async def measure(
        self, *, timeout: _Duration | None = None
    ) -> WorkspaceStats: ...
    async def activity(
        self, *, timeout: _Duration | None = None
    ) -> Activity: ...
    async def renew(
        self,
        expires_after: _Duration | None,
        *,
        timeout: _Duration | None = None,
    ) -> None: ...
    async def delete(self, *, timeout: _Duration | None = None) -> None: ...

class Process(_Handle):
    @property
    def id(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def exit(self) -> ProcessExit | None: ...
    def fileno(self) -> int: ...
    async def next(
        self, *, timeout: _Duration | None = None
    ) -> ProcessEvent: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> ProcessEvent: ...
    def text(
        self, encoding: str = "utf-8", errors: str = "replace"
    ) -> AsyncIterator[tuple[_ProcessEventKind, str]]: ...
    @overload
    def lines(
        self, encoding: None, errors: str = "replace", limit: int = ...
    ) -> AsyncIterator[tuple[_ProcessEventKind, bytes]]: ...
    @overload
    def lines(
        self, encoding: str = "utf-8", errors: str = "replace", limit: int = ...
    ) -> AsyncIterator[tuple[_ProcessEventKind, str]]: ...
    async def wait(
        self, *, timeout: _Duration | None = None
    ) -> ProcessExit: ...
    async def write(
        self, data: ReadableBuffer, *, timeout: _Duration | None = None
    ) -> None: ...
    async def end_input(self, *, timeout: _Duration | None = None) -> None: ...
    async def signal(
        self, number: int, *, timeout: _Duration | None = None
    ) -> None: ...
    async def kill(self, *, timeout: _Duration | None = None) -> None: ...
    async def resize(
        self,
        columns: int,
        rows: int,
        *,
        timeout: _Duration | None = None,
    ) -> None: ...

class Files:
    async def read(
        self,
        path: _Path,
        *,
        offset: int | None = None,
        length: int | None = None,
        limit: int | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
    ) -> bytes: ...
    async def read_text(
        self,
        path: _Path,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        limit: int | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
    ) -> str: ...
    async def write(
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
    ) -> None: ...
    async def write_text(
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
    ) -> None: ...
    async def reader(
        self,
        path: _Path,
        *,
        offset: int | None = None,
        length: int | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
    ) -> FileReader: ...
    async def writer(
        self,
        path: _Path,
        *,
        mode: int | None = None,
        append: bool | None = None,
        exclusive: bool | None = None,
        no_parents: bool | None = None,
        follow_out: bool | None = None,
        timeout: _Duration | None = None,
    ) -> FileWriter: ...
    async def stat(
        self, path: _Path, *, timeout: _Duration | None = None
    ) -> FileInfo: ...
    # Before `list`, since the word is the method's from there on.
    async def remove(
        self,
        path: _Path,
        *,
        recursive: bool | None = None,
        timeout: _Duration | None = None,
    ) -> None: ...
    async def rename(
        self,
        path: _Path,
        new_path: _Path,
        *,
        replace: bool | None = None,
        timeout: _Duration | None = None,
    ) -> None: ...
    async def make_directory(
        self,
        path: _Path,
        *,
        recursive: bool | None = None,
        mode: int | None = None,
        timeout: _Duration | None = None,
    ) -> None: ...
    async def set_mode(
        self, path: _Path, mode: int, *, timeout: _Duration | None = None
    ) -> None: ...
    async def link(
        self,
        target: _Path,
        path: _Path,
        *,
        hard_link: bool | None = None,
        replace: bool | None = None,
        timeout: _Duration | None = None,
    ) -> None: ...
    async def watch(
        self,
        path: _Path = ".",
        *,
        recursive: bool | None = None,
        timeout: _Duration | None = None,
    ) -> FileWatch: ...
    async def upload(
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
    ) -> CopyResult: ...
    async def download(
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
    ) -> CopyResult: ...
    async def list(
        self, path: _Path = ".", *, timeout: _Duration | None = None
    ) -> list[FileInfo]: ...

class FileReader(_Handle):
    async def next(self, *, timeout: _Duration | None = None) -> bytes: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> bytes: ...

class FileWriter(_Handle):
    async def write(
        self, data: ReadableBuffer, *, timeout: _Duration | None = None
    ) -> int: ...
    async def commit(self, *, timeout: _Duration | None = None) -> None: ...

class FileWatch(_Handle):
    async def next(self, *, timeout: _Duration | None = None) -> FileEvent: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> FileEvent: ...

class Watch(_Handle):
    async def next(self, *, timeout: _Duration | None = None) -> Event: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Event: ...

class Ports:
    async def dial(
        self, port: int, *, timeout: _Duration | None = None
    ) -> Connection: ...
    async def forward(
        self,
        port: int,
        *,
        host_port: int | None = None,
        host_address: str | None = None,
        max_connections: int | None = None,
        timeout: _Duration | None = None,
    ) -> Forward: ...
    async def list(
        self, *, timeout: _Duration | None = None
    ) -> list[PortInfo]: ...

class Connection(_Handle):
    def fileno(self) -> int: ...
    async def read(self, *, timeout: _Duration | None = None) -> bytes: ...
    async def write(
        self, data: ReadableBuffer, *, timeout: _Duration | None = None
    ) -> None: ...
    async def end_output(self, *, timeout: _Duration | None = None) -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> bytes: ...

class Forward(_Handle):
    @property
    def host_port(self) -> int: ...


async def doctor(
    uri: str | None = None,
    *,
    save: str | None = None,
    from_: str | None = None,
    timeout: _Duration | None = None,
) -> list[Finding]: ...
async def apply_manifests(
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
) -> list[Manifest]: ...
