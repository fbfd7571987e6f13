"""What the tests of the command share: a platform of their own, and ways to call it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

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
