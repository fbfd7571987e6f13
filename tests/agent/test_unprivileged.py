"""The agent as the first process of a Pod: an ordinary user without any capability, like everybody
else inside. What works there, what is told that does not, and what others inside can do to it.
"""
import errno
import os
import secrets
import shutil
import signal
import stat
import subprocess
import time

import grpc
import pytest

from conftest import (BINARY, DEADLINE, Caller, descendants_of, fails, guard_pb2, lives,
                      operation_of, state_of, until)
from test_relay import Bridge
from test_seal import reopen, sealed

CODE = grpc.StatusCode
USER = 1000
DROPPED = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups",
           "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container")


class Pod(Caller):
    """A container of namespaces, and the agent in it."""

    def __init__(self, folder, name, home=None, inherit=()):
        self.folder, self.name = folder, name
        for part in ("workspace", "seal", "home"):
            os.makedirs(os.path.join(folder, part))
            os.chown(os.path.join(folder, part), USER, USER)
        self.workspace = os.path.join(folder, "workspace")
        self.home = os.path.join(folder, "home")
        self.seal_file = os.path.join(folder, "seal", "seal")
        self.binary = os.path.join(folder, "sandbox-agent")
        shutil.copy(BINARY, self.binary)
        self.socket = "@" + name
        environment = {"HOME": self.home if home is None else home, "LANG": "C.UTF-8"}
        if "ASAN_OPTIONS" in os.environ:
            environment["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
        self.errors = os.path.join(folder, "errors")
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *DROPPED,
                 self.binary, "serve", "--init", "--socket", self.socket,
                 "--workspace", self.workspace, "--seal", self.seal_file],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                env={"PATH": os.environ["PATH"], **environment}, pass_fds=inherit)
        super().__init__(self.socket, secrets.token_bytes(32), 1, secrets.token_bytes(16))
        self.channel.close()
        self.channel = grpc.insecure_channel(
            "unix-abstract:" + name, options=[("grpc.use_local_subchannel_pool", 1)])
        until(lambda: self.asks_health().returncode == 0, "the agent answers")

    def caller(self):
        other = Caller(self.socket, self.token, self.epoch, self.workspace_id)
        other.channel.close()
        other.channel = grpc.insecure_channel(
            "unix-abstract:" + self.name, options=[("grpc.use_local_subchannel_pool", 1)])
        return other

    def open(self, **fields):
        fields.setdefault("user", "sandbox")
        return super().open(**fields)

    @property
    def pid(self):
        """Of the agent, as we see it from outside."""
        for pid in descendants_of(self.process.pid):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().startswith(self.binary.encode() + b"\0serve"):
                    return pid
        return None

    def inside(self, *words, **named):
        """A program beside the agent, as a platform's exec starts one."""
        named.setdefault("capture_output", True)
        return subprocess.run(["nsenter", "--target", str(self.pid), "--pid", "--mount", *DROPPED,
                               *words], check=False, timeout=DEADLINE, **named)

    def asks_health(self):
        assert self.process.poll() is None, open(self.errors, "rb").read()
        return subprocess.run([self.binary, "health", self.socket], capture_output=True,
                              check=False, timeout=DEADLINE)

    def end(self):
        self.close()
        left = descendants_of(self.process.pid)
        if self.process.poll() is None and self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0
        until(lambda: not any(lives(child) for child in left), "nothing outlives the agent")
        with open(self.errors, "rb") as errors:
            assert errors.read() == b""


@pytest.fixture
def make_pod(folder):
    pods = []

    def make(**named):
        name = named.pop("name", "sandbox-agent-" + secrets.token_hex(8))
        place = os.path.join(folder, str(len(pods)))
        os.makedirs(place)
        pods.append(Pod(place, name, **named))
        return pods[-1]
    yield make
    for pod in pods:
        pod.end()


@pytest.fixture
def pod(make_pod):
    made = make_pod()
    made.open()
    return made


@pytest.mark.parametrize("user", ["sandbox", "", "1000", "1000:1000"])
def test_an_open_takes_the_user_that_the_agent_is(make_pod, user):
    pod = make_pod()
    reply = pod.open(user=user)
    assert (reply.uid, reply.gid, reply.home) == (USER, USER, pod.home.encode())
    told = pod.run("id -u; id -g; id -G; echo $USER $HOME; pwd").stdout.decode().split("\n")
    name = "sandbox" if subprocess.run(["getent", "passwd", str(USER)], check=False,
                                       capture_output=True).returncode else told[3].split()[0]
    assert told == ["1000", "1000", "1000", f"{name} {pod.home}", pod.workspace, ""]
    # Once more, by whatever name it was known.
    assert pod.open(user=user, epoch=2).uid == USER


