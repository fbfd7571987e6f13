"""The agent in a gVisor sandbox as a Pod has it: an ordinary user without any capability, a name in
place of a socket's path, and little that can be written to. Sealed, checkpointed and restored.
"""
import hashlib
import os
import shutil
import subprocess
import tempfile

import pytest

from conftest import until
from test_egress import open_way
from test_gvisor import RUNSC
from test_ports import Stream
from test_seal_gvisor import Kept

pytestmark = pytest.mark.skipif(RUNSC is None or os.geteuid() != 0,
                                reason="needs runsc and root")


PORT = 7411  # the agent's own, at the Pod's address


def dial(caller):
    """A connection to it from inside, which stands."""
    stream = Stream(caller, PORT)
    next(stream.replies)
    return stream


class Pod(Kept):
    """Mounts as a Pod's; those that are emptyDirs there can be written by everybody."""

    address, user = "@sandbox-agent", "1000:1000"

    def configuration(self, bundle):
        described = super().configuration(bundle)
        root = bundle + "/rootfs"
        for name in ("sandbox/seal", "home/sandbox"):
            os.makedirs(root + "/" + name)
            described["mounts"].append({"destination": "/" + name, "type": "tmpfs",
                                        "source": "tmpfs", "options": ["mode=0777"]})
        process = described["process"]
        process["args"][process["args"].index("--seal") + 1] = "/sandbox/seal/seal"
        process["args"] += ["--tcp", f"[::]:{PORT}"]
        process["user"] = {"uid": 1000, "gid": 1000}
        process["env"].append("HOME=/home/sandbox")
        process["noNewPrivileges"] = True
        process["capabilities"] = {kind: [] for kind in process["capabilities"]}
        return described


@pytest.fixture
def pod():
    folder = tempfile.mkdtemp(prefix="sandbox-gvisor-")
    pod = Pod(folder)
    yield pod
    pod.end()
    shutil.rmtree(folder, ignore_errors=True)


# This runtime keeps none from a first process. What is meant for faults ends it, and two cannot be
# caught (doc/security-model.md); all others are nothing to it.
SIGNALS = ("for n in $(seq 1 64); do case $n in 4|5|6|7|8|9|11|19|31|32|33) ;; "
           "*) kill -$n 1;; esac; done; echo sent")


def test_what_was_sealed_without_root_is_restored_and_proven(pod):
    agent = pod.caller(token=b"t" * 32, epoch=1)
    reply = agent.open(user="sandbox", directory=b"/workspace")
    assert (reply.uid, reply.gid, reply.home) == (1000, 1000, b"/home/sandbox")
    assert agent.run("id -u; pwd; echo x > file; cat file").stdout == b"1000\n/workspace\nx\n"
    assert agent.run(SIGNALS).stdout == b"sent\n"
    assert agent.run("head -c1 /proc/1/mem 2>&1 >/dev/null").exit.code == 1
    counter = agent.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done")
    until(lambda: agent.list()[0].output_bytes > 20, "it counts")
    # This runtime is lost if it is to save a TCP socket that somebody polls: the agent has none.
    dialled = dial(agent)

    operation = pod.caller(token=b"t" * 32, epoch=2)
    assert operation.quiesce().unfinished == 0
    seal_hash = operation.seal().seal_hash
    dialled.close()
    agent.close()
    operation.close()
    pod.relays_end()
    asked = pod.runsc + ["exec", "--user=" + pod.user, pod.name, "/agent/sandbox-agent", "health",
                         pod.address]
    assert subprocess.run(asked, check=False, timeout=60).returncode == 0

    pod.resume(pod.suspend())
    assert subprocess.run(asked, check=False, timeout=60).returncode == 0
    newer = pod.caller(token=b"t" * 32, epoch=3)
    proof = newer.prove()
    assert hashlib.sha256(proof.nonce).digest() == seal_hash
    assert proof.in_memory and proof.in_file
    opened = newer.open(seal_hash=seal_hash, token=b"u" * 32, user="sandbox", restored=True,
                        directory=b"/workspace", entropy=os.urandom(64))
    # The loop, and its sleep if the seal came while one ran.
    assert opened.continued in (1, 2) and opened.generation == 1
    assert newer.run("cd /sandbox/seal; cat *; echo *").stdout == b"1\nsandbox-generation\n"
    known = next(one for one in newer.list() if one.id == counter).output_bytes
    until(lambda: next(one for one in newer.list() if one.id == counter).output_bytes > known + 20,
          "it counts on")
    dial(newer).close()
    newer.close()
    # And it ends when the platform says so.
    subprocess.run(pod.runsc + ["kill", pod.name, "TERM"], check=True, timeout=60)
    assert pod.container.wait(60) == 0


# Takes two connections, the second when it is told to, and says the first two lines of each. It
# waits in no poll: this runtime is lost if it is to save a TCP socket that is in one.
PROXY = """
import os, socket, time
server = socket.create_server(("127.0.0.1", 4128))
kept = []
for told in ("", "/workspace/go"):
    while told and not os.path.exists(told):
        time.sleep(0.02)
    print("ready", flush=True)
    kept.append(server.accept()[0])
    lines = kept[-1].makefile("r")
    print(lines.readline() + lines.readline(), end="", flush=True)
time.sleep(1000)
"""
GUEST = ("(exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; cat <&3 2>/dev/null; echo over; "
         "exec sleep 1000)")


def told(caller, name):
    return caller.run(f"cat /workspace/{name}").stdout


def test_the_agent_lets_the_proxy_go_before_it_is_sealed(pod):
    agent = pod.caller(token=b"t" * 32, epoch=1)
    agent.open(user="sandbox", directory=b"/workspace")
    first, second = b"1a" * 32, b"2b" * 32
    agent.start(f"exec python3 -c '{PROXY}' >proxy")
    until(lambda: told(agent, "proxy") == b"ready\n", "it listens")
    open_way(agent, address="127.0.0.1:4128", key=first)
    agent.start(GUEST + " >guest")
    said = b"ready\nSANDBOX-EGRESS/1 " + first + b"\nhello\n"
    until(lambda: told(agent, "proxy") == said, "the key and what the guest said")

    operation = pod.caller(token=b"t" * 32, epoch=2)
    operation.quiesce()
    seal_hash = operation.seal().seal_hash
    for one in (agent, operation):
        one.close()
    pod.relays_end()
    pod.resume(pod.suspend())
    newer = pod.caller(token=b"t" * 32, epoch=3)
    assert newer.prove().in_memory
    newer.open(seal_hash=seal_hash, token=b"u" * 32, user="sandbox", restored=True,
               directory=b"/workspace", entropy=os.urandom(64))
    until(lambda: told(newer, "guest") == b"over\n", "the guest's connection has ended")
    # Nobody is connected to until it is said anew where, and with which key.
    newer.start(GUEST + " >again")
    assert newer.run("touch /workspace/go").exit.code == 0
    open_way(newer, address="127.0.0.1:4128", key=second)
    until(lambda: told(newer, "proxy") == said + b"ready\nSANDBOX-EGRESS/1 " + second +
          b"\nhello\n", "the new key")
    assert told(newer, "again") == b""
    newer.close()
