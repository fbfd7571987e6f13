"""Servers that stand behind names of the world: HTTP that answers by path, and git's own."""

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import threading
import zlib

from world import PATIENCE

PIECE = b"0123456789abcdef" * 4096


class Application(http.server.BaseHTTPRequestHandler):
    """Answers by path; `told` collects the requests as they came."""

    protocol_version = "HTTP/1.1"
    told = []
    secret = "REAL-SECRET-91ab"
    gate = threading.Event()

    def __init__(self, stream, address):
        super().__init__(stream, address, None)

    def log_message(self, *words):
        pass

    def handle_one_request(self):
        super().handle_one_request()

    def answer(self, body=b"ok", status=200, **fields):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        """Reads the body in pieces; its size and digest."""
        digest, size = hashlib.sha256(), 0
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while length := int(self.rfile.readline().split(b";")[0], 16):
                while length:
                    piece = self.rfile.read(min(length, 1 << 16))
                    digest.update(piece)
                    size, length = size + len(piece), length - len(piece)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
        else:
            left = int(self.headers.get("Content-Length", "0"))
            while left:
                piece = self.rfile.read(min(left, 1 << 16))
                if not piece:
                    break
                digest.update(piece)
                size, left = size + len(piece), left - len(piece)
        return size, digest.hexdigest()

    def do_GET(self):
        size, digest = self.body()
        path = self.path.partition("?")[0]
        self.told.append({"line": self.requestline, "fields": list(self.headers.items()),
                          "size": size, "digest": digest})
        handler = getattr(self, "path_" + path.strip("/").replace("/", "_").replace("-", "_"), None)
        if handler is not None:
            handler()
        else:
            self.answer(json.dumps({"size": size, "digest": digest}).encode())

    do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def path_events(self):
        """Server-sent events, each only after the one before was let through by the test."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(5):
            self.chunk(b"data: event %d\n\n" % number)
            assert self.gate.wait(PATIENCE)
            self.gate.clear()
        self.wfile.write(b"0\r\n\r\n")

    def path_held(self):
        """As long as the test wishes."""
        assert self.gate.wait(PATIENCE)
        self.answer(b"held until now")

    def path_large(self):
        """64 MiB."""
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 26))
        self.end_headers()
        for _ in range((1 << 26) // len(PIECE)):
            self.wfile.write(PIECE)

    def path_echo_field(self):
        self.answer(X_Debug=self.secret, Set_Cookie=f"key={self.secret}")

    def path_echo_identity(self):
        self.answer(f'{{"you sent": "{self.secret}", "again": "{self.secret}"}}'.encode())

    def path_echo_gzip(self):
        self.answer(gzip.compress(self.secret.encode()), Content_Encoding="gzip")

    def path_echo_deflate(self):
        self.answer(zlib.compress(self.secret.encode()), Content_Encoding="deflate")

    def path_echo_zstd(self):
        """A frame of one raw block."""
        size = len(self.secret)
        packed = (b"\x28\xb5\x2f\xfd\x20" + bytes([size])
                  + (size << 3 | 1).to_bytes(3, "little") + self.secret.encode())
        self.answer(packed, Content_Encoding="zstd")

    def path_echo_br(self):
        """One stored block."""
        last = len(self.secret) - 1
        packed = (bytes([0x0b | (last & 1) << 7, last >> 1, 0x80]) + self.secret.encode()
                  + b"\x03")
        self.answer(packed, Content_Encoding="br")

    def path_echo_two(self):
        self.answer(gzip.compress(gzip.compress(self.secret.encode())),
                    Content_Encoding="gzip, gzip")

    def path_echo_strange(self):
        self.answer(self.secret.encode(), Content_Encoding="x-own")

    def path_echo_bytes(self):
        """Each byte of the secret in a chunk of its own."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for byte in f"before {self.secret} after".encode():
            self.chunk(bytes([byte]))
        self.wfile.write(b"0\r\n\r\n")

    def path_echo_trailer(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Last")
        self.end_headers()
        self.chunk(b"body")
        self.wfile.write(f"0\r\nX-Last: {self.secret}\r\n\r\n".encode())

    def path_echo_error(self):
        self.answer(f"no such key: {self.secret}".encode(), status=401,
                    WWW_Authenticate=f'Bearer error="{self.secret}"')

    def path_echo_reason(self):
        self.wfile.write(f"HTTP/1.1 200 {self.secret}\r\nContent-Length: 2\r\n\r\nok".encode())

    def path_redirect(self):
        self.answer(b"", status=307, Location=f"https://evil.test/?k={self.secret}")

    def path_close(self):
        """Breaks off in the middle of a body."""
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"half")
        self.close_connection = True


def application():
    """A kind of its own, so that tests do not see each other's requests."""
    return type("Own", (Application,), {"told": [], "gate": threading.Event()})


def serve(kind):
    """A handler of connections that speaks for that application."""
    return lambda seen: kind(seen.stream, (seen.address, seen.port))


def git_application(folder, authorization=None):
    """git's own server over HTTP; asks for those credentials."""
    class Git(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        told = []

        def __init__(self, stream, address):
            super().__init__(stream, address, None)

        def log_message(self, *words):
            pass

        def do_GET(self):
            path, _, query = self.path.partition("?")
            data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.told.append(self.headers.get("Authorization"))
            if authorization and self.headers.get("Authorization") != authorization:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            environment = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
                "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
                "REMOTE_USER": "somebody",
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", "")}
            said = subprocess.run(["git", "http-backend"], input=data, capture_output=True,
                                  env=environment, check=True, timeout=PATIENCE).stdout
            head, _, body = said.partition(b"\r\n\r\n")
            fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
            status = next((value for name, value in fields if name == "Status"), "200")
            self.send_response(int(status.split()[0]))
            for name, value in fields:
                if name != "Status":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET
    return Git
