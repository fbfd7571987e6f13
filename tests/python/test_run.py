"""run(), text, and what becomes of a command that is stopped."""

import json
import subprocess
import threading
import time

import pytest
from conftest import count, wait_until

import libsandbox


def test_streams_are_apart_and_the_code_is_told(workspace):
    """P156, P152: byte exact, blank lines too."""
    result = workspace.run(r"printf 'a\n\n\nb\r\n\n\000\377'; printf 'x\ny' >&2; exit 7")
    assert result.stdout == b"a\n\n\nb\r\n\n\0\xff" and result.stderr == b"x\ny"
    assert result.returncode == 7 and (result.stdout_total, result.stderr_total) == (10, 3)
    assert isinstance(result, subprocess.CompletedProcess) and not result.stdout_truncated


def test_check_raises_what_subprocess_raises(workspace):
    with pytest.raises(subprocess.CalledProcessError) as raised:
        workspace.run("echo out; echo err >&2; exit 3", check=True, text=True)
    error = raised.value
    assert isinstance(error, libsandbox.CommandFailed)
    assert (error.returncode, error.output, error.stderr) == (3, "out\n", "err\n")
    assert workspace.run("true", check=True).returncode == 0
    assert workspace.run("kill -9 $$").returncode == -9


def test_a_list_is_run_without_a_shell(workspace):
    """P192, P189"""
    words = ["a b", "$HOME", "`id`", "-x", "", "*", "new\nline", "quo'te\"s"]
    out = workspace.run(["printf", "%s\\0", *words]).stdout
    assert out.split(b"\0")[:-1] == [word.encode() for word in words]
    with pytest.raises(libsandbox.NotFound) as raised:
        workspace.run(["no-such-program"])
    assert raised.value.reason == "no-such-program"


def test_input_is_read_to_its_end(workspace):
    given = bytes(range(256)) * 8192
    for form in (given, bytearray(given), memoryview(given)):
        assert workspace.run("cat", input=form).stdout == given
    assert workspace.run("cat", input="grüße", text=True).stdout == "grüße"
    with pytest.raises(TypeError):
        workspace.run("cat", input="text without an encoding")


def test_p014_p025_a_command_reads_nothing_by_default(workspace):
    assert workspace.run("cat; echo done", timeout=30).stdout == b"done\n"


def test_p016_both_streams_are_read(workspace):
    result = workspace.run("head -c 1000000 /dev/zero >&2; echo x", timeout=30)
    assert len(result.stderr) == 1000000 and result.stdout == b"x\n"


def test_p002_p003_what_is_cut_off_is_told_and_each_stream_has_its_own_budget(workspace):
    result = workspace.run("head -c 100001 /dev/zero; echo why >&2; exit 1", output_limit=100000)
    assert (result.stdout_truncated, result.stderr_truncated) == (True, False)
    assert (len(result.stdout), result.stdout_total) == (100000, 100001)
    assert result.stderr == b"why\n" and result.returncode == 1


def test_p024_a_heredoc_and_another_command(workspace):
    assert workspace.run("cat << 'EOF'\n$a\nEOF\n", timeout=30).stdout == b"$a\n"
    assert workspace.run("echo b", timeout=30).stdout == b"b\n"


def test_p188_a_missing_directory_is_told_and_nothing_runs(own):
    with pytest.raises(libsandbox.NotFound) as raised:
        own.run("touch ran", directory="/missing")
    assert raised.value.reason == "no-such-directory"
    with pytest.raises(libsandbox.NotFound):
        own.files.stat("ran")


def test_p190_environment_is_data(workspace):
    out = workspace.run('echo "$A|$B"', env={"A": "1=2", "B": "x\ny$(id)"}, text=True).stdout
    assert out == "1=2|x\ny$(id)\n"
    assert workspace.run("echo $A", env=["A=b"]).stdout == b"b\n"


# Two, three and four bytes.
LETTERS = "é≤🙂"


