"""Suspend, resume, checkpoint, restore: as people and scripts see them."""

import os
import pathlib
import re
import signal
import socket
import time

import pytest
from conftest import WAIT
from test_workspaces import end_instance

COUNTER = "n=0; while [ ! -e stop ]; do echo $n; n=$((n+1)); sleep 0.05; done"


@pytest.fixture
def counting(sandbox, own):
    """A workspace in which something counts that does not keep it busy, and the id of that."""
    identity = sandbox.text("exec", "-d", "--service", own, "-c", COUNTER).strip()
    wait_for_output(sandbox, own, identity, 10)
    return own, identity


def process(sandbox, name, identity):
    return next(one for one in sandbox.json("ps", name) if one["id"] == identity)


def wait_for_output(sandbox, name, identity, size):
    end = time.monotonic() + WAIT
    while process(sandbox, name, identity)["output_bytes"] < size:
        assert time.monotonic() < end


def put(sandbox, name, text, path="file"):
    sandbox.run("exec", "-i", name, "-c", f"cat >{path}", given=text.encode())


def read(sandbox, name, path="file"):
    return sandbox.text("cat", f"{name}:{path}")


def state(sandbox, name):
    return sandbox.json("inspect", name)["state"]


def hints(sandbox, *words, code):
    """The failure and its remedy."""
    lines = sandbox.run(*words, code=code).stderr.decode().splitlines()
    assert len(lines) == 2 and lines[0].startswith("sandbox: "), lines
    assert lines[1].startswith("hint: "), lines
    return lines[0], lines[1]


# ---- suspend and resume ----


def test_a_process_goes_on_where_it_was_without_a_gap(sandbox, counting):
    name, identity = counting
    put(sandbox, name, "kept")
    told = sandbox.text("suspend", name)
    assert re.match(rf"{name} suspended: snapshot [0-9a-f]{{12}} keeps files and processes ", told)
    assert state(sandbox, name) == "suspended"
    facts = sandbox.json("inspect", name)
    assert facts["incarnation"] == "" and facts["snapshot_count"] == 1
    told = sandbox.text("resume", name)
    assert re.match(rf"{name} resumed: restored, proven by memory; [12] process(es go| goes) on",
                    told)
    assert state(sandbox, name) == "running" and read(sandbox, name) == "kept"
    before = process(sandbox, name, identity)["output_bytes"]
    wait_for_output(sandbox, name, identity, before + 10)
    sandbox.run("exec", name, "touch", "stop")
    counted = [int(line) for line in sandbox.text("attach", name, identity).splitlines()]
    assert counted == list(range(len(counted))) and len(counted) > 8


def test_a_program_reads_how_it_went(sandbox, counting):
    name, _ = counting
    slept = sandbox.json("suspend", name)
    assert slept["name"] == name and slept["kept"] == "memory" and slept["why_files"] == ""
    assert re.fullmatch(r"[0-9a-f]{32}", slept["snapshot"]) and slept["stopped"] >= 1
    assert slept["took_ms"] > 0 and slept["bytes"] >= 0 and slept["parked"] == 0
    woke = sandbox.json("resume", name)
    assert woke["restored"] is True and woke["proof"] == "memory" and woke["kept"] == "memory"
    assert woke["snapshot"] == slept["snapshot"] and woke["attempts"] == 1
    assert woke["continued"] >= 1 and woke["generation"] == 1 and woke["hook_code"] is None
    assert woke["clock_failed"] is False and woke["asleep_ms"] > 0 and woke["took_ms"] > 0


def test_a_second_time_is_no_failure(sandbox, own):
    snapshot = sandbox.json("suspend", own)["snapshot"]
    assert sandbox.json("suspend", own)["snapshot"] == snapshot
    assert sandbox.text("-q", "suspend", own) == snapshot + "\n"
    assert sandbox.text("-q", "resume", own) == own + "\n"
    assert sandbox.text("resume", own) == f"{own} runs already\n"
    assert sandbox.json("resume", own)["attempts"] == 0


def test_only_files_are_kept_where_that_is_asked_for(sandbox, counting):
    name, identity = counting
    put(sandbox, name, "kept")
    assert "keeps files only" in sandbox.text("suspend", "--keep", "files", name)
    woke = sandbox.text("resume", name)
    assert "restored, proven by files" in woke
    assert read(sandbox, name) == "kept"
    assert not any(one["id"] == identity and one["running"] for one in sandbox.json("ps", name))