@pytest.mark.parametrize("user", ["root", "0", "0:0", "1001:1000", "1000:0", "nobody"])
def test_nobody_else_can_be_become_and_that_is_said(make_pod, user):
    pod = make_pod()
    fails(CODE.NOT_FOUND, "no-such-user", pod.open, user=user)
    pod.open()
    fails(CODE.NOT_FOUND, "no-such-user", pod.start, "id", user=user)


def test_work_is_as_it_is_anywhere(pod):
    assert pod.run("echo out; echo err >&2; exit 3").exit.code == 3
    assert b"/dev/pts" in pod.run("tty; stty size", terminal=(30, 90)).stdout
    assert pod.run("echo x > file && cat file; mkdir -p $HOME/a/b && ls $HOME").stdout == b"x\na\n"
    assert pod.run("cat /proc/1/comm; grep CapBnd /proc/self/status").stdout == \
        b"sandbox-agent\nCapBnd:\t0000000000000000\n"
    assert pod.stats().memory_bytes > 0
    # Orphans are the agent's to bury.
    id = pod.start("(setsid -f sleep 0.01); (setsid -f sleep 0.01); wait")
    assert pod.collect(id).exit.code == 0
    until(lambda: not descendants_of(pod.pid), "orphans are buried")


def test_a_home_is_found(make_pod, folder):
    """`/` is what a runtime says for lack of a better one."""
    home = make_pod(home="/").open().home
    assert home in (b"/home/sandbox", b"/") or subprocess.run(
        ["getent", "passwd", str(USER)], check=False, capture_output=True).returncode == 0


def test_health_is_answered_in_every_state(make_pod):
    pod = make_pod()
    assert pod.asks_health().returncode == 0
    pod.open()
    assert pod.inside(pod.binary, "health", pod.socket).returncode == 0
    operation = operation_of(pod)
    seal_hash = sealed(operation)
    assert pod.asks_health().returncode == 0
    reopen(operation, seal_hash, user="sandbox")
    assert pod.asks_health().returncode == 0
    os.kill(pod.pid, signal.SIGSTOP)
    try:
        until(lambda: state_of(pod.pid) == "T", "the agent stands still")
        silent = subprocess.run([pod.binary, "health", pod.socket], capture_output=True,
                                check=False, timeout=DEADLINE)
        assert silent.returncode == 1 and b"does not answer" in silent.stderr
    finally:
        os.kill(pod.pid, signal.SIGCONT)
    nobody = subprocess.run([pod.binary, "health", "@nobody-listens-here"], capture_output=True,
                            check=False, timeout=DEADLINE)
    assert nobody.returncode == 1 and b"cannot reach the agent" in nobody.stderr
    operation.close()


def test_a_relay_reaches_the_agent_of_its_own_pod(make_pod, folder):
    """By one name in every Pod: the network namespace tells them apart."""
    pod = make_pod()
    pod.open()
    bridge = Bridge(folder, pod.socket, "pair", before=["nsenter", "--target", str(pod.pid),
                                                        "--pid", "--mount", *DROPPED])
    caller = Caller(bridge.path, pod.token, 1, pod.workspace_id)
    assert caller.run("echo through").stdout == b"through\n"
    caller.close()
    other = subprocess.run(["unshare", "--net", pod.binary, "health", pod.socket],
                           capture_output=True, check=False, timeout=DEADLINE)
    assert other.returncode == 1


