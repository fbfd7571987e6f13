#!/usr/bin/python3
"""An API server by script: it has no objects, only answers that a test has written beforehand.

    kubernetes_double.py DIRECTORY

Serves HTTP/1.1 on free ports of 127.0.0.1 and prints "ready PLAIN TLS NAMED MUTUAL PROXY": without
TLS; with; with a certificate for "cluster.example" alone; with one that wants the client's; a proxy
(CONNECT, and plain requests). DIRECTORY then holds ca.pem, other.pem (another CA), client.pem and
client.key. Ends when its standard input does.

What it answers is a list of rules, sent as the body of POST /_script:

    [{"method": "GET", "path": "/api/…", "query": "part of it", "answers": [ANSWER, …]}, …]

The first rule that fits answers, each of its answers once, the last one for ever. An answer:
    {"code": 200, "headers": {…}, "json": … or "text": "…"}
    {"do": "reset" | "hang" | "cut", …}   instead of, or in the middle of, an answer
    {"stream": [ITEM, …], "after": "end" | "hang" | "reset" | "cut"}
An item is an object (a line), a text (as it is), or {"until": NAME}, which waits for GET /_go/NAME;
so does an answer with "until". GET /_log has all requests since the script; GET /_wait?count=N&path=P
&query=Q answers when N such requests have come; GET /_gone?count=N when N clients have left in the
middle of an answer.
"""

import http.server
import json
import os
import pathlib
import select
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

FOLDER = pathlib.Path(sys.argv[1])
PATIENCE = 20

state = threading.Condition()
rules: list[dict] = []
log: list[dict] = []
gates: set[str] = set()
gone = 0


def matching(path: str, query: str) -> int:
    return sum(1 for each in log if each["path"].startswith(path) and query in each["query"])


def answer_for(method: str, path: str, query: str) -> dict:
    for rule in rules:
        if rule.get("method", method) == method and rule["path"] == path and \
                rule.get("query", "") in query and rule["answers"]:
            answers = rule["answers"]
            return answers.pop(0) if len(answers) > 1 else answers[0]
    return {"code": 500, "json": {"kind": "Status", "message": "no rule: " + method + " " + path}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_arguments: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ssl.SSLError, TimeoutError):
            self.close_connection = True

    def parts(self) -> tuple[str, str]:
        split = urllib.parse.urlsplit(self.path)
        return split.path, urllib.parse.unquote(split.query)

    def serve(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size).decode()
        path, query = self.parts()
        if path.startswith("/_"):
            self.control(path, query, body)
            return
        with state:
            log.append({"method": self.command, "path": path, "query": query, "body": body,
                        "via": self.server.title, "port": self.client_address[1],
                        "headers": {name.lower(): value for name, value in self.headers.items()}})
            answer = answer_for(self.command, path, query)
            state.notify_all()
        self.play(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def control(self, path: str, query: str, body: str) -> None:
        global gone
        fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        with state:
            if path == "/_script":
                rules[:] = json.loads(body)
                log.clear()
                gates.clear()
                gone = 0
            elif path.startswith("/_go/"):
                gates.add(path.removeprefix("/_go/"))
            state.notify_all()
            count = int(fields.get("count", 0))
            happened = True
            if path == "/_wait":
                happened = state.wait_for(
                    lambda: matching(fields["path"], fields.get("query", "")) >= count, PATIENCE)
            elif path == "/_gone":
                happened = state.wait_for(lambda: gone >= count, PATIENCE)
            text = json.dumps({"requests": log, "happened": happened})
        self.whole(200 if happened else 504, {"Content-Type": "application/json"}, text.encode())

    def play(self, answer: dict) -> None:
        if "until" in answer:
            self.pass_gate(answer["until"])
        do = answer.get("do", "")
        if do == "reset":
            self.reset()
        elif do == "hang":
            self.hang()
        elif "stream" in answer:
            self.stream(answer)
        else:
            text = answer.get("text", json.dumps(answer.get("json", {})))
            kind = "text/plain" if "text" in answer else "application/json"
            self.whole(answer.get("code", 200),
                       {"Content-Type": kind, **answer.get("headers", {})}, text.encode(),
                       do == "cut")

    def whole(self, code: int, headers: dict, body: bytes, cut: bool = False) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def stream(self, answer: dict) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for item in answer["stream"]:
                if isinstance(item, dict) and "until" in item:
                    if not self.pass_gate(item["until"]):
                        return
                    continue
                text = item if isinstance(item, str) else json.dumps(item) + "\n"
                self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
        except OSError:
            self.left()
            return
        after = answer.get("after", "hang")
        if after == "end":
            self.wfile.write(b"0\r\n\r\n")
        elif after == "hang":
            self.hang()
        elif after == "reset":
            self.reset()
        self.close_connection = self.close_connection or after != "end"

    def pass_gate(self, name: str) -> bool:
        """False: the client has left before it was opened."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with state:
                if name in gates or state.wait_for(lambda: name in gates, 0.05):
                    return True
            if self.has_left():
                self.left()
                return False
        return True

    def has_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.read_end()

    def read_end(self) -> bool:
        try:
            return self.connection.recv(1) == b""
        except OSError:
            return True

    def hang(self) -> None:
        while not self.read_end():
            pass
        self.left()

    def left(self) -> None:
        global gone
        self.close_connection = True
        with state:
            gone += 1
            state.notify_all()

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def do_CONNECT(self) -> None:
        host, port = self.path.rsplit(":", 1)
        with state:
            log.append({"method": "CONNECT", "path": self.path, "query": "", "body": "",
                        "via": self.server.title, "port": 0,
                        "headers": {name.lower(): value for name, value in self.headers.items()}})
        with socket.create_connection((host.strip("[]"), int(port))) as far:
            self.send_response(200)
            self.end_headers()
            ends = {self.connection: far, far: self.connection}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    ends[end].sendall(data)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, title: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.title = title
        self.context = context
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)
        request.close()

    def handle_error(self, *_arguments: object) -> None:
        pass


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_certificates() -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-keyout", name + ".key", "-out", name + ".pem", "-subj",
                "/CN=" + name)
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"),
                            ("named", "subjectAltName=DNS:cluster.example"),
                            ("client", "extendedKeyUsage=clientAuth")):
        openssl("req", "-x509", *key, "-keyout", name + ".key", "-out", name + ".pem", "-subj",
                "/CN=" + name, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", extension,
                "-addext", "basicConstraints=CA:FALSE")


def server_context(name: str, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / (name + ".pem"), FOLDER / (name + ".key"))
    if wants_client:
        context.load_verify_locations(FOLDER / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def main() -> None:
    make_certificates()
    servers = [Server("plain"), Server("tls", server_context("server")),
               Server("named", server_context("named")),
               Server("mutual", server_context("server", True)), Server("proxy")]
    print("ready", *(server.server_address[1] for server in servers), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