def test_who_works_is_told_and_force_does_not_ask(sandbox, own):
    sandbox.run("exec", "-d", own, "sleep", "1234")
    failure, hint = hints(sandbox, "suspend", own, code=6)
    assert "is active" in failure and "sleep 1234" in failure and "--force" in hint
    assert state(sandbox, own) == "running"
    assert "sleep 1234" in sandbox.json("stats", own)["active"]
    sandbox.run("suspend", "--force", own)
    assert state(sandbox, own) == "suspended"


@pytest.mark.parametrize("verb", ["ps", "ls", "stats", "ports"])
def test_work_on_a_suspended_one_tells_the_remedy(sandbox, asleep, verb):
    failure, hint = hints(sandbox, verb, asleep, code=9)
    assert "suspended" in failure and f"sandbox resume {asleep}" in hint


def test_a_command_in_a_suspended_one_tells_the_remedy(sandbox, asleep):
    failure, hint = hints(sandbox, "exec", asleep, "true", code=125)
    assert "suspended" in failure and f"sandbox resume {asleep}" in hint
    _, hint = hints(sandbox, "checkpoint", asleep, code=9)
    assert f"sandbox resume {asleep}" in hint


@pytest.fixture(scope="module")
def asleep(sandbox):
    name = sandbox.text("create", "--expires", "1h").strip()
    sandbox.run("suspend", name)
    yield name
    sandbox.run("delete", name)


def test_open_resumes(sandbox, own):
    put(sandbox, own, "kept")
    sandbox.run("suspend", own)
    assert sandbox.text("open", own) == own + "\n"
    assert read(sandbox, own) == "kept"


def test_a_fresh_environment_may_come_with_the_resume(sandbox):
    sandbox.run("create", "environs", "-e", "ONE=first", "--expires", "1h")
    sandbox.run("suspend", "environs")
    sandbox.run("resume", "environs")
    assert sandbox.text("exec", "environs", "-c", "echo $ONE") == "first\n"
    sandbox.run("suspend", "environs")
    given = {**sandbox.environment, "TWO": "second"}
    sandbox.run("resume", "-e", "TWO", "environs", env=given)
    assert sandbox.text("exec", "environs", "-c", "echo $ONE,$TWO") == ",second\n"
    sandbox.run("delete", "environs")


@pytest.mark.parametrize("words", [
    ("suspend", "--keep", "all", "x"), ("suspend", "--check", "opencode", "x"),
    ("suspend", "--check", "opencode:0", "x"), ("suspend", "--quiet-for", "soon", "x"),
    ("suspend", "--quiet-for", "60d", "x"), ("suspend",), ("suspend", "x", "y"),
    ("checkpoint", "--keep", "none", "x"), ("resume", "--accept", "anything", "x"),
    ("resume", "--from", "nowhere", "x"), ("open", "--from", "nowhere", "x"), ("restore", "x"),
    ("suspend-idle", "--idle", "soon"), ("suspend-idle", "--parallel", "0"),
    ("suspend-idle", "--keep", "all"), ("suspend-idle", "x"), ("snapshot-delete", "x"),
])
def test_wrong_usage_ends_with_2_before_anything_is_asked(memory, words):
    memory.run(*words, code=2)


@pytest.mark.parametrize("words", [
    ("suspend", "missing"), ("resume", "missing"), ("snapshots", "missing"),
    ("verify", "missing"), ("checkpoint", "missing"), ("restore", "missing", "1"),
    ("snapshot-delete", "missing", "1"),
])
def test_what_is_not_there_ends_with_3(sandbox, words):
    _, hint = hints(sandbox, *words, code=3)
    assert "sandbox list" in hint


# ---- while it goes on ----


SILENT = """import socket, sys, time
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
print("listens", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def silent(sandbox):
    """A workspace with a server that never answers and is asked by every suspend."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    name = sandbox.text("create", "--check", f"opencode:{port}", "--expires", "1h").strip()
    identity = sandbox.text("exec", "-d", "--service", name, "--", "python3", "-c", SILENT,
                            str(port)).strip()
    wait_for_output(sandbox, name, identity, 8)
    yield name, f"opencode:{port}"
    sandbox.run("delete", name)


