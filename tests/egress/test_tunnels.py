"""Tunnels and plain HTTP, through clients that nobody here wrote, and what a tunnel must not do."""

import contextlib
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import threading
import time

import pytest
import vectors
from authority import over_tls
from guest import (POLICY, ask, connect_request, is_closed, local_socket, read_all, reason_of,
                   status_of)
from servers import git_application, serve
from targets import preface
from world import (ALERT, GUEST, OTHER_GUEST, PATIENCE, PUBLIC, PUBLIC_TLS, SILENT, STRANGER,
                   await_true)

HELLO = vectors.client_hello("api.example.com")


def open_tunnel(proxy, source=GUEST, host="api.example.com"):
    """A tunnel whose ClientHello has been let through and answered."""
    stream = proxy.connect(source)
    head, _ = ask(stream, connect_request(host))
    assert status_of(head) == 200, head
    stream.sendall(vectors.client_hello(host))
    assert stream.recv(len(ALERT), socket.MSG_WAITALL) == ALERT
    return stream


def test_curl_reaches_an_allowed_host_end_to_end(relay, authority, api):
    done = relay.run(authority, "curl", "-sS", "https://api.example.com/hello")
    assert json.loads(done.stdout)["size"] == 0, done.stderr
    assert api.told[0]["line"] == "GET /hello HTTP/1.1"


def test_curl_is_told_why_a_host_is_refused(relay, authority, world):
    done = relay.run(authority, "curl", "-sv", "https://evil.test/")
    assert done.returncode == 56 and b"403" in done.stderr
    assert b"x-proxy-error: host-not-allowed;" in done.stderr.lower()
    assert not world.attempts() and not world.names.asked


def test_a_refusal_has_a_text_that_helps(proxy):
    stream = proxy.connect()
    head, body = ask(stream, connect_request("evil.test"))
    body += read_all(stream)
    assert "content-type: text/plain" in head.lower() and "connection: close" in head.lower()
    assert b"evil.test" in body and 20 < len(body) < 1000


def test_python_reaches_an_allowed_host(relay, authority, api):
    program = ("import urllib.request\n"
               "print(urllib.request.urlopen('https://a.b.cdn.example.net/x', timeout=20).status)")
    context = authority.context("a.b.cdn.example.net", "api.example.com")
    relay.proxy.world.servers.behind[PUBLIC_TLS] = over_tls(context, serve(api))
    done = relay.run(authority, "/usr/bin/python3", "-c", program)
    assert done.stdout == b"200\n", done.stderr


def test_python_keeps_a_connection_for_many_requests(relay, authority, api):
    context = ssl.create_default_context(cafile=authority.certificate)
    client = http.client.HTTPSConnection("127.0.0.1", relay.port, context=context, timeout=PATIENCE)
    client.set_tunnel("api.example.com", 443)
    for number in range(20):
        client.request("POST", f"/{number}", b"x" * number)
        assert json.load(client.getresponse())["size"] == number
    client.close()
    assert len(api.told) == 20


def test_openssl_reaches_an_allowed_host_and_no_other_name(relay, authority, api):
    words = ("openssl", "s_client", "-proxy", f"127.0.0.1:{relay.port}", "-connect",
             "api.example.com:443", "-verify_return_error", "-CAfile", str(authority.bundle))
    request = b"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n"
    done = relay.run(authority, *words, "-quiet", "-servername", "api.example.com", data=request)
    assert b"200 OK" in done.stdout, done.stderr
    api.told.clear()
    for name in (("-servername", "github.com"), ("-noservername",)):
        done = relay.run(authority, *words, *name, data=request)
        assert done.returncode != 0 and b"200 OK" not in done.stdout
    assert not api.told


