"""`Workspace.run`, as subprocess.run does it."""

import subprocess

from ._errors import TimedOut
from ._process import what
from ._wait import how, seconds

GRACE = 15  # seconds that a command's end may take to be told after its deadline


class CommandFailed(subprocess.CalledProcessError):
    """A command that was run with `check` ended with a code other than 0.

    `returncode`, `cmd`, `stdout` (also as `output`) and `stderr` tell how.
    """

    __module__ = "libsandbox"


class CommandTimedOut(TimedOut, subprocess.TimeoutExpired):
    """A command was killed because its `timeout` had passed.

    `cmd`, `timeout`, and what it had said until then: `stdout` (also as `output`) and `stderr`.
    """

    __module__ = "libsandbox"

    def __init__(self, message, cmd, timeout, output, stderr):
        TimedOut.__init__(self, message, reason="deadline")
        self.cmd, self.timeout, self.output, self.stderr = cmd, timeout, output, stderr

    def __reduce__(self):
        return type(self), (self.message, self.cmd, self.timeout, self.output, self.stderr)


class Completed(subprocess.CompletedProcess):
    """What a command left: a subprocess.CompletedProcess that knows more.

    args: as they were given. returncode: the exit code, or minus the signal that ended it.
    stdout, stderr: bytes, or str where text was asked for.
    stdout_total, stderr_total: how many bytes there were.
    stdout_truncated, stderr_truncated: whether some of them were over `output_limit`.
    timed_out: whether its `deadline` ended it. signal: which signal, or None.
    """

    __module__ = "libsandbox"

    def __init__(self, args, found, stdout, stderr):
        code, signal, timed_out = found.exit
        super().__init__(args, -signal if signal else code, stdout, stderr)
        self.signal = signal or None
        self.timed_out = timed_out
        self.stdout_total, self.stderr_total = found.output_total, found.errors_total
        self.stdout_truncated = found.output_truncated
        self.stderr_truncated = found.errors_truncated

    def check_returncode(self):
        """Raise CommandFailed if the code is not 0."""
        if self.returncode:
            raise CommandFailed(self.returncode, self.args, self.stdout, self.stderr)


def run(handle, command, options, *, input, text, encoding, errors, check, output_limit,
        leave_running, timeout, cancel):
    """See Workspace.run."""
    encoding = encoding or ("utf-8" if text or errors else None)
    if isinstance(input, str):
        if encoding is None:
            raise TypeError("'input' must be bytes, or ask for text")
        input = input.encode(encoding, "strict")
    limit = seconds(timeout)
    # The guest ends it at the time, and all it has started, even if this program is gone by then.
    inside = limit is not None and limit != float("inf") and not leave_running
    if inside:
        if options["deadline"] is None or seconds(options["deadline"]) > limit:
            options["deadline"] = limit
        else:
            inside = False
    found = handle.run(what(command, options),
                       {"input": input, "output_limit": output_limit,
                        "leave_running": leave_running},
                       how(limit + GRACE if inside else limit, cancel))
    stdout, stderr = found.output, found.errors
    if encoding is not None:
        errors = errors or "replace"
        stdout, stderr = stdout.decode(encoding, errors), stderr.decode(encoding, errors)
    completed = Completed(command, found, stdout, stderr)
    if inside and completed.timed_out:
        raise CommandTimedOut(f"the command was ended after {limit:g} s", command, limit, stdout,
                              stderr)
    if check:
        completed.check_returncode()
    return completed
