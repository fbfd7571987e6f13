"""What a guest has: a port of its loopback that leads to the proxy, and the tools people use."""

import contextlib
import os
import re
import select
import socket
import subprocess
import threading

from targets import preface
from world import GUEST, PATIENCE

POLICY = {"mode": "custom", "allow": ["api.example.com", "*.cdn.example.net", "github.com"],
          "http": ["deb.example.org"], "ech": "deny"}
SECRET, PLACEHOLDER = "REAL-SECRET-91ab", "PLACEHOLDER-5f2c"
RULES = [
    {"match": {"host": "api.example.com",
               "headers": [{"name": "x-api-key", "value_exact": PLACEHOLDER}]},
     "set": {"x-api-key": SECRET}},
    {"match": {"host": "github.com",
               "headers": [{"name": "authorization", "value_exact": "Basic UExBQ0VIT0xERVI="}]},
     "set": {"authorization": "Basic UkVBTC1TRUNSRVQ="}},
]


class Relay:
    """Stands for the workspace's agent: takes connections of the guest's programs, writes the first
    line, and carries bytes and half-closes both ways."""

    def __init__(self, proxy, source=GUEST):
        self.proxy, self.source = proxy, source
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        with contextlib.suppress(OSError), near, self.proxy.connect(self.source) as far:
            other = {near: far, far: near}
            reading = [near, far]
            while reading:
                for stream in select.select(reading, [], [])[0]:
                    data = stream.recv(1 << 18)
                    if data:
                        other[stream].sendall(data)
                    else:
                        reading.remove(stream)
                        with contextlib.suppress(OSError):
                            other[stream].shutdown(socket.SHUT_WR)

    def environment(self, authority, **more):
        """What a workspace's commands are given."""
        bundle = str(authority.bundle)
        return {"PATH": os.environ["PATH"], "HOME": str(authority.directory), "LANG": "C.UTF-8",
                "HTTPS_PROXY": self.url, "https_proxy": self.url, "HTTP_PROXY": self.url,
                "http_proxy": self.url, "NO_PROXY": "127.0.0.1,localhost",
                "no_proxy": "127.0.0.1,localhost",
                "CURL_CA_BUNDLE": bundle, "SSL_CERT_FILE": bundle, "GIT_SSL_CAINFO": bundle,
                "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", **more}

    def run(self, authority, *words, seconds=PATIENCE, data=None, **more):
        return subprocess.run(words, env=self.environment(authority, **more), input=data,
                              stdin=None if data is not None else subprocess.DEVNULL,
                              capture_output=True, timeout=seconds, check=False)


def connect_request(host, port=443):
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


def ask(stream, request):
    """Sends a request; the head of the answer and the body so far."""
    stream.settimeout(PATIENCE)
    stream.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(1 << 16)
        if not piece:
            break
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), body


def read_all(stream):
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := stream.recv(1 << 18):
            data += piece
    return bytes(data)


def status_of(head):
    match = re.match(r"HTTP/1\.1 (\d{3})", head)
    return int(match.group(1)) if match else 0


def reason_of(head):
    match = re.search(r"(?i)\r\nx-proxy-error: *([a-z-]+)", head)
    return match.group(1) if match else None


def is_closed(stream, seconds=PATIENCE):
    """Whether nothing more comes and it ends."""
    stream.settimeout(seconds)
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def whole_answer(head, body, stream):
    """All of an answer whose connection is then closed, its body taken out of its chunks."""
    data = body + read_all(stream)
    if not re.search(r"(?i)\r\ntransfer-encoding: *chunked", head):
        return data
    plain = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if length == 0:
            return plain
        plain, data = plain + data[:length], data[length + 2:]
    raise AssertionError("the chunks end early")


def local_socket(path, key):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(PATIENCE)
    stream.connect(str(path))
    stream.sendall(preface(key))
    return stream
