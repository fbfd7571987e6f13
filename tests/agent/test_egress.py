"""The way out as the guest sees it: a port of the loopback whose connections Accept takes."""
import os
import queue
import shutil
import socket
import subprocess
import threading

import grpc
import pytest

from conftest import BINARY, egress_pb2, fails, ports_pb2, until

CODE = grpc.StatusCode
MIB = 1 << 20
GUESTS_MAX, CALLS_MAX = 256, 64


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


@pytest.fixture
def agent(make_agent):
    port = free_port()
    made = make_agent(arguments=["--egress", f"127.0.0.1:{port}"])
    made.way_out = port
    return made


def open_way(caller, **fields):
    return caller.method("Egress", "Open")(egress_pb2.EgressOpenRequest(**fields))


@pytest.fixture
def way(agent):
    assert open_way(agent).port == agent.way_out
    return agent


class Taker:
    """The caller's end of an Accept; its first message is empty."""

    def __init__(self, caller, first=b""):
        self.queue = queue.Queue()
        self.send(first)
        call = caller.method("Egress", "Accept", "stream_stream").call
        self.replies = call(iter(self.queue.get, None), metadata=caller.metadata(), timeout=60)
        self.stands = False

    def send(self, data=b"", end=False):
        self.queue.put(ports_pb2.PortData(data=data, end=end))

    def await_guest(self):
        assert next(self.replies) == ports_pb2.PortData(), "the first message is empty"
        self.stands = True

    def receive(self, size=None):
        """So many bytes, or all to the end."""
        data = b""
        if not self.stands:
            self.await_guest()
        while size is None or len(data) < size:
            reply = next(self.replies)
            assert len(reply.data) <= 256 << 10
            data += reply.data
            if reply.end:
                assert size is None or len(data) >= size
                return data
        return data

    def close(self):
        self.queue.put(None)


def guest(agent):
    one = socket.create_connection(("127.0.0.1", agent.way_out), timeout=30)
    return one


def cannot_connect(agent):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", agent.way_out)) != 0


