"""What the tests of the command share: a platform of their own, and ways to call it."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

import pytest

CLI = os.environ["SANDBOX_CLI"]
WAIT = 90  # no test waits longer for one thing; only a failure ever waits that long


def environment(**more):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    kept.update({name: value for name, value in os.environ.items()
                 if name.startswith(("ASAN_", "UBSAN_", "TSAN_", "LSAN_"))})
    kept.update(more)
    return kept


def usual_signals():
    """A runner may have SIGINT ignored; the command would rightly keep that."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


class Sandbox:
    """The command, pointed at one platform."""

    def __init__(self, uri, directory):
        self.uri = uri
        self.directory = directory
        self.environment = environment(SANDBOX_URI=uri) if uri else environment()

    def start(self, *words, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.environment)
        return subprocess.Popen([CLI, *words], preexec_fn=usual_signals, **options)

    def run(self, *words, code=0, given=None, **options):
        """Runs it to its end; `code` is the exit code that it must have, None for any."""
        if given is not None:
            options["stdin"] = subprocess.PIPE
        with self.start(*words, **options) as process:
            try:
                out, err = process.communicate(given, timeout=WAIT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        result = subprocess.CompletedProcess(words, process.returncode, out, err)
        assert code is None or result.returncode == code, (words, result)
        return result

    def text(self, *words, **options):
        return self.run(*words, **options).stdout.decode()

    def json(self, *words, **options):
        return json.loads(self.run("--json", *words, **options).stdout)


class Terminal:
    """A terminal with the command on it."""

    def __init__(self, sandbox, *words, rows=43, columns=132, **variables):
        self.ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.theirs)
        self.shown = b""
        self.process = subprocess.Popen(
            [CLI, *words], stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            env={**sandbox.environment, "TERM": "xterm", **variables}, preexec_fn=self.become)

    def become(self):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)

    def resize(self, rows, columns):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern):
        end = time.monotonic() + WAIT
        while not (found := re.search(pattern, self.shown)):
            left = end - time.monotonic()
            assert left > 0, self.shown
            if select.select([self.ours], [], [], min(left, 0.2))[0]:
                self.shown += os.read(self.ours, 4096)
        self.shown = self.shown[found.end():]
        return found

    def keys(self, data):
        os.write(self.ours, data)

    def is_raw(self):
        return not termios.tcgetattr(self.theirs)[3] & (termios.ICANON | termios.ECHO)

    def wait_until(self, what):
        end = time.monotonic() + WAIT
        while not what():
            assert time.monotonic() < end
            if select.select([self.ours], [], [], 0.02)[0]:
                self.shown += os.read(self.ours, 4096)

    def end(self):
        self.wait_until(lambda: self.process.poll() is not None)
        while select.select([self.ours], [], [], 0)[0]:
            self.shown += os.read(self.ours, 4096)
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal is lost"
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT)
        os.close(self.ours)
        os.close(self.theirs)


def processes_naming(text):
    """Those whose command line holds the text: a platform's, by its own directory."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in line:
            found.append(int(entry.name))
    return found


def platforms():
    usable = ["memory"]
    if os.geteuid() == 0 and (os.environ.get("SANDBOX_RUNSC") or shutil.which("runsc")):
        usable.append("gvisor")
    return usable


@pytest.fixture(scope="session", params=platforms())
def sandbox(request):
    directory = tempfile.mkdtemp(prefix="sandbox-cli-")
    os.chmod(directory, 0o711)  # the memory platform's commands run as another user
    place = directory + ("/socket" if request.param == "memory" else "/state")
    if request.param == "gvisor" and os.environ.get("SANDBOX_RUNSC"):
        place += "?runsc=" + os.environ["SANDBOX_RUNSC"]
    command = Sandbox(f"{request.param}:{place}", directory)
    if request.param == "gvisor":
        check = command.run("doctor", code=None)
        if check.returncode != 0:
            pytest.skip("gvisor cannot be used here: " + check.stdout.decode())
    try:
        yield command
        command.run("delete", "--all", "--yes")
    finally:
        for pid in processes_naming(directory):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def memory():
    """For what does not depend on the platform and changes none."""
    return Sandbox("memory:/nowhere/socket", "/nowhere")


@pytest.fixture(scope="session")
def workspace(sandbox):
    """One that tests share and leave as it is."""
    return sandbox.text("create", "shared", "--expires", "1h").strip()


@pytest.fixture
def own(sandbox):
    """One that a test may change and break."""
    name = sandbox.text("create", "--expires", "1h").strip()
    yield name
    sandbox.run("delete", "--force", name)


@pytest.fixture
def terminal(sandbox):
    opened = []

    def opener(*words, **options):
        opened.append(Terminal(sandbox, *words, **options))
        return opened[-1]
    yield opener
    for one in opened:
        one.close()