def test_a_signal_ends_the_suspend_and_the_workspace_goes_on(sandbox, silent):
    name, _ = silent
    with sandbox.start("-v", "suspend", name) as command:
        while b"suspend: activity" not in command.stderr.readline():
            assert command.poll() is None
        command.send_signal(signal.SIGINT)
        assert command.wait(WAIT) == 130
    assert state(sandbox, name) == "running"
    assert sandbox.text("exec", name, "echo", "works") == "works\n"


def test_what_a_workspace_wants_to_be_asked_is_shown_and_asked(sandbox, silent):
    name, check = silent
    assert sandbox.json("inspect", name)["checks"] == [check]
    assert re.search(rf"^check +{check}$", sandbox.text("inspect", name), re.M)
    assert sandbox.run("--timeout", "2", "suspend", name, code=6).stderr.startswith(b"sandbox: ")
    assert state(sandbox, name) == "running"
    sandbox.run("suspend", "--force", name)


def test_a_server_that_does_not_listen_is_not_busy(sandbox, own):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sandbox.run("suspend", "--check", f"opencode:{port}", own)


def test_a_killed_owner_leaves_what_can_be_recovered(sandbox, own):
    put(sandbox, own, "kept")
    with sandbox.start("-v", "suspend", own) as command:
        while b"suspend: seal" not in command.stderr.readline():
            assert command.poll() is None
        command.kill()
    assert sandbox.json("recover")["recovered"] in (0, 1)
    assert re.fullmatch(r"\d+\n", sandbox.text("recover"))
    facts = sandbox.json("inspect", own)
    assert facts["state"] in ("running", "suspended") and facts["operation"] == ""
    sandbox.run("open", own)
    assert read(sandbox, own) == "kept"


def test_a_terminal_shows_the_steps_and_clears_them(terminal, sandbox, own):
    put(sandbox, own, "x" * 100_000)
    for words, steps in ((("suspend",), ("quiesce", "seal", "snapshot", "verify")),
                         (("resume",), ("verify", "restore", "prove", "open"))):
        screen = terminal(*words, own)
        assert screen.end() == 0
        for step in steps:
            assert f"\r\x1b[K{own}: {words[0]}: {step}".encode() in screen.shown, screen.shown
        lines = screen.shown.decode().split("\r\x1b[K")[-1].splitlines()
        assert any(line.startswith(f"{own} {words[0]}") for line in lines)
    quiet = terminal("-q", "suspend", own)
    assert quiet.end() == 0 and b"\x1b" not in quiet.shown


def test_a_pipe_gets_plain_lines(sandbox, own):
    result = sandbox.run("suspend", own)
    assert result.stderr == b"" and b"\x1b" not in result.stdout
    loud = sandbox.run("-v", "resume", own).stderr.decode()
    assert f"sandbox: info: {own}: resume: restore\n" in loud and "\x1b" not in loud


# ---- snapshots ----


def test_snapshots_are_a_table_or_json_or_ids(sandbox, own):
    assert sandbox.json("snapshots", own) == []
    first = sandbox.json("checkpoint", own, "--keep", "files")["snapshot"]
    second = sandbox.json("suspend", own)["snapshot"]
    assert sandbox.text("-q", "snapshots", own) == f"{second}\n{first}\n"
    found = sandbox.json("snapshots", own)
    assert [one["id"] for one in found] == [second, first]
    assert [one["is_recovery_point"] for one in found] == [True, False]
    assert [one["kept"] for one in found] == ["memory", "files"]
    assert all(one["has_seal"] and one["created_ms"] > 0 for one in found)
    table = sandbox.text("snapshots", own).splitlines()
    assert table[0].split() == ["ID", "CREATED", "AGE", "KEPT", "SIZE", "WHAT"]
    assert table[1].startswith(second[:12]) and table[1].endswith("recovery point")


def test_the_recovery_point_and_its_age_are_shown(sandbox, own):
    assert sandbox.json("inspect", own)["snapshot"] is None
    assert "none" in row(sandbox, own)
    snapshot = sandbox.json("suspend", own)["snapshot"]
    facts = sandbox.json("inspect", own)
    assert facts["snapshot"] == snapshot and facts["snapshot_ms"] >= facts["created_ms"]
    assert re.search(rf"^recovery +{snapshot[:12]}, .* \(\d+s ago\)$",
                     sandbox.text("inspect", own), re.M)
    assert row(sandbox, own)[1] == "suspended" and re.fullmatch(r"\d+s", row(sandbox, own)[3])


def row(sandbox, name):
    return next(line.split() for line in sandbox.text("list").splitlines()
                if line.startswith(name + " "))


