"""ports and port-forward."""

import json
import signal
import socket
import time
import urllib.request

import pytest
from conftest import WAIT

SERVER = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page from inside")
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
print("listening", flush=True)
server.serve_forever()
"""


@pytest.fixture
def server(sandbox, own):
    """The port that a server inside listens on."""
    with socket.socket() as probe:  # free on this machine too: the memory platform shares it
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    identity = sandbox.text("exec", "-d", "--service", own, "--", "python3", "-c", SERVER,
                            str(port)).strip()
    attached = sandbox.start("attach", own, identity, bufsize=0)
    assert attached.stdout.readline() == b"listening\n", attached.stderr.read()
    attached.send_signal(signal.SIGTERM)
    attached.wait(WAIT)
    return port


def fetch(address):
    with urllib.request.urlopen(f"http://{address}/", timeout=WAIT) as answer:
        return answer.read()


def test_ports_show_what_listens(sandbox, own, server):
    found = [one for one in sandbox.json("ports", own) if one["port"] == server]
    assert found and found[0]["address"] == "127.0.0.1"
    assert str(server) in sandbox.text("ports", own)


def test_a_forward_prints_its_address_and_carries_until_a_signal(sandbox, own, server):
    process = sandbox.start("port-forward", own, str(server), bufsize=0)
    line = process.stdout.readline().decode().split()
    assert line[0].startswith("127.0.0.1:") and line[1:] == ["->", str(server)]
    for _ in range(3):
        assert fetch(line[0]) == b"a page from inside"
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 0
    with pytest.raises(OSError):
        fetch(line[0])


def test_several_forwards_and_json(sandbox, own, server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        chosen = probe.getsockname()[1]
    process = sandbox.start("--json", "port-forward", own, f"{chosen}:{server}", f"0:{server}",
                            bufsize=0)
    text = b""
    while not text.endswith(b"]\n"):
        piece = process.stdout.read(1)
        assert piece
        text += piece
    found = json.loads(text)
    assert found[0] == {"host_address": "127.0.0.1", "host_port": chosen, "port": server}
    for one in found:
        assert fetch(f"127.0.0.1:{one['host_port']}") == b"a page from inside"
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 0


def test_a_taken_port_here_is_told(sandbox, own):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = sandbox.run("port-forward", own, f"{port}:80", code=None)
        assert result.returncode in range(1, 9) and result.stderr.startswith(b"sandbox: ")


def test_a_forward_ends_when_its_workspace_goes(sandbox):
    name = sandbox.text("create", "--expires", "1h").strip()
    process = sandbox.start("port-forward", name, "8000", bufsize=0)
    assert process.stdout.readline()
    sandbox.run("delete", name)
    assert process.wait(WAIT) == 3
    assert process.stderr.read().startswith(b"sandbox: ")


def test_a_timeout_ends_a_forward_well(sandbox, own):
    begun = time.monotonic()
    sandbox.run("--timeout", "1", "port-forward", own, "8000", code=0)
    assert time.monotonic() - begun < WAIT
