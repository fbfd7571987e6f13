"""The same binary as first process of a gVisor sandbox, reached by relays through runsc exec.

SANDBOX_RUNSC names another runsc than the one in PATH, SANDBOX_RUNSC_PLATFORM its platform.
"""
import json
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import grpc
import pytest

from conftest import BINARY, COUNT, Caller, fails, guard_pb2, ports_pb2, until
from test_tree import HOPPER

STATIC = os.environ.get("SANDBOX_AGENT_STATIC", BINARY)
RUNSC = shutil.which(os.environ.get("SANDBOX_RUNSC", "runsc"))
PLATFORM = os.environ.get("SANDBOX_RUNSC_PLATFORM", "ptrace")
CODE = grpc.StatusCode
SOCKET = "/run/sandbox/agent.socket"
CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETUID",
                "CAP_SETGID", "CAP_NET_BIND_SERVICE", "CAP_SYS_PTRACE", "CAP_SYS_TIME"]

pytestmark = pytest.mark.skipif(RUNSC is None or os.geteuid() != 0,
                                reason="needs runsc and root")


class Sandbox:
    """A container whose first process is the agent, and callers that come through relays."""

    address, user = SOCKET, "0:0"

    def __init__(self, folder):
        self.folder, self.name = folder, "sandbox-test-" + secrets.token_hex(4)
        self.runsc = [RUNSC, "--root=" + folder + "/state", "--platform=" + PLATFORM,
                      "--ignore-cgroups", "--network=none", "--overlay2=root:memory"]
        bundle = folder + "/bundle"
        os.makedirs(bundle)
        with open(bundle + "/config.json", "w", encoding="utf-8") as file:
            json.dump(self.configuration(bundle), file)
        self.log = open(folder + "/log", "wb")
        self.container = subprocess.Popen(
            self.runsc + ["run", "--bundle", bundle, self.name],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.relays, self.bridge = [], folder + "/bridge"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.bridge)
        self.listener.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()
        until(self.answers, "the agent answers", 60)

    def configuration(self, bundle):
        root = bundle + "/rootfs"
        for name in ("usr", "proc", "dev", "tmp", "run", "etc", "workspace", "sys", "agent"):
            os.makedirs(root + "/" + name)
        os.chown(root + "/workspace", 1000, 1000)
        for name in ("bin", "sbin", "lib", "lib64"):
            os.symlink("usr/" + name, root + "/" + name)
        with open(root + "/etc/passwd", "w", encoding="ascii") as file:
            file.write("root:x:0:0:root:/root:/bin/sh\nworker:x:1234:1234::/home/worker:/bin/sh\n")
        with open(root + "/etc/group", "w", encoding="ascii") as file:
            file.write("root:x:0:\nworker:x:1234:\ndocker:x:999:root,worker\n")
        shutil.copy(STATIC, root + "/agent/sandbox-agent")
        return {
            "ociVersion": "1.0.2", "hostname": "test",
            "root": {"path": "rootfs", "readonly": False},
            "process": {
                "terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/",
                "env": ["PATH=/usr/bin:/bin"],
                "args": ["/agent/sandbox-agent", "serve", "--socket", self.address, "--init"],
                "capabilities": {kind: CAPABILITIES for kind in (
                    "bounding", "effective", "inheritable", "permitted")}},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
                {"destination": "/usr", "type": "bind", "source": "/usr",
                 "options": ["ro", "rbind"]}],
            "linux": {"namespaces": [{"type": kind} for kind in (
                "pid", "ipc", "uts", "mount", "network")]}}

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            relay = subprocess.Popen(
                self.runsc + ["exec", "--user=" + self.user, self.name, "/agent/sandbox-agent",
                              "relay", self.address],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.relays.append(relay)
            for carry in (self.up, self.down):
                threading.Thread(target=carry, args=(connection, relay), daemon=True).start()

    @staticmethod
    def up(connection, relay):
        try:
            while data := connection.recv(1 << 18):
                relay.stdin.write(data)
                relay.stdin.flush()
        except OSError:
            pass
        try:
            relay.stdin.close()
        except OSError:
            pass

    @staticmethod
    def down(connection, relay):
        try:
            while data := os.read(relay.stdout.fileno(), 1 << 18):
                connection.sendall(data)
        except OSError:
            pass
        connection.close()

    def answers(self):
        assert self.container.poll() is None, open(self.folder + "/log", "rb").read()
        # A relay into a sandbox that is still starting hangs for seconds.
        state = subprocess.run(self.runsc + ["state", self.name], capture_output=True, text=True,
                               check=False)
        if '"running"' not in state.stdout:
            return None
        caller = self.caller()
        try:
            return caller.health(timeout=5)
        except grpc.RpcError:
            return None
        finally:
            caller.close()

    def caller(self, token=bytes(32), epoch=0):
        return Caller(self.bridge, token, epoch, b"workspace-number")

    def end(self):
        self.listener.close()
        subprocess.run(self.runsc + ["kill", self.name, "KILL"], capture_output=True, check=False)
        self.container.wait(60)
        subprocess.run(self.runsc + ["delete", "--force", self.name], capture_output=True,
                       check=False)
        for relay in self.relays:
            relay.kill()
            relay.wait()
            relay.stdout.close()
        self.log.close()


@pytest.fixture(scope="module")
def sandbox():
    folder = tempfile.mkdtemp(prefix="sandbox-gvisor-")
    sandbox = Sandbox(folder)
    yield sandbox
    sandbox.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def agent(sandbox):
    caller = sandbox.caller(token=b"t" * 32, epoch=1)
    caller.open(user="sandbox", directory=b"/workspace")
    yield caller
    caller.close()


def test_the_default_user_and_its_home_are_made(agent):
    output = agent.run("id -u; id -g; echo $HOME; cd && pwd; touch file && echo fine")
    assert output.stdout == b"1000\n1000\n/home/sandbox\n/home/sandbox\nfine\n", output.stderr
    assert agent.run("touch file && echo fine", user="root").stdout == b"fine\n"


def test_p175_groups_are_effective(agent):
    assert agent.run("id -u; id -G", user="worker").stdout == b"1234\n1234 999\n"
    assert agent.run("id -G", user="root").stdout == b"0 999\n"


def test_the_clock_is_set_or_it_is_said_that_it_cannot_be(agent):
    ahead = int(time.time() * 1000) + 86_400_000
    reply = agent.open(user="sandbox", directory=b"/workspace", wall_time_ms=ahead)
    inside = int(agent.run("date +%s").stdout)
    if reply.clock_failed:
        assert reply.clock_stepped_ms == 0
    else:
        assert abs(reply.clock_stepped_ms - 86_400_000) < 5_000
        assert abs(inside - ahead // 1000) < 60
        agent.open(user="sandbox", directory=b"/workspace",
                   wall_time_ms=int(time.time() * 1000))


def test_exits_and_streams(agent):
    output = agent.run("echo out; echo err >&2; exit 7")
    assert (output.stdout, output.stderr, output.exit.code) == (b"out\n", b"err\n", 7)
    assert agent.run("kill -9 $$").exit.signal == 9
    fails(CODE.NOT_FOUND, "no-such-program", agent.start, argv=["no-such-program"])
    fails(CODE.NOT_FOUND, "no-such-directory", agent.start, "true", directory=b"missing")
    fails(CODE.PERMISSION_DENIED, "not-executable", agent.start, argv=["/etc/passwd"])


def test_p004_prints_are_whole(agent):
    wanted = b"".join(b"%d\n" % n for n in range(1, 100_001))
    for _ in range(max(1, COUNT // 4)):
        assert agent.run("seq 1 100000").stdout == wanted


def test_large_streams_both_ways(agent):
    size = 64 << 20
    got = sum(len(event.data) for event in agent.attach(
        agent.start(f"head -c {size} /dev/zero"), timeout=120))
    assert got == size
    id = agent.start("wc -c", input=True)
    for offset in range(0, 16 << 20, 2 << 20):
        agent.write(id, bytes(2 << 20), offset=offset, timeout=60)
    agent.write(id, offset=16 << 20, end=True)
    assert agent.collect(id).stdout == b"%d\n" % (16 << 20)


def test_terminals_have_size_and_job_control(agent):
    output = agent.run("tty; stty size; exit 7", terminal=(43, 132))
    lines = output.stdout.split(b"\r\n")
    assert lines[0].startswith(b"/dev/pts/") and lines[1] == b"43 132"
    assert output.exit.code == 7
    id = agent.start(argv=["/bin/bash", "--norc", "--noediting", "-i"], terminal=(24, 80), role=1,
                     env=["PS1=ready> "])
    assert agent.activity().active_terminals == 0
    reader, text = agent.attach(id, timeout=60), b""
    while b"ready> " not in text:
        text += next(reader).data
    assert b"job control" not in text
    written = agent.write(id, b"sh -c 'echo up; exec sleep 1000'\n")
    while b"\r\nup\r\n" not in text:
        text += next(reader).data
    until(lambda: agent.activity().active_terminals == 1, "the job has the terminal")
    written = agent.write(id, b"\x03", offset=written)
    until(lambda: agent.activity().active_terminals == 0, "the job is gone")
    # Newer sentries make the signal and leave the character in the line as well.
    written = agent.write(id, b"\necho $((40+2))\n", offset=written)
    while b"42\r\n" not in text:
        text += next(reader).data
    agent.signal(id, signal.SIGKILL)
    agent.wait(id)


def test_p083_a_resize_is_felt(agent):
    program = ("import os,signal\n"
               "size=lambda *a: os.write(1, b'size %d %d\\n' % os.get_terminal_size())\n"
               "signal.signal(signal.SIGWINCH, size); size()\n"
               "while True: signal.pause()\n")
    id = agent.start(argv=["/usr/bin/python3", "-c", program], terminal=(43, 132))
    reader, text = agent.attach(id, timeout=60), b""
    while b"size 132 43" not in text:
        text += next(reader).data
    agent.resize(id, 24, 80)
    while b"size 80 24" not in text:
        text += next(reader).data
    agent.signal(id, signal.SIGKILL)
    agent.wait(id)


def count(agent, program):
    """How many processes of that name there are inside, by the sandbox's own /proc."""
    output = agent.run("cat /proc/[0-9]*/comm; true", user="root")
    return output.stdout.split(b"\n").count(program)


@pytest.mark.parametrize("hide", ["{work} & wait", "setsid -f {work}; sleep 60",
                                  "(setsid {work} &); sleep 60", "{work} | cat"])
def test_p077_p078_a_deadline_ends_all_descendants(agent, hide):
    agent.run("cp /bin/sleep /tmp/hidden", user="root")
    exit = agent.run(hide.format(work="/tmp/hidden 60"), deadline_ms=1000).exit
    assert exit.timed_out
    until(lambda: count(agent, b"hidden") == 0, "none is left")


def test_p078_hoppers_are_caught(agent):
    id = agent.start('cp /usr/bin/python3 /tmp/hopper; /tmp/hopper -c "$HOPPER" & sleep 60',
                     env=["HOPPER=" + HOPPER.replace("0.01", "0.05")])
    until(lambda: count(agent, b"hopper") > 0, "it hops")
    agent.signal(id, signal.SIGKILL)
    until(lambda: count(agent, b"hopper") == 0, "none is left")


def test_p087_orphans_are_reaped(agent):
    agent.run("for i in $(seq 1 200); do (true &) ; done", timeout=120)
    until(lambda: agent.stats().zombies == 0, "no zombie is left")


def test_a_background_job_lives_on(agent):
    output = agent.run("(sleep 0.5; seq 1 50000; echo $? > status) & echo started")
    assert output.stdout.startswith(b"started\n") and output.exit.code == 0
    until(lambda: agent.run("cat status").stdout == b"0\n", "it came to its end")


def test_the_process_limit_holds(agent):
    limit = agent.stats().processes + 3  # the relays are processes too
    agent.open(user="sandbox", directory=b"/workspace", process_limit=limit)
    try:
        id = agent.start("sleep 60 & sleep 60 & sleep 60 & wait")
        until(lambda: agent.stats().processes >= limit, "they run")
        fails(CODE.RESOURCE_EXHAUSTED, "process-limit", agent.start, "true")
        agent.signal(id, signal.SIGKILL)
        agent.wait(id)
    finally:
        agent.open(user="sandbox", directory=b"/workspace")


def test_ports_are_listed_and_reached(agent):
    id = agent.start(argv=["/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"],
                     role=1, directory=b"/workspace")
    listed = agent.method("Ports", "List")

    def ports():
        return [info.port for info in listed(ports_pb2.PortListRequest()).ports]
    until(lambda: 8000 in ports(), "the server listens")
    requests = queue.Queue()
    requests.put(ports_pb2.PortData(port=8000, data=b"GET / HTTP/1.0\r\n\r\n"))
    replies = agent.method("Ports", "Dial", "stream_stream").call(
        iter(requests.get, None), metadata=agent.metadata(), timeout=30)
    answer = b""
    for reply in replies:
        answer += reply.data
        if reply.end:
            break
    assert answer.startswith(b"HTTP/1.0 200 OK")
    replies.cancel()
    agent.signal(id, signal.SIGKILL)
    agent.wait(id)


def test_p127_the_agents_secrets_are_out_of_reach(agent):
    look = "cat /proc/1/environ /proc/1/mem; ls /proc/1/fd; env; cat /proc/*/cmdline; true"
    output = agent.run(look)
    assert agent.token not in output.stdout + output.stderr
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({SOCKET!r})"
    output = agent.run(argv=["/usr/bin/python3", "-c", connect])
    assert b"PermissionError" in output.stderr


def test_a_relay_ends_when_its_stdin_does(sandbox, agent):
    before = agent.stats().connections
    other = sandbox.caller(agent.token, 1)
    assert other.health().gate == guard_pb2.GATE_OPEN
    assert agent.stats().connections == before + 1
    other.close()
    until(lambda: agent.stats().connections == before, "the relay is gone")
    until(lambda: sandbox.relays[-1].poll() is not None, "and so is its exec")
