"""sandbox-memory-platform as a program: its socket, its limits, its faults, and how it ends."""

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from conftest import (AGENT, BUSY, CONFLICT, FAILED, ID, INVALID, LIMIT, PATIENCE, PLATFORM,
                      UNAVAILABLE, fence, lives, pid_of, provision, script, store, wait_until)


def test_a_second_platform_on_the_socket_gives_up_and_the_first_goes_on(platform):
    second = subprocess.run(platform.arguments, capture_output=True, timeout=PATIENCE, text=True)
    assert second.returncode == 1
    assert "another platform serves the socket" in second.stderr
    assert platform.tell(do="hello")["pid"] == platform.process.pid


def test_a_dead_platforms_socket_and_left_overs_are_taken_over(start, directory):
    first = start()
    store(first)
    provision(first)
    (directory / "state" / "workspaces" / ID).mkdir(exist_ok=True)
    first.process.kill()
    first.end()
    second = start()
    state = second.tell(do="state")
    assert (state["records"], state["instances"], state["directories"]) == (0, 0, 0)
    assert second.end() == 0


def test_somebody_elses_directory_is_not_cleared(start, directory):
    kept = directory / "state" / "workspaces" / "precious"
    kept.mkdir(parents=True)
    platform = start()
    assert platform.process.wait(PATIENCE) == 1
    assert b"name an empty directory" in platform.process.stderr.read()
    platform.end()
    assert kept.is_dir()


@pytest.mark.parametrize("arguments", [[], ["--socket", "relative"], ["--what"],
                                       ["--socket", "/x" * 70], ["--linger-ms", "soon"]])
