"""The completion script in a real bash."""

import os
import shutil
import subprocess

import pytest
from conftest import CLI, environment

ASK = r"""
source "$SCRIPT"
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_sandbox
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory, memory):
    script = tmp_path_factory.mktemp("completion") / "sandbox.bash"
    script.write_bytes(memory.run("completion", "bash").stdout)
    subprocess.run(["bash", "-n", script], check=True, timeout=60)

    def ask(*words, uri=None, cwd="/"):
        variables = environment(SCRIPT=str(script), **({"SANDBOX_URI": uri} if uri else {}))
        result = subprocess.run(["bash", "--norc", "-c", ASK, "bash", CLI, *words], cwd=cwd,
                                capture_output=True, env=variables, timeout=90, check=True)
        assert result.stderr == b"", result.stderr
        return result.stdout.decode().split("\n")[:-1]
    return ask


def test_verbs(complete):
    assert "create" in complete("") and "port-forward" in complete("")
    assert complete("cre") == ["create"]
    assert complete("-u", "memory:", "cre") == ["create"]
    assert complete("--timeout", "3", "-q", "vers") == ["version"]
    assert complete("help", "ins") == ["inspect"]


def test_options(complete):
    assert complete("create", "--mem") == ["--memory"]
    assert "--detach" in complete("exec", "--")
    assert "--json" in complete("list", "--") and "--json" not in complete("create", "--")
    assert complete("--ur") == ["--uri"]


def test_workspaces_and_processes(complete, sandbox, workspace, own):
    assert complete("inspect", "share", uri=sandbox.uri) == [workspace]
    assert complete("exec", "-w", "/tmp", "share", uri=sandbox.uri) == [workspace]
    assert complete("inspect", workspace, "", uri=sandbox.uri) in ([], [""])
    assert own in complete("delete", workspace, "", uri=sandbox.uri)
    kind, place = sandbox.uri.split(":")
    assert complete("-u", kind, ":", place, "inspect", "share") == [workspace]
    identity = sandbox.text("exec", "-d", own, "sleep", "55").strip()
    assert complete("kill", own, identity[:3], uri=sandbox.uri) == [identity]


def test_snapshots(complete, sandbox, own):
    snapshot = sandbox.text("-q", "checkpoint", own).strip()
    assert complete("verify", own[:5], uri=sandbox.uri) == [own]
    assert complete("verify", own, snapshot[:3], uri=sandbox.uri) == [snapshot]
    assert complete("restore", own, "", uri=sandbox.uri) == [snapshot]


def test_paths_here_and_inside(complete, sandbox, workspace, tmp_path):
    (tmp_path / "shared-file").write_text("")
    found = complete("cp", "share", uri=sandbox.uri, cwd=tmp_path)
    assert sorted(found) == ["shared-file", workspace + ":"]


def test_no_platform_is_no_noise(complete):
    assert complete("inspect", "", uri="nonsense:") in ([], [""])


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck")
def test_the_script_is_clean(memory):
    script = memory.run("completion", "bash").stdout
    subprocess.run(["shellcheck", "-s", "bash", "-"], input=script, check=True, timeout=60)


def test_a_shell_takes_it_from_a_pipe():
    line = f"source <({CLI} completion bash) && complete -p sandbox"
    result = subprocess.run(["bash", "--norc", "-c", line], capture_output=True, check=True,
                            timeout=60, env=dict(os.environ))
    assert b"_sandbox" in result.stdout
