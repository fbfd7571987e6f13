"""A small internet for one proxy: two network namespaces of our own, joined by one cable.

The tests live in the first, the *world*. Every address there is local, so a server that listens on
all addresses answers for any of them, and whatever the proxy dials, it dials us. The proxy lives in
the second, at 10.8.16.2, with an external address beside it. What it sends is seen on the cable:
`Wire.take()` tells each connection it tried and each datagram, to whatever address. Needs root.
"""

import contextlib
import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading
import time

PATIENCE = 30  # seconds; only a failure ever waits that long
PROXY, GATE, EXTERNAL = "10.8.16.2", "10.8.16.1", "34.120.0.1"
GUEST, OTHER_GUEST, STRANGER = "10.8.0.5", "10.8.0.9", "10.8.0.77"
RESOLVER = "8.8.8.8"
PUBLIC, PUBLIC_TLS, SILENT = "93.184.216.34", "93.184.216.40", "93.184.216.99"
SERVER_PORTS = (22, 80, 443, 8080, 8443)
NEW_NETWORK = 0x40000000
RECEIVE_QUEUE_FORCED, ATTACH_FILTER, ETHERTYPE_ALL = 33, 26, 3
OUTGOING = 4

library = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)


def await_true(is_true, what="it"):
    """Polls: a test has no better way to hear of it."""
    end = time.monotonic() + PATIENCE
    while not (found := is_true()):
        assert time.monotonic() < end, f"{what} did not come true"
        time.sleep(0.005)
    return found


class Namespace:
    """A network namespace, kept by a descriptor."""

    def __init__(self):
        made = []

        def make():
            checked(library.unshare(NEW_NETWORK))
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if not made:
            raise OSError("no network namespace can be made here")
        self.descriptor = made[0]

    @property
    def path(self):
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def run(self, work):
        """Only the calling thread changes its namespace, so this takes a thread."""
        results = []

        def inside():
            checked(library.setns(self.descriptor, NEW_NETWORK))
            results.append(work())
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        return results[0]

    def command(self, *words):
        return ["nsenter", f"--net={self.path}", "--", *words]


class Wire:
    """Attempts to connect, and datagrams, that come in on one interface."""

    # Accepts a TCP segment with SYN and without ACK, and UDP, of IPv4 and IPv6.
    PROGRAM = [(0x30, 0, 0, 0), (0x54, 0, 0, 0xf0), (0x15, 0, 7, 0x40), (0x30, 0, 0, 9),
               (0x15, 13, 0, 17), (0x15, 0, 11, 6), (0xb1, 0, 0, 0), (0x50, 0, 0, 13),
               (0x54, 0, 0, 0x12), (0x15, 8, 7, 2), (0x15, 0, 6, 0x60), (0x30, 0, 0, 6),
               (0x15, 5, 0, 17), (0x15, 0, 3, 6), (0x30, 0, 0, 53), (0x54, 0, 0, 0x12),
               (0x15, 1, 0, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xffff)]

    def __init__(self, interface):
        code = ctypes.create_string_buffer(
            b"".join(struct.pack("HBBI", *step) for step in self.PROGRAM))
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, RECEIVE_QUEUE_FORCED, 1 << 25)
        self.socket.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER,
                               struct.pack("HL", len(self.PROGRAM), ctypes.addressof(code)))
        self.socket.bind((interface, ETHERTYPE_ALL))
        self.socket.setblocking(False)

    def take(self):
        """All since the last time: ("tcp" or "udp", address, port)."""
        found = []
        while True:
            try:
                packet, (_, _, kind, _, _) = self.socket.recvfrom(2048)
            except BlockingIOError:
                return found
            if kind != OUTGOING:
                found.append(self.read(packet))

    @staticmethod
    def read(packet):
        if packet[0] >> 4 == 4:
            protocol, place = packet[9], (packet[0] & 15) * 4
            address = socket.inet_ntop(socket.AF_INET, packet[16:20])
        else:
            protocol, place = packet[6], 40
            address = socket.inet_ntop(socket.AF_INET6, packet[24:40])
        name = {6: "tcp", 17: "udp"}[protocol]
        return name, address, struct.unpack(">H", packet[place + 2:place + 4])[0]


