"""Ports: what listens, and byte streams to it."""
import hashlib
import os
import queue
import socket
import threading

import grpc
import pytest

from conftest import fails, ports_pb2, until

CODE = grpc.StatusCode
MIB = 1 << 20


class Stream:
    """The caller's end of a Dial."""

    def __init__(self, agent, port, first=b"", end=False):
        self.queue = queue.Queue()
        self.send(first, end, port)
        call = agent.method("Ports", "Dial", "stream_stream").call
        self.replies = call(iter(self.queue.get, None), metadata=agent.metadata(), timeout=60)
        self.stands = False

    def send(self, data=b"", end=False, port=0):
        self.queue.put(ports_pb2.PortData(port=port, data=data, end=end))

    def receive(self, size=None):
        """So many bytes, or all to the end."""
        data = b""
        while size is None or len(data) < size:
            reply = next(self.replies)
            if not self.stands:
                assert reply == ports_pb2.PortData(), "the first message is empty"
                self.stands = True
                continue
            assert len(reply.data) <= 256 << 10
            data += reply.data
            if reply.end:
                assert size is None or len(data) >= size
                return data
        return data

    def close(self):
        self.queue.put(None)


@pytest.fixture
def server():
    """A listening socket of the test's own."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(30)
    yield listener
    listener.close()


def port_of(listener):
    return listener.getsockname()[1]


def test_bytes_go_both_ways(agent, server):
    stream = Stream(agent, port_of(server), b"early")
    peer, _ = server.accept()
    assert peer.recv(5, socket.MSG_WAITALL) == b"early"
    peer.sendall(b"hello")
    assert stream.receive(5) == b"hello"
    stream.send(b"\0\xff" * 10)
    assert peer.recv(20, socket.MSG_WAITALL) == b"\0\xff" * 10
    peer.close()
    assert stream.receive() == b""
    stream.send(end=True)
    assert list(stream.replies) == []
    assert stream.replies.code() == CODE.OK
    stream.close()


def test_p125_a_server_may_answer_after_the_callers_end(agent, server):
    stream = Stream(agent, port_of(server), b"question", end=True)
    peer, _ = server.accept()
    question = b""
    while piece := peer.recv(100):
        question += piece
    assert question == b"question"
    peer.sendall(b"x" * MIB)
    peer.close()
    assert stream.receive() == b"x" * MIB
    stream.close()


def test_p125_a_caller_may_speak_after_the_servers_end(agent, server):
    stream = Stream(agent, port_of(server))
    peer, _ = server.accept()
    peer.shutdown(socket.SHUT_WR)
    assert stream.receive() == b""
    stream.send(b"still there")
    stream.send(b"?", end=True)
    heard = b""
    while piece := peer.recv(100):
        heard += piece
    assert heard == b"still there?"
    peer.close()
    stream.close()


def test_the_end_of_the_call_is_the_callers_end(agent, server):
    stream = Stream(agent, port_of(server), b"all")
    peer, _ = server.accept()
    stream.close()
    assert peer.recv(3, socket.MSG_WAITALL) == b"all" and peer.recv(1) == b""
    peer.sendall(b"answer")
    peer.close()
    assert stream.receive() == b"answer"


def test_large_streams_arrive_whole_and_with_backpressure(agent, server):
    stream = Stream(agent, port_of(server))
    peer, _ = server.accept()
    block = os.urandom(MIB)
    up, down = hashlib.sha256(), hashlib.sha256()

    def serve():
        for _ in range(64):
            peer.sendall(block)
        while data := peer.recv(MIB):
            up.update(data)
        peer.close()
    thread = threading.Thread(target=serve)
    thread.start()
    for _ in range(64):
        for at in range(0, MIB, 256 << 10):
            stream.send(block[at:at + (256 << 10)])
    stream.send(end=True)
    for reply in stream.replies:
        down.update(reply.data)
    thread.join(60)
    wanted = hashlib.sha256(block * 64).digest()
    assert up.digest() == wanted and down.digest() == wanted
    assert agent.private_kib() < agent.memory_limit(20_000)
    stream.close()


def test_a_server_that_does_not_read_holds_up_its_own_stream_only(agent, server):
    stream = Stream(agent, port_of(server))
    peer, _ = server.accept()
    for _ in range(100):
        stream.send(b"x" * (256 << 10))
    until(lambda: agent.run("echo free").stdout == b"free\n", "others go on")
    other = Stream(agent, port_of(server), b"other")
    second, _ = server.accept()
    assert second.recv(5, socket.MSG_WAITALL) == b"other"
    stream.replies.cancel()
    other.replies.cancel()
    peer.close()
    second.close()


def test_where_nothing_listens_it_says_so(agent, server):
    port = port_of(server)
    server.close()
    fails(CODE.NOT_FOUND, "connection-refused", Stream(agent, port).receive)
    for wrong in (0, 65536, 0xffffffff):
        fails(CODE.INVALID_ARGUMENT, "invalid", Stream(agent, wrong).receive)


def test_p140_a_server_on_the_other_loopback_is_reached(agent):
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no ::1")
    stream = Stream(agent, port_of(listener), b"six")
    peer, _ = listener.accept()
    assert peer.recv(3, socket.MSG_WAITALL) == b"six"
    assert ("::1", port_of(listener)) in [(p.address, p.port) for p in listed(agent)]
    peer.close()
    listener.close()
    stream.replies.cancel()


def test_a_cancelled_stream_is_a_reset_for_the_server(agent, server):
    stream = Stream(agent, port_of(server), b"x")
    peer, _ = server.accept()
    assert peer.recv(1) == b"x"
    stream.replies.cancel()
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
    peer.close()


def test_a_servers_reset_is_no_orderly_end(agent, server):
    stream = Stream(agent, port_of(server), b"x")
    peer, _ = server.accept()
    assert peer.recv(1) == b"x"
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()
    fails(CODE.UNAVAILABLE, "connection-reset", stream.receive)


def listed(agent):
    return agent.method("Ports", "List")(ports_pb2.PortListRequest()).ports


def test_list_tells_port_address_and_process(agent):
    program = ("import socket,time\n"
               "a=socket.create_server(('127.0.0.1',0)); b=socket.create_server(('0.0.0.0',0))\n"
               "print(a.getsockname()[1], b.getsockname()[1], flush=True)\ntime.sleep(1000)\n")
    id = agent.start(argv=["/usr/bin/python3", "-c", program])
    pid = agent.last.pid
    reader = agent.attach(id)
    next(reader)
    first, second = map(int, next(reader).data.split())
    found = {info.port: (info.address, info.pid) for info in listed(agent)}
    assert found[first] == ("127.0.0.1", pid)
    assert found[second] == ("0.0.0.0", pid)
    reader.cancel()
    agent.signal(id, 9)
    agent.wait(id)
    assert first not in [info.port for info in listed(agent)]