@pytest.mark.parametrize("letter", LETTERS)
def test_p074_a_letter_that_comes_in_pieces_is_one(workspace, letter):
    """At every place where it may be cut, in run, text() and lines()."""
    data = letter.encode()
    for cut in range(1, len(data)):
        first, second = ("".join(f"\\{byte:03o}" for byte in part)
                         for part in (data[:cut], data[cut:]))
        # The reader says that it has the first piece before the second is sent.
        line = f"printf 'a{first}'; read go; printf '{second}b'"
        for decode in ("text", "lines"):
            process = workspace.start(line, input="pipe", deadline=60)
            pieces = getattr(process, decode)()
            opener = threading.Thread(target=go_on_after_first_piece, args=(process, cut + 1))
            opener.start()
            assert "".join(text for _, text in pieces) == f"a{letter}b"
            opener.join()


def go_on_after_first_piece(process, size):
    """Once the guest has written the first piece, whoever has read it."""
    other = libsandbox_find(process)
    seen = 0
    while seen < size:
        seen += len(other.next().data)
    process.write(b"\n")


def libsandbox_find(process):
    return process.workspace_for_tests.find_process(process.id)


@pytest.fixture(autouse=True)
def _reach(monkeypatch, workspace):
    """A second handle on a process needs its workspace."""
    monkeypatch.setattr(libsandbox.Process, "workspace_for_tests", workspace, raising=False)


def test_p074_a_torn_end_is_told_and_strict_raises(workspace):
    line = r"printf 'a\342\211'"
    assert "".join(t for _, t in workspace.start(line).text()) == "a\ufffd"
    assert workspace.run(line, text=True).stdout == "a\ufffd"
    with pytest.raises(UnicodeDecodeError):
        workspace.run(line, text=True, errors="strict")
    with pytest.raises(UnicodeDecodeError):
        list(workspace.start(line).text(errors="strict"))
    assert workspace.run(r"printf '\351'", encoding="latin-1").stdout == "é"


def test_p074_each_stream_has_a_decoder_of_its_own(workspace):
    line = r"printf '\303'; printf '\303' >&2; printf '\251'; printf '\274' >&2"
    texts = {"stdout": "", "stderr": ""}
    for kind, text in workspace.start(line).text():
        texts[kind] += text
    assert texts == {"stdout": "é", "stderr": "ü"}


def test_p075_lines_are_whole_however_long(workspace):
    """One line of a megabyte in Hebrew and Chinese, and short ones around it."""
    program = ("import json; print('{}'); print(json.dumps({'a': 'שלום世界' * 80000},"
               " ensure_ascii=False)); print('[]', end='')")
    process = workspace.start(["env", "PYTHONIOENCODING=utf-8", "python3", "-c", program])
    lines = [line for kind, line in process.lines() if kind == "stdout"]
    assert [type(json.loads(line)) for line in lines] == [dict, dict, list]
    assert len(lines[1].encode()) > 1 << 20 and lines[1].endswith("\n")


def test_p191_a_line_of_ten_megabytes_and_a_limit(workspace):
    line = "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo short"
    sizes = [len(line) for _, line in workspace.start(line).lines(encoding=None)]
    assert sizes == [10000001, 6]
    with pytest.raises(libsandbox.Limit) as raised:
        list(workspace.start(line).lines(limit=1000))
    assert raised.value.reason == "line-too-long"


def test_p156_lines_keep_blank_ones(workspace):
    out = [line for _, line in workspace.start(r"printf 'a\n\n\nb\r\n\n'").lines()]
    assert out == ["a\n", "\n", "\n", "b\r\n", "\n"]


def still_run(workspace, mark):
    """Of all processes inside, not only those that the library started."""
    return workspace.run(["pgrep", "-f", "-c", mark], text=True).stdout.strip() != "0"


def test_p032_a_timeout_ends_it_and_all_it_started(own):
    began = time.monotonic()
    with pytest.raises(libsandbox.CommandTimedOut) as raised:
        own.run("echo begun; sleep 61.25 & wait", timeout=0.2, text=True)
    assert 0.2 <= time.monotonic() - began < 2
    error = raised.value
    assert isinstance(error, subprocess.TimeoutExpired) and isinstance(error, TimeoutError)
    assert (error.stdout, error.timeout, error.status) == ("begun\n", 0.2, "timed-out")
    assert not still_run(own, "^sleep 61.25")


def test_a_deadline_is_told_in_the_result(own):
    result = own.run("echo begun; sleep 61.25", deadline=0.1)
    assert result.timed_out and result.signal == 9 and result.stdout == b"begun\n"