class Names:
    """A DNS server: what each name means, and what was asked."""

    def __init__(self):
        self.answers, self.asked, self.delay = {}, [], threading.Event()
        self.anything = PUBLIC  # what every other name means; None: there is no such name
        self.delay.set()
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind((RESOLVER, 53))
        self.streams = socket.create_server((RESOLVER, 53), backlog=64)
        threading.Thread(target=self.serve_datagrams, daemon=True).start()
        threading.Thread(target=self.serve_streams, daemon=True).start()

    def set(self, name, *addresses, then=()):
        """`then` is what the second question for the name is answered with."""
        self.answers[name] = [list(addresses), list(then)]

    def serve_datagrams(self):
        while True:
            question, sender = self.datagrams.recvfrom(4096)
            self.delay.wait(PATIENCE)
            self.datagrams.sendto(self.answer(question), sender)

    def serve_streams(self):
        while True:
            stream, _ = self.streams.accept()
            with stream, contextlib.suppress(OSError, struct.error):
                size = struct.unpack(">H", stream.recv(2))[0]
                said = self.answer(stream.recv(size))
                stream.sendall(struct.pack(">H", len(said)) + said)

    def answer(self, question):
        labels, place = [], 12
        while question[place]:
            labels.append(question[place + 1:place + 1 + question[place]].decode("latin-1"))
            place += 1 + question[place]
        name, kind = ".".join(labels).lower(), struct.unpack(">H", question[place + 1:place + 3])[0]
        self.asked.append((name, kind))
        known = name in self.answers or self.anything is not None
        records = []
        for address in self.addresses_for(name, kind) if known else []:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (28 if family == socket.AF_INET6 else 1):
                data = socket.inet_pton(family, address)
                records.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data)
        flags = 0x8180 if known else 0x8183
        return (question[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
                + question[12:place + 5] + b"".join(records))

    def addresses_for(self, name, kind):
        first, then = self.answers.get(name, ([self.anything], ()))
        again = then and self.asked.count((name, kind)) > 1
        return then if again else first


class Seen:
    """One connection that came to us."""

    def __init__(self, stream, address, port):
        self.stream, self.address, self.port = stream, address, port
        self.data, self.ended, self.broken = bytearray(), False, False

    def read_once(self):
        piece = b""
        try:
            piece = self.stream.recv(1 << 16)
        except OSError:
            self.broken = True
        self.data += piece
        self.ended = not piece
        return piece


def record(seen):
    """What stands behind port 443 unless a test says otherwise: answers the first bytes with an
    alert, and keeps all."""
    if seen.read_once():
        with contextlib.suppress(OSError):
            seen.stream.sendall(ALERT)
    while not seen.ended:
        seen.read_once()


ALERT = b"\x15\x03\x03\x00\x02\x02\x28"


def read_request(seen):
    """One HTTP request, kept as it came; what more comes at once is read too."""
    while b"\r\n\r\n" not in seen.data and not seen.ended:
        seen.read_once()
    head, _, _ = bytes(seen.data).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")[1:]
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    start = len(head) + 4
    if "chunked" in fields.get("transfer-encoding", ""):
        while not bytes(seen.data[start:]).startswith(b"0\r\n") \
                and b"\r\n0\r\n" not in seen.data[start:] and not seen.ended:
            seen.read_once()
    else:
        size = fields.get("content-length", "0").strip()
        size = int(size) if size.isdecimal() else 0
        while len(seen.data) < start + size and not seen.ended:
            seen.read_once()


def answer_with(said):
    def serve(seen):
        read_request(seen)
        with contextlib.suppress(OSError):
            seen.stream.sendall(said)
            seen.stream.shutdown(socket.SHUT_WR)
        while not seen.ended:
            seen.read_once()
    return serve


answer_ok = answer_with(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


class Servers:
    """Listens on every address of the world. What answers is chosen by address, then by port."""

    def __init__(self):
        self.seen, self.behind, self.lock = [], {}, threading.Lock()
        self.by_port = {80: answer_ok, 8080: answer_ok}
        for port in SERVER_PORTS:
            for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                listener = socket.socket(family, socket.SOCK_STREAM)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((address, port))
                listener.listen(1024)
                threading.Thread(target=self.accept, args=(listener, port), daemon=True).start()

    def accept(self, listener, port):
        while True:
            stream, _ = listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            seen = Seen(stream, stream.getsockname()[0], port)
            with self.lock:
                self.seen.append(seen)
            threading.Thread(target=self.serve, args=(seen,), daemon=True).start()

    def serve(self, seen):
        handler = self.behind.get(seen.address) or self.by_port.get(seen.port) or record
        with contextlib.suppress(OSError), seen.stream:
            handler(seen)

    def take(self):
        with self.lock:
            seen, self.seen = self.seen, []
        return seen

    def await_one(self, is_it=lambda seen: True):
        return await_true(lambda: next((one for one in self.seen if is_it(one)), None),
                          "a connection upstream")


class World:
    """Everything together; one of them in a process, for it stays in its namespace."""

    def __init__(self):
        checked(library.unshare(NEW_NETWORK))
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sandbox-egress-test."))
        self.inside = Namespace()
        self.lay_cable()
        self.wire = Wire("outside")
        self.own_wire = self.inside.run(lambda: Wire("lo"))
        self.names, self.servers = Names(), Servers()

    def lay_cable(self):
        ip("link", "set", "lo", "up")
        ip("link", "add", "outside", "type", "veth", "peer", "name", "inside")
        ip("link", "set", "inside", "netns", self.inside.path)
        for address in (f"{GATE}/28", f"{GUEST}/32", f"{OTHER_GUEST}/32", f"{STRANGER}/32",
                        f"{RESOLVER}/32"):
            ip("addr", "add", address, "dev", "outside")
        ip("addr", "add", "fd08::1/64", "dev", "outside", "nodad")
        ip("link", "set", "outside", "up")
        # A source address is ours only if the table "local" says so; what is longer goes first.
        for route in (("-4", "10.8.16.0/28", "dev", "outside", "src", GATE),
                      ("-4", "local", "default", "dev", "lo"),
                      ("-4", "blackhole", f"{SILENT}/32"),
                      ("-6", "fd08::2/128", "dev", "outside"),
                      ("-6", "local", "default", "dev", "lo")):
            ip(route[0], "route", "add", *route[1:], "table", "local")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{PROXY}/28", "dev", "inside"),
                      ("addr", "add", f"{EXTERNAL}/32", "dev", "inside"),
                      ("addr", "add", "fd08::2/64", "dev", "inside", "nodad"),
                      ("link", "set", "inside", "up"), ("route", "add", "default", "via", GATE),
                      ("-6", "route", "add", "default", "via", "fd08::1")):
            subprocess.run(self.inside.command("ip", *words), check=True, timeout=PATIENCE)

    def reset(self):
        """Between tests: nothing is left over from the one before."""
        self.names.answers.clear()
        self.names.asked.clear()
        self.names.anything = PUBLIC
        self.names.delay.set()
        self.servers.behind.clear()
        self.servers.take()
        self.wire.take()
        self.own_wire.take()

    def attempts(self):
        """What the proxy dialled since the last call, its questions to the resolver left out."""
        return [one for one in self.wire.take() + self.own_wire.take()
                if one[1:] != (RESOLVER, 53)]

    def dial(self, source=GUEST, port=3128, proxy=PROXY):
        return socket.create_connection((proxy, port), PATIENCE, (source, 0))
