"""The gate for suspend and resume: Quiesce, its lease, and what may go on."""
import os
import secrets
import signal
import threading

import grpc
import pytest

from conftest import fails, guard_pb2, operation_of, processes_pb2, until
from test_files import Files
from test_ports import Stream, port_of, server  # noqa: F401

CODE = grpc.StatusCode
MIB = 1 << 20
KIND_EXIT = processes_pb2.ProcessEvent.KIND_EXIT


class Blocked:
    """A Write that is not answered before its process reads."""

    def __init__(self, agent):
        self.agent, self.go = agent, os.path.join(agent.workspace, "go")
        seen = os.path.join(agent.workspace, "seen")
        self.id = agent.start(f"head -c 1 > {seen}; while [ ! -e {self.go} ]; do sleep 0.01; done; "
                              "wc -c", input=True)
        self.result = None
        self.thread = threading.Thread(target=self.write)
        self.thread.start()
        until(lambda: os.path.exists(seen) and os.path.getsize(seen) > 0, "it has begun")

    def write(self):
        try:
            self.result = self.agent.write(self.id, b"x" * 3 * MIB)
        except grpc.RpcError as error:
            self.result = error

    def let_finish(self):
        with open(self.go, "w", encoding="ascii"):
            pass
        self.thread.join(30)
        assert self.result == 3 * MIB


def test_a_quiesced_agent_lets_in_its_operation_alone(agent, operation):
    assert operation.quiesce().unfinished == 0
    health = agent.health()
    assert (health.gate, health.epoch, health.refused_calls) == (guard_pb2.GATE_QUIESCED, 1, 0)
    fails(CODE.UNAVAILABLE, "suspending", agent.start, "touch marker")
    fails(CODE.UNAVAILABLE, "suspending", agent.list)
    fails(CODE.UNAVAILABLE, "suspending", agent.stats)
    assert agent.health().refused_calls == 3
    assert operation.run("echo in").stdout == b"in\n"
    assert operation.activity().active_tasks == 0
    assert os.listdir(agent.workspace) == []
    operation.epoch = 3
    fails(CODE.FAILED_PRECONDITION, "not-opened", operation.list)
    operation.epoch, operation.token = 2, secrets.token_bytes(32)
    fails(CODE.UNAUTHENTICATED, "wrong-token", operation.list)
    assert agent.health().refused_calls == 3


def test_a_quiesce_cuts_what_would_not_end(agent, operation, server):
    id = agent.start("sleep 1000")
    attach = agent.attach(id)
    next(attach)
    watch = Files(agent).watch(agent.workspace)
    dial = Stream(agent, port_of(server))
    peer, _ = server.accept()
    peer.sendall(b"up")
    assert dial.receive(2) == b"up"
    caught = []

    def wait():
        try:
            agent.wait(id)
        except grpc.RpcError as error:
            caught.append(error)
    waiter = threading.Thread(target=wait)
    waiter.start()
    own = operation_of(agent, 1)
    until(lambda: len(own.list()) == 1, "the agent answers")
    assert operation.quiesce().unfinished == 0
    waiter.join(30)
    assert [error.code() for error in caught] == [CODE.UNAVAILABLE]
    for stream in (attach, watch, dial.replies):
        fails(CODE.UNAVAILABLE, "suspending", lambda stream=stream: list(stream))
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
    mine = operation.attach(id)
    next(mine)
    assert operation.quiesce().unfinished == 0
    operation.signal(id, signal.SIGKILL)
    assert [event.kind for event in mine][-1] == KIND_EXIT, "its own stream was not cut"
    dial.close()
    own.close()


def test_calls_in_progress_may_finish(agent, operation):
    blocked = Blocked(agent)
    assert operation.quiesce(deadline_ms=50).unfinished == 1
    fails(CODE.UNAVAILABLE, "suspending", agent.list)
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(operation.quiesce()))
    waiter.start()
    until(lambda: operation.list() and not answers, "it waits")
    blocked.let_finish()
    waiter.join(30)
    assert answers[0].unfinished == 0


def test_a_lease_that_runs_out_opens_the_gate_as_it_was(agent, operation):
    operation.quiesce(lease_ms=50)
    until(lambda: agent.health().gate == guard_pb2.GATE_OPEN, "the lease runs out")
    assert agent.health().epoch == 1
    assert agent.run("echo on").stdout == b"on\n"
    fails(CODE.FAILED_PRECONDITION, "not-opened", operation.list)
    fails(CODE.FAILED_PRECONDITION, "not-quiesced", operation.seal)
    fails(CODE.ABORTED, "stale-epoch", agent.open, epoch=1)
    operation.quiesce()
    operation.list()


def test_whoever_waits_is_told_that_the_lease_ran_out(agent, operation):
    blocked = Blocked(agent)
    fails(CODE.ABORTED, "reopened", operation.quiesce, lease_ms=50)
    blocked.let_finish()


def test_a_repeated_quiesce_renews_the_lease(agent, operation):
    operation.quiesce(lease_ms=100)
    operation.quiesce(lease_ms=60_000)
    begun = agent.health().uptime_ms
    until(lambda: agent.health().uptime_ms > begun + 200, "the first lease would be over")
    assert agent.health().gate == guard_pb2.GATE_QUIESCED


def test_the_operation_opens_the_gate_again(agent, operation):
    blocked = Blocked(agent)
    assert operation.quiesce(deadline_ms=0).unfinished == 1
    reply = operation.open()
    assert (reply.epoch, reply.hook_code, reply.generation) == (2, -1, 0)
    assert agent.health().gate == guard_pb2.GATE_OPEN
    operation.list()
    fails(CODE.ABORTED, "stale-epoch", agent.list)
    agent.epoch = 2
    agent.list()
    blocked.let_finish()


def test_a_newer_operation_takes_the_gate_over(agent, operation):
    operation.quiesce()
    id = operation.start("sleep 1000")
    stream = operation.attach(id)
    next(stream)
    newer = operation_of(agent, 3)
    newer.quiesce()
    fails(CODE.ABORTED, "stale-epoch", lambda: list(stream))
    for method in (operation.list, operation.quiesce, operation.seal, operation.open,
                   operation.prove, operation.power_off):
        fails(CODE.ABORTED, "stale-epoch", method)
    newer.list()
    newer.open()
    newer.close()


def test_a_quiesce_that_means_nothing_is_refused(make_agent):
    agent = make_agent(opened=False)
    fails(CODE.FAILED_PRECONDITION, "not-opened", agent.quiesce)
    agent.open()
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.quiesce, epoch=1)
    operation = operation_of(agent)
    fails(CODE.INVALID_ARGUMENT, "invalid", operation.quiesce, lease_ms=0)
    fails(CODE.INVALID_ARGUMENT, "invalid", operation.quiesce, lease_ms=3_600_001)
    fails(CODE.INVALID_ARGUMENT, "invalid", operation.quiesce, deadline_ms=2**32 - 1)
    operation.token = secrets.token_bytes(32)
    fails(CODE.UNAUTHENTICATED, "wrong-token", operation.quiesce)
    assert agent.health().gate == guard_pb2.GATE_OPEN
    agent.list()
    operation.close()
