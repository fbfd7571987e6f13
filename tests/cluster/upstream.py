"""Drives the double with the official Kubernetes client and with the SDK of Agent Sandbox.

    upstream.py official|sdk

Run by test_clients.py with the Python that tools/upstream-clients makes, and KUBECONFIG set. Prints
what it saw as one line of JSON.
"""

import json
import sys
import time

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

SPACE = "workspaces"
CLAIMS = ("extensions.agents.x-k8s.io", "v1beta1", SPACE, "sandboxclaims")
SANDBOXES = ("agents.x-k8s.io", "v1beta1", SPACE, "sandboxes")
TRIGGERS = ("podsnapshot.gke.io", "v1", SPACE, "podsnapshotmanualtriggers")
SNAPSHOTS = ("podsnapshot.gke.io", "v1", SPACE, "podsnapshots")


def condition(object, name):
    for one in ((object or {}).get("status") or {}).get("conditions") or []:
        if one["type"] == name:
            return one["status"]
    return None


def until(custom, where, name, is_true):
    """Lists, then watches from there: as the client's documentation shows it."""
    selector = f"metadata.name={name}"
    listed = custom.list_namespaced_custom_object(*where, field_selector=selector)
    found = listed["items"][0] if listed["items"] else None
    if is_true(found):
        return found
    for event in watch.Watch().stream(
            custom.list_namespaced_custom_object, *where, field_selector=selector,
            resource_version=listed["metadata"]["resourceVersion"], timeout_seconds=60):
        if is_true(None if event["type"] == "DELETED" else event["object"]):
            return event["object"]
    raise TimeoutError(name)


def run(core, pod, *argv, given=None):
    """A command through the client's own WebSocket code: output, errors, exit code."""
    session = stream(core.connect_get_namespaced_pod_exec, pod, SPACE, container="workspace",
                     command=list(argv), stdin=given is not None, stdout=True, stderr=True,
                     tty=False, _preload_content=False)
    if given is not None:
        session.write_stdin(given)
    session.run_forever(timeout=30)
    return [session.read_stdout(), session.read_stderr(), session.returncode]


def official():
    config.load_kube_config()
    core, custom = client.CoreV1Api(), client.CustomObjectsApi()
    seen = {"version": client.VersionApi().get_code().major}
    made = custom.create_namespaced_custom_object(*CLAIMS, {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": "official"}, "spec": {"warmPoolRef": {"name": "standard"}}})
    ready = until(custom, CLAIMS, "official", lambda one: condition(one, "Ready") == "True")
    name = ready["status"]["sandbox"]["name"]
    pod = core.read_namespaced_pod(name, SPACE)
    seen["phase"] = pod.status.phase
    seen["exec"] = run(core, name, "sh", "-c", "echo out; echo err >&2; exit 5")
    seen["input"] = run(core, name, "head", "-c", "3", given="abcdef")[0]
    try:
        core.read_namespaced_pod("none", SPACE)
    except ApiException as problem:
        seen["missing"] = json.loads(problem.body)["reason"]
    custom.patch_namespaced_custom_object(*SANDBOXES, name, {"spec": {"operatingMode": "Suspended"}})
    until(custom, SANDBOXES, name, lambda one: condition(one, "Suspended") == "True")
    custom.patch_namespaced_custom_object(*SANDBOXES, name, {"spec": {"operatingMode": "Running"}})
    until(custom, SANDBOXES, name, lambda one: condition(one, "Ready") == "True" and
          condition(one, "Suspended") != "True")
    seen["another"] = core.read_namespaced_pod(name, SPACE).metadata.uid != pod.metadata.uid
    custom.delete_namespaced_custom_object(*CLAIMS, "official")
    until(custom, CLAIMS, "official", lambda one: one is None)
    try:
        custom.get_namespaced_custom_object(*CLAIMS, "official")
    except ApiException as problem:
        seen["gone"] = problem.status
    core.create_namespaced_config_map(SPACE, {"metadata": {"name": "typed"}, "data": {"a": "b"}})
    seen["typed"] = core.read_namespaced_config_map("typed", SPACE).data
    core.delete_namespaced_config_map("typed", SPACE)
    seen["claim"] = made["metadata"]["name"]
    return seen


def sdk():
    from k8s_agent_sandbox.gke_extensions.snapshots.podsnapshot_client import \
        PodSnapshotSandboxClient
    from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
    maker = PodSnapshotSandboxClient(
        connection_config=SandboxDirectConnectionConfig(api_url="http://127.0.0.1:9"))
    config.load_kube_config()
    custom = client.CustomObjectsApi()
    seen, started = {}, time.monotonic()
    sandbox = maker.create_sandbox("standard", namespace=SPACE, sandbox_ready_timeout=60)
    seen["create_seconds"] = time.monotonic() - started
    seen["hash"] = bool(sandbox.get_sandbox_name_hash())
    started = time.monotonic()
    suspended = sandbox.suspend(wait_timeout=60)
    seen["suspended"] = [suspended.success, suspended.error_reason]
    seen["suspend_seconds"] = time.monotonic() - started
    snapshot = suspended.snapshot_response.snapshot_uid if suspended.snapshot_response else None
    if snapshot:
        until(custom, SNAPSHOTS, snapshot, lambda one: condition(one, "Ready") == "True")
    seen["is_suspended"] = sandbox.is_suspended()
    started = time.monotonic()
    resumed = sandbox.resume(wait_timeout=60)
    seen["resumed"] = [resumed.success, resumed.restored_from_snapshot,
                       resumed.snapshot_uid == snapshot, resumed.error_reason]
    seen["resume_seconds"] = time.monotonic() - started
    listed = sandbox.snapshots.list()
    seen["listed"] = [one.snapshot_uid == snapshot for one in listed.snapshots]
    sandbox.snapshots.delete(snapshot)
    seen["left"] = len(sandbox.snapshots.list().snapshots)
    name = sandbox.claim_name
    sandbox.terminate()
    seen["claims"] = maker.list_all_sandboxes(namespace=SPACE).count(name)
    try:
        maker.create_sandbox("no-such-pool", namespace=SPACE, sandbox_ready_timeout=60)
    except Exception as problem:  # pylint: disable=broad-except
        seen["wrong_pool"] = type(problem).__name__
    return seen


if __name__ == "__main__":
    print(json.dumps({"official": official, "sdk": sdk}[sys.argv[1]]()))