def test_git_clones_through_a_tunnel(relay, authority, world, tmp_path):
    make_repository(tmp_path / "thing.git", authority)
    kind = git_application(tmp_path)
    context = authority.context("api.example.com", "github.com")
    world.servers.behind[PUBLIC_TLS] = over_tls(context, serve(kind))
    world.names.anything = PUBLIC_TLS
    done = relay.run(authority, "git", "clone", "-q", "https://github.com/thing.git",
                     str(tmp_path / "clone"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone/file").read_text() == "content\n"
    done = relay.run(authority, "git", "clone", "-q", "https://gitlab.com/thing.git",
                     str(tmp_path / "other"))
    assert done.returncode != 0 and b"403" in done.stderr


def make_repository(path, authority):
    """A bare one with one commit, whose files are `file` and some that do not compress."""
    work = path.with_suffix(".work")
    work.mkdir()
    (work / "file").write_text("content\n")
    (work / "noise").write_bytes(pathlib.Path("/dev/urandom").open("rb").read(1 << 20))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(authority.directory),
                   "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (("init", "-q", "-b", "main"), ("add", "."),
                  ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "one"),
                  ("clone", "-q", "--bare", str(work), str(path))):
        subprocess.run(["git", *words], cwd=work, env=environment, check=True, timeout=PATIENCE,
                       stdin=subprocess.DEVNULL)
    subprocess.run(["git", "config", "http.receivepack", "true"], cwd=path, check=True,
                   env=environment, timeout=PATIENCE)


def test_plain_http_goes_to_listed_hosts_only(relay, authority, world):
    done = relay.run(authority, "curl", "-sS", "http://deb.example.org/debian/x?y=1")
    assert done.stdout == b"ok", done.stderr
    data = bytes(world.servers.take()[0].data)
    assert data.startswith(b"GET /debian/x?y=1 HTTP/1.1\r\n")
    assert b"proxy" not in data.lower() and b"\r\nHost: deb.example.org\r\n" in data
    world.attempts()
    for url in ("http://api.example.com/", "http://169.254.169.254/latest/meta-data",
                "http://deb.example.org:443/", "http://127.0.0.1:80/", "http://[::1]/"):
        done = relay.run(authority, "curl", "-sSi", "--noproxy", "", url)
        assert b" 403 " in done.stdout.split(b"\r\n")[0], url
    assert not world.attempts() and not world.servers.seen


def test_plain_http_puts_nothing_in(relay, authority, world):
    """P101: a credential leaves over verified TLS alone."""
    relay.proxy.patch("w1", add={"http": ["api.example.com"]})
    done = relay.run(authority, "curl", "-sS", "-H", "x-api-key: PLACEHOLDER-5f2c",
                     "http://api.example.com/")
    assert done.stdout == b"ok"
    assert b"PLACEHOLDER-5f2c" in world.servers.seen[0].data


def test_plain_http_streams_a_large_answer(relay, authority, world, api):
    world.servers.behind[PUBLIC] = serve(api)
    world.names.set("deb.example.org", PUBLIC)
    done = relay.run(authority, "curl", "-sS", "-o", "/dev/null", "-w", "%{size_download}",
                     "http://deb.example.org/large")
    assert done.stdout == b"67108864", done.stderr


