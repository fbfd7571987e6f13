"""Open, tokens, epochs, Health, Activity, Stats, expiry."""
import os
import pwd
import secrets
import signal
import threading
import time

import grpc
import pytest

from conftest import descendants_of, fails, guard_pb2, lives, until

CODE = grpc.StatusCode


def test_health_needs_no_token_and_tells_the_gate(make_agent):
    agent = make_agent(opened=False)
    reply = agent.health()
    assert (reply.protocol, reply.gate, reply.epoch) == (2, guard_pb2.GATE_NOT_OPENED, 0)
    assert reply.workspace_id == b"" and reply.version
    agent.open()
    reply = agent.health()
    assert (reply.gate, reply.epoch) == (guard_pb2.GATE_OPEN, 1)
    assert reply.workspace_id == agent.workspace_id


def test_nothing_works_before_the_first_open(make_agent):
    agent = make_agent(opened=False)
    fails(CODE.FAILED_PRECONDITION, "not-opened", agent.list)
    fails(CODE.FAILED_PRECONDITION, "not-opened", agent.start, "touch marker")
    assert os.listdir(agent.workspace) == []


def test_p051_every_wrong_token_is_refused(agent):
    right = agent.token
    for size in (0, 1, 16, 31):
        agent.token = right[:size] + bytes(byte ^ 1 for byte in right[size:])
        fails(CODE.UNAUTHENTICATED, "wrong-token", agent.list)
    for wrong in (b"", right[:31], right + b"x", secrets.token_bytes(32)):
        agent.token = wrong
        fails(CODE.UNAUTHENTICATED, "wrong-token", agent.list)
        fails(CODE.UNAUTHENTICATED, "wrong-token", agent.open, token=right)
    agent.token = right
    agent.list()


def test_a_repeated_open_needs_the_current_token_and_can_change_it(agent):
    first, second = agent.token, secrets.token_bytes(32)
    reply = agent.method("Guard", "Open")(
        guard_pb2.OpenRequest(epoch=1, workspace_id=agent.workspace_id, token=second, user="root"))
    assert reply.epoch == 1
    fails(CODE.UNAUTHENTICATED, "wrong-token", agent.list)
    agent.token = second
    agent.list()
    agent.token = first
    fails(CODE.UNAUTHENTICATED, "wrong-token", agent.open)


def test_an_agent_works_for_one_workspace_only(agent):
    fails(CODE.FAILED_PRECONDITION, "other-workspace", agent.open,
          workspace_id=secrets.token_bytes(16))


@pytest.mark.parametrize("fields", [
    {"workspace_id": b"short"}, {"token": b"short"}, {"epoch": 0}, {"directory": b"relative"},
    {"directory": b"/zero\0"}, {"directory": b"/" + b"x" * 5000}])
def test_open_refuses_what_it_cannot_mean(make_agent, fields):
    agent = make_agent(opened=False)
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.open, **fields)
    assert agent.health().gate == guard_pb2.GATE_NOT_OPENED


@pytest.mark.parametrize("entry", [b"=value", b"NAME", b"", b"NAME=a\0b"])
def test_open_refuses_an_environment_that_is_none(make_agent, entry):
    agent = make_agent(opened=False)
    fails(CODE.INVALID_ARGUMENT, "invalid-environment", agent.open, environment=[b"A=1", entry])


def test_open_names_a_user_that_does_not_exist(make_agent):
    agent = make_agent(opened=False)
    fails(CODE.NOT_FOUND, "no-such-user", agent.open, user="nobody-of-that-name")


def test_a_higher_epoch_shuts_out_the_callers_of_the_old_one(agent):
    id = agent.start("cat", input=True)
    watcher = agent.attach(id)
    next(watcher)
    seen = []

    def wait():
        try:
            agent.wait(id)
        except grpc.RpcError as error:
            seen.append(error)
    waiter = threading.Thread(target=wait)
    waiter.start()
    newer = agent.caller()
    newer.epoch = 2
    newer.open()
    fails(CODE.ABORTED, "stale-epoch", next, watcher)
    waiter.join(30)
    assert [error.code() for error in seen] == [CODE.ABORTED]
    fails(CODE.ABORTED, "stale-epoch", agent.list)
    fails(CODE.ABORTED, "stale-epoch", agent.open, epoch=1)
    assert newer.write(id, b"still here", end=True) == 10
    assert newer.collect(id).stdout == b"still here"
    newer.close()


