"""The agent over TCP: both sides prove the token to each other first, and it is never sent.

The client's side is written here a second time, from doc/protocol.md, not taken from the library.
"""
import base64
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import threading

import grpc
import pytest

from conftest import COUNT, DEADLINE, Caller, fails, guard_pb2, ports_pb2, until

CODE = grpc.StatusCode
HEAD = b"sandbox\x01"
HALF_OPEN_MAX = 16


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def key_of(token):
    return mac(token, b"sandbox tcp 1")


def place_of(address):
    host, port = address[:2]
    number = ipaddress.ip_address(host)
    packed = number.packed if number.version == 6 else b"\0" * 10 + b"\xff\xff" + number.packed
    return packed + port.to_bytes(2, "big")


def receive(connection, size):
    """So many bytes, or what came before the other side ended it."""
    data = b""
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except ConnectionResetError:
            break
        if not piece:
            break
        data += piece
    return data


def is_cut(connection):
    return receive(connection, 1) == b""


def send(connection, data):
    """The other side may have gone."""
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


class Exchange:
    """What is said before the proof, step by step."""

    def __init__(self, address, token, workspace_id, place=None):
        self.key, self.id, self.address = key_of(token), workspace_id, address
        self.place = place or place_of(address)
        self.connection = socket.create_connection(address, DEADLINE)
        self.hello = HEAD + workspace_id + secrets.token_bytes(32)

    def ask(self):
        send(self.connection, self.hello)
        answer = receive(self.connection, 72)
        if answer:
            assert len(answer) == 72 and answer[:8] == HEAD
        self.said = self.place + self.hello + answer[:40]
        return answer

    def is_right(self, answer):
        return answer[40:] == mac(self.key, b"A", self.said)

    def finish(self):
        return mac(self.key, b"C", self.said)

    def greet(self):
        answer = self.ask()
        assert answer and self.is_right(answer)
        send(self.connection, self.finish())
        return mac(self.key, b"P", self.said)

    def speaks(self):
        """Whether HTTP/2 is spoken here: the agent sends its settings first."""
        frame = receive(self.connection, 9)
        return len(frame) == 9 and frame[3] == 4


class Door:
    """Where stock gRPC finds an agent that has been proven already: a socket that leads on."""

    def __init__(self, folder, exchange):
        self.path = os.path.join(folder, "door-" + secrets.token_hex(4))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.exchange = exchange
        self.exchange.connection.settimeout(None)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        inner, _ = self.listener.accept()
        self.listener.close()
        back = threading.Thread(target=self.copy, args=(self.exchange.connection, inner),
                                daemon=True)
        back.start()
        self.copy(inner, self.exchange.connection)
        back.join()
        inner.close()

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        try:
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def free_port():
    """Not one that the system hands out to others while the agent is sealed."""
    while True:
        port = 10000 + secrets.randbelow(20000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


class Place:
    """An agent with a TCP address."""

    def __init__(self, make_agent, host="127.0.0.1", given=None, **named):
        self.address = (host, free_port())
        given = given or f"{host}:%d"
        self.agent = make_agent(arguments=["--tcp", given % self.address[1]], **named)

    def exchange(self, **changed):
        return Exchange(self.address, changed.pop("token", self.agent.token),
                        changed.pop("workspace_id", self.agent.workspace_id), **changed)

    def listens(self):
        with socket.socket() as attempt:
            return attempt.connect_ex(self.address) == 0

    def caller(self, token=None, epoch=None):
        exchange = self.exchange()
        named = exchange.greet()
        door = Door(self.agent.folder, exchange)
        caller = Caller(door.path, named if token is None else token,
                        epoch or self.agent.epoch, self.agent.workspace_id)
        caller.exchange = exchange
        return caller


@pytest.fixture
def place(make_agent):
    return Place(make_agent)


def test_work_goes_over_it(place):
    caller = place.caller()
    assert caller.health().gate == guard_pb2.GATE_OPEN
    assert caller.run("echo it works").stdout == b"it works\n"
    assert caller.activity().active_tasks == 0
    caller.close()


def test_all_addresses_and_ipv6(make_agent):
    place = Place(make_agent, given="[::]:%d")
    assert place.exchange().greet()
    if socket.has_ipv6:
        try:
            other = Exchange(("::1", place.address[1]), place.agent.token,
                             place.agent.workspace_id)
        except OSError:
            return  # no IPv6 here
        assert other.greet() and other.speaks()


@pytest.mark.parametrize("given", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                                   "localhost:80", "::1:80", "[::1]", "[::1:80", ":80",
                                   "1.2.3.4:80x"])
