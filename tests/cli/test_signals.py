"""What signals to the command do, and what a killed command leaves."""

import os
import signal
import time

import pytest
from conftest import WAIT


def wait_for(what):
    end = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_the_command_inside(sandbox, own, number):
    line = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    process = sandbox.start("exec", own, "-c", line, bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == b"got\n"
    assert process.wait(WAIT) == 9


def test_a_command_that_dies_of_the_signal_tells_it(sandbox, own):
    process = sandbox.start("exec", own, "-c", "echo ready; exec sleep 55", bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130


def test_a_second_signal_ends_only_the_command_here(sandbox, own):
    line = "trap 'echo got' INT; echo ready; while :; do sleep 0.05; done"
    process = sandbox.start("exec", own, "-c", line, bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"got\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130
    assert [one["running"] for one in sandbox.json("ps", own)] == [True]


def test_a_second_signal_ends_it_also_while_nobody_reads(sandbox, own):
    process = sandbox.start("exec", own, "-c", "trap '' INT; echo ready; yes", bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    wait_for(lambda: sandbox.json("ps", own)[0]["output_bytes"] > 65536)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130


def test_attach_leaves_the_command_running(sandbox, own):
    identity = sandbox.text("exec", "-d", own, "-c", "echo ready; exec sleep 55").strip()
    process = sandbox.start("attach", own, identity, bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 143
    assert sandbox.json("ps", own)[0]["running"]


def test_run_deletes_its_workspace_after_signals(sandbox):
    process = sandbox.start("run", "-l", "by=signals", "-c",
                            "trap 'echo got' INT; echo ready; while :; do sleep 0.05; done", bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"got\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130
    assert sandbox.json("list", "-l", "by=signals") == []


def test_a_killed_run_leaves_a_workspace_that_expires(sandbox):
    process = sandbox.start("run", "-l", "by=killed", "--expires", "10m", "-c",
                            "echo ready; exec sleep 55", bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait(WAIT)
    left = sandbox.json("list", "-l", "by=killed")
    assert len(left) == 1 and left[0]["expires_ms"] is not None
    sandbox.run("delete", "-l", "by=killed")


def test_a_signal_ends_a_copy_and_leaves_no_file(sandbox, own):
    reading, writing = os.pipe()
    process = sandbox.start("cp", "-", own + ":half", stdin=reading)
    os.write(writing, b"half of it")
    wait_for(lambda: process.poll() is not None or waits_in_poll(process.pid))
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130
    os.close(reading)
    os.close(writing)
    assert "half" not in sandbox.text("ls", own)


def waits_in_poll(pid):
    """Its handlers are there: SIGINT is among the caught ones."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        caught = next(line for line in status if line.startswith("SigCgt"))
    return int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1


def test_an_ignored_signal_stays_ignored(sandbox, own):
    """nohup and jobs in the background of a script."""
    import subprocess
    from conftest import CLI
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"trap '' HUP; exec {CLI} exec {own} -c 'echo ready; read x; echo $x' -i"],
        env=sandbox.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    process.stdin.write(b"still here\n")
    assert process.stdout.readline() == b"still here\n"
    assert process.wait(WAIT) == 0