def test_a_checkpoint_leaves_it_running(sandbox, counting):
    name, identity = counting
    told = sandbox.text("checkpoint", name)
    assert re.match(rf"{name} goes on: snapshot [0-9a-f]{{12}} keeps files and processes ", told)
    assert state(sandbox, name) == "running"
    before = process(sandbox, name, identity)["output_bytes"]
    wait_for_output(sandbox, name, identity, before + 10)
    assert sandbox.json("inspect", name)["snapshot"].startswith(told.split()[4])


def test_restore_goes_back_and_loses_nothing(sandbox):
    """The retention would have taken the older one: it is spared."""
    name = sandbox.text("create", "--retain", "2", "--expires", "1h").strip()
    assert sandbox.json("inspect", name)["retain"] == 2
    put(sandbox, name, "first")
    first = sandbox.json("suspend", "--keep", "files", name)["snapshot"]
    sandbox.run("resume", name)
    put(sandbox, name, "second")
    sandbox.run("suspend", "--keep", "files", name)
    sandbox.run("resume", name)
    put(sandbox, name, "third")
    result = sandbox.run("restore", name, first[:8])
    assert b"proven by files" in result.stdout
    kept = re.search(r"what it was until now is in snapshot ([0-9a-f]{12})",
                     result.stderr.decode()).group(1)
    assert read(sandbox, name) == "first"
    woke = sandbox.json("restore", name, kept)
    assert woke["snapshot"].startswith(kept) and read(sandbox, name) == "third"
    sandbox.run("delete", name)


def test_restore_of_a_busy_one_needs_force(sandbox, own):
    snapshot = sandbox.json("checkpoint", own, "--keep", "files")["snapshot"]
    sandbox.run("exec", "-d", own, "sleep", "1234")
    _, hint = hints(sandbox, "restore", own, snapshot, code=6)
    assert "--force" in hint
    sandbox.run("restore", "--force", own, snapshot)
    assert not any(one["running"] for one in sandbox.json("ps", own))


def test_older_snapshots_can_be_deleted_and_the_recovery_point_cannot(sandbox, own):
    first = sandbox.json("checkpoint", own, "--keep", "files")["snapshot"]
    second = sandbox.json("checkpoint", own, "--keep", "files")["snapshot"]
    failure, hint = hints(sandbox, "snapshot-delete", own, second, code=2)
    assert "recovery point" in failure and f"sandbox checkpoint {own}" in hint
    _, hint = hints(sandbox, "snapshot-delete", own, "0000", code=3)
    assert f"sandbox snapshots {own}" in hint
    sandbox.run("snapshot-delete", own, "0000", first[:12], code=3)
    assert sandbox.text("-q", "snapshots", own) == second + "\n"


# ---- damage ----


def largest_file(sandbox, snapshot):
    """Of the snapshot's, on this machine's disk."""
    files = [path for path in pathlib.Path(sandbox.directory).rglob("*")
             if snapshot in str(path) and path.is_file() and not path.is_symlink()]
    return max(files, key=lambda path: path.stat().st_size)


@pytest.fixture
def kept(sandbox, own):
    put(sandbox, own, "kept " * 200_000)
    return own, sandbox.json("suspend", "--keep", "files", own)["snapshot"]


def test_verify_says_intact_and_looks_at_all(sandbox, kept):
    name, snapshot = kept
    found = sandbox.json("verify", name)
    assert found["verdict"] == "intact" and found["snapshot"] == snapshot
    assert found["bytes"] >= 1_000_000 and found["files"] >= 1
    assert sandbox.text("verify", name, snapshot[:6]).startswith("intact: ")
    assert sandbox.text("-q", "verify", name) == "intact\n"
    assert sandbox.json("snapshots", name)[0]["bytes"] >= 1_000_000


def test_a_changed_byte_is_told_and_not_restored_until_it_is_mended(sandbox, kept):
    name, snapshot = kept
    path = largest_file(sandbox, snapshot)
    flip(path)
    found = sandbox.run("verify", name, code=1)
    assert found.stdout.startswith(b"damaged: ")
    assert f"sandbox snapshots {name}" in found.stderr.decode()
    assert sandbox.json("verify", name, code=1)["evidence"] != ""
    failure, hint = hints(sandbox, "resume", name, code=10)
    assert "damaged" in failure and f"sandbox snapshots {name}" in hint
    assert state(sandbox, name) == "blocked"
    failure, hint = hints(sandbox, "ls", name, code=10)
    assert f"sandbox resume {name}" in hint
    assert sandbox.json("snapshots", name)[0]["id"] == snapshot
    flip(path)
    sandbox.run("verify", name)
    assert sandbox.json("resume", name)["restored"] is True
    assert read(sandbox, name).startswith("kept kept ")


