"""The relay: bytes between stdio and the socket, whatever stdio is, until the agent's side ends; and
the agent that takes its streams over, so that it has nothing to carry."""
import array
import hashlib
import os
import socket
import subprocess
import threading

import pytest

from conftest import BINARY, Caller, until


class Bridge:
    """Serves one connection on a socket of its own and passes it on to a relay's stdio. `before`: the
    program, with its words, that starts the relay."""

    def __init__(self, folder, target, kind, before=()):
        self.path = os.path.join(folder, "bridge")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(1)
        if kind == "pipes":
            self.relay = subprocess.Popen([*before, BINARY, "relay", target], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.to, self.back = self.relay.stdin.fileno(), self.relay.stdout.fileno()
        else:
            ours, theirs = socket.socketpair()
            if kind == "non-blocking pair":
                theirs.setblocking(False)
            self.relay = subprocess.Popen([*before, BINARY, "relay", target], stdin=theirs,
                                          stdout=theirs, stderr=subprocess.PIPE)
            theirs.close()
            self.pair = ours
            self.to = self.back = ours.fileno()
        self.connection = None

        def carry():
            self.connection, _ = listener.accept()
            listener.close()
            threading.Thread(target=self.up, daemon=True).start()
            while data := os.read(self.back, 1 << 16):
                self.connection.sendall(data)
        threading.Thread(target=carry, daemon=True).start()

    def up(self):
        try:
            while data := self.connection.recv(1 << 16):
                view = memoryview(data)
                while view:
                    view = view[os.write(self.to, view):]
        except OSError:
            pass


def beside(agent):
    """Where relays hand over their streams. Without it they carry, as to an agent of before."""
    return agent.socket + ".streams"


def carried(relay):
    """Bytes that the relay itself has read."""
    with open(f"/proc/{relay.pid}/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


@pytest.mark.parametrize("handed_over", [True, False], ids=["handed over", "carried"])
@pytest.mark.parametrize("kind", ["pipes", "pair", "non-blocking pair"])
def test_grpc_through_a_relay(agent, folder, kind, handed_over):
    if not handed_over:
        os.unlink(beside(agent))
    bridge = Bridge(folder, agent.socket, kind)
    caller = Caller(bridge.path, agent.token, 1, agent.workspace_id)
    assert caller.run("echo hello").stdout == b"hello\n"
    id = caller.start("head -c 50000000 /dev/zero")
    size = sum(len(event.data) for event in caller.attach(id))
    assert size == 50_000_000
    id = caller.start("sha256sum", input=True)
    data = os.urandom(3_000_000)
    caller.write(id, data, end=True)
    assert caller.collect(id).stdout.decode().split()[0] == hashlib.sha256(data).hexdigest()
    assert (carried(bridge.relay) < 1_000_000) == handed_over
    caller.close()
    bridge.relay.terminate()
    bridge.relay.wait()
    bridge.relay.stderr.close()


def descriptors(agent):
    return len(os.listdir(f"/proc/{agent.process.pid}/fd"))


def holds(agent, end):
    """Whether the agent has the other end of a pipe of ours."""
    folder, wanted = f"/proc/{agent.process.pid}/fd/", os.readlink(f"/proc/self/fd/{end.fileno()}")
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(folder + name))
        except FileNotFoundError:
            continue
    return wanted in found


def start(agent):
    return subprocess.Popen([BINARY, "relay", agent.socket], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)


def test_a_relay_that_is_gone_has_left_no_stream_open(agent):
    """A snapshot that is taken then holds nothing of the host's."""
    relay = start(agent)
    assert relay.stdout.read(1), "the agent speaks first"
    assert holds(agent, relay.stdin) and holds(agent, relay.stdout)
    relay.stdin.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    relay.stdin.flush()
    relay.stdin.close()
    assert relay.wait(30) == 0
    assert not holds(agent, relay.stdout)
    relay.stdout.close()
    until(lambda: agent.stats().connections == 1, "the connection is gone")


def test_a_relay_that_is_killed_takes_its_connection_with_it(agent):
    before = descriptors(agent)
    relay = start(agent)
    assert relay.stdout.read(1)
    until(lambda: agent.stats().connections == 2, "it is connected")
    relay.kill()
    relay.wait()
    until(lambda: agent.stats().connections == 1, "the connection is gone")
    until(lambda: descriptors(agent) == before, "its descriptors too")
    relay.stdin.close()
    relay.stdout.close()


def test_a_relay_ends_when_nobody_reads_what_the_agent_says(agent):
    relay = start(agent)
    assert relay.stdout.read(1)
    relay.stdout.close()
    assert relay.wait(30) == 0
    until(lambda: agent.stats().connections == 1, "the connection is gone")
    relay.stdin.close()


def test_what_is_no_pair_of_streams_is_refused_and_closed(agent, folder):
    path = os.path.join(folder, "file")
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    ends = os.pipe()
    before = descriptors(agent)
    for said, passed in ((b"x", list(ends)), (b"s", []), (b"s", [ends[0]]), (b"s", [file, ends[1]]),
                         (b"s", [ends[0], file]), (b"s", [*ends, file]), (b"s" * 3, [ends[1], file]),
                         (b"", [])):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(30)
            peer.connect(beside(agent))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))]
            if said:
                peer.sendmsg([said], rights if passed else [])
            else:
                peer.shutdown(socket.SHUT_WR)
            try:
                assert peer.recv(10) == b""
            except ConnectionResetError:
                pass  # not all was read
    until(lambda: descriptors(agent) == before, "nothing of it is kept")
    for fd in (file, *ends):
        os.close(fd)
    assert agent.run("echo well").stdout == b"well\n"


