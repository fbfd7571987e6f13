"""The gate for suspend and resume: Seal, Prove, Open of what is sealed, PowerOff."""
import hashlib
import os
import secrets
import shutil
import signal
import socket
import stat
import threading

import grpc
import pytest

from conftest import (COUNT, descendants_of, fails, guard_pb2, lives, operation_of, reason,
                      state_of, until)
from test_files import Files
from test_ports import Stream, port_of, server  # noqa: F401

CODE = grpc.StatusCode
MIB = 1 << 20


def sealed(caller):
    """Quiesces and seals; the hash."""
    assert caller.quiesce().unfinished == 0
    reply = caller.seal()
    assert len(reply.seal_hash) == 32 and not reply.obstacles
    return reply.seal_hash


def reopen(caller, seal_hash, **fields):
    return caller.open(seal_hash=seal_hash, **fields)


def counter(agent):
    """A process that counts, and the file it counts in."""
    path = os.path.join(agent.workspace, "count-" + secrets.token_hex(4))
    id = agent.start("i=0; while :; do i=$((i+1)); "
                     f"echo $i > {path}.new; mv {path}.new {path}; done")

    def read():
        try:
            with open(path, encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0
    until(lambda: read() > 3, "it counts")
    return id, read


# ---- seal


def test_a_seal_stops_everything_and_an_open_goes_on(agent, operation):
    _, count = counter(agent)
    tree = agent.start("(setsid -f sleep 1000); sleep 1000 & sleep 1000 | sleep 1000; true")
    until(lambda: len(descendants_of(agent.process.pid)) >= 6, "everybody has started")
    operation.quiesce()
    reply = operation.seal()
    children = descendants_of(agent.process.pid)
    states = list(children.values())
    assert len(states) >= 6 and set(states) <= {"T", "Z"}, children
    assert reply.stopped == states.count("T")
    before = count()
    health = agent.health()
    assert (health.gate, health.epoch) == (guard_pb2.GATE_SEALED, 2)
    assert health.workspace_id == agent.workspace_id
    opened = reopen(operation, reply.seal_hash)
    assert (opened.continued, opened.hook_code, opened.generation) == (reply.stopped, -1, 0)
    until(lambda: count() > before + 3, "it counts on")
    assert not any(state_of(child) == "T" for child in children)
    operation.signal(tree, signal.SIGKILL)


THREADS = """
import ctypes, sys, threading
def spin():
    while True:
        with open(sys.argv[1], "a") as file:
            file.write("x")
for _ in range(3):
    threading.Thread(target=spin).start()
if len(sys.argv) > 2:
    ctypes.CDLL(None).syscall(60, 0)  # the first thread alone ends
spin()
"""


@pytest.mark.parametrize("more", [[], ["without the first"]])
def test_all_threads_are_stopped(agent, operation, more):
    written = os.path.join(agent.workspace, "written")
    id = agent.start(argv=["/usr/bin/python3", "-c", THREADS, written, *more])
    pid = agent.last.pid
    until(lambda: os.path.exists(written) and os.path.getsize(written) > 100, "they write")
    until(lambda: len(os.listdir(f"/proc/{pid}/task")) == 4, "all threads are there")
    if more:
        until(lambda: state_of(pid) == "Z", "the first thread ends")
    for epoch in range(2, 2 + COUNT):
        operation.epoch = epoch
        seal_hash = sealed(operation)
        states = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
                states.append(file.read().rsplit(")", 1)[1].split()[0])
        assert set(states) <= {"T", "Z"} and states.count("T") >= 3, states
        size = os.path.getsize(written)
        assert reopen(operation, seal_hash).continued == 1
        until(lambda size=size: os.path.getsize(written) > size, "they write on")
    operation.signal(id, signal.SIGKILL)


def test_what_somebody_had_stopped_stays_stopped(agent, operation):
    id = agent.start("exec sleep 1000")
    pid = agent.last.pid
    other = agent.start("exec sleep 1000")
    agent.signal(id, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "it is stopped")
    seal_hash = sealed(operation)
    assert reopen(operation, seal_hash).continued == 1
    assert state_of(pid) == "T"
    operation.signal(id, signal.SIGCONT)
    until(lambda: state_of(pid) == "S", "its owner lets it go on")
    operation.signal(other, signal.SIGKILL)
    operation.signal(id, signal.SIGKILL)


def test_a_shell_never_sees_its_job_stopped(agent, operation):
    shell = agent.start(argv=["bash", "--norc", "-i"], role=1, terminal=(24, 80),
                        env=["PS1=ready> "])
    agent.write(shell, b"cat\n")
    until(lambda: agent.activity().active_terminals == 1, "the job has the terminal")
    written = 4
    for epoch in range(2, 2 + COUNT):
        operation.epoch = epoch
        reopen(operation, sealed(operation))
        line = b"line %d\n" % epoch
        operation.write(shell, line, offset=written)
        written += len(line)
        assert operation.activity().active_terminals == 1, "the job kept the terminal"
    operation.write(shell, b"\x04", offset=written)
    operation.write(shell, b"exit\n", offset=written + 1)
    output = operation.collect(shell).stdout
    assert b"Stopped" not in output
    assert output.count(b"line ") == 2 * COUNT, "typed and echoed by cat"


def test_only_what_belongs_to_the_operation_is_let_in(agent, operation):
    seal_hash = sealed(operation)
    fails(CODE.UNAVAILABLE, "suspending", agent.list)
    fails(CODE.UNAVAILABLE, "suspending", operation.list)
    assert agent.health().refused_calls == 2
    fails(CODE.FAILED_PRECONDITION, "sealed", operation.quiesce)
    fails(CODE.FAILED_PRECONDITION, "sealed", operation.open)
    fails(CODE.FAILED_PRECONDITION, "other-seal", operation.open,
          seal_hash=secrets.token_bytes(32))
    fails(CODE.FAILED_PRECONDITION, "other-seal", operation.open, seal_hash=seal_hash[:31])
    fails(CODE.FAILED_PRECONDITION, "other-workspace", operation.open, seal_hash=seal_hash,
          workspace_id=secrets.token_bytes(16))
    stranger = operation_of(agent)
    stranger.token = secrets.token_bytes(32)
    for method in (stranger.prove, stranger.seal, stranger.power_off):
        fails(CODE.UNAUTHENTICATED, "wrong-token", method)
    fails(CODE.UNAUTHENTICATED, "wrong-token", stranger.open, seal_hash=seal_hash)
    assert agent.health().gate == guard_pb2.GATE_SEALED
    reopen(operation, seal_hash)
    stranger.close()


def test_a_seal_needs_its_quiesce(agent, operation):
    fails(CODE.FAILED_PRECONDITION, "not-quiesced", operation.seal)
    operation.quiesce()
    newer = operation_of(agent, 3)
    fails(CODE.FAILED_PRECONDITION, "not-quiesced", newer.seal)
    fails(CODE.ABORTED, "stale-epoch", operation.seal)
    newer.open()
    newer.close()


def test_an_agent_without_a_seal_file_is_not_sealed(make_agent):
    agent = make_agent(sealable=False)
    operation = operation_of(agent)
    operation.quiesce()
    fails(CODE.FAILED_PRECONDITION, "no-seal-file", operation.seal)
    operation.open()
    operation.close()


def test_the_proof_is_the_nonce_of_memory_and_file(agent, operation):
    fails(CODE.FAILED_PRECONDITION, "not-sealed", operation.prove)
    operation.quiesce()
    seal_hash = operation.seal().seal_hash
    facts = os.stat(agent.seal_file)
    assert stat.S_IMODE(facts.st_mode) == 0o600
    assert os.listdir(os.path.dirname(agent.seal_file)) == ["seal"]
    proof = operation.prove()
    assert hashlib.sha256(proof.nonce).digest() == seal_hash
    assert (proof.epoch, proof.workspace_id) == (2, agent.workspace_id)
    assert proof.in_memory and proof.in_file
    with open(agent.seal_file, "rb") as file:
        content = file.read()
    assert agent.token not in content and agent.token.hex().encode() not in content
    with open(agent.seal_file, "wb") as file:
        file.write(content.replace(proof.nonce.hex().encode(), secrets.token_hex(32).encode()))
    changed = operation.prove()
    assert changed.in_memory and not changed.in_file and changed.nonce == proof.nonce
    os.unlink(agent.seal_file)
    assert not operation.prove().in_file
    reopen(operation, seal_hash)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", operation.prove)


def test_a_repeated_seal_gives_the_same_answer(agent, operation):
    agent.start("sleep 1000")
    operation.quiesce()
    first = operation.seal()
    other = operation_of(agent)
    assert other.seal() == first and operation.seal() == first
    reopen(other, first.seal_hash)
    other.close()


def test_every_seal_draws_its_own_nonce(agent, operation):
    first = sealed(operation)
    reopen(operation, first)
    operation.epoch = 3
    second = sealed(operation)
    assert first != second
    fails(CODE.FAILED_PRECONDITION, "other-seal", operation.open, seal_hash=first)
    reopen(operation, second)


def test_all_channels_end_with_the_seal(agent, operation):
    """As relays do that carry them: nobody may be left on the other side."""
    plain = socket.socket(socket.AF_UNIX)
    plain.settimeout(30)
    plain.connect(agent.socket)
    plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
    assert plain.recv(1)
    agent.list()
    seal_hash = sealed(operation)
    while plain.recv(4096):
        pass
    plain.close()
    until(lambda: len(open_sockets(agent)) == 2, "only the two listeners are left")
    reopen(operation, seal_hash)


def open_sockets(agent):
    """Of the agent process, by number."""
    folder = f"/proc/{agent.process.pid}/fd/"
    links = []
    for name in os.listdir(folder):
        try:
            links.append(os.readlink(folder + name))
        except FileNotFoundError:
            continue
    return [link for link in links if link.startswith("socket:")]


def test_a_reader_that_does_not_read_holds_up_nothing(agent, operation, server):
    dial = Stream(agent, port_of(server))
    peer, _ = server.accept()
    id = agent.start("head -c 50000000 /dev/zero", when_full=0, buffer_bytes=1 << 20)
    agent.attach(id)  # and nobody takes what it gives
    peer.sendall(b"x" * MIB)
    operation.quiesce()
    reply = operation.seal()
    assert reply.connections_reset == 1
    opened = reopen(operation, reply.seal_hash)
    assert opened.connections_reset == 1
    peer.settimeout(30)
    with pytest.raises(OSError):
        while True:
            peer.sendall(b"x" * MIB)
    dial.close()


def test_the_operations_own_connections_are_reset_too(agent, operation, server):
    operation.quiesce()
    dial = Stream(operation, port_of(server), b"hello")
    peer, _ = server.accept()
    assert peer.recv(5, socket.MSG_WAITALL) == b"hello"
    reply = operation.seal()
    assert reply.connections_reset == 1
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
    reopen(operation, reply.seal_hash)
    dial.close()


def test_a_write_that_the_seal_cuts_leaves_nothing(agent, operation):
    begun, go_on = threading.Event(), threading.Event()

    def chunks():
        yield b"x" * 200_000
        begun.set()
        go_on.wait(30)
    errors = []

    def write():
        try:
            Files(agent).write("file", chunks=chunks())
        except grpc.RpcError as error:
            errors.append(error)
    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(30)
    until(lambda: os.listdir(agent.workspace), "its temporary file is there")
    assert operation.quiesce(deadline_ms=0).unfinished == 1
    reply = operation.seal()
    assert os.listdir(agent.workspace) == []
    go_on.set()
    writer.join(30)
    assert [error.code() for error in errors] == [CODE.UNAVAILABLE]
    reopen(operation, reply.seal_hash)


def test_what_forks_all_the_time_is_stopped_too(agent, operation):
    ids = [agent.start("while :; do (true; sleep 0.01) & (setsid true &); wait; done")
           for _ in range(3)]
    for epoch in range(2, 5):
        operation.epoch = epoch
        seal_hash = sealed(operation)
        children = descendants_of(agent.process.pid)
        assert set(children.values()) <= {"T", "Z"}, children
        reopen(operation, seal_hash)
    for id in ids:
        operation.signal(id, signal.SIGKILL)


def test_a_seal_that_cannot_be_kept_is_undone(agent, operation):
    _, count = counter(agent)
    shutil.rmtree(os.path.dirname(agent.seal_file))
    operation.quiesce()
    fails(CODE.NOT_FOUND, "no-such-file", operation.seal)
    assert agent.health().gate == guard_pb2.GATE_QUIESCED
    before = count()
    until(lambda: count() > before + 3, "it counts on")
    operation.list()
    os.mkdir(os.path.dirname(agent.seal_file), 0o700)
    reopen(operation, operation.seal().seal_hash)


def test_a_caller_that_leaves_finds_it_sealed_or_undone(agent, operation):
    agent.start("exec sleep 1000")
    pid = agent.last.pid
    for epoch in range(2, 2 + max(4, COUNT // 4)):
        operation.epoch = epoch
        operation.quiesce()
        caller = operation_of(agent, epoch)
        try:
            caller.seal(timeout=0.001 * (epoch % 8))
        except grpc.RpcError:
            pass
        caller.close()
        while True:
            try:
                operation.open()
                break
            except grpc.RpcError as error:
                if error.code() == CODE.UNAVAILABLE:
                    continue  # it is sealing, and cuts all channels
                assert reason(error) == "sealed"
            assert state_of(pid) == "T"
            proof = operation.prove()
            reopen(operation, hashlib.sha256(proof.nonce).digest())
            break
        until(lambda: state_of(pid) == "S", "it goes on")
    agent.epoch = operation.epoch


# ---- open


def test_an_open_whose_answer_was_lost_is_given_again(agent, operation):
    agent.start("sleep 1000", deadline_ms=600_000)
    old = agent.token
    seal_hash = sealed(operation)
    token = secrets.token_bytes(32)
    first = reopen(operation, seal_hash, token=token, epoch=3, restored=True, entropy=b"x" * 64)
    assert (first.continued, first.deadlines_kept, first.generation) == (1, 1, 1)
    assert first.entropy_added and first.entropy_errno == 0
    assert reopen(operation, seal_hash, token=token, epoch=3, restored=True) == first
    fails(CODE.UNAUTHENTICATED, "wrong-token", agent.prove)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", operation.open, epoch=3,
          seal_hash=secrets.token_bytes(32))
    assert operation.health().gate == guard_pb2.GATE_OPEN
    operation.token = old
    fails(CODE.UNAUTHENTICATED, "wrong-token", operation.list)


def test_the_seal_is_spent_by_its_open(agent, operation):
    seal_hash = sealed(operation)
    nonce = operation.prove().nonce
    reopen(operation, seal_hash)
    assert not os.path.exists(agent.seal_file)
    operation.epoch = 3
    operation.quiesce()
    fails(CODE.FAILED_PRECONDITION, "not-sealed", operation.open,
          seal_hash=secrets.token_bytes(32))
    assert operation.seal().seal_hash != seal_hash
    assert operation.prove().nonce != nonce


def test_a_proof_fences_off_older_operations(agent, operation):
    seal_hash = sealed(operation)
    newer = operation_of(agent, 5)
    assert newer.prove().epoch == 2
    fails(CODE.ABORTED, "stale-epoch", operation.open, seal_hash=seal_hash)
    fails(CODE.ABORTED, "stale-epoch", operation.power_off)
    fails(CODE.ABORTED, "stale-epoch", operation.seal)
    reopen(newer, seal_hash)
    newer.list()
    newer.close()


def test_deadlines_go_on_with_the_time_that_was_left(agent, operation):
    id = agent.start("exec sleep 1000", deadline_ms=1500)
    pid = agent.last.pid
    agent.start("exec sleep 1000")
    seal_hash = sealed(operation)
    begun = agent.health().uptime_ms
    until(lambda: agent.health().uptime_ms > begun + 2000, "the deadline would have passed")
    assert state_of(pid) == "T"
    opened = agent.health().uptime_ms
    assert reopen(operation, seal_hash).deadlines_kept == 1
    assert operation.wait(id).timed_out
    assert agent.health().uptime_ms - opened < 10000  # a busy machine may be late, not that late


def test_the_agents_own_end_is_held_while_it_is_sealed(make_agent):
    agent = make_agent(expires_in_ms=1000)
    operation = operation_of(agent)
    seal_hash = sealed(operation)
    begun = agent.health().uptime_ms
    until(lambda: agent.health().uptime_ms > begun + 1200, "it would have ended itself")
    reopen(operation, seal_hash, expires_in_ms=50)
    assert agent.process.wait(30) == 0
    operation.close()


def test_the_environment_is_replaced_by_the_open(agent, operation):
    agent.open(environment=[b"A=1"])
    seal_hash = sealed(operation)
    reopen(operation, seal_hash, environment=[b"B=2"])
    assert operation.run("echo $A-$B").stdout == b"-2\n"
    operation.epoch = 3
    reopen(operation, sealed(operation), keep_environment=True)
    assert operation.run("echo $A-$B").stdout == b"-2\n"


def hook(agent, text, mode=0o755):
    os.makedirs(os.path.join(agent.workspace, ".sandbox"), exist_ok=True)
    path = os.path.join(agent.workspace, ".sandbox", "on-resume")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)


def test_the_hook_runs_before_anybody_goes_on(make_agent):
    agent = make_agent(user="1234:1234")
    os.chmod(agent.workspace, 0o777)
    agent.start("exec sleep 1000")
    pid = agent.last.pid
    hook(agent, "#!/bin/sh\n"
                "(id -u; pwd; echo $SANDBOX_GENERATION $A; "
                f"cut -d' ' -f3 /proc/{pid}/stat) > seen\n"
                "exit 3\n")
    operation = operation_of(agent)
    seal_hash = sealed(operation)
    opened = reopen(operation, seal_hash, user="1234:1234", restored=True, environment=[b"A=own"])
    assert (opened.hook_code, opened.generation) == (3, 1)
    with open(os.path.join(agent.workspace, "seen"), encoding="ascii") as file:
        assert file.read() == f"1234\n{agent.workspace}\n1 own\nT\n"
    operation.close()


def test_no_hook_without_a_restore_or_a_program(agent, operation):
    hook(agent, "#!/bin/sh\ntouch ran\n")
    assert reopen(operation, sealed(operation)).hook_code == -1
    for text, mode, code in (("#!/bin/sh\ntouch ran\n", 0o644, -1),
                             ("#!/no/such/program\n", 0o755, 127),
                             ("kill -9 $$\n", 0o755, 128 + 9)):
        operation.epoch += 1
        hook(agent, text, mode)
        assert reopen(operation, sealed(operation), restored=True).hook_code == code
    assert not os.path.exists(os.path.join(agent.workspace, "ran"))


def test_a_hook_that_hangs_is_killed(agent, operation):
    _, count = counter(agent)
    hook(agent, "#!/bin/sh\nsleep 1000\n")
    seal_hash = sealed(operation)
    before = count()
    answers = []
    opener = threading.Thread(target=lambda: answers.append(
        reopen(operation, seal_hash, restored=True)))
    opener.start()
    until(lambda: len(descendants_of(agent.process.pid)) >= 3, "the hook runs")
    newer = operation_of(agent, 9)
    fails(CODE.UNAVAILABLE, "opening", newer.open, seal_hash=seal_hash)
    assert count() == before
    opener.join(30)
    assert answers[0].hook_code == -2
    until(lambda: count() > before, "it counts on")
    newer.open()
    newer.close()


def test_programs_can_see_that_they_live_again(agent, operation):
    path = os.path.join(os.path.dirname(agent.seal_file), "sandbox-generation")
    for epoch, generation in ((2, 1), (4, 2), (6, 3)):
        operation.epoch = epoch
        opened = reopen(operation, sealed(operation), restored=True, epoch=epoch + 1)
        assert opened.generation == generation
        with open(path, encoding="ascii") as file:
            assert file.read() == f"{generation}\n"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o644


# ---- a fresh agent over the files of a sealed one


@pytest.fixture
def copied(make_agent):
    """A seal, and a fresh agent over a copy of its file."""
    agent = make_agent()
    operation = operation_of(agent)
    seal_hash = sealed(operation)
    nonce = operation.prove().nonce
    operation.close()

    def place(path):
        shutil.copy(agent.seal_file, path)
    fresh = make_agent(opened=False, seal=place)
    fresh.token, fresh.workspace_id, fresh.epoch = agent.token, agent.workspace_id, 3
    fresh.seal_hash, fresh.nonce = seal_hash, nonce
    return fresh


def test_a_fresh_agent_proves_its_files(copied):
    health = copied.health()
    assert (health.gate, health.epoch) == (guard_pb2.GATE_SEALED, 2)
    assert health.workspace_id == copied.workspace_id
    proof = copied.prove()
    assert (proof.nonce, proof.epoch) == (copied.nonce, 2)
    assert proof.in_file and not proof.in_memory
    assert proof.workspace_id == copied.workspace_id
    fails(CODE.FAILED_PRECONDITION, "sealed", copied.open)
    token = secrets.token_bytes(32)
    opened = reopen(copied, copied.seal_hash, token=token, restored=True)
    assert (opened.generation, opened.continued, opened.deadlines_kept) == (1, 0, 0)
    assert copied.run("echo on").stdout == b"on\n"
    assert not os.path.exists(copied.seal_file)


def test_a_fresh_agent_asks_for_the_token_and_epoch_of_the_seal(copied):
    right = copied.token
    copied.token = secrets.token_bytes(32)
    for method in (copied.prove, copied.list, copied.quiesce):
        fails(CODE.UNAUTHENTICATED, "wrong-token", method)
    fails(CODE.UNAUTHENTICATED, "wrong-token", copied.open, seal_hash=copied.seal_hash)
    copied.token, copied.epoch = right, 1
    fails(CODE.ABORTED, "stale-epoch", copied.prove)
    fails(CODE.ABORTED, "stale-epoch", copied.list)
    copied.epoch = 2
    assert copied.seal().seal_hash == copied.seal_hash
    fails(CODE.UNAVAILABLE, "suspending", copied.list)


def test_the_generation_goes_with_the_files(copied, make_agent):
    reopen(copied, copied.seal_hash, restored=True)
    operation = operation_of(copied, 4)
    seal_hash = sealed(operation)
    operation.close()
    third = make_agent(opened=False, seal=lambda path: shutil.copy(copied.seal_file, path))
    third.token, third.workspace_id, third.epoch = copied.token, copied.workspace_id, 5
    assert reopen(third, seal_hash, restored=True).generation == 2


def test_a_cold_agent_proves_nothing(make_agent):
    agent = make_agent(opened=False)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", agent.prove)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", agent.prove, metadata=[])
    fails(CODE.FAILED_PRECONDITION, "not-sealed", agent.power_off)
    fails(CODE.FAILED_PRECONDITION, "not-quiesced", agent.seal)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", agent.open, seal_hash=secrets.token_bytes(32))
    assert agent.health().gate == guard_pb2.GATE_NOT_OPENED


