"""The command line itself: help, usage, exit codes that need no platform."""

import re

import pytest
from conftest import Sandbox


def verbs(memory):
    overview = memory.text("--help")
    return re.findall(r"^  ([a-z-]+) {2,}", overview, re.M)


def test_help_lists_every_verb_and_each_has_its_page(memory):
    names = verbs(memory)
    for name in ("create", "open", "list", "inspect", "exec", "run", "ps", "kill", "attach", "cp",
                 "ls", "cat", "port-forward", "ports", "stats", "renew", "delete", "doctor",
                 "sweep", "version", "completion"):
        assert name in names
    for name in names:
        page = memory.text(name, "--help")
        assert page.startswith(f"usage: sandbox {name}")
        assert page == memory.text("help", name)
        assert "Exit codes" in page


def test_no_verb_shows_the_overview_and_is_a_wrong_usage(memory):
    result = memory.run(code=2)
    assert result.stdout == b"" and b"usage: sandbox" in result.stderr


@pytest.mark.parametrize("words", [
    ["nonsense"], ["list", "--nonsense"], ["list", "-Z"], ["list", "too", "many"], ["inspect"],
    ["create", "--memory", "0"], ["create", "--memory", "much"], ["create", "--cpus", "-1"],
    ["create", "--memory", "99999999999"], ["create", "--expires", "5"],
    ["create", "--expires", "99999999999999999d"], ["create", "--env"], ["renew", "a", "soon"],
    ["delete"], ["delete", "--all"], ["delete", "--all", "--yes", "name"], ["kill", "a", "b",
     "-s", "NOPE"], ["cp", "here", "there"], ["cp", "a:x", "b:y"], ["cat", "here"],
    ["open", "a", "--from", "nothing"], ["port-forward", "a", "http"],
    ["port-forward", "a", "70000"], ["port-forward", "a", "1:2:3"], ["completion", "fish"],
    ["create", "--json"], ["create", "--user=root", "--help=no"], ["--timeout", "soon", "list"],
    ["create", "-e", "NOT_SET_HERE"],
])
def test_a_wrong_usage_is_told_with_a_hint_and_ends_with_2(memory, words):
    lines = memory.run(*words, code=2).stderr.decode().splitlines()
    assert lines[0].startswith("sandbox: ") and lines[1].startswith("hint: ")
    assert len(lines) == 2


@pytest.mark.parametrize("words", [
    ["exec"], ["exec", "a"], ["exec", "a", "-c", "x", "--", "y"], ["exec", "a", "--login", "x"],
    ["exec", "-d", "-i", "a", "x"], ["run"], ["run", "--deadline", "90d", "--", "x"],
    ["exec", "--nope", "a", "x"],
])
def test_a_wrong_usage_of_what_runs_commands_ends_with_125(memory, words):
    assert memory.run(*words, code=125).stderr.startswith(b"sandbox: ")


def test_hints_are_left_out_with_q(memory):
    lines = memory.run("-q", "list", "--nonsense", code=2).stderr.decode().splitlines()
    assert len(lines) == 1


def test_version_is_told_in_three_ways(memory):
    text = memory.text("version")
    assert re.fullmatch(r"sandbox \d+\.\d+\.\d+, libsandbox \d+\.\d+\.\d+\n", text)
    assert memory.text("--version") == text
    assert set(memory.json("version")) == {"command", "library"}


def test_an_unknown_driver_is_one_line_and_a_remedy():
    result = Sandbox("nonsense:", "").run("list", code=None)
    assert result.returncode in (1, 2)
    lines = result.stderr.decode().splitlines()
    assert lines[0].startswith("sandbox: ") and "nonsense" in lines[0]


def test_a_full_disk_under_the_output_is_a_failure(memory):
    with open("/dev/full", "wb") as full:
        result = memory.run("version", stdout=full, code=1)
    assert b"cannot write" in result.stderr


def test_closed_standard_streams_are_no_trouble(memory):
    import subprocess
    from conftest import CLI
    done = subprocess.run(["/bin/sh", "-c", '"$0" version <&- >&-', CLI], env=memory.environment,
                          timeout=60, check=False)
    assert done.returncode == 0


def test_doctor_speaks_of_the_memory_platform(sandbox):
    findings = sandbox.json("doctor")
    assert findings and all(set(one) == {"severity", "subject", "text", "remedy"}
                            for one in findings)
    assert all(one["severity"] in ("good", "note") for one in findings)
    assert sandbox.text("doctor").count("\n") >= len(findings)


def test_doctor_ends_with_1_where_something_must_be_mended():
    broken = Sandbox("gvisor:/tmp/nowhere?runsc=/nowhere/runsc", "")
    result = broken.run("doctor", code=1)
    assert b"problem" in result.stdout and b"->" in result.stdout
