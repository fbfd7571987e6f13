"""What the tests of the Python binding share: platforms of their own, and what they wait for."""

import gc
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import _libsandbox
import libsandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60  # no test waits longer for one thing; only a failure ever waits that long


def count(usual, whole):
    """How often what is done many times is done: all of it with --long, a part of it else."""
    return whole if os.environ.get("SANDBOX_TEST_COUNT") else usual


def wait_until(holds, what="it"):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"{what} did not come to pass"
        time.sleep(0.005)


def resident():
    """Bytes of this process in memory, after a collection."""
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles():
    """How many there are, without those that nobody has any more."""
    gc.collect()
    return _libsandbox.count_handles()


def no_handles_but(number):
    gc.collect()
    wait_until(lambda: _libsandbox.count_handles() == number, "the end of every handle")


def start_python(text, *arguments, **options):
    """A program of its own, for what ends an interpreter. A runner may have SIGINT ignored."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", text, *arguments], text=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                            **options)


def run_python(text, *arguments, code=0, within=PATIENCE):
    with start_python(text, *arguments) as program:
        try:
            out, err = program.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
    assert program.returncode == code, (program.returncode, out, err)
    return out, err


def end_platform(directory):
    """By its own directory: nobody else's has that in its command line."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if directory.encode() in line and int(entry.name) != os.getpid():
            os.kill(int(entry.name), signal.SIGTERM)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def uri():
    directory = tempfile.mkdtemp(prefix="sandbox-python-")
    os.chmod(directory, 0o711)  # commands run as another user
    yield f"memory:{directory}/socket"
    end_platform(directory)


@pytest.fixture(scope="session")
def client(uri):
    with libsandbox.Client(uri) as opened:
        yield opened


@pytest.fixture(scope="session")
def workspace(client):
    """One that tests share and leave as it is."""
    with client.create_workspace(temporary=True, expires_after=3600) as made:
        yield made


@pytest.fixture
def own(client):
    """One that a test may change and break."""
    with client.create_workspace(temporary=True, expires_after=3600) as made:
        yield made


@pytest.fixture(scope="session")
def gvisor():
    """The URI of a gVisor platform."""
    directory = tempfile.mkdtemp(prefix="sandbox-python-")
    os.chmod(directory, 0o711)
    runsc = os.environ.get("SANDBOX_RUNSC")
    place = f"gvisor:{directory}/state" + (f"?runsc={runsc}" if runsc else "")
    problems = [each.text for each in libsandbox.doctor(place) if each.severity == "problem"]
    if problems:
        shutil.rmtree(directory, ignore_errors=True)
        pytest.skip("gVisor cannot be used here: " + problems[0])
    yield place
    with libsandbox.Client(place) as opened:
        for info in opened.list_workspaces():
            opened.find_workspace(info.id).delete()
    shutil.rmtree(directory, ignore_errors=True)
