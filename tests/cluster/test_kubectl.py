"""The double as kubectl sees it: a client that knows what a real API server answers."""

import json
import os
import subprocess

import pytest
from conftest import CLAIMS, Double, as_yaml, claim, path_of

CLAIM = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
         "metadata": {"name": "by-kubectl"}, **claim()}


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mapped"}, "data": data}


def test_versions_and_resources(double, any_kubectl):
    said = json.loads(any_kubectl(double, "version", "-o", "json").stdout)
    assert said["serverVersion"]["gitVersion"].startswith("v1.")
    said = any_kubectl(double, "api-resources", "--namespaced=true").stdout.decode()
    assert "sandboxclaims" in said and "podsnapshot.gke.io/v1" in said


def test_the_other_context_is_a_certificate(double, any_kubectl):
    any_kubectl(double, "--context", "double-certificate", "get", "namespaces")


def test_what_kubectl_may(double, any_kubectl):
    double.tell(do="deny", verb="create", resource="pods/exec")
    assert any_kubectl(double, "auth", "can-i", "get", "pods").stdout == b"yes\n"
    said = any_kubectl(double, "auth", "can-i", "create", "pods", "--subresource=exec", code=1).stdout
    assert said.startswith(b"no")


def test_apply_and_its_three_way_merge(double, kubectl):
    assert b"created" in kubectl(double, "apply", "-f", "-",
                                 given=as_yaml(config_map(a="1", b="2"))).stdout
    assert b"unchanged" in kubectl(double, "apply", "-f", "-",
                                   given=as_yaml(config_map(a="1", b="2"))).stdout
    kubectl(double, "patch", "configmap", "mapped", "-p", '{"data":{"other":"3"}}')
    assert b"configured" in kubectl(double, "apply", "-f", "-",
                                    given=as_yaml(config_map(a="1"))).stdout
    left = json.loads(kubectl(double, "get", "configmap", "mapped", "-o", "json").stdout)
    assert left["data"] == {"a": "1", "other": "3"}
    shown = kubectl(double, "diff", "-f", "-", given=as_yaml(config_map(a="9")), code=1).stdout
    assert b'a: "9"' in shown
    kubectl(double, "delete", "configmap", "mapped")


def test_server_side_apply(double, kubectl):
    kubectl(double, "apply", "--server-side", "-f", "-", given=as_yaml(config_map(a="1")))
    said = kubectl(double, "apply", "--server-side", "--field-manager=other", "-f", "-",
                   given=as_yaml(config_map(a="2")), code=1).stderr
    assert b'conflict with "kubectl": .data.a' in said
    kubectl(double, "apply", "--server-side", "--field-manager=other", "--force-conflicts",
            "-f", "-", given=as_yaml(config_map(a="2")))
    kubectl(double, "delete", "configmap", "mapped")


def test_what_kubectl_refuses(double, kubectl):
    wrong = {**CLAIM, "spec": {**CLAIM["spec"], "poolRef": {}}}
    said = kubectl(double, "apply", "-f", "-", given=as_yaml(wrong), code=1).stderr
    assert b'unknown field "spec.poolRef"' in said
    said = kubectl(double, "apply", "-f", "-", given=as_yaml({**CLAIM, "spec": {}}), code=1).stderr
    assert b"spec.warmPoolRef: Required value" in said
    said = kubectl(double, "get", "pod", "none", code=1).stderr
    assert b'Error from server (NotFound): pods "none" not found' in said


def test_a_claim_from_its_begin_to_its_end(double, kubectl):
    kubectl(double, "apply", "-f", "-", given=as_yaml(CLAIM))
    kubectl(double, "wait", "--for=condition=Ready", "--timeout=30s", "sandboxclaim/by-kubectl")
    said = kubectl(double, "get", "sandboxclaims").stdout.decode().split()
    assert said[:5] == ["NAME", "READY", "SANDBOX", "REASON", "AGE"]
    assert said[5:7] == ["by-kubectl", "True"]
    kubectl(double, "describe", "sandboxclaim", "by-kubectl")
    kubectl(double, "delete", "sandboxclaim", "by-kubectl", "--timeout=30s")
    assert double.get(path_of("sandboxclaims", CLAIMS, "by-kubectl")).code == 404