def is_reset(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_nothing_listens_before_it_is_opened(agent):
    assert cannot_connect(agent)
    open_way(agent)
    guest(agent).close()
    ports = agent.method("Ports", "List")(ports_pb2.PortListRequest()).ports
    assert agent.way_out not in [one.port for one in ports], "it is no server of the workspace's"


def test_bytes_and_ends_go_both_ways(way):
    taker = Taker(way)
    connection = guest(way)
    connection.sendall(b"question")
    assert taker.receive(8) == b"question"
    taker.send(b"answer")
    assert connection.recv(6, socket.MSG_WAITALL) == b"answer"
    connection.shutdown(socket.SHUT_WR)
    assert taker.receive() == b""
    taker.send(b"after the end")
    assert connection.recv(13, socket.MSG_WAITALL) == b"after the end"
    taker.send(end=True)
    assert connection.recv(1) == b"" and list(taker.replies) == []
    assert taker.replies.code() == CODE.OK
    taker.close()


def test_whoever_is_outside_may_speak_first_and_end_first(way):
    taker = Taker(way)
    connection = guest(way)
    taker.await_guest()
    taker.send(b"220 hello\r\n", end=True)
    assert connection.recv(64, socket.MSG_WAITALL) == b"220 hello\r\n"
    connection.sendall(b"more")
    connection.close()
    assert taker.receive() == b"more"
    assert list(taker.replies) == [] and taker.replies.code() == CODE.OK
    taker.close()


def test_connections_and_calls_wait_for_each_other(way):
    early = [guest(way) for _ in range(3)]
    for number, connection in enumerate(early):
        connection.sendall(b"%d" % number)
    takers = [Taker(way) for _ in range(6)]
    assert sorted(taker.receive(1) for taker in takers[:3]) == [b"0", b"1", b"2"]
    late = guest(way)
    late.sendall(b"3")
    assert takers[3].receive(1) == b"3"
    for taker in takers:
        taker.replies.cancel()
        taker.close()


def test_many_at_once_and_one_that_stands_still(way):
    still, stuck = Taker(way), guest(way)
    still.await_guest()
    filled = threading.Thread(target=lambda: [still.send(bytes(256 << 10)) for _ in range(64)])
    filled.start()
    data = os.urandom(MIB)
    takers = [Taker(way) for _ in range(20)]
    guests = [guest(way) for _ in takers]

    def talk(connection):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    talkers = [threading.Thread(target=talk, args=(one,)) for one in guests]
    for talker in talkers:
        talker.start()
    for taker in takers:
        assert taker.receive() == data
    for thread in [*talkers, filled]:
        thread.join(30)
    still.replies.cancel()
    stuck.close()
    for taker in [*takers, still]:
        taker.replies.cancel()
        taker.close()


def test_a_call_that_breaks_cuts_the_guest_and_the_other_way_round(way):
    taker, connection = Taker(way), guest(way)
    taker.await_guest()
    taker.replies.cancel()
    taker.close()
    assert is_reset(connection)
    taker, connection = Taker(way), guest(way)
    taker.await_guest()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    with pytest.raises(grpc.RpcError) as caught:
        taker.receive()
    assert caught.value.code() == CODE.UNAVAILABLE
    taker.close()


def test_numbers_have_limits(way):
    takers = [Taker(way) for _ in range(CALLS_MAX)]
    until(lambda: way.stats().connections >= 1, "they are there")
    over = Taker(way)
    with pytest.raises(grpc.RpcError) as caught:
        over.receive()
    assert caught.value.code() == CODE.RESOURCE_EXHAUSTED
    for taker in [*takers, over]:
        taker.replies.cancel()
        taker.close()
    guests = [guest(way) for _ in range(GUESTS_MAX)]
    assert is_reset(guest(way))
    for one in guests:
        one.close()
    assert way.run("echo fine").stdout == b"fine\n"


def variables(agent, **fields):
    said = agent.run("env -0", **fields).stdout.decode().split("\0")
    return dict(line.split("=", 1) for line in said if line)


def test_commands_are_told(agent):
    before = variables(agent)
    assert "HTTPS_PROXY" not in before and "GIT_CONFIG_COUNT" not in before
    open_way(agent, base_urls=["A_URL=https://api.example.com/v1"])
    proxy = f"http://127.0.0.1:{agent.way_out}"
    told = variables(agent)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        assert told[name] == proxy
    assert told["NO_PROXY"] == told["no_proxy"] == "localhost,127.0.0.1,::1"
    assert told["NODE_USE_ENV_PROXY"] == "1"
    assert told["A_URL"] == proxy + "/https/api.example.com/v1"
    open_way(agent, base_urls=[])
    assert "A_URL" not in variables(agent), "the last one counts"


def test_what_a_command_or_the_workspace_sets_stays(agent):
    agent.open(environment=[b"HTTP_PROXY=http://own:1", b"B_URL=https://own.example/x"])
    open_way(agent, base_urls=["A_URL=https://a.example", "B_URL=https://b.example",
                               "C_URL=https://c.example"])
    proxy = f"http://127.0.0.1:{agent.way_out}"
    told = variables(agent, env=["HTTPS_PROXY=", "A_URL=http://plain.example", "C_URL="])
    assert (told["HTTPS_PROXY"], told["HTTP_PROXY"]) == ("", "http://own:1")
    assert (told["A_URL"], told["C_URL"]) == ("http://plain.example", "")
    assert told["B_URL"] == proxy + "/https/own.example/x"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_git_goes_over_routes_after_its_own_settings(way):
    env = ["GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=me",
           "GIT_CONFIG_KEY_1=url./mirror/.insteadOf",
           "GIT_CONFIG_VALUE_1=far:"]
    said = way.run("git config user.name; git config --get-regexp insteadof", env=env).stdout
    assert said.decode().splitlines() == [
        "me", "url./mirror/.insteadof far:",
        f"url.http://127.0.0.1:{way.way_out}/https/.insteadof https://"]
    for wrong in ("x", "-1", "5000"):
        told = variables(way, env=[f"GIT_CONFIG_COUNT={wrong}"])
        assert told["GIT_CONFIG_COUNT"] == wrong and "GIT_CONFIG_KEY_0" not in told


def test_wrong_urls_and_addresses_are_refused(agent):
    for wrong in ("A", "=https://x", "A=http://x", "A=" + "https://" + "x" * 2000):
        fails(CODE.INVALID_ARGUMENT, "invalid", open_way, agent, base_urls=[wrong])
    fails(CODE.INVALID_ARGUMENT, "invalid", open_way, agent, base_urls=["A=https://x"] * 33)
    assert cannot_connect(agent)
    for wrong in ("0.0.0.0:3128", "192.0.2.1:3128", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000",
                  "[::1]:3128"):
        done = subprocess.run([BINARY, "serve", "--socket", "/nowhere/x", "--egress", wrong],
                              capture_output=True, timeout=30, check=False)
        assert done.returncode == 1 and b"--egress" in done.stderr


def test_a_taken_port_is_told(agent):
    with socket.create_server(("127.0.0.1", agent.way_out)):
        with pytest.raises(grpc.RpcError):
            open_way(agent)
    assert open_way(agent).port == agent.way_out


# ---- suspend


@pytest.fixture
def operation(agent):
    caller = agent.caller()
    caller.epoch = 2
    yield caller
    caller.close()


def carried(agent):
    """A call that carries, and its guest."""
    taker, connection = Taker(agent), guest(agent)
    taker.await_guest()
    return taker, connection


def test_quiesce_cuts_nothing_and_waits_for_nothing(way, operation):
    taker, connection = carried(way)
    waiting = Taker(way)
    assert operation.quiesce().unfinished == 0
    connection.sendall(b"on")
    assert taker.receive(2) == b"on"
    late, fresh = Taker(way), guest(way)  # of the epoch that was open
    fresh.sendall(b"new")
    assert waiting.receive(3) == b"new"
    assert way.health().refused_calls == 0
    assert operation.activity().had_traffic is False
    operation.open(epoch=2)
    connection.sendall(b"still")
    assert taker.receive(5) == b"still"
    for one in (taker, waiting, late):
        one.replies.cancel()
        one.close()


def test_a_seal_ends_all_and_an_open_brings_it_back(way, operation):
    takers = [carried(way) for _ in range(3)]
    unseen = guest(way)
    operation.quiesce()
    reply = operation.seal()
    assert reply.connections_reset == 4
    assert all(is_reset(connection) for _, connection in takers) and is_reset(unseen)
    for taker, _ in takers:
        with pytest.raises(grpc.RpcError):
            taker.receive()
        taker.close()
    assert cannot_connect(way), "a sealed agent holds no socket"
    operation = way.caller()
    operation.epoch = 2
    operation.open(epoch=2, seal_hash=reply.seal_hash)
    connection = guest(way)
    connection.sendall(b"held")
    way.epoch = 2
    taker = Taker(way)
    assert taker.receive(4) == b"held", "connections wait for whoever takes them"
    assert "HTTPS_PROXY" in variables(way)
    taker.replies.cancel()
    taker.close()
    operation.close()


def test_a_seal_that_fails_brings_it_back(way, operation):
    """Its file cannot be written."""
    operation.quiesce()
    os.rmdir(os.path.dirname(way.seal_file))
    with pytest.raises(grpc.RpcError):
        operation.seal()
    until(lambda: not cannot_connect(way), "it listens again")
    os.makedirs(os.path.dirname(way.seal_file), mode=0o700)


def test_an_agent_that_was_never_told_stays_shut(agent, operation):
    operation.quiesce()
    reply = operation.seal()
    operation = agent.caller()
    operation.epoch = 2
    operation.open(epoch=2, seal_hash=reply.seal_hash)
    assert cannot_connect(agent)
    operation.close()


def test_accept_wants_the_token_and_the_epoch(way):
    stranger = way.caller()
    stranger.token = bytes(32)
    taker = Taker(stranger)
    with pytest.raises(grpc.RpcError) as caught:
        taker.receive()
    assert caught.value.code() == CODE.UNAUTHENTICATED
    taker.close()
    stranger.close()


# ---- where the agent connects to the proxy itself ----

KEY = b"0123456789abcdef" * 4
LINE = b"SANDBOX-EGRESS/1 " + KEY + b"\r\n"


@pytest.fixture
def proxy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def place_of(server):
    return f"127.0.0.1:{server.getsockname()[1]}"


def receive(stream, size):
    data = b""
    while len(data) < size and (piece := stream.recv(size - len(data))):
        data += piece
    return data


def accept(server, line=LINE):
    stream, _ = server.accept()
    stream.settimeout(30)
    assert receive(stream, len(line)) == line
    return stream


def test_a_dialled_proxy_gets_the_key_first_and_then_the_guest(agent, proxy):
    assert open_way(agent, address=place_of(proxy), key=KEY).port == agent.way_out
    with guest(agent) as inside:
        with accept(proxy) as outside:
            inside.sendall(b"hello")
            assert receive(outside, 5) == b"hello"
            data = os.urandom(4 * MIB)
            threading.Thread(target=outside.sendall, args=(data,), daemon=True).start()
            assert receive(inside, len(data)) == data
            # Each direction ends on its own.
            inside.shutdown(socket.SHUT_WR)
            assert outside.recv(1) == b""
            outside.sendall(b"bye")
            assert receive(inside, 3) == b"bye"
        assert inside.recv(1) == b""


def test_a_dialled_proxy_that_breaks_off_resets_the_guest_and_the_other_way_round(agent, proxy):
    open_way(agent, address=place_of(proxy), key=KEY)
    reset = b"\x01\0\0\0\0\0\0\0"
    for broken, other in ((0, 1), (1, 0)):
        ends = [guest(agent)]
        ends.append(accept(proxy))
        ends[1].sendall(b"x")
        assert receive(ends[0], 1) == b"x"
        ends[broken].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        ends[broken].close()
        with pytest.raises(ConnectionResetError):
            ends[other].recv(1)
        ends[other].close()


@pytest.mark.parametrize("how", ["nobody listens", "it says nothing"])
def test_a_proxy_that_does_not_answer_is_told(agent, proxy, how):
    place = place_of(proxy)
    if how == "nobody listens":
        proxy.close()
    open_way(agent, address=place, key=KEY)
    with guest(agent) as inside:
        inside.sendall(b"GET http://a.example/ HTTP/1.1\r\n\r\n")
        if how != "nobody listens":
            accept(proxy).close()
        said = receive(inside, 4096)
    assert said.startswith(b"HTTP/1.1 502 ") and b"X-Proxy-Error: no-proxy" in said
    head, _, body = said.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize("fields", [
    {"address": "127.0.0.1:1"}, {"key": KEY}, {"address": "proxy:3128", "key": KEY},
    {"address": "127.0.0.1:0", "key": KEY}, {"address": "127.0.0.1:1", "key": KEY[:-1]},
    {"address": "127.0.0.1:1", "key": KEY.upper()}])
def test_an_address_and_a_key_come_together_and_whole(agent, fields):
    fails(CODE.INVALID_ARGUMENT, "invalid", open_way, agent, **fields)


def test_a_new_key_is_what_new_connections_bring(agent, proxy):
    for key in (KEY, KEY[::-1]):
        open_way(agent, address=place_of(proxy), key=key)
        with guest(agent), accept(proxy, LINE.replace(KEY, key)):
            pass


def test_who_waited_is_dialled_and_takers_are_told(way, proxy):
    with guest(way) as inside:
        inside.sendall(b"early")
        open_way(way, address=place_of(proxy), key=KEY)
        with accept(proxy) as outside:
            assert receive(outside, 5) == b"early"
    fails(CODE.FAILED_PRECONDITION, "dials-itself", Taker(way).await_guest)
    # And back: they wait for takers again.
    open_way(way)
    with guest(way) as inside:
        inside.sendall(b"late")
        assert Taker(way).receive(4) == b"late"


def test_a_seal_cuts_what_is_dialled_and_forgets_the_key(way, operation, proxy):
    open_way(way, address=place_of(proxy), key=KEY)
    inside = guest(way)
    outside = accept(proxy)
    operation.quiesce()
    inside.sendall(b"still")
    assert receive(outside, 5) == b"still", "a quiesced agent cuts nothing"
    reply = operation.seal()
    assert reply.connections_reset == 1 and is_reset(inside)
    with pytest.raises(ConnectionResetError):
        outside.recv(1)
    operation = way.caller()
    operation.epoch = 2
    operation.open(epoch=2, seal_hash=reply.seal_hash)
    way.epoch = 2
    with guest(way) as held:
        held.sendall(b"held")
        # Until there is a key of the new run.
        open_way(way, address=place_of(proxy), key=KEY[::-1])
        with accept(proxy, LINE.replace(KEY, KEY[::-1])) as outside:
            assert receive(outside, 4) == b"held"
    operation.close()


def test_a_seal_that_fails_keeps_the_key(way, operation, proxy):
    open_way(way, address=place_of(proxy), key=KEY)
    operation.quiesce()
    os.rmdir(os.path.dirname(way.seal_file))
    with pytest.raises(grpc.RpcError):
        operation.seal()
    until(lambda: not cannot_connect(way), "it listens again")
    os.makedirs(os.path.dirname(way.seal_file), mode=0o700)
    with guest(way), accept(proxy):
        pass