def test_a_seal_and_a_restore_do_what_can_be_done(pod):
    hook = os.path.join(pod.workspace, ".sandbox", "on-resume")
    os.makedirs(os.path.dirname(hook))
    with open(hook, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n(id -u; echo $SANDBOX_GENERATION) > ran\n")
    os.chmod(hook, 0o755)
    sleeper = pod.start("sleep 1000")
    operation = operation_of(pod)
    seal_hash = sealed(operation)
    facts = os.stat(pod.seal_file)
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid) == (0o600, USER)
    proof = operation.prove()
    assert proof.in_memory and proof.in_file
    assert set(descendants_of(pod.pid).values()) == {"T"}
    # A clock that is a day off, and entropy: neither is an ordinary user's to set.
    reply = reopen(operation, seal_hash, user="sandbox", restored=True, entropy=bytes(range(64)),
                   wall_time_ms=int(time.time() * 1000) + 86_400_000)
    assert (reply.generation, reply.hook_code, reply.continued) == (1, 0, 1)
    assert reply.clock_failed and reply.clock_stepped_ms == 0
    assert not reply.entropy_added and reply.entropy_errno in (errno.EPERM, errno.EACCES)
    assert not os.path.exists(pod.seal_file)
    number = os.path.join(os.path.dirname(pod.seal_file), "sandbox-generation")
    assert operation.run(f"cat {number} ran").stdout == b"1\n1000\n1\n"
    operation.signal(sleeper, signal.SIGKILL)
    operation.close()


ATTACKS = """
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def denied(what):
    try:
        what()
    except OSError:
        return
    sys.exit(f"{what} was not denied")
def attach():
    if libc.ptrace(16, 1, 0, 0) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")
def read_other():
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    memory = ctypes.create_string_buffer(8)
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    mine, theirs = Piece(ctypes.addressof(memory), 8), Piece(0x400000, 8)
    if libc.process_vm_readv(1, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
denied(attach)
denied(read_other)
for name in ("mem", "environ", "maps", "auxv"):
    denied(lambda: open(f"/proc/1/{name}", "rb").read(1))
denied(lambda: os.listdir("/proc/1/fd"))
denied(lambda: os.readlink("/proc/1/cwd"))
denied(lambda: socket.socket(socket.AF_UNIX).bind("\\0" + sys.argv[1][1:]))
for number in range(1, 65):
    if number not in (32, 33):
        os.kill(1, number)
print("nothing gave way")
"""


def test_who_is_the_same_user_cannot_look_into_the_agent_or_end_it(pod):
    result = pod.run(argv=["/usr/bin/python3", "-c", ATTACKS, pod.socket])
    assert result.stdout == b"nothing gave way\n", result.stderr
    # All that it can end is its own: even so the agent is there, and knows of the ends.
    sleeper = pod.start("sleep 1000")
    assert pod.run("kill -9 -1; kill -9 $$").exit.signal == signal.SIGKILL
    assert pod.collect(sleeper).exit.signal == signal.SIGKILL
    assert pod.asks_health().returncode == 0


def test_the_seal_file_is_not_there_for_whoever_runs(pod):
    """The same user could read it; so it exists only while nobody runs."""
    spy = pod.start("while :; do cat " + os.path.dirname(pod.seal_file) + "/* 2>/dev/null; done")
    operation = operation_of(pod)
    nonces = []
    for epoch in range(2, 12, 2):
        operation.epoch = epoch
        seal_hash = sealed(operation)
        nonces.append(operation.prove().nonce.hex())
        reopen(operation, seal_hash, user="sandbox", epoch=epoch + 1)
    operation.signal(spy, signal.SIGKILL)
    seen = operation.collect(spy).stdout.decode()
    assert not any(nonce in seen for nonce in nonces)
    operation.close()


def test_a_seal_that_somebody_forged_proves_nothing(make_pod):
    """Whoever is the same user may write such a file. The agent says that it is not its own."""
    pod = make_pod()
    pod.open()
    operation = operation_of(pod)
    sealed(operation)
    with open(pod.seal_file, encoding="ascii") as file:
        lines = file.read().splitlines()
    with open(pod.seal_file, "w", encoding="ascii") as file:
        file.write("\n".join(line if not line.startswith("nonce") else "nonce " + "ab" * 32
                             for line in lines) + "\n")
    proof = operation.prove()
    assert proof.in_memory and not proof.in_file and proof.nonce != b"\xab" * 32
    operation.close()


def test_nothing_is_inherited(make_pod, folder):
    secret = os.open(folder, os.O_RDONLY)
    try:
        pod = make_pod(inherit=(secret,))
    finally:
        os.close(secret)
    pod.open()
    held = [os.readlink(f"/proc/{pod.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pod.pid}/fd")]
    assert folder not in held
    assert guard_pb2.GATE_OPEN == pod.health().gate
