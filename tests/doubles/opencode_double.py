#!/usr/bin/python3
"""A double of the opencode server (1.18): what it answers to those who ask whether anybody works.

    opencode_double.py SCENARIO

Listens on a free port of 127.0.0.1 and prints "ready PORT". Standard library only: it runs inside
a workspace. Every request is noted in requests.log in the current directory, one line each.
"""

import base64
import http.server
import json
import os
import pty
import socketserver
import sys
import time
import urllib.parse

SCENARIO = sys.argv[1]
OWN, PROJECT, TREE = "/srv/own", "/srv/a project", "/srv/tree"
PLAIN, LATE = "/srv/plain", "/srv/late"
PASSWORD = "correct horse"
PAGE = 500
LOG = open("requests.log", "a", encoding="utf-8", buffering=1)
started = []  # processes of terminals
statuses_asked = {}


def directories() -> list[str]:
    """Of the sessions, the newest first."""
    if SCENARIO == "many-directories":
        return [f"/srv/d{number}" for number in range(2000)]
    if SCENARIO == "second-page":
        return [PLAIN] * PAGE + [LATE]
    if SCENARIO == "relative-directory":
        return ["etc"]
    return [PLAIN]


def v1_status(directory: str) -> object:
    statuses_asked[directory] = statuses_asked.get(directory, 0) + 1
    busy = {"ses_one": {"type": "busy"}}
    retry = {"ses_one": {"type": "retry", "attempt": 2, "message": "overloaded", "next": 1}}
    table = {
        ("busy", PLAIN): busy,
        ("busy-project", PROJECT): busy,
        ("busy-tree", TREE): busy,
        ("busy-own", OWN): busy,
        ("second-page", LATE): busy,
        ("retry", PLAIN): retry,
        ("said-idle", PLAIN): {"ses_one": {"type": "idle"}},
        ("controls", PLAIN): {"ses_\u001b[31m\nx" * 40: {"type": "bu\tsy" * 40}},
        ("list-for-object", PLAIN): ["ses_one"],
        ("untyped", PLAIN): {"ses_one": {}},
    }
    if SCENARIO == "busy-later" and statuses_asked[directory] > 1:
        return busy
    return table.get((SCENARIO, directory), {})


def terminal(directory: str) -> list[dict[str, object]]:
    return [{"id": "pty_one", "title": "t", "command": "/bin/bash", "args": ["-l"],
             "cwd": directory, "status": "running", "pid": pid} for pid in started]