def test_an_epoch_that_was_never_opened_is_not_served(agent):
    agent.epoch = 7
    fails(CODE.FAILED_PRECONDITION, "not-opened", agent.list)


def test_p050_the_environment_is_replaced_and_not_merged(agent):
    agent.open(environment=[b"A=1", b"BOTH=1"])
    assert agent.run("echo $A-$B-$BOTH").stdout == b"1--1\n"
    agent.open(environment=[b"B=2", b"BOTH=2"])
    assert agent.run("echo $A-$B-$BOTH").stdout == b"-2-2\n"
    agent.open(keep_environment=True)
    assert agent.run("echo $A-$B-$BOTH").stdout == b"-2-2\n"
    agent.open()
    assert agent.run("echo $A-$B-$BOTH").stdout == b"--\n"


def test_p033_terminals_get_the_same_environment(agent):
    agent.open(environment=[b"A=1"])
    for named in ({}, {"terminal": (24, 80)}, {"role": 1}):
        assert agent.run("echo $A-$B", env=["B=2"], **named).stdout.strip() == b"1-2"


def test_open_answers_with_the_user_and_makes_the_directory(agent):
    directory = os.path.join(agent.workspace, "new")
    reply = agent.open(directory=directory.encode())
    assert (reply.uid, reply.gid, reply.home) == (0, 0, pwd.getpwuid(0).pw_dir.encode())
    assert agent.run("pwd").stdout == directory.encode() + b"\n"
    agent.open(user="sandbox", directory=os.path.join(agent.workspace, "theirs").encode())
    assert agent.run("id -u; touch file; ls").stdout == b"1000\nfile\n"


def test_p061_a_clock_that_is_right_is_left_alone_and_a_hosts_is_never_set(agent):
    reply = agent.open(wall_time_ms=int(time.time() * 1000))
    assert (reply.clock_stepped_ms, reply.clock_failed) == (0, False)
    before = time.time()
    reply = agent.open(wall_time_ms=int(time.time() * 1000) + 3_600_000)
    assert (reply.clock_stepped_ms, reply.clock_failed) == (0, True)
    assert abs(time.time() - before) < 600


def test_expiry_ends_the_agent_and_everything_it_started(folder, make_agent):
    agent = make_agent()
    agent.start("sleep 1000 & setsid -f sleep 1000; sleep 1000")
    until(lambda: len(descendants_of(agent.process.pid)) >= 3, "three sleepers")
    children = descendants_of(agent.process.pid)
    agent.open(expires_in_ms=50)
    assert agent.process.wait(30) == 0
    until(lambda: not any(lives(child) for child in children), "nothing is left")
    assert not os.path.exists(agent.socket)


def test_a_later_open_moves_the_expiry(agent):
    agent.open(expires_in_ms=200)
    agent.open(expires_in_ms=0)
    agent.open(expires_in_ms=2**63)
    assert agent.run("sleep 0.4; echo on").stdout == b"on\n"


def test_the_process_limit_is_kept(agent):
    agent.open(process_limit=3)
    ids = [agent.start("exec sleep 1000") for _ in range(3)]
    fails(CODE.RESOURCE_EXHAUSTED, "process-limit", agent.start, "true")
    agent.signal(ids[0], signal.SIGKILL)
    agent.wait(ids[0])
    assert agent.run("exec true").exit.code == 0


