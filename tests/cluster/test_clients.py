"""The double driven by the official Python client and by the SDK of Agent Sandbox."""

import json
import os
import pathlib
import subprocess

import pytest
from conftest import PATIENCE, Double

DRIVER = pathlib.Path(__file__).with_name("upstream.py")


@pytest.fixture(scope="module")
def with_processes():
    agent = os.environ.get("SANDBOX_AGENT_STATIC")
    if not agent:
        pytest.skip("SANDBOX_AGENT_STATIC names no agent")
    made = Double("--pods", "process", "--agent", agent)
    yield made
    made.end()


def drive(python, double, what):
    done = subprocess.run([python, DRIVER, what], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=2 * PATIENCE,
                          env={"PATH": os.environ["PATH"], "HOME": str(double.directory),
                               "KUBECONFIG": str(double.kubeconfig)})
    assert done.returncode == 0, done.stderr[-3000:] + double.said()
    return json.loads(done.stdout.splitlines()[-1])


def test_the_official_client(with_processes, upstream):
    seen = drive(upstream, with_processes, "official")
    assert seen == {"version": "1", "phase": "Running", "exec": ["out\n", "err\n", 5],
                    "input": "abc", "missing": "NotFound", "another": True, "gone": 404,
                    "typed": {"a": "b"}, "claim": "official"}


def test_the_sdk_suspends_and_resumes(with_processes, upstream):
    seen = drive(upstream, with_processes, "sdk")
    assert seen["hash"] and seen["suspended"] == [True, ""] and seen["is_suspended"]
    # Its check comes once, right at Ready; the double tells of the restore before that here.
    assert seen["resumed"] == [True, True, True, ""]
    assert seen["listed"] == [True] and seen["left"] == 0
    assert seen["claims"] == 0 and seen["wrong_pool"] == "SandboxWarmPoolNotFoundError"
