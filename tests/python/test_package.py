"""pip install from a clean checkout, and a wheel in a new environment, without anything else."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import pytest
from conftest import ROOT, count, end_platform

PATIENCE = 900
# What the wheel does where neither the build tree nor an installed library can help.
PROGRAM = """
import sys, libsandbox, _libsandbox
for module in (libsandbox, _libsandbox):
    assert module.__file__.startswith(sys.prefix), module.__file__
with libsandbox.Client(sys.argv[1]) as client, client.create_workspace(temporary=True) as made:
    made.files.write("f", b"kept")
    made.suspend()
    print(made.resume().proof, made.run("cat f", text=True, check=True).stdout)
import asyncio
from libsandbox import aio
async def main():
    async with aio.Client(sys.argv[1]) as client:
        async with await client.create_workspace(temporary=True) as made:
            try:
                await asyncio.wait_for(made.run("sleep 60"), 0.2)
            except TimeoutError:
                print((await made.run("echo on", text=True)).stdout, end="")
asyncio.run(main())
"""


def command(*words, cwd, **options):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    found = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True,
                           check=False, timeout=PATIENCE, **options)
    return found


def must(*words, cwd):
    found = command(*words, cwd=cwd)
    assert found.returncode == 0, (words, found.stdout[-3000:], found.stderr[-3000:])
    return found.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("package")


@pytest.fixture(scope="module")
def platform():
    """A folder where the wheel itself starts a platform; its commands run as another user."""
    made = tempfile.mkdtemp(prefix="sandbox-python-")
    os.chmod(made, 0o711)
    yield f"memory:{made}/socket"
    end_platform(made)


@pytest.fixture(scope="module")
def checkout(place):
    """What git would give somebody who clones: the files that it knows, as they are now."""
    names = must("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
                 cwd=ROOT).split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, place / "checkout" / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode & 0o777)
    must("git", "init", "-q", cwd=place / "checkout")
    return place / "checkout"


def environment(place, name, interpreter=sys.executable):
    must(interpreter, "-m", "venv", place / name, cwd=place)
    return place / name / "bin/python"


@pytest.fixture(scope="module")
def wheel(place, checkout):
    python = environment(place, "builder")
    reached = command(python, "-m", "pip", "download", "-q", "--no-deps", "-d", place / "reached",
                      "meson-python", cwd=place)
    if reached.returncode != 0:
        pytest.skip("there is no package registry to build with: "
                    + reached.stderr.strip().splitlines()[-1])
    must(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place / "wheels", ".", cwd=checkout)
    found, = (place / "wheels").glob("*.whl")
    return found


def test_the_wheel_holds_what_it_needs(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("libsandbox/__init__.py", "libsandbox/__init__.pyi", "libsandbox/py.typed",
                   "libsandbox/aio.py", "libsandbox/sandbox-agent", "libsandbox/sandbox-shim.so",
                   "libsandbox/sandbox-memory-platform", "libsandbox/sandbox-egress-proxy",
                   "libsandbox/sandbox-egress-carrier"):
        assert wanted in names, names
    assert not [name for name in names if re.search(r"test|\.c$|\.h$|/include/", name)]
    assert re.match(r"libsandbox-\d+\.\d+\.\d+-cp3\d+-cp3\d+-linux_", wheel.name)
    for info in zipfile.ZipFile(wheel).infolist():
        if "sandbox-" in info.filename and "dist-info" not in info.filename:
            assert info.external_attr >> 16 & 0o111 == 0o111, info.filename


def try_it(python, platform):
    # From a folder where nothing of the project lies, with warnings as errors.
    out = must(python, "-W", "error", "-c", PROGRAM, platform, cwd="/")
    assert out == "memory kept\non\n"


def test_a_wheel_in_a_new_environment(place, wheel, platform):
    python = environment(place, "user")
    must(python, "-m", "pip", "install", "-q", "--no-index", wheel, cwd="/")
    try_it(python, platform)
    version = must(python, "-m", "pip", "show", "libsandbox", cwd="/")
    assert f"Version: {wheel.name.split('-')[1]}\n" in version


def test_the_quick_start_of_an_installed_wheel_on_gvisor(place, wheel, gvisor):
    text = (ROOT / "bindings/python/README.md").read_text("utf-8")
    program = re.search(r"<!-- quickstart -->\n```python\n(.*?)```", text, re.DOTALL).group(1)
    python = place / "user/bin/python"
    if not python.exists():
        pytest.skip("the environment was not made")
    out = must(python, "-c", program.replace("Client()", f"Client({gvisor!r})"), cwd="/")
    assert out.splitlines()[2:] == ["restored: True proven by: memory", "kept"]


def newest_python():
    """The newest interpreter with its headers that this machine has besides, or None."""
    versions = pathlib.Path.home() / ".pyenv/versions"
    found = [path for path in versions.glob("3.*/bin/python3")
             if list(path.parents[1].glob("include/python3.*/Python.h"))]
    found = [path for path in found if number(path) > sys.version_info[:2]]
    return max(found, key=number, default=None)


def number(path):
    return tuple(int(part) for part in path.parents[1].name.split(".")[:2])


def test_pip_install_with_the_newest_python(place, checkout, platform):
    """Usually the wheel above must do; with --long."""
    interpreter = newest_python()
    if interpreter is None:
        pytest.skip("no other Python of 3.12 or newer is in ~/.pyenv")
    if count(False, True) is False:
        pytest.skip("with --long only: it builds everything once more")
    python = environment(place, "newest", interpreter)
    must(python, "-m", "pip", "install", "-q", ".", cwd=checkout)
    try_it(python, platform)
