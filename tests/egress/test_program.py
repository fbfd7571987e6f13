"""The program itself: its options, its end, and the proxy that it may go out through."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest
from authority import over_tls
from guest import (PLACEHOLDER, POLICY, RULES, SECRET, Relay, ask, connect_request, reason_of,
                   status_of)
from servers import application, serve
from targets import Ours
from test_tunnels import HELLO, open_tunnel
from world import ALERT, GATE, GUEST, PATIENCE, PROXY, PUBLIC, PUBLIC_TLS, await_true

PROGRAM = Ours.path
MINIMUM = ("--admin", "unix:/nonexistent/admin")


def run(*words, **environment):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, **environment})


def test_help_and_version():
    done = run("--help")
    assert done.returncode == 0 and "--upstream-proxy" in done.stdout and not done.stderr
    done = run("--version")
    assert done.returncode == 0 and re.search(r"\d+\.\d+", done.stdout)


@pytest.mark.parametrize("words", [
    (), ("--listen", "127.0.0.1:0"), ("--unknown",), (*MINIMUM, "extra"), ("--admin", "relative"),
    ("--admin", "unix:"), ("--admin", "127.0.0.1:3129"), (*MINIMUM, "--listen", "3128"),
    (*MINIMUM, "--listen", "host:3128"), (*MINIMUM, "--listen", "127.0.0.1:99999"),
    (*MINIMUM, "--resolver", "dns.example"), (*MINIMUM, "--resolver", "1.1.1.1,,8.8.8.8"),
    (*MINIMUM, "--host", "name"), (*MINIMUM, "--host", "a b=1.2.3.4"),
    (*MINIMUM, "--host", "a.test=b.test"), (*MINIMUM, "--permit", "10.0.0.0/33"),
    (*MINIMUM, "--permit", "10.0.0.1/8x"), (*MINIMUM, "--connections", "0"),
    (*MINIMUM, "--connections", "-1"), (*MINIMUM, "--connections", "1e3"),
    (*MINIMUM, "--rate", "x"), (*MINIMUM, "--idle-exit", "soon"), (*MINIMUM, "--idle-exit", "-1"),
    (*MINIMUM, "--ca-file", "/nonexistent"), (*MINIMUM, "--ca-file", "/etc/passwd"),
    (*MINIMUM, "--upstream-proxy", "socks5://1.2.3.4:1"), (*MINIMUM, "--timeout", "head"),
    (*MINIMUM, "--timeout", "sleep=4"), (*MINIMUM, "--timeout", "head=0"),
    ("--admin", "127.0.0.1:0", "--admin-token-file", "/nonexistent"),
    ("--admin", "127.0.0.1:0", "--admin-token-file", "/dev/null"),
    (*MINIMUM, "--listen")])
def test_what_is_wrong_ends_it_before_it_listens(words):
    """P103: with one sentence, and never with a setting left out."""
    done = run(*words)
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1 and "sandbox-egress-proxy" in done.stderr, done.stderr
    assert not done.stdout


def test_a_place_that_is_taken_ends_it(start, world):
    proxy = start()
    other = subprocess.run(
        world.inside.command(PROGRAM, "--listen", f"{PROXY}:3128", "--admin",
                             f"unix:{proxy.directory}/second", "--log", "-"),
        capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
    assert other.returncode == 1 and other.stderr
    other = subprocess.run(
        world.inside.command(PROGRAM, "--admin", f"unix:{proxy.socket}"), capture_output=True,
        text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
    assert other.returncode == 1 and proxy.answers()


def test_it_ends_on_its_own_when_nobody_needs_it(start):
    proxy = start(arguments=("--idle-exit", "0.02"))
    assert proxy.process.wait(PATIENCE) == 100
    assert not proxy.socket.exists()


def test_it_stays_while_somebody_is_registered(start):
    proxy = start(arguments=("--idle-exit", "0.02"))
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    with pytest.raises(subprocess.TimeoutExpired):
        proxy.process.wait(2.5)
    proxy.admin("DELETE", "/v1/workspaces/w1")
    assert proxy.process.wait(PATIENCE) == 100


def test_a_restart_forgets_everything(start):
    proxy = start()
    proxy.register("w1", {"address": GUEST}, policy=POLICY, transformations=RULES)
    proxy.stop()
    assert proxy.process.returncode == 0
    again = start()
    assert again.admin("GET", "/v1/workspaces").json == {"workspaces": []}
    head, _ = ask(again.connect(GUEST, proxy.keys[GUEST]), connect_request("api.example.com"))
    assert reason_of(head) == "unknown-source"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_connections_open(start, number):
    proxy = start()
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    tunnel = open_tunnel(proxy)
    proxy.process.send_signal(number)
    assert proxy.process.wait(PATIENCE) == 0
    tunnel.close()


def test_the_log_can_be_rotated(start):
    proxy = start()
    first, log = proxy.directory / "log.1", proxy.directory / "log"
    log.rename(first)
    proxy.process.send_signal(signal.SIGHUP)
    await_true(log.exists, "a new log")
    ask(proxy.connect(), connect_request("api.example.com"))
    await_true(lambda: "unknown-source" in log.read_text(), "a line in the new log")
    assert "unknown-source" not in first.read_text()


def test_a_pinned_name_and_a_permitted_range_are_the_operators(start, world):
    proxy = start(arguments=("--host", "inside.test=10.0.0.7", "--host", "other.test=10.0.1.7",
                             "--permit", "10.0.0.0/24"))
    proxy.register("w1", {"address": GUEST},
                   policy={"mode": "custom", "allow": ["inside.test", "other.test"]})
    with open_tunnel(proxy, host="inside.test"):
        pass
    head, _ = ask(proxy.connect(), connect_request("other.test"))
    assert reason_of(head) == "private-address"
    head, _ = ask(proxy.connect(), connect_request("10.0.0.7"))
    assert reason_of(head) in ("host-not-allowed", "private-address")
    assert {one[1] for one in world.attempts()} == {"10.0.0.7"} and not world.names.asked


class Upstream:
    """A corporate proxy that asks for a password."""

    def __init__(self, answer="200 OK"):
        self.asked, self.answer = [], answer
        self.listener = socket.create_server((GATE, 3130), backlog=64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, near):
        head = b""
        with near:
            while b"\r\n\r\n" not in head:
                piece = near.recv(4096)
                if not piece:
                    return
                head += piece
            self.asked.append(head.decode("latin-1"))
            near.sendall(f"HTTP/1.1 {self.answer}\r\n\r\n".encode())
            if not self.answer.startswith("200"):
                return
            address, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((address.strip("[]"), int(port)), PATIENCE) as far:
                thread = threading.Thread(target=self.copy, args=(near, far), daemon=True)
                thread.start()
                self.copy(far, near)
                thread.join()

    @staticmethod
    def copy(one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


PASSWORD = "c0rp0rate-passw0rd"


@pytest.fixture
def through(start):
    """P106: a proxy of ours that goes out through another one."""
    def begin(answer="200 OK", is_there=True):
        upstream = Upstream(answer) if is_there else None
        upstreams.append(upstream)
        proxy = start(environment={
            "SANDBOX_UPSTREAM_PROXY": f"http://us:{PASSWORD}@{GATE}:3130"})
        proxy.register("w1", {"address": GUEST}, policy=POLICY, transformations=RULES)
        return proxy, upstream
    upstreams = []
    yield begin
    for upstream in upstreams:
        if upstream:
            upstream.end()


def test_the_way_through_another_proxy_is_for_judged_addresses(through, world, authority):
    proxy, upstream = through()
    with open_tunnel(proxy):
        pass
    assert upstream.asked[0].startswith(f"CONNECT {PUBLIC}:443 HTTP/1.1\r\n")
    word = base64.b64encode(f"us:{PASSWORD}".encode()).decode()
    assert f"proxy-authorization: basic {word.lower()}" in upstream.asked[0].lower()
    kind = application()
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("api.example.com"), serve(kind))
    world.names.set("api.example.com", PUBLIC_TLS)
    done = Relay(proxy).run(authority, "curl", "-sS", "-H", f"x-api-key: {PLACEHOLDER}",
                            f"{Relay(proxy).url}/https/api.example.com/")
    assert b"size" in done.stdout, done
    assert SECRET in json.dumps(kind.told) and SECRET not in "".join(upstream.asked)
    done = Relay(proxy).run(authority, "curl", "-sS", "http://deb.example.org/")
    assert done.stdout == b"ok"
    dialled = {(address, port) for _, address, port in world.attempts()}
    assert dialled == {(GATE, 3130)}
    world.names.set("api.example.com", "10.0.0.1")
    head, _ = ask(proxy.connect(), connect_request("api.example.com"))
    assert reason_of(head) == "private-address"
    everything = proxy.log() + proxy.output() + proxy.admin("GET", "/metrics").text \
        + proxy.admin("GET", "/v1/log").text
    assert PASSWORD not in everything and word not in everything
    for seen in world.servers.seen:
        assert PASSWORD.encode() not in seen.data and word.encode() not in seen.data


@pytest.mark.parametrize("answer", ["407 Proxy Authentication Required", "403 No", "500 Broken",
                                    "200 OK\r\nContent-Length: x", "banana", None])
def test_without_that_proxy_nothing_goes_out(through, world, answer):
    proxy, _ = through(answer or "", is_there=answer is not None)
    stream = proxy.connect()
    ask(stream, connect_request("api.example.com"))
    if answer != "200 OK\r\nContent-Length: x":
        stream.sendall(HELLO)
        stream.settimeout(PATIENCE)
        assert stream.recv(100) != ALERT
        head, _ = ask(proxy.connect(),
                      b"GET http://deb.example.org/ HTTP/1.1\r\nHost: deb.example.org\r\n\r\n")
        assert status_of(head) in (502, 504), head
        assert "407" not in head and "proxy-authenticate" not in head.lower()
    assert {(address, port) for _, address, port in world.attempts()} <= {(GATE, 3130)}


def test_it_uses_little_when_idle(start):
    """tools/bench measures the release build against the goal; here against a mistake."""
    if os.environ.get("SANDBOX_TEST_SANITIZED"):
        pytest.skip("a sanitizer's own memory would be measured")
    proxy = start()
    proxy.register("w1", {"address": GUEST}, policy=POLICY)
    with open_tunnel(proxy):
        pass
    with open(f"/proc/{proxy.process.pid}/status", encoding="ascii") as status:
        assert int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) <= 6144


def test_it_goes_on_in_the_background_once_it_listens(tmp_path):
    words = ("--detach", "--admin", f"unix:{tmp_path}/admin", "--log", f"{tmp_path}/log")
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(f"{tmp_path}/admin")
    [number] = [int(name) for name in os.listdir("/proc") if name.isdigit()
                and f"unix:{tmp_path}/admin" in command_line(name)]
    assert os.getsid(number) == number and os.readlink(f"/proc/{number}/fd/2") == "/dev/null"
    second = run(*words)
    assert second.returncode == 1 and "--admin" in second.stderr, "it says why, and to whom"
    os.kill(number, signal.SIGTERM)
    await_true(lambda: not os.path.exists(f"/proc/{number}"), "its end")
    assert '"event":"ended"' in (tmp_path / "log").read_text()
    done = run("--detach", "--admin", f"unix:{tmp_path}/admin")
    assert done.returncode == 2 and "--log" in done.stderr


def command_line(number):
    try:
        with open(f"/proc/{number}/cmdline", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""
