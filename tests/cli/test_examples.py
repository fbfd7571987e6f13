"""The example programs do what they say, over every platform."""

import os
import pathlib
import subprocess

import pytest
from conftest import WAIT

EXAMPLES = pathlib.Path(os.environ["SANDBOX_EXAMPLES"])


def run(sandbox, name):
    before = sandbox.text("-q", "list")
    result = subprocess.run([EXAMPLES / f"example-{name}", sandbox.uri], capture_output=True,
                            timeout=WAIT, env=sandbox.environment, check=False)
    assert result.returncode == 0, result.stderr
    assert sandbox.text("-q", "list") == before, "it left a workspace"
    return result.stdout.decode()


def test_hello(sandbox):
    assert run(sandbox, "hello") == "Hello from inside\n"


def test_files(sandbox):
    out = run(sandbox, "files")
    assert out.startswith("sort ended with 0\n") and "sorted.txt: 21 bytes\n" in out
    assert out.endswith("apples\nroses\nviolets\n")


def test_stream_output(sandbox):
    out = run(sandbox, "stream_output")
    for line in ("line 1", "line 3", "note 1", "note 3", "your name?", "hello Ada"):
        assert line in out
    assert "[stderr] note" in out and out.endswith("[ended with 7]\n")


def test_port(sandbox):
    out = run(sandbox, "port")
    assert "200 OK" in out and out.endswith("a page from inside\n")


def test_many(sandbox):
    assert run(sandbox, "many") == "".join(f"{n} squared is {n * n}\n" for n in range(1, 5))


def test_about(sandbox):
    out = run(sandbox, "about")
    assert sandbox.uri in out and "limits memory: " in out and "whose id is " in out


def test_changes(sandbox):
    out = run(sandbox, "changes")
    # A file that is written whole comes by a rename, so it may be told as moved to its name.
    for line in ("created inner", " draft", "moved draft final", "created newest",
                 "removed inner", " end"):
        assert line in out, out


def test_event_loop(sandbox):
    out = run(sandbox, "event_loop")
    assert "ready\n" in out and "A QUESTION\n" in out and out.endswith("ended with 0\n")


def test_suspend(sandbox):
    lines = run(sandbox, "suspend").splitlines()
    assert any(line.startswith("suspended: no sandbox") for line in lines)
    assert "resumed: restored, proven by memory" in lines
    counted = [int(line) for line in lines if line.isdigit()]
    assert counted == list(range(len(counted))) and len(counted) >= 10


@pytest.mark.parametrize("name", ["hello", "files", "stream_output", "port", "many", "about",
                                  "changes", "event_loop", "suspend"])
def test_a_platform_that_is_not_there_is_told(name):
    result = subprocess.run([EXAMPLES / f"example-{name}", "nonsense:"], capture_output=True,
                            timeout=WAIT, check=False)
    assert result.returncode == 1 and result.stderr.decode().startswith(name.split("_")[0])


def test_the_first_examples_are_short():
    source = pathlib.Path(os.environ["SANDBOX_SOURCE"], "examples")
    for name in ("hello", "files", "stream_output", "port", "many", "suspend"):
        assert len((source / f"{name}.c").read_text("utf-8").splitlines()) < 80, name


def test_reach_out(sandbox):
    out = run(sandbox, "reach_out")
    if sandbox.uri.startswith("gvisor"):
        assert "may reach api.example.com\na credential for api.example.com: x-api-key\n" in out
        assert "'elsewhere.example.net' is not allowed" in out
        assert out.endswith("refused: elsewhere.example.net, host-not-allowed\n")
    else:
        assert out == "this platform gives workspaces no way out\n"