def answer(path: str, query: dict[str, list[str]]) -> object:
    """What is JSON; None where there is no such path."""
    directory = query.get("directory", query.get("location[directory]", [OWN]))[0]
    if path == "/path":
        return {"home": "/home/x", "worktree": "/", "directory": OWN}
    if path == "/project":
        return [{"id": "global", "worktree": "/", "sandboxes": []},
                {"id": "f558", "worktree": PROJECT, "vcs": "git", "sandboxes": [TREE]}]
    if path == "/session/status":
        return v1_status(directory)
    if path == "/pty":
        return terminal(directory) if SCENARIO.endswith("v1") and directory == PLAIN else []
    if path == "/api/session/active":
        running = {"ses_two": {"type": "running"}} if SCENARIO.startswith("busy-v2") else {}
        return {"data": running}
    if path == "/api/session/ses_two" and SCENARIO == "busy-v2":
        return {"data": {"id": "ses_two", "location": {"directory": PROJECT}}}
    if path == "/api/pty":
        listed = terminal(directory) if SCENARIO.endswith("v2") and directory == PROJECT else []
        return {"location": {"directory": directory}, "data": listed}
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def send(self, status: int, kind: str, body: bytes,
             extra: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, value: object, extra: tuple[tuple[str, str], ...] = ()) -> None:
        self.send(200, "application/json", json.dumps(value).encode(), extra)

    def send_sessions(self, query: dict[str, list[str]]) -> None:
        everywhere = directories()
        begin = int(query.get("cursor", ["0"])[0])
        end = min(begin + min(int(query["limit"][0]), PAGE), len(everywhere))
        sessions = [{"id": f"ses_{number}", "directory": everywhere[number], "title": "a, b"}
                    for number in range(begin, end)]
        if SCENARIO == "endless-pages":
            self.send_json(sessions, (("x-next-cursor", "0"),))
        elif end < len(everywhere):
            self.send_json(sessions, (("x-next-cursor", str(end)),))
        else:
            self.send_json(sessions)

    def send_hostile(self) -> bool:
        """Whether the scenario has an answer of its own to everything."""
        if SCENARIO == "html":  # what the real one answers to paths that it does not know
            self.send(200, "text/html;charset=UTF-8", b"<!doctype html><title>opencode</title>")
        elif SCENARIO == "broken":
            self.send(500, "application/json", b'{"name":"UnknownError","data":{"message":"x"}}')
        elif SCENARIO == "no-json":
            self.send(200, "application/json", b"{} {")
        elif SCENARIO == "empty":
            self.send(200, "application/json", b"")
        elif SCENARIO == "many-items":
            self.send(200, "application/json", b"[" + b"0," * 2000000 + b"0]")
        elif SCENARIO == "redirect":
            self.send(302, "application/json", b"{}", (("Location", "http://127.0.0.1:1/"),))
        elif SCENARIO == "short":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             b"Content-Length: 100\r\n\r\n{}")
            self.close_connection = True
        elif SCENARIO == "endless-body":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
            while True:
                self.wfile.write(b" " * 65536)
        elif SCENARIO == "endless-headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                self.wfile.write(b"X-More: and more\r\n" * 1000)
        elif SCENARIO == "silent":
            time.sleep(100000)
        else:
            return False
        return True

    def do_GET(self) -> None:
        LOG.write(f"{self.command} {self.path}\n")
        given = self.headers.get("Authorization", "")
        wanted = "Basic " + base64.b64encode(f"opencode:{PASSWORD}".encode()).decode()
        if SCENARIO == "password" and given != wanted:
            self.send(401, "text/plain", b"Unauthorized",
                      (("WWW-Authenticate", 'Basic realm="Secure Area"'),))
            return
        try:
            if self.send_hostile():
                return
        except OSError:  # whoever asked has had enough
            self.close_connection = True
            return
        path, _, rest = self.path.partition("?")
        query = urllib.parse.parse_qs(rest)
        if path == "/experimental/session":
            self.send_sessions(query)
            return
        value = answer(path, query)
        if value is None:
            self.send(200, "text/html;charset=UTF-8", b"<!doctype html>")
        else:
            self.send_json(value)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *about: object) -> None:
        pass  # whoever asked has had enough


def read_until(master: int, mark: bytes) -> None:
    seen = b""
    while mark not in seen:
        seen += os.read(master, 4096)


def start_terminal() -> None:
    """A shell on a terminal: at its prompt, with a job behind it, or with one in front."""
    shell, master = pty.fork()
    if shell == 0:
        os.execv("/bin/bash", ["/bin/bash", "--norc", "--noprofile", "-i"])
    # The shell puts the words together, so that their echo is not taken for its answer.
    os.write(master, b"echo at-the''-prompt\n")
    read_until(master, b"at-the-prompt")
    if SCENARIO.startswith("job"):
        os.write(master, b"bash -c 'echo at-wo''rk; read never'\n")
        read_until(master, b"at-work")
    started.append(shell)


def main() -> None:
    if SCENARIO.startswith(("job", "prompt")):
        start_terminal()
    if SCENARIO.startswith("ended"):
        started.append(2000000000)
    if SCENARIO.startswith("no-pid"):
        started.append(-1)
    server = Server(("127.0.0.1", 0), Handler)
    print(f"ready {server.server_port}", flush=True)
    server.serve_forever()


main()
