"""Over HTTP: a cluster's API, as a server here plays it, and a whole double of one."""

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from conftest import ROOT, end_platform, run_python, wait_until

import libsandbox

URI = "gke://here/agents?pool=pool"


class Api(http.server.BaseHTTPRequestHandler):
    """Answers with the next of `answers`: (code, headers, body, in pieces), the last one again and
    again, or where they go round with all of them."""

    protocol_version = "HTTP/1.1"
    answers, asked, round = [], [], False

    def do_GET(self):
        self.asked.append((self.path, time.monotonic()))
        code, headers, body, in_pieces = self.answers[0]
        if len(self.answers) > 1:
            first = self.answers.pop(0)
            if self.round:
                self.answers.append(first)
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header(*(("Transfer-Encoding", "chunked") if in_pieces
                           else ("Content-Length", str(len(data)))))
        self.end_headers()
        if not in_pieces:
            self.wfile.write(data)
            return
        for begin in range(0, len(data), 7):
            piece = data[begin:begin + 7]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


EMPTY = {"kind": "SandboxList", "apiVersion": "agents.x-k8s.io/v1beta1",
         "metadata": {"resourceVersion": "1"}, "items": []}


def status(code, reason, message):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
            "code": code, "message": message}


@pytest.fixture
def api(tmp_path, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        config = tmp_path / "config"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t0ken"}}]}))
        monkeypatch.setenv("KUBECONFIG", str(config))
        Api.asked, Api.round = [], False
        yield Api
        server.shutdown()


def test_p056_retry_after_is_kept_within_the_callers_deadline(api):
    busy = (429, {"Retry-After": "1"}, status(429, "TooManyRequests", "later"), False)
    api.answers = [busy, (200, {}, EMPTY, False)]
    with libsandbox.Client(URI) as client:
        assert client.list_workspaces() == []
        times = [when for _, when in api.asked]
        assert max(after - before for before, after in zip(times, times[1:])) >= 0.99
        api.answers = [(429, {"Retry-After": "20"}, status(429, "TooManyRequests", "later"),
                        False)]
        began = time.monotonic()
        with pytest.raises((libsandbox.TimedOut, libsandbox.Unavailable)):
            client.list_workspaces(timeout=0.5)
        assert time.monotonic() - began < 3
        cancel = libsandbox.Cancel()
        timer = threading.Timer(0.1, cancel.trigger)
        timer.start()
        began = time.monotonic()
        with pytest.raises(libsandbox.Cancelled):
            client.list_workspaces(cancel=cancel)
        assert time.monotonic() - began < 3


def test_p178_what_comes_in_chunks_is_read_whole(api):
    api.answers = [(200, {}, EMPTY, True)]
    with libsandbox.Client(URI) as client:
        assert client.list_workspaces() == []
        api.answers = [(403, {}, status(403, "Forbidden", "not you, said in pieces"), True)]
        with pytest.raises(libsandbox.Denied, match="said in pieces") as raised:
            client.list_workspaces()
    error = raised.value
    assert (error.http_status, error.reason) == (403, "kubernetes-denied")
    assert "t0ken" not in str(error) + repr(error)


LOG = """
import logging, sys, threading, time
import libsandbox
lines, done = [], threading.Event()
def take(level, line):
    lines.append((level, line, threading.get_ident()))
    done.set()
    raise ZeroDivisionError  # told of, and the log goes on
told = []
sys.unraisablehook = told.append
libsandbox.set_log("debug", take)
client = libsandbox.Client(sys.argv[1])
client.list_workspaces()
assert done.wait(30) and told
assert all(level in ("error", "warning", "info", "debug") for level, _, _ in lines)
assert all("\\n" not in line and "t0ken" not in line for _, line, _ in lines)
assert threading.get_ident() not in [thread for _, _, thread in lines]
libsandbox.set_log("off")
libsandbox.set_log("debug")
seen = threading.Event()
class Handler(logging.Handler):
    def emit(self, record):
        assert record.name == "libsandbox" and record.levelname == "DEBUG"
        seen.set()
logging.getLogger("libsandbox").addHandler(Handler())
logging.getLogger("libsandbox").setLevel("DEBUG")
client.list_workspaces()
assert seen.wait(30)
try:
    libsandbox.set_log("loud")
    raise SystemExit("a level that is none was taken")
except ValueError:
    pass
"""


def test_the_log_is_told_on_a_thread_of_pythons(api):
    busy = (429, {"Retry-After": "0"}, status(429, "TooManyRequests", "later"), False)
    good = (200, {}, EMPTY, False)
    api.answers, api.round = [busy, good], True
    run_python(LOG, URI)


@pytest.fixture
def double(monkeypatch):
    """A cluster whose Pods are processes here."""
    modules = [sys.executable, "-c", "import aiohttp, yaml, jsonschema"]
    if subprocess.run(modules, capture_output=True, check=False).returncode != 0:
        pytest.skip("the double of a cluster needs python3-aiohttp, -yaml and -jsonschema")
    directory = tempfile.mkdtemp(prefix="sandbox-python-")
    programs = pathlib.Path(os.environ["SANDBOX_PROGRAMS"])
    with subprocess.Popen(
            [sys.executable, ROOT / "tests/doubles/cluster/cluster.py", "--directory", directory,
             "--pods", "process", "--agent", programs / "agent/sandbox-agent",
             "--shim", programs / "shim/sandbox-shim.so"], stdin=subprocess.PIPE) as cluster:
        wait_until(lambda: os.path.exists(f"{directory}/ready") or cluster.poll() is not None)
        assert cluster.poll() is None, "the double did not start"
        monkeypatch.setenv("KUBECONFIG", f"{directory}/kubeconfig")
        yield directory
        cluster.stdin.close()
        cluster.wait(60)
    end_platform(directory)


def test_p194_commands_with_and_without_input_and_terminal(double):
    with libsandbox.Client("gke://double/workspaces?pool=standard") as client, \
            client.create_workspace(temporary=True) as made:
        assert made.run("cat; echo out; echo err >&2").stdout == b"out\n"
        assert made.run("cat", input=b"in").stdout == b"in"
        process = made.start("cat; echo shown; exit 7", terminal=True)
        process.end_input()
        assert "shown\r\n" in "".join(text for _, text in process.text())
        assert process.exit.code == 7
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(f"{double}/admin.sock")
            admin.sendall(b'{"do":"log"}\n')
            requests = json.loads(admin.makefile().readline())["requests"]
        queries = [each["query"] for each in requests if "exec" in (each["verb"], each["part"])]
        # However a command is run, the channel is the same: with an input that is never missing.
        assert queries and all("stdin=true" in query and "tty=true" not in query
                               for query in queries)
