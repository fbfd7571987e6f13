"""Deadlines, signals, descendants however they hide, and zombies."""
import os
import signal
import subprocess
import sys
import time

import grpc
import pytest

from conftest import BINARY, COUNT, descendants_of, fails, lives, state_of, until

CODE = grpc.StatusCode

# Never the same process for long: each has a child in a session of its own and is gone. It ends in
# the end, where a test run that is killed leaves it behind.
HOPPER = """
import os, time
end = time.monotonic() + 120
while time.monotonic() < end:
    if os.fork() != 0:
        time.sleep(0.01)
        os._exit(0)
    os.setsid()
"""


def sleepers(agent):
    return [pid for pid, state in descendants_of(agent.process.pid).items() if state != "Z"]


def nothing_left(agent):
    until(lambda: not sleepers(agent), "all descendants are gone")


def test_p032_a_deadline_ends_the_command_and_its_children(agent):
    begun = time.monotonic()
    exit = agent.run("sleep 60 & wait", deadline_ms=200).exit
    took = time.monotonic() - begun
    assert 0.19 < took < 5
    assert (exit.code, exit.signal, exit.timed_out) == (-1, signal.SIGKILL, True)
    nothing_left(agent)


@pytest.mark.parametrize("hide", [
    "({work}) & wait",
    "setsid -f sh -c '{work}'; sleep 60",
    "(setsid sh -c '{work}' &) ; sleep 60",
    "sh -c 'trap \"\" TERM HUP INT; ({work}) & wait' & wait",
    "nohup sh -c '{work}' > /dev/null 2>&1 & disown; sleep 60",
    "env -i /bin/sh -c '{work}' & sleep 60",
    "/usr/bin/python3 -c \"import os,sys;os.fork() and os._exit(0);os.setsid();"
    "os.fork() and os._exit(0);os.chdir('/');os.execlp('sh','sh','-c','{work}')\"; sleep 60",
], ids=["child", "setsid", "double_fork", "ignores", "nohup", "no_environment", "daemon"])
def test_p077_p078_no_descendant_goes_on_after_a_timeout(agent, hide):
    after = os.path.join(agent.workspace, "after")
    ready = os.path.join(agent.workspace, "ready")
    work = f"touch {ready}; sleep 0.7; touch {after}; sleep 60"
    id = agent.start(hide.format(work=work), deadline_ms=500)
    until(lambda: os.path.exists(ready), "the descendant runs", 5)
    exit = agent.wait(id)
    assert exit.timed_out
    nothing_left(agent)
    assert not os.path.exists(after)


def test_p078_even_one_that_forks_without_end(agent):
    hoppers = "; ".join(["/usr/bin/python3 -c \"$HOPPER\" & "] * 4).replace("; ", "")
    id = agent.start(hoppers + "sleep 1000", env=["HOPPER=" + HOPPER])
    until(lambda: len(sleepers(agent)) >= 5, "they hop")
    assert agent.signal(id, signal.SIGKILL)
    agent.wait(id)
    nothing_left(agent)


def test_p079_the_deadline_is_the_agents_and_needs_no_client(agent):
    program = f"""
import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import os, conftest
caller = conftest.Caller({agent.socket!r}, {agent.token!r}, 1, {agent.workspace_id!r})
caller.start('sleep 1000', id=b'0123456789abcdef', deadline_ms=500)
print('started', flush=True)
os.kill(os.getpid(), 9)
"""
    client = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (client.returncode, client.stdout) == (-9, b"started\n"), client.stderr
    assert agent.wait(b"0123456789abcdef").timed_out
    nothing_left(agent)


def test_p080_list_shows_the_tree_and_kill_ends_all_of_it(agent):
    id = agent.start("(sleep 1000 & setsid sleep 1000 & sleep 1000) & exec sleep 1000")
    until(lambda: agent.list()[0].descendants == 4, "the whole tree")
    assert agent.signal(id, signal.SIGKILL)
    assert agent.wait(id).signal == signal.SIGKILL
    nothing_left(agent)
    assert agent.list()[0].descendants == 0


