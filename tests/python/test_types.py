"""The types that the package tells are what it does: stubtest and mypy."""

import os
import pathlib
import subprocess
import sys

import pytest

USES = '''
import datetime
import libsandbox
from libsandbox import aio

with libsandbox.Client("memory:") as client:
    with client.create_workspace(env={"A": "b"}, expires_after=datetime.timedelta(hours=1)) as made:
        reveal_type(made.run("true"))
        reveal_type(made.run(["true"], text=True).stdout)
        reveal_type(made.run("true", encoding="latin-1"))
        reveal_type(made.inspect().state)
        reveal_type([line for _, line in made.start("true").lines(encoding=None)])
        reveal_type(made.inspect().expires)
        made.suspend(keep="files", checks=[lambda workspace: workspace.name, libsandbox.Opencode()])

async def main() -> None:
    async with aio.Client() as client:
        made = await client.create_workspace()
        reveal_type(await made.run("true", text=True))
        async for event in await made.start("true"):
            reveal_type(event.data)
'''
REVEALED = ["Completed[builtins.bytes]", '"builtins.str"', "Completed[builtins.str]", "blocked",
            "list[builtins.bytes]", "Union[builtins.float, None]", "Completed[builtins.str]",
            '"builtins.bytes"']
MISTAKES = [
    ('client.create_workspace(memory_mib="5")', "arg-type"),
    ("client.create_workspace(memory=5)", "call-arg"),
    ('made.suspend(keep="everything")', "arg-type"),
    ('made.files.write("f", "text")', "arg-type"),
    ('made.run("true", input="text")', "call-overload"),
    ("made.inspect().nothing", "attr-defined"),
    ('made.inspect().state == "asleep"', "comparison-overlap"),
    ("made.files.read(5)", "arg-type"),
]

BEHIND = ("_errors", "_files", "_log", "_objects", "_process", "_run", "_wait")
ALLOWED = (
    r"libsandbox\._.*",  # the modules behind the package
    r"libsandbox\.\w+\.__match_args__",  # of a struct; later stubs of Python's own have it
    r"libsandbox\.sandbox-shim",  # a program that lies in the package's folder
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    place = tmp_path_factory.mktemp("mypy")
    (place / "mypy.ini").write_text(
        "[mypy]\nstrict_equality = True\ncache_dir = " + str(place / "cache") + "\n"
        "[mypy-_libsandbox]\nignore_missing_imports = True\n"
        + "".join(f"[mypy-libsandbox.{name}]\nignore_errors = True\n" for name in BEHIND))
    (place / "allowed").write_text("\n".join(ALLOWED))
    return place


def check(module, *arguments):
    if subprocess.run([sys.executable, "-c", "import mypy"], capture_output=True,
                      check=False).returncode != 0:
        pytest.skip("mypy is not installed (Debian: mypy)")
    paths = [path for path in os.environ["PYTHONPATH"].split(":") if path]
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True,
                          text=True, check=False, env={**os.environ, "MYPYPATH": paths[0]})


def test_stubs_say_what_there_is(config):
    found = check("mypy.stubtest", "libsandbox", "--mypy-config-file", config / "mypy.ini",
                  "--allowlist", config / "allowed", "--ignore-unused-allowlist")
    assert found.returncode == 0, found.stdout + found.stderr


def test_uses_have_the_types_that_one_expects(config):
    program = config / "uses.py"
    program.write_text(USES)
    found = check("mypy", "--config-file", config / "mypy.ini", "--strict", program)
    revealed = [line for line in found.stdout.splitlines() if "Revealed type" in line]
    assert found.returncode == 0 and len(revealed) == len(REVEALED), found.stdout
    for line, expected in zip(revealed, REVEALED):
        assert expected in line


def test_mistakes_are_found(config):
    program = config / "mistakes.py"
    program.write_text("import libsandbox\nclient = libsandbox.Client()\n"
                       "made = client.create_workspace()\n"
                       + "".join(f"{line}\n" for line, _ in MISTAKES))
    found = check("mypy", "--config-file", config / "mypy.ini", program).stdout.splitlines()
    for number, (line, code) in enumerate(MISTAKES, 4):
        assert any(f":{number}: error" in each and f"[{code}]" in each for each in found), (line,
                                                                                        found)


def test_the_package_says_that_it_has_types():
    import libsandbox

    assert (pathlib.Path(libsandbox.__file__).parent / "py.typed").exists()