REFUSED = {
    "another host": (connect_request("b.test"), "host-not-allowed"),
    "a public address": (connect_request("93.184.216.34"), "host-not-allowed"),
    "an IPv6 address": (connect_request("[2606:2800:220:1:248:1893:25c8:1946]"),
                        "host-not-allowed"),
    "a loopback address": (connect_request("[::1]"), "private-address"),
    "port 80": (connect_request("api.example.com", 80), "port-not-allowed"),
    "port 22": (connect_request("github.com", 22), "port-not-allowed"),
    "no host": (b"CONNECT :443 HTTP/1.1\r\nHost: :443\r\n\r\n", "bad-request"),
    "a NUL": (b"CONNECT a\0.cdn.example.net:443 HTTP/1.1\r\nHost: x\r\n\r\n", "bad-request"),
    "a space": (b"CONNECT a b:443 HTTP/1.1\r\nHost: x\r\n\r\n", "bad-request"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_list_does_not_hold_is_refused(proxy, world, case):
    """P103."""
    request, reason = REFUSED[case]
    stream = proxy.connect()
    head, _ = ask(stream, request)
    assert 400 <= status_of(head) < 500
    # Both are true of an address that is written out: whichever is told.
    assert reason_of(head) in {reason, "host-not-allowed"} if "address" in case \
        else reason_of(head) == reason
    assert is_closed(stream)
    assert not world.attempts() and not world.names.asked
    refusals = proxy.refusals("w1")["refusals"]
    assert refusals[-1]["reason"] == reason_of(head) and refusals[-1]["workspace"] == "w1"


@pytest.mark.parametrize("mode", [{"mode": "custom", "allow": []}, {"mode": "deny-all"}, None])
def test_nothing_listed_is_nothing_allowed(start, world, mode):
    """P162."""
    proxy = start()
    proxy.register("w1", {"address": GUEST}, **({"policy": mode} if mode else {}))
    for request in (connect_request("api.example.com"),
                    b"GET http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n\r\n",
                    b"GET /https/api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"):
        stream = proxy.connect()
        assert status_of(ask(stream, request)[0]) == 403
    assert not world.attempts()


def test_allow_all_is_every_public_host_over_tls(start, world):
    proxy = start()
    proxy.register("w1", {"address": GUEST}, policy={"mode": "allow-all"})
    with open_tunnel(proxy, host="anything.example"):
        pass
    world.attempts()
    world.names.set("inside.example", "10.0.0.1")
    for request in (connect_request("inside.example"), connect_request("localhost"),
                    connect_request("169.254.169.254"), connect_request("anything.example", 22),
                    b"GET http://anything.example/ HTTP/1.1\r\nHost: anything.example\r\n\r\n"):
        stream = proxy.connect()
        assert status_of(ask(stream, request)[0]) == 403, request
    assert not world.attempts()


HELLOS = {
    "another listed name": (vectors.client_hello("github.com"), "sni-mismatch"),
    "a name that is not listed": (vectors.client_hello("evil.test"), "sni-mismatch"),
    "no TLS": (b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "not-tls"),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", "not-tls"),
    "ECH": (vectors.client_hello("api.example.com"), "ech"),
}


@pytest.mark.parametrize("case", HELLOS)
def test_a_tunnel_carries_only_tls_for_its_host(proxy, world, case):
    """P099, P102: not even a connection is made."""
    hello, reason = HELLOS[case]
    if case == "ECH":
        hello = bytes.fromhex(next(vector["input"]["hex"] for vector in vectors.load()["vectors"]
                                   if vector["name"] == "tls-ech-public-name"))
        reason = {"ech", "sni-mismatch"}
    stream = proxy.connect()
    assert status_of(ask(stream, connect_request("api.example.com"))[0]) == 200
    stream.sendall(hello)
    read_all(stream)
    assert not world.attempts()
    refusal = proxy.refusals("w1")["refusals"][-1]
    assert refusal["reason"] in reason and refusal["host"] == "api.example.com"
    assert refusal["workspace"] == "w1"


def test_half_closed_tunnels_stay_half_open(proxy, world):
    def backwards(seen):
        while not seen.ended:
            seen.read_once()
        seen.stream.sendall(b"after your end: %d" % len(seen.data))
    world.servers.behind[PUBLIC] = backwards
    stream = proxy.connect()
    ask(stream, connect_request("api.example.com"))
    stream.sendall(HELLO)
    stream.sendall(b"x" * 100_000)
    stream.shutdown(socket.SHUT_WR)
    assert read_all(stream) == b"after your end: %d" % (len(HELLO) + 100_000)


def test_a_server_that_half_closes_still_gets_the_rest(proxy, world):
    def first_ends(seen):
        seen.read_once()
        seen.stream.shutdown(socket.SHUT_WR)
        while not seen.ended:
            seen.read_once()
    world.servers.behind[PUBLIC] = first_ends
    stream = proxy.connect()
    ask(stream, connect_request("api.example.com"))
    stream.sendall(HELLO)
    assert read_all(stream) == b""
    stream.sendall(b"y" * 50_000)
    stream.shutdown(socket.SHUT_WR)
    seen = world.servers.await_one(lambda one: one.ended)
    assert len(seen.data) == len(HELLO) + 50_000


def test_a_reset_reaches_the_other_side(proxy, world):
    stream = open_tunnel(proxy)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stream.close()
    world.servers.await_one(lambda one: one.ended)
    await_true(lambda: proxy.metrics()["sandbox_egress_tunnels"] == 0, "the tunnel's end")


def test_much_data_arrives_unchanged_both_ways(proxy, world):
    """Echoed by a server that reads slowly at first, so that both sides fill up."""
    total, chunk = 1 << 25, bytes(range(256)) * 256

    def echo(seen):
        while piece := seen.stream.recv(1 << 16):
            seen.stream.sendall(piece)
    world.servers.behind[PUBLIC] = echo
    stream = proxy.connect()
    ask(stream, connect_request("api.example.com"))
    stream.sendall(HELLO)

    def send():
        for _ in range(total // len(chunk)):
            stream.sendall(chunk)
        stream.shutdown(socket.SHUT_WR)
    threading.Thread(target=send, daemon=True).start()
    assert read_all(stream) == HELLO + chunk * (total // len(chunk))


def test_an_idle_tunnel_ends_and_one_that_is_used_either_way_does_not(start, world):
    proxy = start(timeouts={"idle": 700})
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    going = threading.Event()

    def trickle(seen):
        seen.read_once()
        seen.stream.sendall(ALERT)
        while going.is_set():
            seen.stream.sendall(b".")
            time.sleep(0.1)
    going.set()
    world.servers.behind[PUBLIC] = trickle
    used = open_tunnel(proxy)
    world.servers.behind.clear()
    idle, began = open_tunnel(proxy), time.monotonic()
    assert is_closed(idle)
    assert 0.4 < time.monotonic() - began < PATIENCE / 2
    assert used.recv(1) == b"."
    more = 0
    while time.monotonic() - began < 2:
        more += len(used.recv(100))
    assert more > 5
    going.clear()
    used.close()


def test_slow_heads_and_hellos_are_cut_off(start, world):
    proxy = start(timeouts={"head": 300, "hello": 300})
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    silent = world.dial()
    begun = proxy.connect()
    begun.sendall(b"CONNECT api.exa")
    tunnel = proxy.connect()
    ask(tunnel, connect_request("api.example.com"))
    tunnel.sendall(HELLO[:50])
    for stream in (silent, begun, tunnel):
        stream.settimeout(PATIENCE)
        assert b"200" not in read_all(stream)
    assert not world.attempts()


def test_a_server_that_does_not_answer_is_given_up(start, world):
    proxy = start(timeouts={"connect": 300})
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    world.names.set("deb.example.org", SILENT)
    stream = proxy.connect()
    head, _ = ask(stream, b"GET http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n\r\n")
    assert status_of(head) in (502, 504) and reason_of(head) in ("timeout", "upstream-failed")


def test_only_judged_addresses_are_tried(start, world):
    """The first does not answer, the second is private, the third does."""
    proxy = start(timeouts={"connect": 2000})
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    world.names.set("api.example.com", SILENT, "10.0.0.1", PUBLIC)
    stream = proxy.connect()
    ask(stream, connect_request("api.example.com"))
    stream.sendall(HELLO)
    assert stream.recv(100) == ALERT
    dialled = {address for _, address, _ in world.attempts()}
    assert PUBLIC in dialled and dialled <= {PUBLIC, SILENT}


def test_a_name_that_does_not_exist_is_told(proxy, world):
    world.names.anything = None
    head, _ = ask(proxy.connect(), connect_request("api.example.com"))
    assert (status_of(head), reason_of(head)) == (502, "name-not-found")


def test_a_slow_resolver_holds_up_nobody_else(proxy, world):
    world.names.delay.clear()
    waiting = [proxy.connect() for _ in range(20)]
    for stream in waiting:
        stream.sendall(connect_request("api.example.com"))
    head, _ = ask(proxy.connect(), connect_request("evil.test"))
    assert status_of(head) == 403
    world.names.delay.set()
    for stream in waiting:
        assert stream.recv(100).startswith(b"HTTP/1.1 200")


def test_ipv6_is_as_good(start, world):
    """P140."""
    proxy = start(listen="[fd08::2]:3128")
    proxy.register("w1", {"address": "fd08::1"}, policy=POLICY)
    world.names.set("api.example.com", "2606:2800:220:1:248:1893:25c8:1946")
    stream = socket.create_connection(("fd08::2", 3128), PATIENCE)
    stream.sendall(preface(proxy.keys["fd08::1"]))
    assert status_of(ask(stream, connect_request("api.example.com"))[0]) == 200
    stream.sendall(HELLO)
    assert stream.recv(100) == ALERT
    assert world.servers.seen[0].address == "2606:2800:220:1:248:1893:25c8:1946"


def test_a_socket_of_its_own_serves_a_workspace(start, world, tmp_path):
    proxy, path = start(), tmp_path / "way-out"
    key = proxy.register("w1", {"socket": str(path)}, policy=POLICY)
    assert path.stat().st_mode & 0o777 == 0o600
    with local_socket(path, key) as stream:
        assert status_of(ask(stream, connect_request("api.example.com"))[0]) == 200
        stream.sendall(HELLO)
        assert stream.recv(100) == ALERT
    with local_socket(path, "0" * 64) as stream:
        assert reason_of(ask(stream, connect_request("api.example.com"))[0]) == "wrong-key"
    proxy.admin("DELETE", "/v1/workspaces/w1")
    assert not path.exists()


def test_connections_are_limited_for_each_workspace(start, world):
    proxy = start()
    for name, source in (("w1", GUEST), ("w2", OTHER_GUEST)):
        proxy.register(name, {"address": source}, policy=POLICY, limits={"connections": 3})
    held = [open_tunnel(proxy) for _ in range(3)]
    stream = proxy.connect()
    head, _ = ask(stream, connect_request("api.example.com"))
    assert (status_of(head), reason_of(head)) == (429, "too-many-connections")
    with open_tunnel(proxy, OTHER_GUEST):
        pass
    held.pop().close()

    def has_room():
        with contextlib.suppress(AssertionError, OSError):
            held.append(open_tunnel(proxy))
            return True
        return False
    await_true(has_room, "room for another")
    for stream in held:
        stream.close()


def test_new_connections_are_limited_for_each_second(start, world):
    proxy = start()
    for name, source in (("w1", GUEST), ("w2", OTHER_GUEST)):
        proxy.register(name, {"address": source}, policy=POLICY,
                       limits={"rate": 5, "connections": 100})
    reasons = []
    for _ in range(40):
        with proxy.connect() as stream:
            reasons.append(reason_of(ask(stream, connect_request("evil.test"))[0]))
    assert reasons[0] == "host-not-allowed" and "rate" in reasons
    with open_tunnel(proxy, OTHER_GUEST):
        pass
    await_true(lambda: reason_of(ask(proxy.connect(), connect_request("evil.test"))[0])
               == "host-not-allowed", "the rate letting through again")


def test_a_stranger_learns_nothing(proxy, world):
    answers = set()
    for key in ("0" * 64, proxy.keys[GUEST]):
        stream = proxy.connect(STRANGER, key)
        head, _ = ask(stream, connect_request("api.example.com"))
        assert (status_of(head), reason_of(head)) == (403, "unknown-source")
        assert "407" not in head and is_closed(stream)
        answers.add(head)
    assert len(answers) == 1 and not world.attempts()


@pytest.mark.parametrize("first", [
    b"", b"SANDBOX-EGRESS/1 " + b"0" * 64 + b"\r\n", b"SANDBOX-EGRESS/1 \r\n",
    b"SANDBOX-EGRESS/2 KEY\r\n", b"SANDBOX-EGRESS/1 KEY0\r\n", b"sandbox-egress/1 KEY\r\n",
    b"SANDBOX-EGRESS/1  KEY\r\n", b"SANDBOX-EGRESS/1 KEY\n", b"\r\nSANDBOX-EGRESS/1 KEY\r\n",
    b"SANDBOX-EGRESS/1 " + b"f" * 5000])
def test_without_the_right_first_line_nothing_is_served(proxy, world, first):
    stream = world.dial()
    stream.settimeout(PATIENCE)
    with contextlib.suppress(OSError):
        stream.sendall(first.replace(b"KEY", proxy.keys[GUEST].encode())
                       + connect_request("api.example.com"))
    said = read_all(stream).decode("latin-1")
    assert said == "" or (status_of(said), reason_of(said)) == (403, "wrong-key"), said
    assert not world.attempts() and not world.names.asked


def test_the_first_line_may_come_in_pieces(proxy, world):
    stream = world.dial()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in preface(proxy.keys[GUEST]) + connect_request("api.example.com"):
        stream.sendall(bytes([byte]))
    head, _ = ask(stream, b"")
    assert status_of(head) == 200


def test_the_first_line_is_never_sent_on(relay, authority, world):
    relay.run(authority, "curl", "-sS", "http://deb.example.org/")
    with open_tunnel(relay.proxy):
        pass
    key = relay.proxy.keys[GUEST].encode()
    for seen in world.servers.take():
        assert key not in seen.data and b"SANDBOX-EGRESS" not in seen.data
