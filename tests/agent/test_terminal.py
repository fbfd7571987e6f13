"""Terminals: size, signals, controlling terminal, end of file, end."""
import grpc
import pytest

from conftest import fails, processes_pb2, until

CODE = grpc.StatusCode


class Screen:
    """What a terminal has shown so far."""

    def __init__(self, agent, id):
        self.events, self.text, self.exit = agent.attach(id), b"", None

    def until(self, wanted):
        while wanted not in self.text:
            event = next(self.events)
            assert event.kind != processes_pb2.ProcessEvent.KIND_EXIT, self.text
            self.text += event.data
        before, self.text = self.text.split(wanted, 1)
        return before

    def end(self):
        for event in self.events:
            self.text += event.data
            if event.kind == processes_pb2.ProcessEvent.KIND_EXIT:
                self.exit = event.exit
        return self.text


def test_p083_size_is_right_at_once_and_a_resize_is_felt(agent):
    program = ("import os,signal\n"
               "size=lambda *a: os.write(1, b'size %d %d\\n' % os.get_terminal_size())\n"
               "signal.signal(signal.SIGWINCH, size); size()\n"
               "while True: signal.pause()\n")
    id = agent.start(argv=["/usr/bin/python3", "-c", program], terminal=(43, 132))
    screen = Screen(agent, id)
    screen.until(b"size 132 43\r\n")
    agent.resize(id, 24, 80)
    screen.until(b"size 80 24\r\n")
    assert agent.signal(id, 15)
    screen.end()
    assert screen.exit.signal == 15


def test_p084_it_is_the_controlling_terminal(agent):
    id = agent.start("tty; [ $(ps -o tpgid= -p $$) = $$ ] && echo foreground; "
                     "echo via > /dev/tty; test -t 0 -a -t 1 -a -t 2 && echo three",
                     terminal=(24, 80))
    text = agent.collect(id).stdout
    assert text.startswith(b"/dev/pts/")
    assert text.split(b"\r\n")[1:] == [b"foreground", b"via", b"three", b""]


@pytest.mark.parametrize("size", [(0, 0), (0, 80), (24, 0), (65535, 65535), (4097, 80)])
def test_p085_sizes_out_of_range_are_refused(agent, size):
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.start, "true", terminal=size)
    id = agent.start("read line; stty size", terminal=(24, 80))
    fails(CODE.INVALID_ARGUMENT, "invalid", agent.resize, id, *size)
    agent.resize(id, 4096, 4096)
    agent.write(id, b"\n")
    assert b"4096 4096" in agent.collect(id).stdout


@pytest.mark.parametrize("given, seen", [
    ("", "xterm-256color"), ("vt100", "vt100"), ("screen.xterm-256color", "screen.xterm-256color"),
    ("../../x", "xterm-256color"), ("a/b", "xterm-256color"), ("x" * 65, "xterm-256color"),
    ("a\0b", "xterm-256color"), ("$(id)", "xterm-256color")])
def test_p085_term_leads_nowhere(agent, given, seen):
    output = agent.run('echo "$TERM"', terminal=(24, 80, given))
    assert output.stdout == seen.encode() + b"\r\n"


def test_p152_exit_codes_come_from_terminals_too(agent):
    assert agent.run("exit 7", terminal=(24, 80)).exit.code == 7
    assert agent.run("kill -9 $$", terminal=(24, 80)).exit.signal == 9


def test_all_of_its_output_comes_before_the_end(agent):
    for _ in range(10):
        output = agent.run("seq 1 20000; echo err >&2", terminal=(24, 80))
        wanted = b"".join(b"%d\r\n" % n for n in range(1, 20_001)) + b"err\r\n"
        assert output.stdout == wanted and output.stderr == b""


def test_typed_control_characters_act(agent):
    id = agent.start(argv=["bash", "--norc", "--noediting", "-i"], terminal=(24, 80),
                     env=["PS1=ready> "])
    screen = Screen(agent, id)
    screen.until(b"ready> ")
    written = agent.write(id, b"sh -c 'echo up; exec sleep 1000'\n")
    screen.until(b"\r\nup\r\n")
    until(lambda: agent.activity().active_terminals == 1, "the job has the terminal")
    written = agent.write(id, b"\x03", offset=written)
    screen.until(b"ready> ")
    written = agent.write(id, b"echo $((40+2)) $?\n", offset=written)
    screen.until(b"42 130\r\n")
    screen.until(b"ready> ")
    agent.write(id, offset=written, end=True)
    screen.end()
    assert screen.exit.code == 130 or screen.exit.code == 0


def test_the_end_of_input_is_typed(agent):
    id = agent.start("cat; echo after", terminal=(24, 80))
    written = agent.write(id, b"line\n")
    agent.write(id, offset=written, end=True)
    text = agent.collect(id).stdout
    assert text == b"line\r\nline\r\nafter\r\n"


def test_a_terminal_can_be_opened_by_its_user(agent):
    output = agent.run("echo x > $(tty); stat -c '%u %a' $(tty)", user="4321:5432",
                       terminal=(24, 80), directory=b"/")
    assert output.stdout == b"x\r\n4321 620\r\n"


def test_what_has_no_terminal_is_not_resized(agent):
    id = agent.start("read line", input=True)
    fails(CODE.FAILED_PRECONDITION, "no-terminal", agent.resize, id, 24, 80)
    agent.write(id, end=True)
    agent.wait(id)
    id = agent.start("true", terminal=(24, 80))
    agent.wait(id)
    fails(CODE.FAILED_PRECONDITION, "ended", agent.resize, id, 24, 80)
