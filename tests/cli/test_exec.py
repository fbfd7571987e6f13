"""exec, run, ps, kill, attach: commands as if they ran here."""

import os
import time

import pytest


def test_streams_are_apart_and_byte_exact_and_the_code_is_passed_on(sandbox, workspace):
    """P156, P053: no byte is changed on the way."""
    line = r"printf 'a\n\n\nb\r\n\n\000\377\200'; printf 'x\ny' >&2; exit 7"
    result = sandbox.run("exec", workspace, "-c", line, code=7)
    assert result.stdout == b"a\n\n\nb\r\n\n\0\xff\x80"
    assert result.stderr == b"x\ny"


def test_argv_is_run_without_a_shell(sandbox, workspace):
    """P192, P189: words are words."""
    words = ["a b", "$HOME", "`id`", "-x", "", "*", "new\nline", "quo'te\"s"]
    out = sandbox.run("exec", workspace, "--", "printf", "%s\\0", *words).stdout
    assert out.split(b"\0")[:-1] == [word.encode() for word in words]


def test_a_command_needs_no_dashes_and_keeps_its_own(sandbox, workspace):
    assert sandbox.text("exec", workspace, "echo", "-n", "-i", "--json") == "-i --json"
    assert sandbox.text("exec", workspace, "--", "echo", "--") == "--\n"


@pytest.mark.parametrize("words, code", [
    (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "kill -15 $$"], 143),
    (["no-such-program-here"], 127), (["/etc/passwd"], 126),
    (["sh", "-c", "exit 255"], 255), (["true"], 0),
])
def test_exit_codes_are_those_of_a_shell(sandbox, workspace, words, code):
    result = sandbox.run("exec", workspace, "--", *words, code=code)
    assert result.stdout == b""


def test_a_missing_directory_is_told_and_nothing_runs(sandbox, workspace):
    """P188"""
    result = sandbox.run("exec", "-w", "/missing", workspace, "-c", "touch /tmp/ran", code=125)
    assert b"hint: -w" in result.stderr
    sandbox.run("exec", workspace, "test", "-e", "/tmp/ran", code=1)


def test_directory_environment_and_user_are_taken(sandbox, workspace):
    """P190: environment is data."""
    out = sandbox.text("exec", "-w", "/tmp", "-e", "A=1=2", "-e", "B=x\ny", workspace, "-c",
                       'pwd; echo "$A $B"')
    assert out == "/tmp\n1=2 x\ny\n"


def test_login_reads_the_profile(sandbox, workspace):
    assert sandbox.text("exec", "--login", workspace, "-c", "echo in") == "in\n"


def test_without_i_a_command_reads_nothing_and_our_input_is_untouched(sandbox, workspace):
    """P014, P025"""
    reading, writing = os.pipe()
    os.write(writing, b"ours")
    assert sandbox.text("exec", workspace, "-c", "cat; echo done", stdin=reading) == "done\n"
    os.close(writing)
    assert os.read(reading, 16) == b"ours"
    os.close(reading)


def test_with_i_input_is_forwarded_to_its_end(sandbox, workspace):
    given = os.urandom(3 << 20)
    assert sandbox.run("exec", "-i", workspace, "cat", given=given).stdout == given


def test_the_end_of_a_command_is_not_held_up_by_our_input(sandbox, workspace):
    """P015: `sleep 60 | sandbox exec W -- echo hi`, with and without -i."""
    for options in ([], ["-i"]):
        reading, writing = os.pipe()  # nobody writes, nobody closes
        try:
            result = sandbox.run("exec", *options, workspace, "--", "echo", "hi", stdin=reading)
        finally:
            os.close(reading)
            os.close(writing)
        assert result.stdout == b"hi\n"


def test_a_command_that_reads_no_input_does_not_hold_it_up(sandbox, workspace):
    result = sandbox.run("exec", "-i", workspace, "echo", "hi", given=b"x" * (8 << 20), code=0)
    assert result.stdout == b"hi\n"


def test_much_output_on_both_streams_arrives_whole(sandbox, workspace):
    """P004, P016, P034: more than every buffer, stderr first."""
    line = "head -c 3000000 /dev/zero | tr '\\0' e >&2; seq 1 100000"
    result = sandbox.run("exec", workspace, "-c", line)
    assert len(result.stderr) == 3000000
    assert result.stdout == b"".join(b"%d\n" % number for number in range(1, 100001))


def test_a_slow_reader_loses_nothing(sandbox, workspace):
    """P004"""
    process = sandbox.start("exec", workspace, "seq", "1", "20000", bufsize=0)
    pieces = []
    while piece := process.stdout.read(997):
        pieces.append(piece)
        time.sleep(0.0005)
    assert process.wait(60) == 0
    assert b"".join(pieces) == b"".join(b"%d\n" % number for number in range(1, 20001))


def test_a_reader_that_leaves_ends_the_command_quietly(sandbox, own):
    """`sandbox exec W -- yes | head -1`"""
    process = sandbox.start("exec", own, "yes")
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    listed = sandbox.json("ps", own)
    assert len(listed) == 1 and not listed[0]["running"] and listed[0]["exit"]["signal"] == 13