def test_wrong_arguments_are_told(arguments):
    known = ["--agent", AGENT, "--state", "/nowhere"]
    done = subprocess.run([PLATFORM, *known, *arguments], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr


def test_it_ends_by_itself_once_it_holds_nothing(start):
    platform = start("--linger-ms", "200")
    version = store(platform)
    connection = platform.connect()
    platform.tell(do="record.remove", name="one", expected=version)
    assert connection.ask(do="hello")["ok"]
    connection.close()
    assert platform.process.wait(PATIENCE) == 0
    platform.end()
    assert not platform.path.exists()


def test_a_record_keeps_it_alive(start):
    platform = start("--linger-ms", "50")
    store(platform)
    script(platform, on="record.load", nth=1, do="fail")
    # Ten times the linger, measured by the platform's own answers.
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert platform.ask(do="hello")["ok"]
    assert platform.process.poll() is None
    assert platform.end() == 0


def test_the_end_takes_agents_and_all_they_started_along(start, directory):
    platform = start(agent=str(make_agent(directory)))
    store(platform)
    agent = pid_of(provision(platform))
    note = directory / "state" / "workspaces" / ID / "pid"
    wait_until(note.exists, "the agent's runaway has told its number")
    runaway = int(note.read_text())
    assert lives(agent) and lives(runaway)
    assert platform.end() == 0
    assert not lives(agent) and not lives(runaway)


def make_agent(directory):
    """An agent that only listens, with a child that left its session twice over."""
    program = directory / "agent"
    program.write_text("""#!/usr/bin/python3
import ctypes, os, socket, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
workspace = sys.argv[sys.argv.index("--workspace") + 1]
os.makedirs(workspace, exist_ok=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(workspace + "/pid.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(workspace + "/pid.new", workspace + "/pid")
        while True:
            time.sleep(100)
    os._exit(0)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--socket") + 1])
listener.listen(8)
while True:
    listener.accept()
""")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("how", ["discard", "destroy", "kill"])
def test_nothing_outlives_its_instance(start, directory, how):
    """P078, P081, P196: what left its session and its parent ends too, before the answer."""
    platform = start(agent=str(make_agent(directory)))
    store(platform)
    provision(platform)
    note = directory / "state" / "workspaces" / ID / "pid"
    wait_until(note.exists, "the agent's runaway has told its number")
    runaway = int(note.read_text())
    assert lives(runaway)
    platform.tell(do=how, **fence())
    assert not lives(runaway)
    assert note.exists() == (how != "destroy")
    assert platform.end() == 0


def test_an_agent_that_ends_at_once_is_told_with_its_last_words(start, directory):
    agent = directory / "hasty"
    agent.write_text("#!/bin/sh\necho hello >&2\necho no such luck >&2\nexit 3\n")
    agent.chmod(0o755)
    platform = start(agent=str(agent))
    store(platform)
    answer = platform.ask(do="provision", **fence())
    assert answer["status"] == FAILED and "code 3: no such luck" in answer["message"]
    assert platform.tell(do="state")["instances"] == 0
    assert platform.end() == 0


def test_an_agent_that_is_not_there_is_told(start):
    platform = start(agent="/no/such/agent")
    store(platform)
    answer = platform.ask(do="provision", **fence())
    assert not answer["ok"] and "/no/such/agent" in answer["message"]
    assert platform.tell(do="state")["instances"] == 0
    assert platform.end() == 0


@pytest.mark.parametrize("change", [{"epoch": 2}, {"operation": "op-2"}, {"name": "two"},
                                    {"identity": "f" * 32}])
def test_whoever_does_not_hold_the_record_is_refused(platform, change):
    store(platform)
    incarnation = provision(platform)
    for what in ("provision", "discard", "destroy"):
        answer = platform.ask(do=what, **fence(**change))
        assert (answer["status"], answer["reason"]) == (CONFLICT, "stale-epoch")
    seen = platform.tell(do="inspect", id=ID, incarnation=incarnation)
    assert seen["presence"] == "running"


def test_a_discard_by_the_taker_ends_a_start_under_way(start, directory):
    agent = directory / "deaf"
    agent.write_text("#!/bin/sh\nexec sleep 1000\n")
    agent.chmod(0o755)
    platform = start(agent=str(agent))
    version = store(platform)
    starting = platform.connect()
    starting.send(do="provision", **fence())
    wait_until(lambda: platform.tell(do="state")["instances"] == 1, "the instance starts")
    store(platform, epoch=2, operation="op-2", expected=version)
    platform.tell(do="discard", **fence(epoch=2, operation="op-2"))
    answer = starting.take()
    assert (answer["status"], answer["reason"]) == (CONFLICT, "stale-epoch")
    assert platform.tell(do="state")["instances"] == 0
    starting.close()
    assert platform.end() == 0


def has_answer(connection):
    connection.socket.setblocking(False)
    try:
        return bool(connection.socket.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.socket.settimeout(PATIENCE)


def test_fail_does_nothing_and_strikes_once(platform):
    script(platform, on="record.store", nth=2, do="fail", status=BUSY)
    version = store(platform)
    answer = platform.ask(do="record.store", name="one", text="{}", expected=version)
    assert answer["status"] == BUSY
    assert platform.tell(do="record.load", name="one")["version"] == version
    store(platform, expected=version)
    assert platform.tell(do="state")["calls"]["record.store"] == 3


def test_lose_answer_does_it_and_cuts_the_connection(platform):
    script(platform, on="record.store", nth=1, do="lose-answer")
    text = json.dumps({"id": ID})
    assert platform.ask(do="record.store", name="one", text=text, expected="") is None
    assert platform.tell(do="record.load", name="one")["text"] == text


def test_hang_waits_for_go_and_then_acts(platform):
    script(platform, on="record.store", nth=1, do="hang")
    slow = platform.connect()
    slow.send(do="record.store", name="one", text="{}", expected="")
    platform.tell(do="await-hung", count=1)
    assert platform.tell(do="state")["records"] == 0
    platform.tell(do="go")
    assert slow.take()["ok"]
    assert platform.tell(do="state")["records"] == 1
    slow.close()


def test_a_hanging_caller_that_leaves_is_forgotten(platform):
    script(platform, on="record.store", nth=1, do="hang")
    slow = platform.connect()
    slow.send(do="record.store", name="one", text="{}", expected="")
    platform.tell(do="await-hung", count=1)
    slow.close()
    platform.tell(do="hello")
    platform.tell(do="go")
    assert platform.tell(do="state")["records"] == 0


def test_hang_after_has_acted(platform):
    script(platform, on="record.store", nth=1, do="hang-after")
    slow = platform.connect()
    slow.send(do="record.store", name="one", text="{}", expected="")
    platform.tell(do="await-hung", count=1)
    assert platform.tell(do="state")["records"] == 1
    assert not has_answer(slow)
    platform.tell(do="go")
    assert slow.take()["ok"]
    slow.close()


def test_half_made_leaves_remains_that_discard_takes_away(platform):
    store(platform)
    script(platform, on="provision", nth=1, do="half-made")
    answer = platform.ask(do="provision", **fence())
    assert answer["status"] == UNAVAILABLE

    def seen():
        return platform.tell(do="inspect", id=ID, incarnation="")["presence"]

    wait_until(lambda: seen() == "stopped", "the agent has ended")
    assert platform.ask(do="provision", **fence())["reason"] == "instance-exists"
    platform.tell(do="discard", **fence())
    assert seen() == "absent"
    provision(platform)


def test_kill_agent_answers_well_and_strikes(platform):
    store(platform)
    script(platform, on="provision", nth=1, do="kill-agent")
    incarnation = provision(platform)
    wait_until(lambda: not lives(pid_of(incarnation)), "the agent is dead")
    answer = platform.ask(do="connect", id=ID, incarnation=incarnation)
    assert answer["reason"] == "instance-gone"


def test_a_rule_that_is_none_is_refused(platform):
    answer = platform.ask(do="script", rules=[{"on": "provision", "do": "explode"}])
    assert answer["status"] == INVALID and "explode" in answer["message"]
    answer = platform.ask(do="script", rules=[{"on": "hello", "do": "fail"}] * 65)
    assert answer["status"] == INVALID


def test_a_request_over_a_mebibyte_is_refused_and_one_below_is_not(platform):
    connection = platform.connect()
    answer = connection.ask(do="hello", filler="x" * 1_000_000)
    assert answer["ok"]
    with contextlib.suppress(OSError):
        connection.send(do="hello", filler="x" * 1_100_000)
    answer = connection.take()
    assert answer is None or answer["status"] == LIMIT
    connection.close()
    assert platform.tell(do="hello")


@pytest.mark.parametrize("line", [b"\n", b"[]\n", b"nonsense\n", b'{"do":1}\n', b'{"do":"x"}\n',
                                  b"\0\0\n", b'{"do":"provision"}\n', b'{"do":"record.store"}\n',
                                  b"[" * 5000 + b"\n", b'{"do":"script","rules":7}\n'])
def test_nonsense_does_no_harm(platform, line):
    connection = platform.connect()
    connection.socket.sendall(line)
    answer = connection.take()
    assert answer is None or isinstance(answer["ok"], bool)
    connection.close()
    assert platform.tell(do="hello")


def test_requests_in_pieces_and_in_one_piece_are_answered_in_order(platform):
    connection = platform.connect()
    for byte in b'{"do":"record.load","name":"none"}\n':
        connection.socket.sendall(bytes([byte]))
    assert connection.take()["reason"] == "no-such-workspace"
    connection.socket.sendall(b'{"do":"hello"}\n{"do":"nothing"}\n{"do":"secret"}\n')
    assert "pid" in connection.take()
    assert connection.take()["reason"] == "no-such-request"
    assert len(connection.take()["key"]) == 64
    connection.close()


def test_listing_goes_page_by_page(platform):
    text = json.dumps({"filler": "x" * 100_000})
    names = [f"w{number:02}" for number in range(10)]
    for name in reversed(names):
        platform.tell(do="record.store", name=name, text=text, expected="")
    seen, pages, more = [], 0, True
    while more:
        page = platform.tell(do="record.list", after=seen[-1] if seen else "")
        seen += [record["name"] for record in page["records"]]
        more = page["more"]
        pages += 1
    assert seen == names
    assert pages > 1


def test_too_many_connections_are_cut_and_the_others_go_on(platform):
    many = []
    try:
        while len(many) < 600:
            with contextlib.suppress(BlockingIOError):  # its backlog is full for a moment
                many.append(platform.connect())
        assert many[0].ask(do="hello")["ok"]
        with contextlib.suppress(OSError):
            assert many[-1].ask(do="hello") is None
    finally:
        for connection in many:
            connection.close()
    wait_until(lambda: answers(platform), "there is room again")


def answers(platform):
    """A connection over the limit is cut, sometimes before it has asked."""
    try:
        return platform.ask(do="hello") is not None
    except OSError:
        return False


def test_a_file_of_another_user_does_not_stop_destroy(platform):
    store(platform)
    provision(platform)
    place = platform.state / "workspaces" / ID
    (place / "deep" / "er").mkdir(parents=True)
    (place / "deep" / "er" / "file").write_text("x")
    (place / "out").symlink_to("/etc")
    (place / "deep").chmod(0)
    platform.tell(do="destroy", **fence())
    assert not place.exists()
    assert pathlib.Path("/etc/passwd").exists()


def test_sigint_ends_it_well(start):
    platform = start()
    platform.process.send_signal(signal.SIGINT)
    assert platform.process.wait(PATIENCE) == 0
    platform.end()