def test_activity_knows_tasks_services_and_terminals(agent):
    assert agent.activity().active_tasks == 0
    task = agent.start("sleep 1000")
    service = agent.start("sleep 1000", role=1)
    shell = agent.start(argv=["bash", "--norc", "-i"], role=1, terminal=(24, 80))
    reply = agent.activity()
    assert (reply.active_tasks, reply.active_terminals) == (1, 0)
    assert list(reply.active_process_ids) == [task]
    agent.write(shell, b"sleep 1000\n")
    until(lambda: agent.activity().active_terminals == 1, "the shell's job is seen")
    assert set(agent.activity().active_process_ids) == {task, shell}
    for id in (task, service, shell):
        agent.signal(id, signal.SIGKILL)
        agent.wait(id)
    reply = agent.activity()
    assert (reply.active_tasks, reply.active_terminals) == (0, 0)


def test_activity_names_who_is_active(agent):
    service = agent.start("sleep 1000", role=1)
    pids = {}
    for number in range(18):
        id = agent.start(f"exec sleep {1000 + number} #" + "x" * 300)
        pids[id] = agent.last.pid
    reply = agent.activity()
    assert (reply.active_tasks, len(reply.active)) == (18, 16)
    for active in reply.active:
        assert pids[active.id] == active.pid and not active.terminal
        assert active.command.startswith(b"exec sleep 10") and len(active.command) == 256
    shell = agent.start(argv=["bash", "--norc", "-i"], role=1, terminal=(24, 80))
    agent.write(shell, b"sleep 1000\n")
    until(lambda: agent.activity().active_terminals == 1, "the shell's job is seen")
    first = agent.activity().active[0]
    assert (first.id, first.terminal, first.command) == (shell, True, b"bash --norc -i")
    for id in (service, shell, *pids):
        agent.signal(id, signal.SIGKILL)


def test_traffic_is_what_goes_through_ports_and_terminals(agent):
    assert not agent.activity().had_traffic
    id = agent.start("cat", input=True)
    agent.write(id, b"bytes into a pipe", end=True)
    agent.wait(id)
    assert not agent.activity().had_traffic
    shell = agent.start(argv=["cat"], role=1, terminal=(24, 80))
    agent.write(shell, b"typed\n")
    reply = agent.activity()
    assert reply.had_traffic and reply.traffic_idle_ms < 10_000
    until(lambda: agent.activity().traffic_idle_ms >= 30, "it grows while nobody types")
    agent.write(shell, b"", offset=6, end=True)
    agent.wait(shell)


def test_looking_at_the_agent_does_not_count_as_activity(agent):
    agent.run("true")
    until(lambda: agent.activity().idle_ms >= 50, "idleness grows under Activity")
    until(lambda: agent.stats().idle_ms >= 100, "and under Stats")
    agent.health()
    agent.list()
    assert agent.activity().idle_ms >= 100
    agent.run("true")
    assert agent.activity().idle_ms < 100


def test_stats_tell_what_runs(agent):
    id = agent.start("sleep 1000 & sleep 1000; true")
    until(lambda: agent.stats().processes == 4, "agent, shell and two sleepers")
    stats = agent.stats()
    assert stats.active_tasks == 1 and stats.zombies == 0 and stats.connections >= 1
    assert 0 < stats.agent_memory_bytes <= stats.memory_bytes
    assert stats.disk_free_bytes > 0 and stats.uptime_ms > 0
    agent.signal(id, signal.SIGKILL)
    agent.wait(id)
    cpu = agent.stats().cpu_ms
    agent.run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    assert agent.stats().cpu_ms > cpu, "what has ended still counts"


def test_a_file_may_not_outgrow_the_disk_limit(agent):
    agent.open(disk_limit_bytes=100_000)
    output = agent.run("head -c 200000 /dev/zero > big; stat -c %s big")
    assert output.stdout == b"100000\n"


def test_p127_no_token_is_to_be_had_from_inside(agent):
    pid = agent.process.pid
    os.chmod(agent.workspace, 0o777)
    look = (f"cat /proc/{pid}/environ /proc/{pid}/cmdline /proc/{pid}/mem; "
            f"ls /proc/{pid}/fd; env; true")
    output = agent.run(look, user="1000:1000")
    for form in (agent.token, agent.token.hex().encode()):
        assert form not in output.stdout + output.stderr
    assert b"denied" in output.stderr.lower()
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        assert agent.token not in file.read()
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        assert any(line.split()[4:6] == ["0", "0"] for line in file if "core file" in line)