def test_silent_callers_only_make_relays_carry(agent, folder):
    silent = []
    for _ in range(40):
        silent.append(socket.socket(socket.AF_UNIX))
        silent[-1].setblocking(False)
        silent[-1].connect_ex(beside(agent))
    bridge = Bridge(folder, agent.socket, "pipes")
    caller = Caller(bridge.path, agent.token, 1, agent.workspace_id)
    assert caller.run("echo hello").stdout == b"hello\n"
    caller.close()
    bridge.relay.terminate()
    bridge.relay.wait()
    bridge.relay.stderr.close()
    for each in silent:
        each.close()


def listening(folder):
    path = os.path.join(folder, "peer")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    return path, listener


def test_it_ends_when_the_socket_closes_and_passes_on_the_rest(folder):
    path, listener = listening(folder)
    relay = subprocess.Popen([BINARY, "relay", path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    peer, _ = listener.accept()
    data = os.urandom(3_000_000)
    sender = threading.Thread(target=lambda: (peer.sendall(data), peer.close()))
    sender.start()
    assert relay.stdout.read() == data
    assert relay.wait(30) == 0
    sender.join()
    relay.stdin.close()
    relay.stdout.close()
    listener.close()


def test_the_end_of_stdin_closes_one_half_and_it_ends_with_the_peer(folder):
    path, listener = listening(folder)
    relay = subprocess.Popen([BINARY, "relay", path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    peer, _ = listener.accept()
    relay.stdin.write(b"last words")
    relay.stdin.close()
    heard = b""
    while piece := peer.recv(100):
        heard += piece
    assert heard == b"last words" and relay.poll() is None
    peer.sendall(b"answer")
    peer.close()
    assert relay.stdout.read() == b"answer"
    assert relay.wait(30) == 0
    relay.stdout.close()
    listener.close()


def test_the_agent_lets_go_of_a_relay_whose_stdin_ends(agent):
    relay = subprocess.Popen([BINARY, "relay", agent.socket], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    relay.stdin.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    relay.stdin.close()
    relay.stdout.read()
    assert relay.wait(30) == 0
    relay.stdout.close()
    until(lambda: agent.stats().connections == 1, "the connection is gone")


def test_it_ends_when_nobody_takes_its_output(folder):
    path, listener = listening(folder)
    relay = subprocess.Popen([BINARY, "relay", path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    peer, _ = listener.accept()
    relay.stdout.close()
    assert relay.wait(30) == 0
    relay.stdin.close()
    peer.close()
    listener.close()


def test_a_direction_that_is_full_does_not_stop_the_other(folder):
    path, listener = listening(folder)
    relay = subprocess.Popen([BINARY, "relay", path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    peer, _ = listener.accept()
    data = b"x" * 10_000_000
    down = threading.Thread(target=lambda: peer.sendall(data))
    down.start()  # nobody reads the relay's stdout yet
    relay.stdin.write(b"through")
    relay.stdin.flush()
    assert peer.recv(7, socket.MSG_WAITALL) == b"through"
    size = 0
    while size < len(data):
        size += len(os.read(relay.stdout.fileno(), 1 << 20))
    down.join()
    peer.close()
    assert relay.wait(30) == 0
    relay.stdin.close()
    relay.stdout.close()
    listener.close()


def test_without_an_agent_it_says_so(folder):
    run = subprocess.run([BINARY, "relay", os.path.join(folder, "nothing")], capture_output=True,
                         stdin=subprocess.DEVNULL, check=False)
    assert run.returncode == 1 and run.stdout == b""
    assert run.stderr.count(b"\n") == 1 and b"cannot reach the agent" in run.stderr
