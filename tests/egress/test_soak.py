"""Good and hostile guests at once: nothing is let through, nothing grows, nobody good is held up.

Ten seconds; ten minutes where SANDBOX_TEST_COUNT is set. SANDBOX_TEST_SEED repeats the hostile
part.
"""

import contextlib
import hashlib
import http.client
import json
import os
import random
import re
import socket
import threading
import time

import vectors
from authority import over_tls
from guest import PLACEHOLDER, POLICY, RULES, SECRET, ask, connect_request, status_of
from servers import application, serve
from targets import preface
from world import ALERT, GUEST, OTHER_GUEST, PATIENCE, PUBLIC, PUBLIC_TLS, STRANGER, await_true

SECONDS = 600 if os.environ.get("SANDBOX_TEST_COUNT") else 10
SEED = int(os.environ.get("SANDBOX_TEST_SEED", "0")) or random.randrange(1 << 32)
NAMES = re.compile(r"(?:api\.example\.com|github\.com|deb\.example\.org|"
                   r"[a-z0-9._-]+\.cdn\.example\.net)")


class Soak:
    def __init__(self, proxy, world):
        self.proxy, self.world, self.ending = proxy, world, threading.Event()
        self.faults, self.counts, self.lock = [], {}, threading.Lock()
        table = vectors.load()
        self.heads = [one["input"]["bytes"].encode("latin-1") for one in table["vectors"]
                      if "bytes" in one["input"]]
        self.hellos = [bytes.fromhex(one["input"]["hex"]) for one in table["vectors"]
                       if "hex" in one["input"]]

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def repeat(self, work, *arguments):
        """Until the end; what goes wrong with the connection is a fault of a good guest's only."""
        chance = random.Random(f"{SEED} {work.__name__} {arguments}")
        while not self.ending.is_set():
            try:
                work(chance, *arguments)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if work.__name__.startswith("good"):
                    self.fault(f"{work.__name__}: {error!r}")
            with self.lock:
                self.counts[work.__name__] = self.counts.get(work.__name__, 0) + 1

    def good_tunnel(self, chance):
        with self.proxy.connect() as stream:
            stream.settimeout(PATIENCE)
            head, _ = ask(stream, connect_request("echo.cdn.example.net"))
            if status_of(head) != 200:
                self.fault(head)
                return
            hello = vectors.client_hello("echo.cdn.example.net")
            stream.sendall(hello)
            data = hello + chance.randbytes(chance.choice((1, 1000, 300_000)))
            thread = threading.Thread(target=stream.sendall, args=(data[len(hello):],))
            thread.start()
            found = b""
            while len(found) < len(data):
                piece = stream.recv(1 << 17)
                if not piece:
                    break
                found += piece
            thread.join()
            if found != data:
                self.fault(f"a tunnel lost {len(data) - len(found)} bytes")

    def good_route(self, chance):
        body = chance.randbytes(chance.choice((0, 10, 100_000)))
        client = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        client.sock = self.proxy.connect()
        for _ in range(3):
            client.request("POST", "/https/api.example.com/x", body, {"x-api-key": PLACEHOLDER})
            answer = client.getresponse()
            text = answer.read()
            if answer.status != 200 or \
                    json.loads(text)["digest"] != hashlib.sha256(body).hexdigest():
                self.fault(f"a route answered {answer.status}")
        client.request("GET", "/https/api.example.com/echo-identity", None,
                       {"x-api-key": PLACEHOLDER})
        if SECRET.encode() in client.getresponse().read():
            self.fault("a guest got the secret")
        client.close()

    def good_http(self, _):
        with self.proxy.connect() as stream:
            head, _ = ask(stream, b"GET http://deb.example.org/x HTTP/1.1\r\n"
                                  b"Host: deb.example.org\r\nConnection: close\r\n\r\n")
            if status_of(head) != 200:
                self.fault(head)

    def hostile_head(self, chance):
        self.throw(chance, self.mangled(chance, chance.choice(self.heads)))

    def hostile_hello(self, chance):
        hello = self.mangled(chance, chance.choice(self.hellos))
        self.throw(chance, connect_request("api.example.com") + hello)

    def hostile_random(self, chance):
        self.throw(chance, chance.randbytes(chance.choice((1, 100, 100_000))))

    def hostile_stranger(self, chance):
        with self.world.dial(chance.choice((GUEST, STRANGER, OTHER_GUEST))) as stream:
            stream.settimeout(1)
            stream.sendall(preface("%064x" % chance.getrandbits(256)) + chance.choice(self.heads))
            stream.recv(1000)

    def hostile_slow(self, chance):
        with self.proxy.connect(OTHER_GUEST) as stream:
            stream.settimeout(2)
            for byte in connect_request("api.example.com")[:chance.randrange(60)]:
                stream.sendall(bytes([byte]))
            self.ending.wait(0.2)

    def hostile_route(self, chance):
        """Leaves in the middle, one way or the other."""
        path = chance.choice(("large", "events", "close", "echo-gzip", "redirect", "x"))
        size = chance.choice((0, 5, 1 << 20))
        with self.proxy.connect(OTHER_GUEST) as stream:
            stream.settimeout(2)
            stream.sendall(f"PUT /https/api.example.com/{path} HTTP/1.1\r\nHost: x\r\nx-api-key: "
                           f"{PLACEHOLDER}\r\nContent-Length: {size}\r\n\r\n".encode())
            stream.sendall(b"x" * chance.randrange(size + 1))
            if chance.random() < 0.5:
                stream.recv(1000)
            self.leave(chance, stream)

    def throw(self, chance, data):
        with self.proxy.connect(OTHER_GUEST) as stream:
            stream.settimeout(0.3)
            place = 0
            while place < len(data):
                size = chance.choice((1, 50, 5000, len(data)))
                stream.sendall(data[place:place + size])
                place += size
            with contextlib.suppress(TimeoutError):
                said = stream.recv(1 << 16)
                if SECRET.encode() in said:
                    self.fault("a hostile guest got the secret")
            self.leave(chance, stream)

    @staticmethod
    def leave(chance, stream):
        if chance.random() < 0.5:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    @staticmethod
    def mangled(chance, data):
        data = bytearray(data)
        for _ in range(chance.randrange(4)):
            place, kind = chance.randrange(len(data) + 1), chance.randrange(4)
            if kind == 0:
                data[place:place] = chance.randbytes(chance.randrange(1, 20))
            elif kind == 1:
                del data[place:place + chance.randrange(20)]
            elif kind == 2 and place < len(data):
                data[place] ^= 1 << chance.randrange(8)
            else:
                data[place:place] = data[chance.randrange(len(data) or 1):][:30]
        return bytes(data)

    def hostile_policy(self, chance):
        """The third workspace comes, changes and goes, while it has connections."""
        self.proxy.register("w3", {"address": "10.8.16.1"}, policy=POLICY, transformations=RULES)
        with contextlib.suppress(OSError), self.proxy.connect("10.8.16.1") as stream:
            stream.sendall(connect_request("api.example.com"))
            self.proxy.patch("w3", policy={"mode": "deny-all"}, close_denied=True)
            if chance.random() < 0.5:
                self.proxy.admin("DELETE", "/v1/workspaces/w3")
        self.ending.wait(0.05)

    def watch(self):
        """Takes stock of what went out as it goes."""
        while not self.ending.wait(0.2):
            self.check()
        self.check()

    def check(self):
        for one in self.world.wire.take() + self.world.own_wire.take():
            if one[1:] not in ((PUBLIC, 443), (PUBLIC_TLS, 443), (PUBLIC, 80), ("8.8.8.8", 53)):
                self.fault(f"dialled {one}")
        asked, self.world.names.asked[:] = list(self.world.names.asked), []
        for name, _ in asked:
            if not NAMES.fullmatch(name):
                self.fault(f"asked for {name}")
        with self.world.servers.lock:
            done = [seen for seen in self.world.servers.seen if seen.ended]
            self.world.servers.seen = [seen for seen in self.world.servers.seen if not seen.ended]
        for seen in done:
            if seen.address == PUBLIC and seen.port == 443 and seen.data and \
                    not (seen.data[0] == 22 and re.search(NAMES.pattern.encode(), seen.data, re.I)):
                self.fault(f"upstream got {bytes(seen.data[:50])}")
            if seen.address == PUBLIC and SECRET.encode() in seen.data:
                self.fault("the secret left without TLS")


