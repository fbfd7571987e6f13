"""sandbox-memory-platform as a program, and how its tests talk to it."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

import pytest

PLATFORM = os.environ["SANDBOX_MEMORY_PLATFORM"]
AGENT = os.environ["SANDBOX_AGENT"]
ID = "0123456789abcdef0123456789abcdef"
PATIENCE = 30

INVALID, NOT_FOUND, EXISTS, UNSUPPORTED, UNAVAILABLE = -1, -2, -3, -5, -7
BUSY, LIMIT, CONFLICT, FAILED, NOT_RESTORED = -10, -12, -15, -16, -18


def wait_until(is_true, what):
    end = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.01)


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self.answers = self.socket.makefile("rb")

    def send(self, **request):
        self.socket.sendall(json.dumps(request).encode() + b"\n")

    def take(self):
        line = self.answers.readline()
        return json.loads(line) if line else None

    def ask(self, **request):
        self.send(**request)
        return self.take()

    def close(self):
        self.answers.close()
        self.socket.close()


class Platform:
    def __init__(self, directory, *more, agent=AGENT):
        self.path = directory / "socket"
        self.state = directory / "state"
        self.arguments = [PLATFORM, "--socket", str(self.path), "--agent", agent,
                          "--state", str(self.state), *more]
        self.process = subprocess.Popen(self.arguments, stderr=subprocess.PIPE)
        wait_until(self.is_up, "the platform listens")

    def is_up(self):
        if self.process.poll() is not None:
            return True
        with contextlib.suppress(OSError):
            Connection(self.path).close()
            return True
        return False

    def connect(self):
        return Connection(self.path)

    def ask(self, **request):
        connection = self.connect()
        try:
            return connection.ask(**request)
        finally:
            connection.close()

    def tell(self, **request):
        answer = self.ask(**request)
        assert answer and answer["ok"], answer
        return answer

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(prefix="sbx-test-") as path:
        yield pathlib.Path(path)


@pytest.fixture
def start(directory):
    """Starts platforms; whatever a failed case leaves running is ended."""
    started = []

    def start_one(*more, **options):
        started.append(Platform(directory, *more, **options))
        return started[-1]

    yield start_one
    for one in started:
        one.end()


@pytest.fixture
def platform(start):
    running = start()
    yield running
    assert running.end() == 0
    assert not running.state.exists()


def fence(name="one", identity=ID, epoch=1, operation="op-1"):
    return {"name": name, "id": identity, "epoch": epoch, "operation": operation}


def store(platform, name="one", identity=ID, epoch=1, operation="op-1", expected=""):
    text = json.dumps({"id": identity, "epoch": epoch, "operation": {"id": operation}})
    return platform.tell(do="record.store", name=name, text=text, expected=expected)["version"]


def provision(platform, **names):
    return platform.tell(do="provision", **fence(**names))["incarnation"]


def script(platform, **rule):
    platform.tell(do="script", rules=[rule])


def pid_of(incarnation):
    return int(incarnation.split("-")[2])


def lives(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
