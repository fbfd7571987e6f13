"""Servers go through checkpoint and restore, on a sentry that cannot save what is in epoll sets.

SANDBOX_RUNSC names another runsc than the one in PATH, SANDBOX_RUNSC_PLATFORM its platform.
"""
import os
import re
import secrets
import shutil
import subprocess
import tempfile

import pytest

from conftest import until
from test_gvisor import RUNSC, Sandbox

SHIM = os.environ.get("SANDBOX_SHIM", "")
STATIC_SERVER = os.environ.get("SANDBOX_STATIC_SERVER", "")
SPAWNING_SERVER = os.environ.get("SANDBOX_SPAWNING_SERVER", "")

# A server and a client of it in one process, on one connection that is never made again; the
# number of answers goes to a file.
PYTHON = """
import asyncio
async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 8000)
    reader, writer = await asyncio.open_connection("127.0.0.1", 8000)
    number = 0
    while True:
        writer.write(b"%d\\n" % number)
        assert await reader.readline() == b"%d\\n" % number
        number += 1
        with open("count", "w") as file:
            file.write(str(number))
        await asyncio.sleep(0.02)
asyncio.run(main())
"""
NODE = """
const fs = require("fs"), http = require("http");
const agent = new http.Agent({keepAlive: true, maxSockets: 1});
let number = 0, first = 0;
const server = http.createServer((request, response) => response.end("fine"));
server.on("connection", socket => { if (first++ > 0) process.exit(1); });
server.keepAliveTimeout = 0;
const ask = () => http.get({port: 8000, host: "127.0.0.1", agent}, response => {
  response.resume();
  response.on("end", () => { fs.writeFileSync("count", String(++number)); setTimeout(ask, 20); });
});
server.listen(8000, "127.0.0.1", ask);
"""
SERVERS = {"asyncio": ["/usr/bin/python3", "-c", PYTHON], "node": ["/usr/bin/node", "-e", NODE]}


def sentry_is_old():
    said = subprocess.run([RUNSC, "--version"], capture_output=True, text=True, check=True).stdout
    date = re.search(r"\b20\d{6}\b", said)
    return date is not None and date.group(0) < "20230101"


pytestmark = pytest.mark.skipif(
    RUNSC is None or os.geteuid() != 0 or not SHIM or not sentry_is_old(),
    reason="needs root and a runsc of 2022 or earlier; newer ones save what is in epoll sets")


class Workspace(Sandbox):
    """A sandbox with the library preloaded, and an agent that can be sealed."""

    def __init__(self, folder):
        self.token, self.epoch = secrets.token_bytes(32), 1
        super().__init__(folder)
        self.agent = self.caller(self.token, self.epoch)
        self.agent.open(user="sandbox", directory=b"/workspace")

    def configuration(self, bundle):
        configuration = super().configuration(bundle)
        root = bundle + "/rootfs"
        shutil.copy(SHIM, root + "/agent/sandbox-shim.so")
        if STATIC_SERVER:
            shutil.copy(STATIC_SERVER, root + "/agent/static-server")
        if SPAWNING_SERVER:
            shutil.copy(SPAWNING_SERVER, root + "/agent/spawning-server")
        with open(root + "/etc/ld.so.preload", "w", encoding="ascii") as file:
            file.write("/agent/sandbox-shim.so\n")
        os.mkdir(root + "/seal", 0o700)
        configuration["process"]["args"] += ["--seal", "/seal/seal"]
        return configuration

    def start(self, name):
        if not os.path.exists(SERVERS[name][0]):
            pytest.skip(f"needs {SERVERS[name][0]}")
        self.start_program(SERVERS[name])

    def start_program(self, argv):
        self.agent.start(argv=argv, role=1)
        until(lambda: self.count() > 3, "it serves")

    def count(self):
        return int(self.agent.run("cat count 2>/dev/null || echo 0").stdout or 0)

    def seal(self, park):
        self.epoch += 1
        operation = self.caller(self.token, self.epoch)
        assert operation.quiesce().unfinished == 0
        reply = operation.seal(park_sockets=park, timeout=60)
        operation.close()
        return reply

    def open(self, **fields):
        self.agent.close()
        self.agent = self.caller(self.token, self.epoch)
        return self.agent.open(user="sandbox", directory=b"/workspace", **fields)

    def checkpoint(self):
        self.agent.close()
        until(lambda: all(relay.poll() is not None for relay in self.relays), "the relays end", 60)
        return subprocess.run(
            self.runsc + ["checkpoint", "--image-path", f"{self.folder}/image-{self.epoch}", self.name],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False).returncode

    def restore(self):
        self.container.wait(60)
        subprocess.run(self.runsc + ["delete", "--force", self.name], capture_output=True,
                       check=False)
        self.container = subprocess.Popen(
            self.runsc + ["restore", "--image-path", f"{self.folder}/image-{self.epoch}", "--bundle",
                          self.folder + "/bundle", self.name],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until(self.answers, "the agent answers", 60)


@pytest.fixture
def workspace():
    folder = tempfile.mkdtemp(prefix="sandbox-park-")
    workspace = Workspace(folder)
    yield workspace
    workspace.agent.close()
    workspace.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", SERVERS)
def test_a_parked_servers_connection_goes_on_after_a_restore(workspace, name):
    workspace.start(name)
    for _ in range(2):
        reply = workspace.seal(park=True)
        assert not reply.obstacles
        assert reply.parked == 1
        assert workspace.checkpoint() == 0
        workspace.restore()
        workspace.open(seal_hash=reply.seal_hash, restored=True)
        before = workspace.count()
        until(lambda: workspace.count() > before + 3, "it goes on")


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_goes_on_when_the_seal_is_undone(workspace, name):
    workspace.start(name)
    reply = workspace.seal(park=True)
    assert reply.parked == 1
    workspace.open(seal_hash=reply.seal_hash)
    before = workspace.count()
    until(lambda: workspace.count() > before + 3, "it goes on")


@pytest.mark.skipif(not SPAWNING_SERVER, reason="needs a server that starts programs")
def test_children_that_borrow_a_servers_memory_do_not_speak_for_it(workspace):
    workspace.start_program(["/agent/spawning-server"])
    reply = workspace.seal(park=True)
    assert not reply.obstacles
    assert reply.parked >= 1  # a child may be under way
    assert workspace.checkpoint() == 0
    workspace.restore()
    workspace.open(seal_hash=reply.seal_hash, restored=True)
    before = workspace.count()
    until(lambda: workspace.count() > before + 3, "it goes on")


def test_without_parking_the_checkpoint_fails(workspace):
    workspace.start("asyncio")
    assert workspace.seal(park=False).parked == 0
    assert workspace.checkpoint() != 0


@pytest.mark.skipif(not STATIC_SERVER, reason="needs a statically linked server")
def test_a_static_server_is_named_and_goes_on(workspace):
    workspace.start("asyncio")
    id = workspace.agent.start(argv=["/agent/static-server"], role=1)
    reader = workspace.agent.attach(id)
    pid = next(reader).pid
    while next(reader).data != b"ready\n":
        pass
    reader.cancel()
    reply = workspace.seal(park=True)
    assert reply.seal_hash == b"" and reply.stopped == 0
    assert [(one.pid, one.command) for one in reply.obstacles] == [(pid, b"/agent/static-server")]
    workspace.open()
    before = workspace.count()
    until(lambda: workspace.count() > before + 3, "the other one serves as before")
    assert [info.running for info in workspace.agent.list() if info.id == id] == [True]