def test_a_full_disk_under_the_output_is_told(sandbox, workspace):
    with open("/dev/full", "wb") as full:
        result = sandbox.run("exec", workspace, "echo", "hi", stdout=full, code=125)
    assert b"No space left" in result.stderr


def test_a_deadline_kills_the_command_and_its_children(sandbox, own):
    """P032, P077"""
    line = "(sleep 3; touch late) & setsid sleep 66 & wait"
    result = sandbox.run("exec", "--deadline", "300ms", own, "-c", line, code=124)
    assert b"deadline" in result.stderr
    assert sandbox.json("ps", own)[0]["exit"]["timed_out"]
    assert sandbox.json("ps", own)[0]["descendants"] == 0


def test_a_detached_command_goes_on_and_can_be_attached(sandbox, own):
    """P005: output from the start, and from an offset."""
    identity = sandbox.text("exec", "-d", own, "-c", "echo one; echo two >&2; exec sleep 55").strip()
    assert len(identity) == 32
    process = sandbox.start("attach", own, identity, bufsize=0)
    assert process.stdout.readline() == b"one\n"
    assert process.stderr.readline() == b"two\n"
    assert sandbox.json("ps", own)[0]["running"]
    sandbox.run("kill", own, identity[:8])
    assert process.wait(60) == 143
    result = sandbox.run("attach", "--offset", "2", "--error-offset", "9", own, identity, code=143)
    assert result.stdout == b"e\n" and result.stderr == b""
    shown = sandbox.text("ps", own)
    assert identity[:12] in shown and "signal 15" in shown
    assert sandbox.text("-q", "ps", own) == identity + "\n"


def test_kill_takes_names_and_numbers_and_forgives_the_dead(sandbox, own):
    for given, number in (("INT", 2), ("sigkill", 9), ("1", 1)):
        identity = sandbox.text("exec", "-d", own, "sleep", "55").strip()
        sandbox.run("kill", "-s", given, own, identity)
        sandbox.run("attach", own, identity, code=128 + number)
        sandbox.run("kill", own, identity)
    sandbox.run("kill", own, "f" * 31, code=3)


def test_a_second_start_with_an_id_attaches(sandbox, own):
    """The id is the idempotency key: nothing runs twice."""
    identity = os.urandom(16).hex()
    for _ in range(2):
        out = sandbox.text("exec", "--id", identity, own, "-c", "echo once >>log; echo said")
        assert out == "said\n"
    assert sandbox.text("cat", own + ":log") == "once\n"


def test_a_service_is_told_from_a_task(sandbox, own):
    sandbox.run("exec", "-d", "--service", own, "sleep", "55")
    assert [one["role"] for one in sandbox.json("ps", own)] == ["service"]
    assert sandbox.json("stats", own)["active_tasks"] == 0


def test_names_from_inside_cannot_move_the_cursor(sandbox, own):
    sandbox.run("exec", own, "true", "\x1b[2J\n\u202e\x9b1m")
    shown = sandbox.text("ps", own)
    assert "\x1b" not in shown and len(shown.splitlines()) == 2


def test_run_makes_executes_and_deletes(sandbox):
    result = sandbox.run("run", "-l", "by=run", "--", "sh", "-c", "echo out; exit 5", code=5)
    assert result.stdout == b"out\n"
    assert sandbox.json("list", "-l", "by=run") == []


def test_run_deletes_also_where_the_command_cannot_start(sandbox):
    sandbox.run("run", "-l", "by=run", "--", "no-such-program-here", code=127)
    assert sandbox.json("list", "-l", "by=run") == []


def test_run_keeps_if_asked_and_sets_an_expiry(sandbox):
    result = sandbox.run("run", "--keep", "--name", "kept", "-c", "echo 1 >file")
    assert b"kept" in result.stderr
    facts = sandbox.json("inspect", "kept")
    assert 3500_000 < facts["expires_ms"] - facts["created_ms"] < 3700_000
    assert sandbox.text("cat", "kept:file") == "1\n"
    sandbox.run("delete", "kept")


def test_run_forwards_input(sandbox):
    assert sandbox.run("run", "-i", "--", "cat", given=b"abc").stdout == b"abc"


def test_many_at_once_over_one_workspace(sandbox, workspace):
    """P010: every one ends with its own code."""
    started = [sandbox.start("exec", workspace, "-c", f"echo {number}; exit {number}")
               for number in range(12)]
    for number, process in enumerate(started):
        out, _ = process.communicate(timeout=90)
        assert (process.returncode, out) == (number, b"%d\n" % number)


def test_closing_the_reader_of_a_table_is_quiet(sandbox, workspace):
    reading, writing = os.pipe()
    os.close(reading)
    process = sandbox.start("list", stdout=writing)
    os.close(writing)
    assert process.wait(60) == 141 and process.stderr.read() == b""


def test_nothing_of_ours_is_inherited(sandbox, workspace):
    """The command inside sees three descriptors and what it opens itself."""
    out = sandbox.text("exec", workspace, "-c", "ls /proc/self/fd | wc -l")
    assert int(out) == 4
