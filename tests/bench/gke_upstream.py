"""What tests/bench/gke.py measures of the SDK of Agent Sandbox: its lines are those of bench-gke.

    gke_upstream.py sleep ROUNDS | many COUNT WIDTH | story

Run with the Python that tools/upstream-clients makes, and KUBECONFIG set. "story" makes a sandbox and
takes orders: a line in ("suspend", "resume", "attach", "end"), a line of JSON out.
"""

import concurrent.futures
import json
import logging
import resource
import sys
import time

from k8s_agent_sandbox.gke_extensions.snapshots.podsnapshot_client import PodSnapshotSandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from kubernetes import client, config

SPACE = "workspaces"
PATIENCE = 20  # seconds; the SDK's default is 180


def make_client():
    return PodSnapshotSandboxClient(
        connection_config=SandboxDirectConnectionConfig(api_url="http://127.0.0.1:9"))


def sleep(rounds):
    """Its suspend takes the Pod away as soon as the trigger is complete: a snapshot that is not stored by
    then is lost, and the resume after it is a cold start. It takes as long."""
    sandbox = timed("create", lambda: make_client().create_sandbox("standard", namespace=SPACE))
    config.load_kube_config()
    custom = client.CustomObjectsApi()
    lost = 0
    for _ in range(rounds):
        done = timed("suspend", sandbox.suspend)
        if not done.success:
            raise RuntimeError(done.error_reason)
        # It does not wait for this itself; without it the resume would always be a cold start.
        kept = is_ready(custom, done.snapshot_response.snapshot_uid)
        lost += not kept
        done = timed("resume", sandbox.resume)
        if done.restored_from_snapshot != kept:
            raise RuntimeError(done.error_reason)
    print(f"lost {lost}")
    sandbox.terminate()


def is_ready(custom, name):
    """Once it is known."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = custom.get_namespaced_custom_object("podsnapshot.gke.io", "v1", SPACE,
                                                    "podsnapshots", name)
        for one in found.get("status", {}).get("conditions", []):
            if one["type"] == "Ready" and (one["status"] == "True" or one["reason"] == "Failed"):
                return one["status"] == "True"
        time.sleep(0.02)
    raise RuntimeError(f"nothing was ever told of the snapshot {name}")


def timed(name, work):
    began = time.monotonic()
    done = work()
    print(f"{name} {time.monotonic() - began:.6f}", flush=True)
    return done


def many(count, width):
    maker = make_client()
    began = time.monotonic()

    def one(_):
        start = time.monotonic()
        maker.create_sandbox("standard", namespace=SPACE)
        return time.monotonic() - start
    with concurrent.futures.ThreadPoolExecutor(width) as crowd:
        seconds = list(crowd.map(one, range(count)))
    took, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    for each in seconds:
        print(f"create {each:.6f}")
    print(f"all {took:.6f}\nprocessor {used.ru_utime + used.ru_stime:.6f}\n"
          f"memory-kib {used.ru_maxrss}\nmade 1", flush=True)
    sys.stdin.read()
    maker.delete_all()


def story():
    maker = make_client()
    sandbox = maker.create_sandbox("standard", namespace=SPACE)
    say(claim=sandbox.claim_name, pod=sandbox.get_pod_name())
    for line in sys.stdin:
        order = line.strip()
        try:
            if order == "suspend":
                done = sandbox.suspend(wait_timeout=PATIENCE)
                say(success=done.success, why=done.error_reason)
            elif order == "resume":
                done = sandbox.resume(wait_timeout=PATIENCE)
                say(success=done.success, restored=done.restored_from_snapshot,
                    why=done.error_reason)
            elif order == "attach":
                found = maker.get_sandbox(sandbox.claim_name, namespace=SPACE)
                say(success=found is not None, why="")
            else:
                sandbox.terminate()
                say(success=True, why="")
        except Exception as problem:  # pylint: disable=broad-except
            say(success=False, why=f"{type(problem).__name__}: {problem}")


def say(**what):
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "sleep":
        sleep(int(sys.argv[2]))
    elif sys.argv[1] == "many":
        many(int(sys.argv[2]), int(sys.argv[3]))
    else:
        story()
