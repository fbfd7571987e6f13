"""The gate inside gVisor: sealed, checkpointed, restored, proven and opened.

The sandbox, its relays and the settings are those of test_gvisor.py.
"""
import hashlib
import os
import shutil
import subprocess
import tempfile
import time

import grpc
import pytest

from conftest import fails, guard_pb2, until
from test_gvisor import RUNSC, Sandbox

CODE = grpc.StatusCode
THREADS = ("import threading, time\n"
           "for _ in range(3): threading.Thread(target=time.sleep, args=(1000,)).start()\n"
           "time.sleep(1000)")
SEAL = "/run/sandbox/seal/seal"

pytestmark = pytest.mark.skipif(RUNSC is None or os.geteuid() != 0,
                                reason="needs runsc and root")


class Kept(Sandbox):
    """A sandbox that can be checkpointed and restored."""

    def configuration(self, bundle):
        described = super().configuration(bundle)
        os.makedirs(bundle + "/rootfs/run/sandbox/seal")
        described["process"]["args"] += ["--seal", SEAL]
        return described

    def inside(self, command):
        done = subprocess.run(self.runsc + ["exec", self.name, "/bin/sh", "-c", command],
                              capture_output=True, check=True, timeout=60)
        return done.stdout

    def states(self, of="stat"):
        """Of all processes but the agent and those that look: letters."""
        stats = self.inside(f"cat /proc/[0-9]*/{of} 2>/dev/null || true").decode()
        lines = [line.rsplit(")", 1) for line in stats.splitlines()]
        parts = [(head.split("(", 1), rest.split()) for head, rest in lines]
        return [rest[0] for head, rest in parts
                if rest[1] != "0" and head[1] != "cat"]

    def relays_end(self):
        until(lambda: all(relay.poll() is not None for relay in self.relays), "relays end")

    def suspend(self):
        image = self.folder + "/image"
        subprocess.run(self.runsc + ["checkpoint", "--image-path", image, self.name],
                       stdout=self.log, stderr=self.log, check=True, timeout=120)
        self.container.wait(60)
        subprocess.run(self.runsc + ["delete", "--force", self.name], stdout=self.log,
                       stderr=self.log, check=False, timeout=60)
        return image

    def resume(self, image):
        self.container = subprocess.Popen(
            self.runsc + ["restore", "--image-path", image, "--bundle", self.folder + "/bundle",
                          self.name],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until(self.answers, "the agent answers", 60)


@pytest.fixture
def sandbox():
    folder = tempfile.mkdtemp(prefix="sandbox-gvisor-")
    sandbox = Kept(folder)
    yield sandbox
    sandbox.end()
    shutil.rmtree(folder, ignore_errors=True)


def test_what_was_sealed_is_restored_and_proven(sandbox):
    agent = sandbox.caller(token=b"t" * 32, epoch=1)
    agent.open(user="sandbox", directory=b"/workspace")
    counter = agent.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done")
    dead = agent.start("exec sleep 1000", deadline_ms=20_000)
    agent.start("(setsid -f sleep 1000); sleep 1000 | sleep 1000")
    agent.run("mkdir -p .sandbox; printf '#!/bin/sh\\nid -u > hook\\n' > .sandbox/on-resume; "
              "chmod 755 .sandbox/on-resume")
    agent.start(argv=["/usr/bin/python3", "-c", THREADS])
    until(lambda: len(sandbox.states("task/*/stat")) >= len(sandbox.states()) + 3, "threads run")
    until(lambda: next(one for one in agent.list() if one.id == counter).output_bytes > 20,
          "it counts")

    operation = sandbox.caller(token=b"t" * 32, epoch=2)
    operation.workspace_id = agent.workspace_id
    assert operation.quiesce().unfinished == 0
    reply = operation.seal()
    agent.close()
    operation.close()
    sandbox.relays_end()
    letters = sandbox.states()
    assert len(letters) >= 7 and set(letters) <= {"T", "Z"}, letters
    # One that was just ending is a zombie by now.
    assert letters.count("T") <= reply.stopped <= len(letters)
    assert set(sandbox.states("task/*/stat")) <= {"T", "Z"}

    image = sandbox.suspend()
    sandbox.resume(image)
    newer = sandbox.caller(token=b"t" * 32, epoch=3)
    health = newer.health()
    assert (health.gate, health.epoch) == (guard_pb2.GATE_SEALED, 2)
    assert set(sandbox.states()) <= {"T", "Z"}
    proof = newer.prove()
    assert hashlib.sha256(proof.nonce).digest() == reply.seal_hash
    assert proof.in_memory and proof.in_file and proof.epoch == 2
    fails(CODE.FAILED_PRECONDITION, "sealed", newer.open)
    before = int(time.time() * 1000)
    opened = newer.open(seal_hash=reply.seal_hash, token=b"u" * 32, user="sandbox",
                        directory=b"/workspace", restored=True, entropy=os.urandom(64),
                        wall_time_ms=before)
    assert opened.continued == reply.stopped
    assert (opened.deadlines_kept, opened.hook_code, opened.generation) == (1, 0, 1)
    assert opened.entropy_added == (opened.entropy_errno == 0)
    output = newer.run("cat /run/sandbox-generation hook; date +%s")
    assert output.stdout.split()[:2] == [b"1", b"1000"], output.stderr
    if not opened.clock_failed:
        assert abs(int(output.stdout.split()[2]) - before // 1000) < 60
    fails(CODE.PERMISSION_DENIED, "not-executable", newer.start, argv=["/etc/passwd"])

    known = next(one for one in newer.list() if one.id == counter).output_bytes
    until(lambda: next(one for one in newer.list() if one.id == counter).output_bytes > known + 20,
          "it counts on")
    newer.signal(counter, 9)
    lines = newer.collect(counter).stdout.split()
    assert lines == [b"%d" % (number + 1) for number in range(len(lines))], "without a gap"
    assert newer.signal(dead, 9), "its deadline goes on with what was left of it"
    assert not newer.wait(dead).timed_out
    assert newer.stats().zombies == 0
    newer.close()