def test_p155_cancel_of_a_pipeline_leaves_nothing(agent):
    id = agent.start("sleep 100 | cat")
    until(lambda: len(sleepers(agent)) == 3, "the pipeline")
    agent.signal(id, signal.SIGKILL)
    agent.wait(id)
    nothing_left(agent)


def test_other_signals_go_to_the_group(agent):
    id = agent.start("trap 'echo got; exit 5' TERM; sleep 1000 & wait; sleep 1000")
    until(lambda: agent.list()[0].descendants == 1, "the child")
    assert agent.signal(id, signal.SIGTERM)
    output = agent.collect(id)
    assert (output.stdout, output.exit.code) == (b"got\n", 5)
    nothing_left(agent)


def test_stop_and_continue(agent):
    id = agent.start("exec sleep 1000")
    pid = agent.last.pid
    agent.signal(id, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "it is stopped")
    agent.signal(id, signal.SIGCONT)
    until(lambda: state_of(pid) == "S", "it goes on")
    agent.signal(id, signal.SIGSTOP)
    agent.signal(id, signal.SIGKILL)
    assert agent.wait(id).signal == signal.SIGKILL


def test_a_signal_to_what_has_ended_does_nothing(agent):
    id = agent.start("exit 3")
    agent.wait(id)
    assert not agent.signal(id, signal.SIGTERM)
    assert not agent.signal(id, signal.SIGKILL)
    assert not agent.signal(id, 0)
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.signal, id, 65)


def test_ending_one_command_leaves_the_others(agent):
    first = agent.start("sleep 1000 & sleep 1000; true")
    second = agent.start("sleep 1000 & sleep 1000; true")
    until(lambda: [info.descendants for info in agent.list()] == [2, 2], "both trees")
    agent.signal(first, signal.SIGKILL)
    agent.wait(first)
    until(lambda: [info.descendants for info in agent.list()] == [2, 0], "one tree")
    assert agent.list()[0].running
    agent.signal(second, signal.SIGKILL)


def test_it_only_ever_signals_what_it_started(make_agent):
    """A stranger with the very marker of a command in its environment is not ours."""
    agent = make_agent()
    id = agent.start("sleep 1000 & sleep 1000")
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True,
                                env={"SANDBOX_PROCESS_ID": id.hex(), "PATH": "/usr/bin:/bin"})
    agent.signal(id, signal.SIGKILL)
    agent.wait(id)
    nothing_left(agent)
    assert stranger.poll() is None
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(30) == 0
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_p087_p088_orphans_are_reaped(agent):
    number = 100 * COUNT
    program = f"""
import os
for _ in range({number}):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
"""
    assert agent.run(argv=["/usr/bin/python3", "-c", program], timeout=120).exit.code == 0
    until(lambda: not descendants_of(agent.process.pid), "no zombie is left", 5)
    assert agent.stats().zombies == 0


def test_p090_a_zombie_is_never_shown_as_running(agent):
    for _ in range(5 * COUNT):
        id = agent.start(argv=["true"])
        until(lambda: not lives(agent.last.pid), "it has ended")
        info, = [info for info in agent.list() if info.id == id]
        assert not info.running and info.exit.code == 0


def test_what_ends_before_its_deadline_is_no_timeout(agent):
    exit = agent.run("exit 3", deadline_ms=60_000).exit
    assert (exit.code, exit.timed_out) == (3, False)
    assert agent.run("exit 3", deadline_ms=0xffffffff).exit.code == 3


def test_a_killed_agent_takes_its_commands_along(folder):
    from conftest import Agent
    agent = Agent(folder)
    agent.start("exec sleep 1000")
    agent.start("exec sleep 1000", user="4321:5432", directory=b"/")
    children = list(descendants_of(agent.process.pid))
    assert len(children) == 2
    agent.process.kill()
    agent.process.wait()
    agent.process.stdout.close()
    until(lambda: not any(lives(pid) for pid in children), "they go with it")
    agent.close()
    assert os.path.exists(agent.socket)
    again = Agent(folder)  # the stale socket is no obstacle
    assert again.run("echo again").stdout == b"again\n"
    again.end()
