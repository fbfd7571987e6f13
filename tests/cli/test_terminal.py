"""exec -t on a real terminal: size, keys, and that it is always put back."""

import os
import re
import signal
import termios

import pytest


@pytest.fixture
def keys(sandbox, workspace):
    """Where the guest kernel's terminals make signals of keys: Linux, and gVisor since 2023."""
    tried = sandbox.run("exec", "-t", workspace, "-c", ": >/dev/tty", code=None)
    if tried.returncode != 0:
        pytest.skip("this gVisor release's terminals raise no signals: " + tried.stdout.decode())


def test_the_size_is_there_and_follows(terminal, workspace):
    """P083"""
    screen = terminal("exec", "-t", workspace, "-c",
                      "stty size; echo ready; while stty size; do sleep 0.05; done")
    screen.wait_for(rb"43 132\r\n")
    screen.wait_for(rb"ready")
    screen.resize(24, 80)
    screen.process.send_signal(signal.SIGWINCH)
    screen.wait_for(rb"24 80\r\n")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.end() in (143, 129)


def test_the_command_is_told_of_a_new_size(terminal, workspace):
    """P083"""
    screen = terminal("exec", "-t", workspace, "-c",
                      "trap 'echo told; exit 6' WINCH; echo ready; while :; do sleep 0.05; done")
    screen.wait_for(rb"ready")
    screen.resize(24, 80)
    screen.process.send_signal(signal.SIGWINCH)
    screen.wait_for(rb"told")
    assert screen.end() == 6


def test_it_is_a_real_terminal_with_job_control(terminal, workspace, keys):
    """P084"""
    screen = terminal("exec", "-t", workspace, "-c",
                      "test -t 0 && test -t 1 && test -t 2 && echo T=$TERM; echo hi >/dev/tty")
    screen.wait_for(rb"T=xterm\r\n")
    screen.wait_for(rb"hi\r\n")
    assert screen.end() == 0


def test_the_exit_code_comes_through(terminal, workspace):
    """P152"""
    assert terminal("exec", "-t", workspace, "-c", "exit 7").end() == 7


def test_a_hostile_terminal_type_is_left_out(terminal, workspace):
    """P085"""
    screen = terminal("exec", "-t", workspace, "-c", "echo T=$TERM", TERM="../../x")
    screen.wait_for(rb"T=xterm-256color\r\n")
    assert screen.end() == 0


def test_ctrl_c_is_a_key_for_the_command(terminal, workspace, keys):
    screen = terminal("exec", "-t", workspace, "-c",
                      "trap 'echo got' INT; echo ready; read a; read b; echo =$b=")
    screen.wait_for(rb"ready\r\n")
    assert screen.is_raw()
    screen.keys(b"\x03")
    screen.wait_for(rb"got\r\n")
    screen.keys(b"one\rtwo\r")
    screen.wait_for(rb"=(two|one)=\r\n|==\r\n")
    assert screen.end() == 0


def test_ctrl_d_ends_the_input(terminal, workspace, keys):
    screen = terminal("exec", "-it", workspace, "-c", "echo ready; cat; echo over")
    screen.wait_for(rb"ready\r\n")
    screen.keys(b"abc\r\x04")
    screen.wait_for(rb"over\r\n")
    assert screen.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_puts_the_terminal_back(terminal, workspace, number):
    screen = terminal("exec", "-t", workspace, "-c", "echo ready; exec sleep 55")
    screen.wait_for(rb"ready")
    screen.process.send_signal(number)
    assert screen.end() in (128 + number, 129)


def test_a_crash_puts_the_terminal_back(terminal, workspace):
    screen = terminal("exec", "-t", workspace, "-c", "echo ready; exec sleep 55")
    screen.wait_for(rb"ready")
    screen.process.send_signal(signal.SIGABRT)
    assert screen.end() == -signal.SIGABRT


def test_a_stop_puts_it_back_and_going_on_makes_it_raw_again(terminal, workspace):
    screen = terminal("exec", "-t", workspace, "-c", "echo ready; read x; echo =$x=")
    screen.wait_for(rb"ready\r\n")
    screen.process.send_signal(signal.SIGTSTP)
    screen.wait_until(lambda: state(screen.process.pid) == "T")
    assert termios.tcgetattr(screen.theirs) == screen.before
    screen.process.send_signal(signal.SIGCONT)
    screen.wait_until(screen.is_raw)
    screen.keys(b"on\r")
    screen.wait_for(rb"=on=\r\n")
    assert screen.end() == 0


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


def test_a_failure_puts_the_terminal_back(terminal, sandbox):
    assert terminal("exec", "-t", "missing-workspace", "sh").end() == 125


def test_without_t_the_terminal_stays_cooked(terminal, workspace):
    screen = terminal("exec", workspace, "-c", "test -t 1 || echo none; echo ready; read x")
    screen.wait_for(rb"none\r\n")
    screen.wait_for(rb"ready\r\n")
    assert not screen.is_raw()
    assert screen.end() == 1


def test_ctrl_c_without_t_is_a_signal_for_the_command(terminal, workspace):
    screen = terminal("exec", workspace, "-c",
                      "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.05; done")
    screen.wait_for(rb"ready\r\n")
    screen.keys(b"\x03")
    screen.wait_for(rb"got\r\n")
    assert screen.end() == 5


def test_t_without_a_terminal_here_gives_one_inside(sandbox, workspace):
    out = sandbox.run("exec", "-t", workspace, "-c", "tty >/dev/null && stty size").stdout
    assert out == b"24 80\r\n"


def test_attach_t_goes_on_with_a_terminal(terminal, sandbox, own):
    identity = sandbox.text("exec", "-d", "-t", own, "-c", "echo ready; read x; echo =$x=; exit 3")
    screen = terminal("attach", "-t", own, identity.strip())
    screen.wait_for(rb"ready\r\n")
    screen.keys(b"again\r")
    screen.wait_for(rb"=again=\r\n")
    assert screen.end() == 3


def test_colour_is_for_terminals_and_can_be_refused(terminal, workspace):
    screen = terminal("list")
    screen.wait_for(rb"\x1b\[32mrunning\x1b\[0m")
    assert screen.end() == 0
    plain = terminal("list", NO_COLOR="1")
    plain.wait_for(rb"running")
    assert plain.end() == 0 and b"\x1b" not in plain.shown


def test_tables_are_cut_at_the_edge(terminal, sandbox, own):
    sandbox.run("exec", own, "true", "x" * 200)
    screen = terminal("ps", own, columns=100)
    assert screen.end() == 0
    lines = screen.shown.decode().split("\r\n")
    assert max(len(re.sub(r"\x1b\[[0-9]*m", "", line)) for line in lines) <= 100
    assert lines[1].endswith("…")


def test_a_copy_shows_its_progress_and_clears_it(terminal, sandbox, own, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(4 << 20))
    screen = terminal("cp", str(tmp_path / "big"), own + ":")
    assert screen.end() == 0
    assert b"4.0 MiB" in screen.shown and screen.shown.endswith(b"\r\x1b[K")