GOOD = ("sandbox-seal 1\nepoch 7\ngeneration 0\nworkspace " + "ab" * 16 + "\nnonce " + "cd" * 32 +
        "\ntoken-sha256 " + "ef" * 32 + "\n").encode()


def as_file(content, mode=0o600):
    def place(path):
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
    return place


def as_link(path):
    as_file(GOOD)(path + ".real")
    os.symlink(path + ".real", path)


def as_second_name(path):
    as_file(GOOD)(path + ".real")
    os.link(path + ".real", path)


def as_others_file(path):
    as_file(GOOD)(path)
    os.chown(path, 1234, 1234)


HOSTILE = {
    "empty": as_file(b""), "noise": as_file(secrets.token_bytes(300)),
    "endless": as_file(GOOD + b"x" * 10_000_000), "second version": as_file(
        GOOD.replace(b"seal 1", b"seal 2")), "cut off": as_file(GOOD[:-1]),
    "longer": as_file(GOOD + b"\n"), "zero byte": as_file(GOOD + b"\0"),
    "epoch of none": as_file(GOOD.replace(b"epoch 7", b"epoch 0")),
    "negative epoch": as_file(GOOD.replace(b"epoch 7", b"epoch -7")),
    "large epoch": as_file(GOOD.replace(b"epoch 7", b"epoch 4294967296")),
    "no epoch": as_file(GOOD.replace(b"epoch 7", b"epoch ")),
    "short nonce": as_file(GOOD.replace(b"cd" * 32, b"cd" * 31)),
    "no digits": as_file(GOOD.replace(b"cd" * 32, b"xy" * 32)),
    "other order": as_file(GOOD.replace(b"epoch 7\ngeneration 0", b"generation 0\nepoch 7")),
    "readable": as_file(GOOD, 0o644), "writable": as_file(GOOD, 0o620), "link": as_link,
    "second name": as_second_name, "of others": as_others_file, "directory": os.mkdir,
    "fifo": lambda path: os.mkfifo(path, 0o600),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_seal_file_that_is_none_seals_nothing(make_agent, kind):
    agent = make_agent(opened=False, seal=HOSTILE[kind], complains=True)
    assert agent.health().gate == guard_pb2.GATE_NOT_OPENED
    fails(CODE.FAILED_PRECONDITION, "not-sealed", agent.prove)
    agent.open()
    agent.list()


def test_what_makes_a_good_seal_file(make_agent):
    agent = make_agent(opened=False, seal=as_file(GOOD))
    health = agent.health()
    assert (health.gate, health.epoch) == (guard_pb2.GATE_SEALED, 7)
    assert health.workspace_id == bytes.fromhex("ab" * 16)


# ---- power off


def test_only_the_operation_that_sealed_it_ends_it(agent, operation):
    agent.start("(setsid -f sleep 1000); sleep 1000; true")
    until(lambda: len(descendants_of(agent.process.pid)) >= 3, "everybody has started")
    children = descendants_of(agent.process.pid)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", operation.power_off)
    operation.quiesce()
    fails(CODE.FAILED_PRECONDITION, "not-sealed", operation.power_off)
    sealed(operation)
    fails(CODE.ABORTED, "stale-epoch", operation.power_off, epoch=1)
    assert agent.process.poll() is None
    operation.power_off()
    assert agent.process.wait(30) == 0
    until(lambda: not any(lives(child) for child in children), "nothing is left")
    assert os.path.exists(agent.seal_file), "the files stay sealed"


def test_another_operation_does_not_end_it(agent, operation):
    seal_hash = sealed(operation)
    newer = operation_of(agent, 3)
    fails(CODE.FAILED_PRECONDITION, "not-sealed", newer.power_off)
    assert agent.process.poll() is None
    reopen(newer, seal_hash)
    newer.close()
