#!/usr/bin/python3
"""What listens inside a workspace in these tests: server.py PORT. Prints "ready" once it does.

Answers a request with its method, path, headers and body as JSON; /slow with "first", then "last"
once /go was asked for; /bad with a status line that no server may say. An upgrade is answered with
the same JSON in one line, then every byte comes back.
"""

import http.server
import json
import sys
import threading

go = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def described(self) -> bytes:
        size = int(self.headers.get("content-length", 0))
        body = self.rfile.read(size)
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return json.dumps({"method": self.command, "path": self.path, "body": body.decode(),
                           "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()

    def answer(self) -> None:
        if self.headers.get("upgrade"):
            self.upgrade()
        elif self.path.startswith("/slow"):
            self.slowly()
        elif self.path.startswith("/bad"):
            self.wfile.write(b"HTTP/1.1 200 \x01\x02\r\ncontent-length: 0\r\n\r\n")
        else:
            if self.path.startswith("/go"):
                go.set()
            body = self.described()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    do_GET = do_POST = do_HEAD = do_DELETE = answer

    def slowly(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"first")
        self.wfile.flush()
        go.wait()
        self.wfile.write(b"last")
        self.close_connection = True

    def upgrade(self) -> None:
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n"
                         b"Connection: Upgrade\r\n\r\n" + self.described() + b"\n")
        while data := self.rfile.read1(65536):
            self.wfile.write(data)
        self.close_connection = True


http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