@pytest.mark.parametrize("line", ["(sleep 1; touch after) & wait",
                                  "setsid -f sh -c 'sleep 1; touch after'; sleep 60"])
def test_p077_p078_what_it_started_ends_with_it(own, line):
    with pytest.raises(libsandbox.TimedOut):
        own.run(line, timeout=0.2)
    # Later than it would have been made.
    assert own.run("sleep 1.5; ls after").returncode != 0


def cancel_soon(cancel, process_runs):
    def work():
        wait_until(process_runs, "the command runs")
        cancel.trigger()
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_p155_cancel_ends_it_and_all_it_started(own):
    cancel = libsandbox.Cancel()
    thread = cancel_soon(cancel, lambda: own.list_processes() != [])
    with pytest.raises(libsandbox.Cancelled):
        own.run("sleep 61.75 | cat", cancel=cancel)
    thread.join()
    assert cancel.triggered
    wait_until(lambda: not still_run(own, "^sleep 61.75"), "its end")


def test_leave_running_leaves_it(own):
    cancel = libsandbox.Cancel()
    thread = cancel_soon(cancel, lambda: own.list_processes() != [])
    with pytest.raises(libsandbox.Cancelled) as raised:
        own.run("sleep 61.75", cancel=cancel, leave_running=True)
    thread.join()
    process = own.find_process(raised.value.process_id)
    assert own.list_processes()[0].running
    process.kill()
    assert process.wait().signal == 9
    with pytest.raises(libsandbox.TimedOut):
        own.run("sleep 61.75", timeout=0.05, leave_running=True)


def test_p054_an_end_during_a_stream_says_what_it_was(client):
    """Cancelled is told as such, and so is a workspace that was deleted meanwhile."""
    with client.create_workspace(temporary=True) as made:
        process = made.start("while echo x; do sleep 0.01; done")
        cancel = libsandbox.Cancel()
        process.next()
        cancel.trigger()
        with pytest.raises(libsandbox.Cancelled):
            while True:
                process.next(cancel=cancel)
        assert process.next().data  # the process and its handle are as they were
        ended = threading.Thread(target=made.delete)
        ended.start()
        with pytest.raises(libsandbox.Closed) as raised:
            while True:
                process.next()
        assert raised.value.reason == "workspace-deleted"
        ended.join()


def test_p030_deleting_a_workspace_ends_all_its_streams(client):
    made = client.create_workspace(expires_after=600)
    processes = [made.start("while echo x; do sleep 0.01; done") for _ in range(20)]
    ends = []

    def follow(process):
        try:
            for _ in process:
                pass
            ends.append("ended")
        except libsandbox.Error as error:
            ends.append(error.status)
    threads = [threading.Thread(target=follow, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    made.delete()
    for thread in threads:
        thread.join()
    assert ends == ["closed"] * 20


def test_p007_p153_an_unknown_end_is_no_code(uri, client):
    """Its agent dies under it: an error, never a code."""
    import os
    import signal

    with client.create_workspace(temporary=True) as made:
        process = made.start("echo begun; sleep 60")
        assert process.next().data == b"begun\n"
        agent = int(made.inspect().incarnation.split("-")[2])
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(libsandbox.Error) as raised:
            while True:
                process.next()
        assert raised.value.status in ("interrupted", "unavailable")
        assert process.exit is None


@pytest.mark.parametrize("line, size", [("seq 1 100000", 588895),
                                        ("head -c 66890 /dev/zero | tr '\\0' a", 66890)])
def test_p004_no_byte_is_lost_at_the_end(workspace, line, size):
    for _ in range(count(10, 200)):
        assert len(workspace.run(line).stdout) == size
    assert sum(len(event.data) for event in workspace.start(line)) == size


def test_p010_every_wait_returns(workspace):
    for _ in range(count(50, 1000)):
        assert workspace.start("exit 3").wait(timeout=30).code == 3


def test_p027_failed_starts_leave_nothing(own):
    for _ in range(count(20, 100)):
        with pytest.raises(libsandbox.NotFound):
            own.start(["no-such-program"])
    assert not any(info.running for info in own.list_processes())
