"""What a call raises when it fails: one class for each status of the library."""

import _libsandbox


class Error(Exception):
    """A call failed. Each status has a class of its own; this one is the base of all.

    The text is one line for people and holds no secret. `status` is the status as a word
    ('not-found'), `code` its number, `reason` a stable word to branch on ('no-such-file') or '',
    `message` the text, `driver` which driver said so or '', `http_status` what the platform
    answered or None, `system_error` an errno or None, `process_id` the process it is about or ''.
    """

    status = "failed"

    def __init__(self, message, code=0, reason="", http_status=0, system_error=0, driver="",
                 process_id=""):
        super().__init__(message)
        self.message = message
        self.code = code or CODES[self.status]
        self.reason = reason
        self.http_status = http_status or None
        self.system_error = system_error or None
        self.driver = driver
        self.process_id = process_id

    def __str__(self):
        return self.message

    def __reduce__(self):
        return type(self), (self.message, self.code, self.reason, self.http_status or 0,
                            self.system_error or 0, self.driver, self.process_id)


class Invalid(Error, ValueError):
    """The caller's mistake; the same call will fail again."""

    status = "invalid"


class NotFound(Error, LookupError):
    """No such workspace, process, file, program or port: `reason` says which."""

    status = "not-found"


class Exists(Error):
    """The name is taken."""

    status = "exists"


class Denied(Error, PermissionError):
    """Not allowed: credentials, ownership or permissions of files."""

    status = "denied"


class Unsupported(Error):
    """This driver, platform or agent cannot do that."""

    status = "unsupported"


class NoMemory(Error, MemoryError):
    """This process has no memory left."""

    status = "no-memory"


class Unavailable(Error):
    """The platform or the agent did not answer; try again."""

    status = "unavailable"


class TimedOut(Error, TimeoutError):
    """The call's deadline passed."""

    status = "timed-out"


class Cancelled(Error):
    """The caller asked to stop."""

    status = "cancelled"


class Busy(Error):
    """Another operation holds the workspace, or somebody works in it; try again later."""

    status = "busy"


class Interrupted(Error):
    """The workspace's instance is gone; its files are kept, unless `reason` is 'files-lost'."""

    status = "interrupted"


class Limit(Error):
    """A limit was reached: size, count, disk or quota."""

    status = "limit"


class Unknown(Error):
    """It may or may not have happened; look, by `process_id`, before repeating it."""

    status = "unknown"


class Closed(Error):
    """The thing is gone: workspace deleted, stream at its end, handle closed."""

    status = "closed"


class Conflict(Error):
    """Somebody else changed it, or it is not ours."""

    status = "conflict"


class Failed(Error):
    """It was tried and did not work; the message says why."""

    status = "failed"


class Suspended(Error):
    """The workspace is suspended; resume or open it, then repeat the call."""

    status = "suspended"


class NotRestored(Error):
    """Not proven to be the same: the workspace is blocked, its snapshot is kept."""

    status = "not-restored"


CODES = _libsandbox.words["status"]
CLASSES = (Invalid, NotFound, Exists, Denied, Unsupported, NoMemory, Unavailable, TimedOut,
           Cancelled, Busy, Interrupted, Limit, Unknown, Closed, Conflict, Failed, Suspended,
           NotRestored)
_libsandbox.set_errors({0: Error, **{CODES[each.status]: each for each in CLASSES}})
for _each in (Error, *CLASSES):
    _each.__module__ = "libsandbox"
