"""The example programs, and the one of the README, do what they say, over every platform."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT, end_platform

import libsandbox

EXAMPLES = ROOT / "examples/python"
NAMES = ("hello", "files", "stream_output", "port", "many", "about", "changes", "event_loop",
         "suspend", "reach_out")


@pytest.fixture(scope="module", params=["memory", "gvisor"])
def place(request):
    return request.getfixturevalue("uri" if request.param == "memory" else "gvisor")


def run(place, *arguments, code=0):
    found = subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                           check=False, timeout=120)
    assert found.returncode == code, found.stderr
    with libsandbox.Client(place) as client:
        assert client.list_workspaces() == [], "it left a workspace"
    return found.stdout


def example(place, name):
    return run(place, EXAMPLES / f"{name}.py", place)


def test_hello(place):
    assert example(place, "hello") == "Hello from inside\n"


def test_files(place):
    out = example(place, "files")
    assert out.startswith("sort ended with 0\n") and "sorted.txt: 21 bytes\n" in out
    assert out.endswith("apples\nroses\nviolets\n")


def test_stream_output(place):
    out = example(place, "stream_output").splitlines()
    assert [line for line in out if "stderr" in line] == [f"[stderr] note {n}" for n in (1, 2, 3)]
    assert "[stdout] hello Ada" in out and out[-1] == "[ended with 7]"


def test_port(place):
    out = example(place, "port")
    assert "200 OK" in out and out.endswith("a page from inside\n")


def test_many(place):
    assert example(place, "many") == "".join(f"{n} squared is {n * n}\n" for n in range(1, 5))


def test_about(place):
    out = example(place, "about")
    assert place.split("?")[0] in out and "limits memory: " in out and "whose id is " in out


def test_changes(place):
    out = example(place, "changes")
    # A file that is written whole comes by a rename, so it may be told as moved to its name.
    for line in ("created inner", " draft", "moved draft final", "created newest",
                 "removed inner", " end"):
        assert line in out, out


def test_event_loop(place):
    out = example(place, "event_loop")
    assert "ready\n" in out and "A QUESTION\n" in out and out.endswith("ended with 0\n")


def test_suspend(place):
    lines = example(place, "suspend").splitlines()
    assert any(line.startswith("suspended: no sandbox") for line in lines)
    assert "resumed: restored, proven by memory" in lines
    counted = [int(line) for line in lines if line.isdigit()]
    assert counted == list(range(10))


def test_reach_out(place):
    out = example(place, "reach_out")
    if place.startswith("memory"):
        assert out == "this platform gives workspaces no way out\n"
        return
    end_platform(place.removeprefix("gvisor:").partition("?")[0] + "/egress")
    assert "may reach api.example.com\na credential for api.example.com: x-api-key\n" in out
    assert "'elsewhere.example.net' is not allowed" in out
    assert out.endswith("refused: elsewhere.example.net, host-not-allowed\n")


def test_the_quick_start_of_the_readme(place):
    """As it stands there, but for where."""
    text = (ROOT / "bindings/python/README.md").read_text("utf-8")
    program = re.search(r"<!-- quickstart -->\n```python\n(.*?)```", text, re.DOTALL).group(1)
    assert program.count("Client()") == 1
    out = run(place, "-c", program.replace("Client()", f"Client({place!r})"))
    lines = out.splitlines()
    assert lines[0].startswith("Linux ") and lines[1].startswith("uid=")
    assert lines[2:] == ["restored: True proven by: memory", "kept"]


@pytest.mark.parametrize("name", NAMES)
def test_a_platform_that_is_not_there_is_told(uri, name):
    found = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", "nonsense:"],
                           capture_output=True, text=True, check=False)
    assert found.returncode == 1 and found.stderr.startswith(f"{name}: there is no driver")


def test_there_is_one_for_each_in_c_and_they_are_short():
    assert set(NAMES) == {path.stem for path in EXAMPLES.glob("*.py")}
    assert set(NAMES) == {path.stem for path in (ROOT / "examples").glob("*.c")} - {"readme"}
    for name in NAMES:
        assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) < 60, name
