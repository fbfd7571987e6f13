"""Workspaces for AI agents: isolated places that run untrusted commands, keep their files, are
suspended with what runs in them, and come back proven to be the same.

    import libsandbox

    with libsandbox.Client() as client, client.create_workspace(temporary=True) as workspace:
        print(workspace.run("uname -sr; id", text=True, check=True).stdout)

Calls block, without the interpreter's lock; `libsandbox.aio` has the same for asyncio. Every one
that can wait takes `timeout`, in seconds (infinite: for ever; left out: the call's own default) or
as a timedelta, and `cancel`, a Cancel of which `trigger()` ends it. Ctrl-C ends it too. A failure
raises the class of Error that belongs to its status. Durations are given in seconds or as a
timedelta and told in seconds, times are Unix time in seconds.
"""

import warnings as _warnings

with _warnings.catch_warnings():
    # Of older versions of SWIG's: types that do not say in which module they are.
    _warnings.simplefilter("ignore", DeprecationWarning)
    import _libsandbox
from _libsandbox import (
    Activity,
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
)

from ._errors import (
    Busy,
    Cancelled,
    Closed,
    Conflict,
    Denied,
    Error,
    Exists,
    Failed,
    Interrupted,
    Invalid,
    Limit,
    NoMemory,
    NotFound,
    NotRestored,
    Suspended,
    TimedOut,
    Unavailable,
    Unknown,
    Unsupported,
)
from ._files import Files, FileReader, FileWatch, FileWriter
from ._log import set_log
from ._objects import (
    Client,
    Connection,
    Forward,
    Opencode,
    Ports,
    Watch,
    Workspace,
    apply_manifests,
    doctor,
    render_manifests,
    version,
)
from ._process import Process
from ._wait import Cancel

__version__ = _libsandbox.version()
_ON_FIRST_USE = ("Completed", "CommandFailed", "CommandTimedOut")  # they need subprocess

__all__ = [name for name in dir() if not name.startswith("_")] + list(_ON_FIRST_USE)


def __getattr__(name):
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'libsandbox' has no attribute {name!r}")
    from . import _run

    globals().update({each: getattr(_run, each) for each in _ON_FIRST_USE})
    return globals()[name]


def _adopt():
    """What is public says that it comes from here."""
    for each in list(globals().values()):
        if getattr(each, "__module__", "").startswith("libsandbox._"):
            each.__module__ = "libsandbox"


_adopt()
