"""Servers that answer badly, or too much: the guest gets a whole answer, an error, or a cut."""

import contextlib
import re

import pytest
from authority import over_tls
from guest import PLACEHOLDER, POLICY, SECRET, ask, read_all, status_of, whole_answer
from test_routes import KEY, ROUTE, exchange, request, resident_kib
from world import GUEST, OTHER_GUEST, PATIENCE, PUBLIC, PUBLIC_TLS, read_request

PLAIN = (b"GET http://deb.example.org/x HTTP/1.1\r\nHost: deb.example.org\r\n\r\n")
SWAPPED = f"GET {ROUTE}/x HTTP/1.1\r\nHost: x\r\n{KEY}\r\n\r\n".encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

# What the server says, and whether the guest may take it for a whole answer.
BAD = {
    "nothing": (b"", False),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", False),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Le", False),
    "another version": (b"HTTP/3.7 200 OK\r\nContent-Length: 2\r\n\r\nok", False),
    "no status": (b"HTTP/1.1 OK\r\nContent-Length: 2\r\n\r\nok", False),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!", False),
    "a length that is none": (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", False),
    "a body cut off": (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", False),
    "chunks cut off": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", False),
    "no chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
                 False),
    "a chunk too large": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                          b"fffffffffffffffff\r\nok\r\n0\r\n\r\n", False),
    "a switch nobody asked for": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                                  b"Connection: upgrade\r\n\r\nhello", False),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300_000, False),
    "a field without end": (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (2 << 20), False),
    "more than its length": (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", True),
    "informal answers first": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, True),
    "a body to the end": (b"HTTP/1.1 200 OK\r\n\r\nok", True),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", True),
}


def say(said):
    def serve(seen):
        read_request(seen)
        with contextlib.suppress(OSError):
            seen.stream.sendall(said)
    return serve


def final(data):
    """Without the informal answers."""
    while re.match(rb"HTTP/1\.1 1\d\d ", data):
        data = data.partition(b"\r\n\r\n")[2]
    return data


@pytest.mark.parametrize("way", ["plain", "route"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_answer_is_never_a_good_one(proxy, world, authority, case, way):
    said, is_whole = BAD[case]
    world.names.set("deb.example.org", PUBLIC)
    world.names.set("api.example.com", PUBLIC_TLS)
    world.servers.behind[PUBLIC] = say(said)
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("api.example.com"), say(said))
    asked = PLAIN if way == "plain" else SWAPPED
    with proxy.connect() as stream:
        stream.settimeout(PATIENCE)
        # A second one behind it: what a server says too much must not become its answer.
        stream.sendall(asked.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        data = final(read_all(stream))
    assert b"evil" not in data and b"hello" not in data
    head, _, body = data.partition(b"\r\n\r\n")
    status = status_of(head.decode("latin-1"))
    if is_whole:
        assert status in (200, 204), data[:200]
        assert b"ok" in body or status == 204
    elif status not in (0, 502):
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        assert status == 200 and not body.endswith(b"0\r\n\r\n"), data[:200]
        assert length is None or len(body) < int(length.group(1))
    assert proxy.is_alive()


def test_endless_informal_answers_have_an_end(start, world):
    proxy = start(timeouts={"idle": 1000, "connect": 1000})
    proxy.register("w1", {"address": GUEST}, policy=POLICY)

    def endless(seen):
        read_request(seen)
        with contextlib.suppress(OSError):
            while True:
                seen.stream.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
    world.servers.behind[PUBLIC] = endless
    with proxy.connect() as stream:
        stream.sendall(PLAIN)
        stream.settimeout(PATIENCE)
        count = 0
        with contextlib.suppress(ConnectionError):
            while (piece := stream.recv(1 << 16)) and count < 1 << 24:
                count += len(piece)
        assert count < 1 << 24


def test_an_answer_too_large_for_memory_is_not_kept_there(proxy, world):
    def endless(seen):
        read_request(seen)
        seen.stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                seen.stream.sendall(b"x" * 65536)
    world.servers.behind[PUBLIC] = endless
    with proxy.connect() as stream:
        ask(stream, PLAIN)
        before = resident_kib(proxy.process)
        for _ in range(1000):
            stream.recv(1 << 16)
        assert resident_kib(proxy.process) - before < 8192


def test_pipelined_requests_are_judged_one_by_one(proxy, world):
    world.servers.behind[PUBLIC] = say(OK)
    refused = PLAIN.replace(b"deb.example.org", b"evil.test")
    with proxy.connect() as stream:
        stream.settimeout(PATIENCE)
        stream.sendall(PLAIN + refused + PLAIN)
        data = read_all(stream)
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", data)
    assert statuses[:2] in ([b"200", b"403"], [b"200"]) and len(statuses) <= 2
    assert len(world.servers.seen) == 1


def test_requests_of_two_workspaces_never_share_a_connection(proxy, api, world):
    proxy.register("w2", {"address": OTHER_GUEST}, policy=POLICY)
    for source in (GUEST, OTHER_GUEST, GUEST, OTHER_GUEST):
        with proxy.connect(source) as stream:
            head, _ = ask(stream, request(f"{ROUTE}/{source}", KEY))
            assert status_of(head) == 200
    lines = [told["line"] for told in api.told]
    assert sum(GUEST + " " in line for line in lines) == 2
    assert 2 <= len(world.servers.seen) <= 4
    fields = [dict((name.lower(), value) for name, value in told["fields"]) for told in api.told]
    assert [one["x-api-key"] for one in fields] == [SECRET, PLACEHOLDER, SECRET, PLACEHOLDER]


def test_a_credential_that_was_taken_away_is_not_put_in(proxy, api):
    head, _ = exchange(proxy, ROUTE + "/", KEY)
    proxy.patch("w1", transformations=[])
    exchange(proxy, ROUTE + "/", KEY)
    values = [value for told in api.told for name, value in told["fields"]
              if name.lower() == "x-api-key"]
    assert status_of(head) == 200 and values == [SECRET, PLACEHOLDER]


def test_a_server_that_closes_kept_connections_costs_no_request(proxy, world, authority):
    """A request on a connection that the server has just closed is sent anew, or it is told."""
    def once(seen):
        read_request(seen)
        seen.stream.sendall(OK)
    world.names.set("api.example.com", PUBLIC_TLS)
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("api.example.com"), once)
    for _ in range(20):
        stream = proxy.connect()
        head, body = ask(stream, SWAPPED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert status_of(head) == 200 and whole_answer(head, body, stream) == b"ok"