def test_what_is_no_address_is_refused(make_agent, given):
    with pytest.raises(AssertionError, match="is not ADDRESS:PORT"):
        make_agent(arguments=["--tcp", given])


def test_an_agent_without_a_token_does_not_listen(make_agent):
    place = Place(make_agent, opened=False)
    assert not place.listens()
    place.agent.open()
    assert place.exchange().greet()


def test_the_token_itself_is_not_taken_and_nothing_says_why(place):
    caller = place.caller(token=place.agent.token)
    fails(CODE.UNAUTHENTICATED, "wrong-token", caller.stats)
    caller.close()


def test_a_pass_is_good_for_its_own_connection_alone(place):
    first = place.caller()
    assert first.stats()
    second = place.caller(token=first.token)
    fails(CODE.UNAUTHENTICATED, "wrong-token", second.stats)
    # Nor over the agent's own socket, where the token counts.
    third = place.agent.caller()
    third.token = first.token
    fails(CODE.UNAUTHENTICATED, "wrong-token", third.stats)
    for caller in (first, second, third):
        caller.close()


def test_the_life_cycle_is_not_served(place):
    caller = place.caller()
    epoch = place.agent.epoch + 1
    calls = [(caller.open, {"epoch": epoch}), (caller.quiesce, {"epoch": epoch}),
             (caller.seal, {"epoch": epoch}), (caller.prove, {"epoch": epoch}),
             (caller.power_off, {"epoch": epoch})]
    for call, fields in calls:
        fails(CODE.PERMISSION_DENIED, "not-over-tcp", call, **fields)
    assert place.agent.health().gate == guard_pb2.GATE_OPEN
    assert caller.stats(), "the epoch was not raised"
    caller.close()


def test_a_client_with_another_token_learns_nothing(place):
    exchange = place.exchange(token=secrets.token_bytes(32))
    answer = exchange.ask()
    assert not exchange.is_right(answer)
    send(exchange.connection, exchange.finish())
    assert is_cut(exchange.connection)


def test_the_hash_of_the_token_is_no_key(place):
    exchange = place.exchange()
    exchange.key = hashlib.sha256(place.agent.token).digest()
    exchange.ask()
    send(exchange.connection, exchange.finish())
    assert is_cut(exchange.connection)


def test_another_workspace_gets_no_answer(place):
    assert place.exchange(workspace_id=secrets.token_bytes(16)).ask() == b""


def test_an_agent_that_was_led_to_elsewhere_does_not_prove_itself(place):
    """Whoever has the address now and passes all on to the right agent."""
    exchange = place.exchange(place=place_of(("10.1.2.3", place.address[1])))
    assert not exchange.is_right(exchange.ask())


def test_what_was_said_once_is_good_for_nothing(place):
    first = place.exchange()
    first.greet()
    assert first.speaks()
    again = place.exchange()
    again.hello = first.hello
    assert again.ask()
    send(again.connection, first.finish())
    assert is_cut(again.connection)


def test_the_agents_own_proof_is_not_the_clients(place):
    exchange = place.exchange(token=secrets.token_bytes(32))
    answer = exchange.ask()
    send(exchange.connection, answer[40:])
    assert is_cut(exchange.connection)


@pytest.mark.parametrize("at", [0, 7, 8, 23])
def test_a_changed_hello_gets_no_answer(place, at):
    exchange = place.exchange()
    changed = bytearray(exchange.hello)
    changed[at] ^= 1
    exchange.hello = bytes(changed)
    assert exchange.ask() == b""


def test_every_bit_of_the_proof_counts(place):
    for _ in range(COUNT):
        exchange = place.exchange()
        exchange.ask()
        right = bytearray(exchange.finish())
        right[secrets.randbelow(32)] ^= 1 << secrets.randbelow(8)
        send(exchange.connection, bytes(right))
        assert is_cut(exchange.connection)


def test_garbage_is_cut(place):
    for data in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n" * 9,
                 b"\0" * 4096, secrets.token_bytes(4096)):
        connection = socket.create_connection(place.address, DEADLINE)
        send(connection, data)
        assert is_cut(connection)
    assert place.exchange().greet()


def test_one_byte_after_the_other_and_all_at_once(place):
    slow = place.exchange()
    for byte in slow.hello[:-1]:
        slow.connection.sendall(bytes([byte]))
    slow.hello, whole = slow.hello[-1:], slow.hello
    slow.connection.sendall(slow.hello)
    answer = receive(slow.connection, 72)
    slow.said = slow.place + whole + answer[:40]
    assert slow.is_right(answer)
    # The proof, and HTTP/2 right behind it.
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    slow.connection.sendall(slow.finish() + preface)
    assert slow.speaks()