@pytest.fixture(scope="module")
def with_processes():
    agent = os.environ.get("SANDBOX_AGENT_STATIC")
    if not agent:
        pytest.skip("SANDBOX_AGENT_STATIC names no agent")
    made = Double("--pods", "process", "--agent", agent)
    yield made
    made.end()


@pytest.fixture(scope="module")
def pod(with_processes, kubectl):
    """The name of a Pod that runs."""
    kubectl(with_processes, "apply", "-f", "-", given=as_yaml(CLAIM))
    kubectl(with_processes, "wait", "--for=condition=Ready", "--timeout=30s",
            "sandboxclaim/by-kubectl")
    found = kubectl(with_processes, "get", "sandboxclaim", "by-kubectl", "-o",
                    "jsonpath={.status.sandbox.name}").stdout.decode()
    if b"WebSocket" in kubectl(with_processes, "exec", found, "--", "true", code=None).stderr:
        pytest.skip("this kubectl speaks only SPDY")
    return found


def test_exec(with_processes, pod, kubectl):
    def run(*words, **more):
        # kubectl drops output that comes before it has made all its streams, and says so.
        for _ in range(10):
            done = kubectl(with_processes, "exec", "-i", pod, "-c", "workspace", "--", *words,
                           **more)
            if b"Unknown stream id" not in done.stderr:
                break
        return done
    done = run("sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    assert (done.stdout, done.stderr.splitlines()[0]) == (b"out\n", b"err")
    # The end of the input reaches the command, and nothing is lost on the way.
    many = os.urandom(300_000)
    assert run("cat", given=many).stdout == many
    assert run("sh", "-c", "kill -9 $$", code=137)
    said = kubectl(with_processes, "exec", pod, "-c", "other", "--", "true", code=1).stderr
    assert b"container other is not valid for pod" in said


def test_exec_that_breaks(with_processes, pod, kubectl):
    def run(what, **more):
        with_processes.tell(do="fault", on={"verb": "exec", "resource": "pods/exec"}, what=what,
                            **more)
        return kubectl(with_processes, "exec", pod, "--", "sh", "-c", "echo 0123456789",
                       code=None)
    assert b"it broke" in run("exec-fail", message="it broke").stderr
    assert run("exec-cut", bytes=4).returncode != 0
    with_processes.tell(do="deny", verb="create", resource="pods/exec")
    said = kubectl(with_processes, "exec", pod, "--", "true", code=1).stderr
    assert b"forbidden" in said and b"pods/exec" in said
    with_processes.tell(do="clear")


def test_suspended_and_resumed(with_processes, pod, kubectl):
    def uid():
        return kubectl(with_processes, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}",
                       code=None).stdout
    first = uid()
    kubectl(with_processes, "patch", "sandbox", pod, "--type=merge", "-p",
            '{"spec":{"operatingMode":"Suspended"}}')
    kubectl(with_processes, "wait", "--for=condition=Suspended", "--timeout=30s", f"sandbox/{pod}")
    kubectl(with_processes, "wait", "--for=delete", "--timeout=30s", f"pod/{pod}")
    kubectl(with_processes, "patch", "sandbox", pod, "--type=merge", "-p",
            '{"spec":{"operatingMode":"Running"}}')
    kubectl(with_processes, "wait", "--for=condition=Ready", "--timeout=30s", f"sandbox/{pod}")
    assert uid() not in (b"", first)


@pytest.mark.parametrize("how", ["stdin", "directory", "signal"])
def test_how_it_ends(how):
    made = Double("--pods", "none", "--plain")
    assert made.url.startswith("http://127.0.0.1:")
    assert made.get("/version").json["major"] == "1"
    if how == "directory":
        subprocess.run(["rm", "-rf", str(made.directory)], check=True)
        assert made.process.wait(30) == 0
    elif how == "signal":
        made.process.terminate()
        assert made.process.wait(30) == 0
    made.end()
    assert not made.directory.exists()


def test_a_namespace_of_ones_own(any_kubectl):
    made = Double("--pods", "none", "--namespace", "mine")
    assert b"mine" in any_kubectl(made, "get", "namespaces").stdout
    assert made.get(path_of("configmaps", space="mine")).code == 200
    assert made.get(path_of("sandboxwarmpools", CLAIMS, "standard", "mine")).code == 200
    made.end()