def flip(path):
    """One bit, and nothing else: not its times either."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_missing_snapshot_is_told_and_its_return_mends(sandbox, kept):
    name, snapshot = kept
    path = largest_file(sandbox, snapshot)
    while snapshot in str(path.parent):
        path = path.parent
    aside = pathlib.Path(sandbox.directory, "aside")
    path.rename(aside)
    assert sandbox.json("verify", name, code=1)["verdict"] == "missing"
    failure, hint = hints(sandbox, "resume", name, code=10)
    assert "missing" in failure and f"sandbox snapshots {name}" in hint
    aside.rename(path)
    sandbox.run("verify", name)
    sandbox.run("resume", name)


def test_what_is_less_than_proven_is_the_callers_choice(sandbox, kept):
    name, snapshot = kept
    flip(largest_file(sandbox, snapshot))
    sandbox.run("resume", name, code=10)
    woke = sandbox.json("resume", "--accept", "cold", name)
    assert woke["restored"] is False and woke["proof"] == "none" and woke["snapshot"] == ""
    assert state(sandbox, name) == "running"


def test_verify_without_a_snapshot_ends_with_3(sandbox, own):
    sandbox.run("verify", own, code=3)


# ---- a lost sandbox ----


def test_an_interrupted_one_goes_on_from_its_recovery_point(sandbox, own):
    put(sandbox, own, "recorded")
    snapshot = sandbox.json("checkpoint", own, "--keep", "files")["snapshot"]
    put(sandbox, own, "later")
    end_instance(sandbox, own)
    failure, hint = hints(sandbox, "resume", own, code=7)
    assert f"sandbox open {own} --from live-files" in hint and "--from snapshot" in hint
    assert sandbox.text("open", "--from", "snapshot", own) == own + "\n"
    assert read(sandbox, own) == "recorded"
    found = sandbox.json("snapshots", own)
    lost = next(one for one in found if not one["has_seal"])
    assert found[1]["id"] == snapshot and found[1]["is_recovery_point"]
    assert "files of a lost sandbox" in sandbox.text("snapshots", own)
    sandbox.run("restore", own, lost["id"])
    assert read(sandbox, own) == "later"


def test_an_interrupted_one_goes_on_over_its_files(sandbox, own):
    put(sandbox, own, "left")
    end_instance(sandbox, own)
    told = sandbox.text("resume", "--from", "live-files", own)
    assert "nothing proven" in told
    assert read(sandbox, own) == "left"


# ---- many at once ----


def test_the_idle_ones_are_suspended_and_the_busy_ones_are_not(sandbox):
    for name in ("idle-one", "idle-two", "idle-busy"):
        sandbox.run("create", name, "-l", "kind=idle", "--expires", "1h")
    sandbox.run("exec", "-d", "idle-busy", "sleep", "1234")
    words = ("suspend-idle", "--label", "kind=idle", "--parallel", "2", "--keep", "best")
    assert sandbox.json(*words) == {"suspended": 0, "active": 3, "failed": 0}
    assert sandbox.text(*words, "--idle", "1ms") == "2 suspended, 1 active, 0 failed\n"
    assert sandbox.text("-q", *words, "--idle", "1ms") == "0\n"
    assert [state(sandbox, name) for name in ("idle-one", "idle-two", "idle-busy")] == \
        ["suspended", "suspended", "running"]
    sandbox.run("delete", "-l", "kind=idle")


def test_a_workspace_says_itself_how_long_is_idle(sandbox):
    name = sandbox.text("create", "-l", "kind=soon", "--suspend-after-idle", "1ms",
                        "--expires", "1h").strip()
    assert sandbox.json("inspect", name)["suspend_after_idle_ms"] == 1
    assert sandbox.json("suspend-idle", "-l", "kind=soon")["suspended"] == 1
    sandbox.run("delete", name)


@pytest.mark.parametrize("words", [("--retain", "17"), ("--check", "opencode"),
                                   ("--check", "other:1")])
def test_settings_that_cannot_be_end_with_2(sandbox, words):
    sandbox.run("create", *words, code=2)
