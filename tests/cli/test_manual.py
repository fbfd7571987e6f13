"""The manual page says everything that --help says."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

PAGE = pathlib.Path(os.environ["SANDBOX_SOURCE"], "doc/man/sandbox.1").read_text("utf-8")


def names(memory):
    return re.findall(r"^  ([a-z-]+) {2,}", memory.text("--help"), re.M)


def test_every_verb_and_option_is_in_the_manual(memory):
    options = set(re.findall(r"-(-[a-z-]+)\b", memory.text("--help")))
    for verb in names(memory):
        assert re.search(rf"^\.It Cm {verb}\b", PAGE, re.M), verb
        listing = memory.text(verb, "--help").split("\nOptions", 1)[-1]
        options |= set(re.findall(r"^ {2,6}(?:-\w, )? *-(-[a-z-]+)", listing, re.M))
    for option in options:
        assert re.search(rf"Fl (\w , )?{option}\b|, {option}\b", PAGE), option


def test_every_exit_code_is_in_the_manual(memory):
    for code in ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "124", "125", "126", "127"):
        assert f".It {code}\n" in PAGE
        assert re.search(rf"\b{code}\b", memory.text("--help"))


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="no mandoc")
def test_the_manual_is_clean():
    result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=PAGE.encode(),
                            capture_output=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout
