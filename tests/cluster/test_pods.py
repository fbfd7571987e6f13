"""Pods of the double that run the real agent: what was in memory goes on after a resume.

SANDBOX_AGENT_STATIC names the agent, SANDBOX_SHIM the library that is preloaded on an old gVisor.
"""

import hashlib
import importlib.util
import os
import secrets
import shutil
import sys

import pytest
from conftest import ROOT, Double
from relay import Execs
from steps import Workspace, condition, restored, uid

BINARY = os.environ.get("SANDBOX_AGENT_STATIC", "")
RUNSC = shutil.which(os.environ.get("SANDBOX_RUNSC", "runsc"))


def load_agent_client():
    """tests/agent/conftest.py, whose name is taken here."""
    described = importlib.util.spec_from_file_location("agent_client",
                                                       ROOT / "tests/agent/conftest.py")
    module = importlib.util.module_from_spec(described)
    sys.modules["agent_client"] = module
    described.loader.exec_module(module)
    return module


agent_client = load_agent_client()
guard_pb2 = agent_client.guard_pb2

pytestmark = [
    pytest.mark.skipif(not BINARY, reason="SANDBOX_AGENT_STATIC names no agent"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture(scope="module", params=["process", "gvisor"])
def whole_double(request):
    if request.param == "gvisor" and RUNSC is None:
        pytest.skip("needs runsc")
    words = ["--pods", request.param, "--agent", BINARY, "--plain"]
    if os.environ.get("SANDBOX_SHIM"):
        words += ["--shim", os.environ["SANDBOX_SHIM"]]
    if RUNSC:
        words += ["--runsc", RUNSC]
    made = Double(*words)
    made.kind = request.param
    yield made
    made.end()


@pytest.fixture(scope="module")
def whole_execs(whole_double):
    made = Execs(whole_double)
    yield made
    made.end()


class Opened:
    """A workspace, and callers of the agent in its Pod."""

    def __init__(self, workspace, execs):
        self.workspace, self.execs = workspace, execs
        self.id, self.token = secrets.token_bytes(16), secrets.token_bytes(32)
        self.stack = []

    def caller(self, epoch):
        place = self.execs.socket_to(self.workspace.sandbox_name(), secrets.token_hex(3))
        caller = agent_client.Caller(place.__enter__(), self.token, epoch, self.id)
        self.stack.append((place, caller))
        return caller

    def disconnect(self):
        while self.stack:
            place, caller = self.stack.pop()
            caller.close()
            place.__exit__(None, None, None)

    def open(self, epoch, **fields):
        caller = self.caller(epoch)
        caller.open(user="sandbox", directory=b"/workspace", **fields)
        return caller

    def seal(self, epoch):
        operation = self.caller(epoch)
        operation.quiesce()
        reply = operation.seal()
        self.disconnect()
        return reply.seal_hash


@pytest.fixture
def opened(double, whole_execs):
    workspace = Workspace(double)
    made = Opened(workspace, whole_execs)
    yield made
    made.disconnect()
    double.tell(do="clear")
    workspace.remove()


def is_proven(opened, epoch, seal_hash):
    """Whether the agent, which must be sealed, holds that seal in its memory."""
    caller = opened.caller(epoch)
    assert caller.health().gate == guard_pb2.GATE_SEALED
    proof = caller.prove()
    return proof.in_memory and hashlib.sha256(proof.nonce).digest() == seal_hash


def test_exec(double, whole_execs):
    workspace = Workspace(double)
    pod = workspace.sandbox_name()
    assert whole_execs.run(pod, "/bin/sh", "-c", "echo out; echo err >&2; exit 42") == \
        (42, b"out\n", b"err\n")
    code, said, _ = whole_execs.run(pod, "/bin/sh", "-c",
                                    "id -u; pwd; echo $HOME; touch /usr/x && echo written")
    assert code != 0 and said.decode().splitlines() == ["1000", "/workspace", "/home/sandbox"]
    assert whole_execs.run(pod, "/bin/sh", "-c", "kill -9 $$")[0] == 137
    assert whole_execs.run(pod, "no-such-program")[0] not in (0, None)
    workspace.remove()


def test_what_was_in_memory_goes_on(opened):
    workspace = opened.workspace
    agent = opened.open(1)
    counter = agent.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done")
    agent.run("echo kept > file")
    before = uid(workspace.pod())
    for number in range(2):
        agent_client.until(lambda: output_of(agent, counter) > 20, "it counts")
        epoch = 2 * number + 2
        seal_hash = opened.seal(epoch)
        name = workspace.take()
        workspace.suspend()
        pod = workspace.resume()
        assert uid(pod) != before and name in restored(pod)[1]
        before = uid(pod)
        assert is_proven(opened, epoch + 1, seal_hash)
        opened.disconnect()
        agent = opened.open(epoch + 1, seal_hash=seal_hash, restored=True)
        known = output_of(agent, counter)
        agent_client.until(lambda known=known: output_of(agent, counter) > known + 20,
                           "it counts on")
        assert agent.run("cat file").stdout == b"kept\n"
    agent.signal(counter, 9)
    lines = agent.collect(counter).stdout.split()
    assert lines == [b"%d" % (number + 1) for number in range(len(lines))], "without a gap"


def output_of(agent, process):
    return next(one for one in agent.list() if one.id == process).output_bytes


def test_a_snapshot_outlives_restores_that_are_given_up(opened):
    workspace = opened.workspace
    opened.open(1).start("exec sleep 1000")
    seal_hash = opened.seal(2)
    name = workspace.take()
    for how in (None, "cold", "condition-absent", "replaced", "restarted", "crash"):
        workspace.suspend()
        if how:
            workspace.behave(how)
        workspace.mode("Running")
        if how == "crash":
            workspace.until(lambda: (workspace.pod() or {}).get("status", {}).get(
                "containerStatuses", [{"restartCount": 0}])[0]["restartCount"] > 0, "it crashes")
        else:
            workspace.await_running()
    workspace.suspend()
    pod = workspace.resume()
    assert name in restored(pod)[1] and is_proven(opened, 3, seal_hash)


def test_an_agent_of_a_cold_start_knows_nothing(opened):
    workspace = opened.workspace
    opened.open(1)
    opened.seal(2)
    workspace.take()
    workspace.suspend()
    workspace.behave("cold-lying")
    assert restored(workspace.resume())[0] == "True"
    assert opened.caller(3).health().gate == guard_pb2.GATE_NOT_OPENED


def test_a_container_that_is_started_again_has_its_files_only(opened):
    workspace = opened.workspace
    opened.open(1).run("echo kept > file")
    opened.seal(2)
    workspace.take()
    workspace.suspend()
    workspace.behave("restarted", ms=100)
    first = workspace.resume()
    pod = workspace.until(lambda: workspace.pod()["status"]["containerStatuses"][0]["restartCount"]
                          and workspace.pod(), "it is started again")
    workspace.await_running()
    assert uid(pod) == uid(first) and restored(pod)[0] == "True"
    code, said, _ = opened.execs.run(workspace.sandbox_name(), "cat", "/workspace/file")
    assert (code, said) == (0, b"kept\n")
    caller = opened.caller(3)
    assert caller.health().gate == guard_pb2.GATE_SEALED, "by the seal's file"
    proof = caller.prove()
    assert proof.in_file and not proof.in_memory


def test_a_foreign_snapshot_brings_a_foreign_memory(opened, whole_execs):
    other = Opened(Workspace(opened.workspace.double), whole_execs)
    hashes = []
    for one in (other, opened):
        one.open(1)
        hashes.append(one.seal(2))
        one.workspace.take()
        one.workspace.suspend()
    opened.workspace.behave("foreign-snapshot")
    opened.workspace.resume()
    caller = opened.caller(3)
    caller.token = other.token
    assert hashlib.sha256(caller.prove().nonce).digest() == hashes[0]
    opened.disconnect()
    opened.workspace.suspend()
    opened.workspace.resume()
    assert is_proven(opened, 3, hashes[1])
    opened.disconnect()
    opened.workspace.suspend()
    other.workspace.resume()
    assert is_proven(other, 3, hashes[0])
    other.disconnect()
    other.workspace.remove()


def test_a_pod_goes_on_after_its_checkpoint(opened):
    workspace = opened.workspace
    agent = opened.open(1)
    agent.run("echo 1 > file")
    seal_hash = opened.seal(2)
    first = workspace.take()
    agent = opened.open(3, seal_hash=seal_hash, restored=False)
    agent.run("echo 2 > file")
    opened.disconnect()
    workspace.suspend()
    pod = workspace.resume()
    if workspace.double.kind == "process":
        assert restored(pod) is None, "its processes have gone on"
        assert any("falling back to a cold start" in text for text in workspace.events())
        return
    assert first in restored(pod)[1] and is_proven(opened, 4, seal_hash)
    opened.disconnect()
    assert opened.open(4, seal_hash=seal_hash, restored=True).run("cat file").stdout == b"1\n"


def test_a_killed_pod_has_failed(opened):
    workspace = opened.workspace
    assert workspace.behave("kill")["hits"] == 1
    workspace.until(lambda: condition(workspace.sandbox(), "Finished") == ("True", "PodFailed"))
    assert workspace.pod()["status"]["phase"] == "Failed"
    workspace.suspend()
    workspace.resume()
    opened.open(1)


def test_nothing_is_left(double):
    state = double.tell(do="state")
    assert state["controller_errors"] == 0, (double.directory / "controller-errors").read_text()