def test_half_open_ones_are_few_and_do_not_last(place):
    held = [socket.create_connection(place.address, DEADLINE) for _ in range(HALF_OPEN_MAX)]
    held[0].sendall(HEAD)
    try:
        assert is_cut(socket.create_connection(place.address, DEADLINE)), "one too many"
    except ConnectionResetError:
        pass  # before the connect had returned
    assert place.agent.health().gate == guard_pb2.GATE_OPEN
    # Whoever says nothing is sent away, so that there is room again.
    for connection in held:
        assert is_cut(connection)
    assert place.exchange().greet()


def test_proven_ones_do_not_count_as_half_open(place):
    proven = []
    for _ in range(HALF_OPEN_MAX + 4):
        proven.append(place.exchange())
        proven[-1].greet()
        assert proven[-1].speaks()
    assert place.exchange().greet()


def test_a_new_token_ends_what_the_old_one_has_proven(place):
    caller = place.caller()
    process = caller.start("sleep 1000")
    attached = caller.attach(process)
    next(attached)
    half = place.exchange()
    half.ask()
    old = place.agent.token
    place.agent.open(epoch=2, token=secrets.token_bytes(32))
    with pytest.raises(grpc.RpcError):
        for _ in attached:
            pass
    send(half.connection, half.finish())
    assert is_cut(half.connection)
    former = place.exchange(token=old)
    assert not former.is_right(former.ask())
    again = place.caller(epoch=2)
    assert again.stats()
    for one in (caller, again):
        one.close()


def test_the_same_token_again_cuts_nobody(place):
    caller = place.caller()
    place.agent.open(epoch=2)
    fails(CODE.ABORTED, "stale-epoch", caller.stats)
    caller.epoch = 2
    assert caller.stats()
    caller.close()


def test_a_sealed_agent_does_not_listen_and_an_opened_one_does(place):
    agent = place.agent
    caller = place.caller()
    assert caller.stats()
    half = place.exchange()
    half.ask()
    agent.quiesce(epoch=2)
    fails(CODE.UNAVAILABLE, "suspending", caller.stats)
    reply = agent.seal(epoch=2)
    assert not place.listens()
    assert is_cut(half.connection)
    later = agent.caller()
    later.open(epoch=2, token=secrets.token_bytes(32), seal_hash=reply.seal_hash)
    # An old token is of no use any more, and the new one is.
    old = place.exchange()
    assert not old.is_right(old.ask())
    agent.token, agent.epoch = later.token, 2
    fresh = place.caller(epoch=2)
    assert fresh.stats()
    fresh.close()
    later.close()
    caller.close()


def test_a_seal_that_is_undone_opens_it_again(make_agent):
    place = Place(make_agent, sealable=True)
    agent = place.agent
    agent.quiesce(epoch=2)
    # The seal file cannot be written: its directory is none any more.
    os.rmdir(os.path.dirname(agent.seal_file))
    with pytest.raises(grpc.RpcError):
        agent.seal(epoch=2)
    os.makedirs(os.path.dirname(agent.seal_file), mode=0o700)
    until(place.listens, "it listens again")
    assert place.exchange().greet()


def test_a_port_that_is_taken_is_done_without(make_agent):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        agent = make_agent(arguments=["--tcp", f"127.0.0.1:{port}"], complains=True)
        assert agent.run("echo it works").stdout == b"it works\n"


def test_its_own_port_is_not_listed(place):
    reply = place.agent.method("Ports", "List")(ports_pb2.PortListRequest())
    assert place.address[1] not in [port.port for port in reply.ports]


def test_the_token_never_goes_over_the_wire(make_agent):
    """Seen from between: neither it nor its hash, as bytes or as gRPC writes them."""
    place = Place(make_agent)
    seen = bytearray()
    exchange = place.exchange()
    plain = exchange.connection

    class Tap:
        def __getattr__(self, name):
            return getattr(plain, name)

        def sendall(self, data):
            seen.extend(data)
            plain.sendall(data)

        def recv(self, size):
            data = plain.recv(size)
            seen.extend(data)
            return data
    exchange.connection = Tap()
    named = exchange.greet()
    caller = Caller(Door(place.agent.folder, exchange).path, named, 1, place.agent.workspace_id)
    assert caller.run("true").exit.code == 0
    caller.close()
    for secret in (place.agent.token, hashlib.sha256(place.agent.token).digest(),
                   key_of(place.agent.token)):
        assert secret not in seen and base64.b64encode(secret).rstrip(b"=") not in seen
