"""Setting a cluster up, and looking whether it is: `sandbox manifests gke` and `sandbox doctor`."""

import http.server
import importlib.util
import ipaddress
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import WAIT, Sandbox

yaml = pytest.importorskip("yaml")
pytest.importorskip("aiohttp")

SOURCE = pathlib.Path(os.environ["SANDBOX_SOURCE"])
DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = f"registry.example/tools@{DIGEST}"
POOL = "mine-0123456789ab"
WANTED = ("--agent-image", "registry.example/agent@" + DIGEST, "--bucket", "snapshots")


def double_class():
    path = SOURCE / "tests/cluster/conftest.py"
    spec = importlib.util.spec_from_file_location("cluster_double", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Double


@pytest.fixture(scope="module")
def double():
    running = double_class()("--pods", "none")
    yield running
    running.end()


@pytest.fixture
def cluster(double):
    """The double, as it was, when a test has changed it."""
    before = {plural: double.tell(do="objects", resource=plural)["objects"]
              for plural in ("sandboxtemplates", "sandboxwarmpools", "podsnapshotpolicies",
                             "podsnapshotstorageconfigs", "nodes", "runtimeclasses")}
    yield double
    double.tell(do="clear")
    for group, version in (("agents.x-k8s.io", "v1beta1"), ("podsnapshot.gke.io", "v1"),
                           ("extensions.agents.x-k8s.io", "v1beta1")):
        double.tell(do="serve", group=group, versions=[version])
    for plural, objects in before.items():
        kept = {(one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects}
        for one in double.tell(do="objects", resource=plural)["objects"]:
            key = (one["metadata"].get("namespace"), one["metadata"]["name"])
            if key not in kept:
                double.tell(do="remove", resource=plural, namespace=key[0], name=key[1])
        for one in objects:
            del one["metadata"]["uid"]
            double.tell(do="put", resource=plural, object=one)


def command_on(double, place="workspaces?pool=standard"):
    command = Sandbox(f"gke://double/{place}", str(double.directory))
    command.environment["KUBECONFIG"] = str(double.kubeconfig)
    return command


def await_true(condition):
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def documents(text):
    return list(yaml.safe_load_all(text))


def of_kind(found, kind):
    return [one for one in found if one["kind"] == kind]


def findings(command, *words, code=0):
    """Whatever is found of a cluster is found again in what was saved of it."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "saved.json")
        found = command.json(*words, "doctor", "--save", path, code=code)
        elsewhere = Sandbox(None, place)
        assert elsewhere.json("doctor", "--from", path, code=code) == found
    return found


def problems(command, *words):
    return [one for one in findings(command, *words, code=1) if one["severity"] == "problem"]


# ---- what is printed ----

def test_the_set_is_whole_and_in_order(memory):
    found = documents(memory.text("-u", "gke://c/apps?pool=mine", "manifests", "gke", *WANTED,
                                  "--image", IMAGE, "--egress", "192.0.2.7:3128"))
    assert [one["kind"] for one in found] == [
        "Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
        "ServiceAccount", "NetworkPolicy", "ComputeClass", "PodSnapshotStorageConfig",
        "PodSnapshotPolicy", "SandboxTemplate", "SandboxWarmPool"]
    assert {one["metadata"]["namespace"] for one in found if "namespace" in one["metadata"]} == \
        {"apps"}
    template, pool = of_kind(found, "SandboxTemplate")[0], of_kind(found, "SandboxWarmPool")[0]
    assert template["metadata"]["name"] == pool["metadata"]["name"] == POOL
    assert pool["spec"]["sandboxTemplateRef"]["name"] == POOL
    policy, storage = of_kind(found, "PodSnapshotPolicy")[0], \
        of_kind(found, "PodSnapshotStorageConfig")[0]
    assert policy["spec"]["storageConfigName"] == storage["metadata"]["name"]
    assert storage["spec"]["snapshotStorageConfig"]["gcs"] == {"bucket": "snapshots",
                                                               "path": "apps"}
    labels = template["spec"]["podTemplate"]["metadata"]["labels"]
    assert policy["spec"]["selector"]["matchLabels"].items() <= labels.items()
    way = [{"to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}],
            "ports": [{"protocol": "TCP", "port": 3128}]}]
    network = of_kind(found, "NetworkPolicy")[0]["spec"]
    assert network["egress"] == template["spec"]["networkPolicy"]["egress"] == way
    assert network["ingress"] == template["spec"]["networkPolicy"]["ingress"] == []
    assert network["podSelector"]["matchLabels"].items() <= labels.items()


PROXY = ("--egress-proxy", "registry.example/sandbox-egress-proxy@" + DIGEST)


def allowed_ports(rules, where, **wanted):
    """The ports that rules of a policy open for a peer that is wanted."""
    return sorted(port["port"] for rule in rules for port in rule["ports"]
                  if any(wanted.items() <= peer.items() for peer in rule[where]))


def test_the_proxy_is_all_that_workspaces_reach(memory):
    found = documents(memory.text("-u", "gke://c/apps?pool=mine", "manifests", "gke", *WANTED,
                                  *PROXY, "--service-account", "tools/bot"))
    own = [one for one in found if one["metadata"].get("namespace") == "apps-egress"]
    assert [one["kind"] for one in own] == ["NetworkPolicy", "Service", "Deployment"]
    kinds = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert kinds.index(("Namespace", "apps-egress")) < kinds.index(("Deployment",
                                                                    "sandbox-egress-proxy"))
    network, service, deployment = own
    spec = deployment["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == service["spec"]["selector"] == \
        network["spec"]["podSelector"]["matchLabels"] == labels
    # Out of a workspace: to these Pods, at the proxy's port, and nothing else.
    template = of_kind(found, "SandboxTemplate")[0]["spec"]
    assert template["networkPolicy"]["egress"] == [
        {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name":
                                                       "apps-egress"}},
                 "podSelector": {"matchLabels": labels}}],
         "ports": [{"protocol": "TCP", "port": 3128}]}]
    assert of_kind(found, "NetworkPolicy")[0]["spec"]["egress"] == template["networkPolicy"]["egress"]
    # Into the proxy: workspaces to the one port, whoever uses the library to the other.
    rules = network["spec"]["ingress"]
    spaces = [rule["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
              for rule in rules]
    assert spaces == ["apps", "tools"] and [len(rule["from"]) for rule in rules] == [1, 1]
    pods = template["podTemplate"]["metadata"]["labels"]
    workspaces = {"matchExpressions": [{"key": "sandbox.users.io/pool", "operator": "Exists"}]}
    assert "sandbox.users.io/pool" in pods and "sandbox.users.io/client" not in pods
    assert allowed_ports(rules, "from", podSelector=workspaces) == [3128]
    client = {"matchLabels": {"sandbox.users.io/client": "true"}}
    assert allowed_ports(rules, "from", podSelector=client) == [3129]


def test_the_proxy_reaches_names_and_what_is_public(memory):
    found = documents(memory.text("manifests", "gke", *WANTED, *PROXY))
    rules = [one for one in of_kind(found, "NetworkPolicy")
             if one["metadata"]["name"] == "sandbox-egress-proxy"][0]["spec"]["egress"]

    def ports_to(address):
        address = ipaddress.ip_address(address)
        ports = set()
        for rule in rules:
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                outside = [ipaddress.ip_network(one) for one in block.get("except", [])]
                whole = ipaddress.ip_network(block["cidr"])
                if address in whole and not any(address in one for one in outside):
                    ports |= {(port["protocol"], port["port"]) for port in rule["ports"]}
                assert all(one.version == whole.version and one.subnet_of(whole)
                           for one in outside)
        return ports
    public, names = {("TCP", 443), ("TCP", 80)}, {("TCP", 53), ("UDP", 53)}
    for address in ("1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111"):
        assert ports_to(address) == public, address
    for address in ("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "0.0.0.0",
                    "169.254.1.1", "224.0.0.1", "240.0.0.1", "::1", "fd00::1", "fe80::1",
                    "2002:a00:1::", "64:ff9b::a00:1", "::ffff:10.0.0.1"):
        assert ports_to(address) == set(), address
    for address in ("169.254.169.254", "169.254.20.10"):
        assert ports_to(address) == names, address


def test_the_proxy_has_no_more_rights_than_it_needs(memory):
    text = memory.text("manifests", "gke", *WANTED, *PROXY)
    found = documents(text)
    spec = of_kind(found, "Deployment")[0]["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert pod["automountServiceAccountToken"] is False
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False,
                                            "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}
    assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
    assert container["image"] == PROXY[1] and "readinessProbe" in container
    # The token is made by hand, and no manifest holds one.
    assert container["env"] == [{"name": "SANDBOX_PROXY_TOKEN", "valueFrom": {"secretKeyRef": {
        "name": "sandbox-egress-proxy", "key": "token"}}}]
    assert not of_kind(found, "Secret") and "kubectl create secret generic" in text


def test_a_pod_has_no_more_rights_than_it_needs(memory):
    found = documents(memory.text("manifests", "gke", *WANTED))
    pod = of_kind(found, "SandboxTemplate")[0]["spec"]["podTemplate"]["spec"]
    container = pod["containers"][0]
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                                      "runAsNonRoot": True}
    for one in (container, pod["initContainers"][0]):
        assert one["securityContext"] == {"allowPrivilegeEscalation": False,
                                          "capabilities": {"drop": ["ALL"]}}
        assert {"cpu", "memory"} <= one["resources"]["limits"].keys()
    assert "livenessProbe" not in container and "readinessProbe" in container
    agent = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/sandbox/agent"]
    assert agent == [{"name": "agent", "mountPath": "/sandbox/agent", "readOnly": True}]
    assert all(volume.keys() == {"name", "emptyDir"} for volume in pod["volumes"])
    assert of_kind(found, "NetworkPolicy")[0]["spec"]["egress"] == []


def test_the_library_may_do_no_more_than_it_does(memory):
    found = documents(memory.text("manifests", "gke", *WANTED, "--service-account", "apps/bot"))
    rules = of_kind(found, "Role")[0]["rules"] + of_kind(found, "ClusterRole")[0]["rules"]
    assert not any("*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)
    secrets = [rule for rule in rules if rule["resources"] == ["secrets"]]
    assert [rule["verbs"] for rule in secrets if "resourceNames" not in rule] == [["create"]]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        assert of_kind(found, kind)[0]["subjects"] == [
            {"kind": "ServiceAccount", "name": "bot", "namespace": "apps"}]
    assert len(of_kind(found, "ServiceAccount")) == 1


def test_the_same_words_give_the_same_text(memory):
    words = ("manifests", "gke", *WANTED, "--cpus", "0.5", "--memory", "256", "--own-nodes",
             "--machine-family", "n2d", "--replicas", "7", "--path", "a/b", "--egress",
             "[2001:db8::1]:3128")
    text = memory.text(*words)
    assert text == memory.text(*words)
    found = documents(text)
    assert not of_kind(found, "ComputeClass")
    spec = of_kind(found, "SandboxTemplate")[0]["spec"]
    container = spec["podTemplate"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"cpu": "500m", "memory": "256Mi"},
                                      "requests": {"cpu": "125m", "memory": "256Mi"}}
    assert spec["podTemplate"]["spec"]["nodeSelector"]["cloud.google.com/machine-family"] == "n2d"
    assert spec["networkPolicy"]["egress"][0]["to"][0]["ipBlock"]["cidr"] == "2001:db8::1/128"
    assert of_kind(found, "SandboxWarmPool")[0]["spec"]["replicas"] == 7
    listed = memory.json(*words)
    assert [one["kind"] for one in listed] == [one["kind"] for one in found]
    assert documents("---\n".join(one["text"] for one in listed)) == found


@pytest.mark.parametrize("words, code, told", [
    (("manifests", "gke"), 2, "--agent-image"),
    (("manifests", "gke", *WANTED[:2]), 2, "--bucket"),
    (("manifests", "aws", *WANTED), 2, "'aws'"),
    (("manifests", "gke", *WANTED, "--machine-family", "e2"), 2, "E2"),
    (("manifests", "gke", *WANTED, "--image", "debian:12"), 2, "digest"),
    (("manifests", "gke", *WANTED, "--egress", "proxy.example:3128"), 2, "knows no names"),
    (("manifests", "gke", *WANTED, "--egress", "192.0.2.1:0"), 2, "ADDRESS:PORT"),
    (("manifests", "gke", *WANTED, "--egress-proxy", "registry.example/proxy:1"), 2, "digest"),
    (("manifests", "gke", *WANTED, *PROXY, "--egress", "192.0.2.1:3128"), 2, "not both"),
    (("-u", f"gke://c/{'n' * 60}?pool=mine", "manifests", "gke", *WANTED, *PROXY), 2, "too long"),
    (("manifests", "gke", *WANTED, "--service-account", "A B"), 2, "[NAMESPACE/]NAME"),
    (("manifests", "gke", *WANTED, "--apply"), 2, "-u gke://"),
    (("-u", "gke://c/n", "manifests", "gke", *WANTED), 2, "pool=NAME"),
])
def test_what_is_wrong_is_told(memory, words, code, told):
    result = memory.run(*words, code=None)
    assert told in result.stderr.decode() and result.returncode == code, result
    assert result.stdout == b""


def test_the_rights_are_enough_for_a_whole_life(memory):
    """Every request of a workspace's life is one that the printed roles allow."""
    programs = pathlib.Path(os.environ["SANDBOX_CLI"]).parents[1]
    found = documents(memory.text("manifests", "gke", *WANTED))
    allowed = {(verb, resource)
               for one in of_kind(found, "Role") + of_kind(found, "ClusterRole")
               for rule in one["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    running = double_class()("--pods", "process", "--agent", str(programs / "agent/sandbox-agent"),
                             "--shim", str(programs / "shim/sandbox-shim.so"))
    try:
        os.chmod(running.directory, 0o711)
        command = command_on(running)
        command.run("create", "one")
        command.run("exec", "one", "--", "true")
        command.run("suspend", "one")
        running.tell(do="behave", object="*", how="cold")
        command.run("resume", "one", code=None)
        command.run("resume", "one", code=None)
        command.run("snapshots", "one")
        command.run("verify", "one", code=None)
        command.run("recover")
        command.run("renew", "one", "1h", code=None)
        command.run("delete", "--force", "one")
        requests = [one for one in running.tell(do="log")["requests"] if one["resource"]]
    finally:
        running.end()
    used = {("create" if one["verb"] == "exec" else one["verb"],
             one["resource"] + ("/" + one["part"] if one["part"] else "")) for one in requests}
    assert ("create", "pods/exec") in used and ("create", "podsnapshotmanualtriggers") in used
    assert used <= allowed, used - allowed


VERBS = {"get": {"get"}, "list": {"list"}, "create": {"create"}, "patch": {"patch"},
         "replace": {"update"}, "apply": {"patch"}, "delete": {"delete"},
         "await": {"get", "list", "watch"}}


def test_the_rights_are_those_that_the_source_uses(memory):
    """Requests that only go out when something is wrong are in no test's log."""
    folder = SOURCE / "lib/drivers/gke"
    plurals = dict(re.findall(r"sbx_resource (sbx_gke_\w+) = \{[^}]*?\"v\w+\",\s*\"(\w+)\"",
                              (folder / "gke.c").read_text("utf-8")))
    used = set()
    for path in folder.glob("*.c"):
        if path.name.startswith(("doctor", "manifests")):
            continue  # these are people's, who have more rights
        text = path.read_text("utf-8").replace("sbx_gke_find(", "sbx_kubernetes_get(")
        for verb, resource in re.findall(r"sbx_kubernetes_(\w+)\([^;{]*?&(sbx_gke_\w+)", text):
            used |= {(one, plurals[resource]) for one in VERBS.get(verb, ())}
    found = documents(memory.text("manifests", "gke", *WANTED))
    allowed = {(verb, resource)
               for one in of_kind(found, "Role") + of_kind(found, "ClusterRole")
               for rule in one["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert len(used) > 20 and used <= allowed, used - allowed


# ---- on a cluster ----

def test_what_is_applied_passes_the_doctor(cluster):
    command = command_on(cluster, "apps?pool=mine")
    words = ("manifests", "gke", *WANTED, "--image", IMAGE, "--apply")
    text = command.text(*words)
    assert text.splitlines()[0] == "Namespace apps applied" and len(text.splitlines()) == 13
    template = cluster.tell(do="objects", resource="sandboxtemplates", namespace="apps")["objects"]
    assert command.text(*words) == text
    # What is there already is not written again.
    assert template == cluster.tell(do="objects", resource="sandboxtemplates",
                                    namespace="apps")["objects"]
    told = findings(command_on(cluster, f"apps?pool={POOL}"))
    assert not [one for one in told if one["severity"] == "problem"]
    assert {"version", "runtime", "snapshots", "rights", "sandboxes", "suspending", "pool",
            "template", "policy", "network", "nodes"} == \
        {one["subject"] for one in told if one["severity"] == "good"}


def of_proxy(command):
    return [(one["severity"], one["text"], one["remedy"])
            for one in findings(command, code=None) if one["subject"] == "egress"]


def test_the_proxy_is_looked_for_where_workspaces_are_let_to_it(cluster):
    command = command_on(cluster, "apps?pool=withproxy")
    assert command.text("manifests", "gke", *WANTED, *PROXY, "--apply").count("applied") == 17
    place = {"namespace": "apps-egress", "name": "sandbox-egress-proxy"}
    (severity, text, _), = of_proxy(command)
    assert severity == "problem" and "'apps-egress' is not ready" in text
    pod = {"metadata": {"name": "proxy-1", "namespace": "apps-egress", "labels": {
        "app.kubernetes.io/name": "sandbox-egress-proxy"}},
        "spec": {"containers": [{"name": "proxy", "image": PROXY[1]}]}}
    cluster.tell(do="put", resource="pods", object=pod)
    await_true(lambda: cluster.tell(do="objects", resource="pods", namespace="apps-egress",
                                    name="proxy-1")["objects"][0]["status"]["phase"] == "Running")
    waiting = {"reason": "CreateContainerConfigError",
               "message": 'secret "sandbox-egress-proxy" not found'}
    cluster.tell(do="edit", resource="pods", namespace="apps-egress", name="proxy-1", patch={
        "status": {"containerStatuses": [{"name": "proxy", "ready": False,
                                          "state": {"waiting": waiting}}]}})
    (severity, text, remedy), = of_proxy(command)
    assert severity == "problem" and waiting["message"] in text
    assert "kubectl create secret generic sandbox-egress-proxy" in remedy and "apps-egress" in remedy
    cluster.tell(do="edit", resource="deployments", **place,
                 patch={"status": {"readyReplicas": 1}})
    assert [severity for severity, _, _ in of_proxy(command)] == ["good"]
    cluster.tell(do="edit", resource="deployments", **place, patch={"spec": {"replicas": 2}})
    (severity, text, _), = of_proxy(command)
    assert severity == "problem" and "two egress proxies" in text
    cluster.tell(do="deny", verb="get", resource="deployments")
    (severity, text, _), = of_proxy(command)
    assert severity == "note" and "not known" in text
    cluster.tell(do="clear")
    cluster.tell(do="remove", resource="deployments", **place)
    (severity, text, remedy), = of_proxy(command)
    assert severity == "problem" and "no egress proxy in 'apps-egress'" in text
    assert "--egress-proxy" in remedy
    # Another pool, which has no way out, says nothing of it.
    assert not of_proxy(command_on(cluster))
    cluster.tell(do="remove", resource="pods", namespace="apps-egress", name="proxy-1")


def test_the_proxy_is_looked_for_in_what_kubectl_prints(cluster, memory, tmp_path):
    command = command_on(cluster, "apps?pool=printed")
    command.run("manifests", "gke", *WANTED, *PROXY, "--apply")
    cluster.tell(do="edit", resource="deployments", namespace="apps-egress",
                 name="sandbox-egress-proxy", patch={"status": {"readyReplicas": 1}})
    path = tmp_path / "printed"
    words = ("-u", "gke:///apps?pool=printed")
    path.write_text(json.dumps(printed(cluster, *KINDS, "deployments", "pods")), "utf-8")
    assert ("egress", "good") in looked_at(memory, str(path), *words)
    path.write_text(json.dumps(printed(cluster, *KINDS)), "utf-8")
    assert "not in the description" in looked_at(memory, str(path), *words)["egress", "note"]


def knows_openapi_v3():
    """Debian 12's kubectl, of 2021, asks for OpenAPI v2 before it applies anything."""
    if shutil.which("kubectl") is None:
        return False
    said = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True,
                          timeout=WAIT, check=True).stdout
    version = json.loads(said)["clientVersion"]
    return (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 27)


@pytest.mark.skipif(not knows_openapi_v3(), reason="no kubectl of 1.27 or newer")
def test_kubectl_takes_what_is_printed(cluster):
    command = command_on(cluster, "other?pool=mine")
    text = command.text("manifests", "gke", *WANTED, *PROXY)
    for words in ((), ("--dry-run=server",)):
        done = subprocess.run(["kubectl", "apply", *words, "-f", "-"], input=text.encode(),
                              env={**command.environment, "HOME": str(cluster.directory)},
                              capture_output=True, timeout=WAIT, check=False)
        assert done.returncode == 0, done
        assert len(done.stdout.splitlines()) == 17, done


def test_what_others_have_set_is_theirs_unless_forced(cluster):
    command = command_on(cluster, "apps?pool=theirs")
    words = ("manifests", "gke", *WANTED, "--apply")
    command.run(*words)
    path = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/apps/sandboxwarmpools/theirs"
    taken = cluster.ask("PATCH", path, {"spec": {"replicas": 5}}, "application/merge-patch+json",
                        fieldManager="somebody")
    assert taken.code == 200, taken.body
    result = command.run(*words, code=None)
    assert result.returncode != 0 and b"somebody" in result.stderr, result
    command.run(*words, "--force")
    pool = cluster.tell(do="objects", resource="sandboxwarmpools", namespace="apps",
                        name="theirs")["objects"][0]
    assert pool["spec"]["replicas"] == 2


def test_a_cluster_that_is_not_there_is_a_problem(memory, tmp_path):
    config = tmp_path / "config"
    command = Sandbox("gke://nowhere/n?pool=p", str(tmp_path))
    command.environment["KUBECONFIG"] = str(config)
    assert "no kubeconfig" in problems(command)[0]["text"]
    config.write_text("contexts: [{name: c, context: {cluster: k}}]\n"
                      "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n")
    assert "no context 'nowhere'" in problems(command)[0]["text"]
    command.uri = "gke://c/n?pool=p"
    command.environment["SANDBOX_URI"] = command.uri
    assert problems(command, "--timeout", "2")[0]["subject"] == "cluster"


@pytest.mark.parametrize("told, subject, words", [
    ({"do": "serve", "group": "agents.x-k8s.io", "versions": ["v1alpha1"]}, "sandboxes",
     "operatingMode"),
    ({"do": "serve", "group": "extensions.agents.x-k8s.io", "versions": []}, "sandboxes",
     "not installed"),
    ({"do": "serve", "group": "podsnapshot.gke.io", "versions": []}, "snapshots", "not enabled"),
    ({"do": "serve", "group": "podsnapshot.gke.io", "versions": ["v1alpha1"]}, "snapshots",
     "preview"),
    ({"do": "deny", "verb": "create", "resource": "pods/exec"}, "rights", "create pods/exec"),
    ({"do": "deny", "verb": "delete", "resource": "podsnapshots"}, "rights",
     "delete podsnapshots of podsnapshot.gke.io"),
    ({"do": "deny", "verb": "get", "resource": "podsnapshotstorageconfigs"}, "rights",
     "outside of namespaces"),
    ({"do": "remove", "resource": "runtimeclasses", "name": "gvisor"}, "runtime", "gvisor"),
    ({"do": "edit", "resource": "nodes", "name": "node-1", "patch": {"metadata": {"labels": {
        "cloud.google.com/machine-family": "e2"}}}}, "nodes", "E2"),
    ({"do": "put", "resource": "nodes", "object": {"metadata": {"name": "node-2", "labels": {
        "sandbox.gke.io/runtime": "gvisor", "node.kubernetes.io/instance-type": "c3-standard-4",
    }}, "spec": {}}}, "nodes", "n2, c3"),
    ({"do": "remove", "resource": "sandboxwarmpools", "name": "standard"}, "pool", "standard"),
    ({"do": "remove", "resource": "sandboxtemplates", "name": "standard"}, "template", "standard"),
    ({"do": "remove", "resource": "podsnapshotpolicies", "name": "standard"}, "policy",
     "no PodSnapshotPolicy"),
    ({"do": "edit", "resource": "podsnapshotpolicies", "name": "standard", "patch": {"spec": {
        "snapshotGroupingRules": {"groupByLabelValue": {"groupRetentionPolicy": {
            "maxSnapshotCountPerGroup": 3}}}}}}, "policy", "must be at least 8"),
    ({"do": "edit", "resource": "podsnapshotpolicies", "name": "standard", "patch": {"spec": {
        "triggerConfig": {"postCheckpoint": "stop"}}}}, "policy", "postCheckpoint"),
    ({"do": "remove", "resource": "podsnapshotstorageconfigs", "name": "standard"}, "policy",
     "PodSnapshotStorageConfig"),
    ({"do": "edit", "resource": "sandboxtemplates", "name": "standard", "patch": {"spec": {
        "networkPolicyManagement": "Unmanaged"}}}, "network", "no network policy"),
])
def test_what_a_cluster_lacks_is_found_with_its_remedy(cluster, told, subject, words):
    namespace = None if told.get("resource") in ("nodes", "runtimeclasses",
                                                 "podsnapshotstorageconfigs") else "workspaces"
    cluster.tell(**({} if told["do"] in ("serve", "deny") else {"namespace": namespace}), **told)
    found = [one for one in problems(command_on(cluster)) if one["subject"] == subject]
    assert any(words in one["text"] for one in found), found
    assert all(one["remedy"] for one in found), found


POD = ("podTemplate", "spec")


@pytest.mark.parametrize("patch, words", [
    ({"runtimeClassName": None}, "runtimeClassName"),
    ({"automountServiceAccountToken": True}, "automountServiceAccountToken"),
    ({"securityContext": {"runAsNonRoot": None}}, "runAsNonRoot"),
    ({"securityContext": {"runAsUser": 0}}, "runAsUser"),
    ({"restartPolicy": "Always"}, "restartPolicy"),
    ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "no emptyDir"),
    ({"containers": [{"name": "main"}]}, "no container 'workspace'"),
    (lambda container: container["securityContext"].pop("capabilities"), "capabilities"),
    (lambda container: container["resources"]["limits"].pop("memory"), "limits"),
    (lambda container: container.update(command=["/bin/sh"]), "command"),
    (lambda container: container["command"].remove("--seal"), "--seal"),
    (lambda container: container["volumeMounts"][0].pop("readOnly"), "can be replaced"),
    (lambda container: container.pop("readinessProbe"), "readiness probe"),
    (lambda container: container.update(livenessProbe={"exec": {"command": ["true"]}}),
     "liveness probe"),
])
def test_a_template_that_will_not_do_is_found(cluster, patch, words):
    template = cluster.tell(do="objects", resource="sandboxtemplates", namespace="workspaces",
                            name="standard")["objects"][0]
    if callable(patch):
        containers = template["spec"]["podTemplate"]["spec"]["containers"]
        patch(containers[0])
        patch = {"containers": containers}
    cluster.tell(do="edit", resource="sandboxtemplates", namespace="workspaces", name="standard",
                 patch={"spec": {"podTemplate": {"spec": patch}}})
    found = [one["text"] for one in problems(command_on(cluster)) if one["subject"] == "template"]
    assert any(words in text for text in found), found


def test_a_template_whose_agent_has_no_address_is_found_where_one_is_asked_for(cluster):
    assert not [one for one in findings(command_on(cluster)) if one["severity"] == "problem"]
    pod = command_on(cluster, "workspaces?pool=standard&channel=pod")
    found = [one["text"] for one in problems(pod) if one["subject"] == "template"]
    assert ["--tcp" in text for text in found] == [True], found


def test_what_may_not_be_seen_is_no_problem(cluster):
    for resource in ("nodes", "runtimeclasses", "serviceaccounts", "networkpolicies"):
        cluster.tell(do="deny", verb="*", resource=resource)
    told = findings(command_on(cluster))
    unknown = [one["subject"] for one in told if "not known" in one["text"]]
    assert {"nodes", "runtime", "identity"} <= set(unknown)
    assert not any(json.dumps(one).count(cluster.token) for one in told)


# ---- saved, and looked at elsewhere ----

KINDS = {"sandboxwarmpools": ("extensions.agents.x-k8s.io/v1beta1", "SandboxWarmPool"),
         "sandboxtemplates": ("extensions.agents.x-k8s.io/v1beta1", "SandboxTemplate"),
         "podsnapshotpolicies": ("podsnapshot.gke.io/v1", "PodSnapshotPolicy"),
         "podsnapshotstorageconfigs": ("podsnapshot.gke.io/v1", "PodSnapshotStorageConfig"),
         "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass"), "nodes": ("v1", "Node")}

OF_PROXY = {"deployments": ("apps/v1", "Deployment"), "pods": ("v1", "Pod")}


def printed(cluster, *plurals):
    """As `kubectl get … -A -o json` prints it."""
    items = []
    for plural in plurals:
        version, kind = {**KINDS, **OF_PROXY}[plural]
        items += [{**one, "apiVersion": version, "kind": kind}
                  for one in cluster.tell(do="objects", resource=plural)["objects"]]
    return {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}


def looked_at(memory, path, *words, code=0):
    found = {}
    for one in memory.json(*words, "doctor", "--from", path, code=code):
        found.setdefault((one["subject"], one["severity"]), []).append(one["text"])
    return {key: "\n".join(texts) for key, texts in found.items()}


def test_what_is_saved_holds_no_secret_and_is_ones_own(cluster, tmp_path):
    patch = {"spec": {"podTemplate": {"spec": {"containers": [
        {"name": "workspace", "env": [{"name": "KEY", "value": "hunter2"}]}]}}}}
    cluster.tell(do="edit", resource="sandboxtemplates", namespace="workspaces", name="standard",
                 patch=patch)
    path = tmp_path / "saved.json"
    command_on(cluster).run("doctor", "--save", str(path), code=None)
    text = path.read_text("utf-8")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in text and cluster.token not in text and "managedFields" not in text
    saved = json.loads(text)
    assert saved["kind"] == "SandboxClusterDescription" and saved["version"] == 1
    assert (saved["context"], saved["namespace"], saved["pool"]) == ("double", "workspaces",
                                                                     "standard")
    assert "may create /api/v1/namespaces/workspaces/pods/exec" in saved["answers"]


def test_another_place_is_not_in_the_description(cluster, memory, tmp_path):
    path = str(tmp_path / "saved.json")
    command_on(cluster).run("doctor", "--save", path)
    found = looked_at(memory, path, "-u", "gke://double/workspaces?pool=other")
    assert "not in the description" in found["pool", "note"]
    assert ("template", "good") not in found


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_what_kubectl_prints_is_looked_at(cluster, memory, tmp_path, write):
    path = tmp_path / "printed"
    path.write_text(write(printed(cluster, *KINDS)), "utf-8")
    found = looked_at(memory, str(path))
    assert {"runtime", "snapshots", "pool", "template", "policy", "nodes"} <= \
        {subject for subject, severity in found if severity == "good"}
    for subject in ("version", "rights", "identity"):
        assert "not in the description" in found[subject, "note"]
    cluster.tell(do="edit", resource="nodes", name="node-1", patch={"metadata": {"labels": {
        "cloud.google.com/machine-family": "e2"}}})
    path.write_text(write(printed(cluster, *KINDS)), "utf-8")
    assert "E2" in looked_at(memory, str(path), code=1)["nodes", "problem"]


@pytest.mark.parametrize("left_out", sorted(KINDS))
def test_what_was_not_printed_is_no_problem(cluster, memory, tmp_path, left_out):
    path = tmp_path / "printed"
    path.write_text(json.dumps(printed(cluster, *(set(KINDS) - {left_out}))), "utf-8")
    words = ("-u", "gke:///workspaces?pool=standard")
    assert not [one for one in looked_at(memory, str(path), *words) if one[1] == "problem"]


@pytest.mark.parametrize("text, told", [
    ("", "neither one nor a List"),
    ("{", "not valid JSON"),
    ("a: [", "line"),
    ('{"kind": "Pod"}', "neither one nor a List"),
    ('{"kind": "List", "items": []}', "no object of a kind"),
    ('{"kind": "SandboxClusterDescription", "version": 2}', "its version is 2"),
    ('{"kind": "SandboxClusterDescription", "version": 1}', "no answers"),
    ('{"kind": "SandboxClusterDescription", "version": 1, "answers": {"/version": 1}}',
     "'/version' is damaged"),
    ('{"kind": "SandboxClusterDescription", "version": 1, "namespace": "../x", "answers": {}}',
     "is no name"),
    ('{"a": ' * 100 + "1" + "}" * 100, "nested too deeply"),
    (" " * (17 << 20), "16777216"),
], ids=["empty", "cut", "yaml", "object", "nothing", "newer", "bare", "answer", "name", "deep",
        "large"])
def test_a_damaged_description_is_told(memory, tmp_path, text, told):
    path = tmp_path / "saved.json"
    path.write_text(text, "utf-8")
    result = memory.run("doctor", "--from", str(path), code=None)
    lines = result.stderr.decode().splitlines()
    assert result.returncode != 0 and result.stdout == b"" and len(lines) == 1, result
    assert told in lines[0] and str(path) in lines[0], lines


def test_only_what_is_described_can_be_saved(memory, tmp_path):
    path = tmp_path / "saved.json"
    result = memory.run("-u", "memory:", "doctor", "--save", str(path), code=None)
    assert b"of gke: only" in result.stderr and not path.exists(), result
    both = memory.run("doctor", "--save", str(path), "--from", str(path), code=None)
    assert both.returncode == 2 and b"give one" in both.stderr, both
    missing = memory.run("doctor", "--from", str(path), code=None)
    assert missing.returncode == 3 and str(path).encode() in missing.stderr, missing


class OlderCluster(http.server.BaseHTTPRequestHandler):
    """Tells its version and has nothing else."""

    def do_GET(self):
        code, answer = 404, {"kind": "Status", "reason": "NotFound", "code": 404}
        if self.path == "/version":
            code, answer = 200, {"gitVersion": "v1.34.1-gke.3084001"}
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def test_an_older_version_is_told(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OlderCluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = tmp_path / "config"
        config.write_text("contexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, "
                          f"cluster: {{server: 'http://127.0.0.1:{server.server_port}'}}}}]\n")
        command = Sandbox("gke://c/n?pool=p", str(tmp_path))
        command.environment["KUBECONFIG"] = str(config)
        told = [one for one in problems(command) if one["subject"] == "version"]
        server.shutdown()
    assert "1.34.1" in told[0]["text"] and "1.35.3-gke.1234000" in told[0]["remedy"]