def size_of(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        resident = int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))
    return resident, len(os.listdir(f"/proc/{process.pid}/fd"))


def test_good_and_hostile_guests_at_once(start, world, authority):
    proxy = start(timeouts={"head": 500, "hello": 500, "connect": 1000, "idle": 5000})
    for name, source in (("w1", GUEST), ("w2", OTHER_GUEST)):
        proxy.register(name, {"address": source}, policy=POLICY, transformations=RULES,
                       limits={"connections": 64, "rate": 100_000})
    kind = application()
    kind.gate.set()
    kind.told = type("Few", (list,), {"append": lambda self, one: None})()
    context = authority.context("api.example.com")
    world.servers.behind[PUBLIC_TLS] = over_tls(context, serve(kind))
    world.names.set("api.example.com", PUBLIC_TLS)
    world.names.set("echo.cdn.example.net", PUBLIC)

    def serve_public(seen):
        seen.read_once()
        if b"echo.cdn.example.net" not in seen.data:
            with contextlib.suppress(OSError):
                seen.stream.sendall(ALERT)
            while not seen.ended:
                seen.read_once()
            return
        seen.stream.sendall(seen.data)
        while piece := seen.stream.recv(1 << 17):
            seen.stream.sendall(piece)
        seen.ended = True
    world.servers.by_port[443] = serve_public
    soak = Soak(proxy, world)
    work = [soak.good_tunnel, soak.good_route, soak.good_http, soak.hostile_head,
            soak.hostile_head, soak.hostile_hello, soak.hostile_hello, soak.hostile_random,
            soak.hostile_stranger, soak.hostile_slow, soak.hostile_route, soak.hostile_policy]
    threads = [threading.Thread(target=soak.repeat, args=(one,)) for one in work]
    threads.append(threading.Thread(target=soak.watch))
    for thread in threads:
        thread.start()
    sizes = [measure(proxy, soak, SECONDS * share) for share in (0.5, 0.5)]
    soak.ending.set()
    for thread in threads:
        thread.join()
    del world.servers.by_port[443]
    print(f"seed {SEED}, {soak.counts}, KiB and descriptors: {sizes}")
    assert not soak.faults, (SEED, soak.faults[:10])
    assert all(soak.counts.get(one.__name__, 0) > SECONDS / 2 for one in work), soak.counts
    await_true(lambda: proxy.metrics()["sandbox_egress_connections"] == 0, "every end")
    assert proxy.is_alive()
    if not os.environ.get("SANDBOX_TEST_SANITIZED"):
        assert sizes[1][0] - sizes[0][0] < 2048, sizes
    await_true(lambda: size_of(proxy.process)[1] <= 40, "descriptors given back")


def measure(proxy, soak, seconds):
    """The largest of the last second, so that one moment does not decide."""
    end = time.monotonic() + seconds
    found = []
    while time.monotonic() < end and not soak.faults:
        soak.ending.wait(0.1)
        found.append(size_of(proxy.process))
    return max(found[-10:], default=(0, 0))
