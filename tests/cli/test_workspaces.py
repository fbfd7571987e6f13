"""Workspaces: create, open, list, inspect, renew, delete, sweep, stats."""

import json
import re
import time


def test_create_prints_the_name_and_a_taken_one_ends_with_4(sandbox):
    assert sandbox.text("create", "taken", "--expires", "1h") == "taken\n"
    lines = sandbox.run("create", "taken", code=4).stderr.decode().splitlines()
    assert lines[0].startswith("sandbox: ") and "sandbox open taken" in lines[1]
    assert sandbox.text("open", "taken") == "taken\n"
    sandbox.run("delete", "taken")


def test_create_without_a_name_draws_a_fresh_one(sandbox, own):
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", own)
    assert sandbox.json("inspect", own)["name"] == own


def test_a_name_that_cannot_be_one_ends_with_2(sandbox):
    sandbox.run("create", "Not_A_Name", code=2)


def test_open_makes_what_is_not_there(sandbox):
    assert sandbox.text("open", "opened", "--expires", "1h", "-l", "k=v") == "opened\n"
    assert sandbox.json("inspect", "opened")["labels"] == {"k": "v"}
    sandbox.run("delete", "opened")


def test_list_is_a_table_or_json_or_names(sandbox):
    sandbox.run("create", "listed", "--label", "kind=listed", "-l", "a=1", "--expires", "2h")
    table = sandbox.text("list").splitlines()
    assert table[0].split() == ["NAME", "STATE", "AGE", "RECOVERY", "EXPIRES", "LABELS"]
    row = next(line for line in table if line.startswith("listed "))
    assert "running" in row and "kind=listed" in row and re.search(r"in 1\d\dm|in 2h", row)
    assert "\x1b" not in "".join(table)
    found = sandbox.json("list", "-l", "kind=listed")
    assert [one["name"] for one in found] == ["listed"]
    assert found[0]["labels"] == {"kind": "listed", "a": "1"}
    assert found[0]["expires_ms"] > found[0]["created_ms"]
    assert sandbox.text("-q", "list", "-l", "kind=listed") == "listed\n"
    assert sandbox.json("list", "-l", "kind=nothing") == []
    sandbox.run("delete", "-l", "kind=listed")
    assert sandbox.json("list", "-l", "kind=listed") == []


def test_inspect_asks_for_one_by_name_or_id(sandbox, workspace):
    facts = sandbox.json("inspect", workspace)
    assert facts["state"] == "running" and facts["driver"] == sandbox.uri.split(":")[0]
    assert sandbox.json("inspect", facts["id"])["name"] == workspace
    text = sandbox.text("inspect", workspace)
    assert facts["id"] in text and "running" in text


def test_what_is_not_there_ends_with_3_and_a_hint(sandbox):
    """P161: a missing workspace and a missing file are told apart."""
    lines = sandbox.run("inspect", "missing", code=3).stderr.decode().splitlines()
    assert "missing" in lines[0] and lines[1].startswith("hint: ")
    assert sandbox.run("exec", "missing", "true", code=125).stderr.startswith(b"sandbox: ")


def test_a_missing_file_is_no_missing_workspace(sandbox, workspace):
    """P161"""
    told = sandbox.run("cat", workspace + ":missing-file", code=3).stderr.decode()
    assert "missing-file" in told and "sandbox list" not in told


def test_delete_goes_on_after_a_failure_and_force_forgives(sandbox):
    sandbox.run("create", "goes", "--expires", "1h")
    sandbox.run("delete", "missing", "goes", code=3)
    sandbox.run("inspect", "goes", code=3)
    sandbox.run("delete", "--force", "missing")


def test_renew_moves_the_end_and_never_takes_it_away(sandbox, own):
    before = sandbox.json("inspect", own)["expires_ms"]
    sandbox.run("renew", own, "3d")
    assert sandbox.json("inspect", own)["expires_ms"] > before + 86400_000
    sandbox.run("renew", own, "never")
    assert sandbox.json("inspect", own)["expires_ms"] is None


def test_sweep_deletes_what_has_expired(sandbox):
    sandbox.run("create", "short", "--expires", "1s")
    end = time.monotonic() + 60
    while "short" in sandbox.text("-q", "list").split():
        assert time.monotonic() < end
        assert sandbox.json("sweep")["deleted"] in (0, 1)
    sandbox.run("inspect", "short", code=3)


def test_stats_measure_a_running_workspace(sandbox, workspace):
    stats = sandbox.json("stats", workspace)
    assert stats["uptime_ms"] > 0 and stats["disk_free_bytes"] > 0
    assert "uptime" in sandbox.text("stats", workspace)


def test_environment_of_the_workspace_is_there_in_every_command(sandbox):
    """A value left out is taken from here, and so is in no argument list."""
    secret = {**sandbox.environment, "TAKEN": "from here"}
    sandbox.run("create", "with-env", "-e", "GIVEN=a=b", "-e", "TAKEN", "--expires", "1h",
                env=secret)
    out = sandbox.text("exec", "with-env", "-c", 'echo "$GIVEN,$TAKEN"')
    assert out == "a=b,from here\n"
    sandbox.run("delete", "with-env")


def test_timeout_ends_a_command_that_waits(sandbox, workspace):
    begun = time.monotonic()
    sandbox.run("--timeout", "1", "exec", workspace, "sleep", "77", code=124)
    assert time.monotonic() - begun < 30
    listed = [one for one in sandbox.json("ps", workspace) if "77" in one["command"]]
    assert listed and not any(one["running"] for one in listed)


def test_an_interrupted_workspace_tells_the_way_on(sandbox, own):
    sandbox.run("exec", own, "-c", "echo kept >file")
    incarnation = end_instance(sandbox, own)
    result = sandbox.run("open", own, code=7)
    assert f"sandbox open {own} --from live-files" in result.stderr.decode()
    assert sandbox.run("exec", own, "true", code=125).stderr.startswith(b"sandbox: ")
    assert sandbox.text("open", own, "--from", "live-files") == own + "\n"
    assert sandbox.text("cat", own + ":file") == "kept\n"
    assert sandbox.json("inspect", own)["incarnation"] != incarnation


def end_instance(sandbox, name):
    """As an out-of-memory killer would: the platform's own processes of it, from outside."""
    import os
    import signal
    from conftest import WAIT, processes_naming
    facts = sandbox.json("inspect", name)
    marks = [facts["id"]]
    pids = {pid for mark in marks for pid in processes_naming(mark)}
    assert pids, "nothing runs for it"
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    end = time.monotonic() + WAIT
    while sandbox.json("inspect", name)["state"] == "running":
        assert time.monotonic() < end
    return facts["incarnation"]


def test_verbose_shows_the_log_and_nothing_else_changes(sandbox, workspace):
    quiet = sandbox.json("inspect", workspace)
    loud = sandbox.run("-v", "--json", "inspect", workspace)
    assert json.loads(loud.stdout)["id"] == quiet["id"]
    for line in loud.stderr.decode().splitlines():
        assert re.match(r"sandbox: (error|warning|info|debug): ", line)
