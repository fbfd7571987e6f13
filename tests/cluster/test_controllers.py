"""Claims, pools, Sandboxes and Pods of the double, seen through its API."""

import datetime

import pytest
from conftest import CLAIMS, CORE, SANDBOXES, Double, path_of
from steps import Workspace, condition, message, uid

PREFIX = "agents.x-k8s.io/"


@pytest.fixture(scope="module")
def whole_double():
    made = Double("--pods", "none", "--plain")
    yield made
    made.end()


def names(double, plural, base):
    return {one["metadata"]["name"] for one in double.get(path_of(plural, base)).json["items"]}


def in_seconds(seconds):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_claim_adopts_a_warm_sandbox_of_another_name(double):
    workspace = Workspace(double)
    sandbox, owner = workspace.sandbox(), workspace.claim()
    assert sandbox["metadata"]["name"].startswith("standard-")
    assert sandbox["metadata"]["name"] != workspace.name
    assert [one["uid"] for one in sandbox["metadata"]["ownerReferences"]] == [uid(owner)]
    labels = sandbox["metadata"]["labels"]
    assert labels[PREFIX + "launch-type"] == "warm" and labels[PREFIX + "claim-uid"] == uid(owner)
    assert PREFIX + "warm-pool-sandbox" not in labels
    assert owner["metadata"]["annotations"][PREFIX + "sandbox-name"] == sandbox["metadata"]["name"]
    pod = workspace.pod()
    assert PREFIX + "claim-uid" not in pod["metadata"]["labels"]
    assert owner["status"]["sandbox"]["podIPs"] == [pod["status"]["podIP"]]
    path = path_of("sandboxwarmpools", CLAIMS, "standard")
    workspace.until(lambda: double.get(path).json["status"]["readyReplicas"] == 2,
                    "the pool is filled again")


def test_the_name_hash_is_fnv_1a(double):
    workspace = Workspace(double)
    name, value = workspace.sandbox_name(), 0x811c9dc5
    for byte in name.encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    assert workspace.pod()["metadata"]["labels"][PREFIX + "sandbox-name-hash"] == f"{value:08x}"
    assert workspace.sandbox()["status"]["selector"] == f"{PREFIX}sandbox-name-hash={value:08x}"


def test_an_empty_pool_gives_a_cold_sandbox_of_the_same_name(double):
    double.make("sandboxwarmpools", "empty", CLAIMS,
                spec={"replicas": 0, "sandboxTemplateRef": {"name": "standard"}})
    workspace = Workspace(double, pool="empty")
    assert workspace.sandbox_name() == workspace.name
    assert workspace.sandbox()["metadata"]["labels"][PREFIX + "launch-type"] == "cold"


def test_env_needs_a_policy_and_makes_it_cold(double):
    refused = Workspace(double, is_ready=False, env=[{"name": "A", "value": "b"}])
    refused.until(lambda: condition(refused.claim(), "Ready") ==
                  ("False", "EnvVarsInjectionRejected"), "env is refused")
    template = double.get(path_of("sandboxtemplates", CLAIMS, "standard")).json
    double.make("sandboxtemplates", "open", CLAIMS,
                spec={**template["spec"], "envVarsInjectionPolicy": "Allowed"})
    double.make("sandboxwarmpools", "open", CLAIMS,
                spec={"replicas": 1, "sandboxTemplateRef": {"name": "open"}})
    workspace = Workspace(double, pool="open", env=[{"name": "A", "value": "b"}])
    assert workspace.sandbox_name() == workspace.name
    assert {"name": "A", "value": "b"} in workspace.pod()["spec"]["containers"][0]["env"]
    unfit = Workspace(double, pool="open", is_ready=False, env=[{"name": "HOME", "value": "/"}])
    unfit.until(lambda: condition(unfit.claim(), "Ready") == ("False", "ReconcilerError"))
    assert "override is not allowed" in message(unfit.claim(), "Ready")


def test_what_never_gets_ready_says_so(double):
    nowhere = Workspace(double, pool="nowhere", is_ready=False)
    nowhere.until(lambda: condition(nowhere.claim(), "Ready") == ("False", "WarmPoolNotFound"))
    assert message(nowhere.claim(), "Ready") == 'SandboxWarmPool "nowhere" not found'
    for metadata, reason, text in (
            ({"labels": {"team": "x"}}, "InvalidMetadata", "allowed domain"),
            ({"annotations": {"x.kubernetes.io/y": "z"}}, "InvalidMetadata", "restricted"),
            ({"labels": {"sandbox.users.io/pool": "x"}}, "ReconcilerError", "metadata override")):
        bad = Workspace(double, is_ready=False, additionalPodMetadata=metadata)
        bad.until(lambda bad=bad, reason=reason:
                  condition(bad.claim(), "Ready") == ("False", reason), reason)
        assert text in message(bad.claim(), "Ready")


def test_metadata_of_the_claim_is_forced_onto_sandbox_and_pod(double):
    workspace = Workspace(double, additionalPodMetadata={"labels": {"sandbox.users.io/x": "1"}})
    path = path_of("sandboxes", SANDBOXES, workspace.sandbox_name())
    template = workspace.sandbox()["spec"]["podTemplate"]
    assert template["metadata"]["labels"]["sandbox.users.io/x"] == "1"
    workspace.until(lambda: workspace.pod()["metadata"]["labels"].get("sandbox.users.io/x") == "1")
    double.patch(path, {"spec": {"podTemplate": {"metadata": {"annotations": {"mine": "1"}}}}})
    workspace.until(lambda: "mine" not in (workspace.sandbox()["spec"]["podTemplate"]["metadata"]
                                           .get("annotations") or {}), "it is taken back")
    workspace.pin("some-name")
    workspace.until(lambda: workspace.pod()["metadata"]["annotations"]
                    .get("podsnapshot.gke.io/ps-name") == "some-name")
    workspace.pin(None)
    workspace.until(lambda: "podsnapshot.gke.io/ps-name" not in
                    workspace.pod()["metadata"]["annotations"])


def test_suspend_and_resume_tell_their_conditions(double):
    workspace = Workspace(double)
    before = workspace.pod()
    changed = workspace.mode("Suspended")
    ready = next(one for one in changed["status"]["conditions"] if one["type"] == "Ready")
    assert ready["status"] == "True", "the answer to the PATCH still has the old status"
    assert ready["observedGeneration"] < changed["metadata"]["generation"]
    workspace.until(lambda: condition(workspace.sandbox(), "Suspended") ==
                    ("True", "PodTerminated"))
    sandbox = workspace.sandbox()
    assert condition(sandbox, "Ready") == ("False", "SandboxSuspended")
    assert workspace.pod() is None and "podIPs" not in sandbox["status"]
    assert sandbox["status"]["selector"], "it stays"
    workspace.until(lambda: condition(workspace.claim(), "Ready") == ("False", "SandboxSuspended"))
    pod = workspace.resume()
    assert pod["metadata"]["name"] == before["metadata"]["name"] and uid(pod) != uid(before)
    assert condition(workspace.sandbox(), "Suspended") == ("False", "NotSuspended")
    told = next(one for one in workspace.claim()["status"]["conditions"] if one["type"] == "Ready")
    assert told["observedGeneration"] == workspace.claim()["metadata"]["generation"]


def test_a_pod_that_failed_is_not_made_again(double):
    workspace = Workspace(double)
    dead = workspace.pod()
    assert workspace.behave("evict")["hits"] == 1
    workspace.until(lambda: condition(workspace.sandbox(), "Finished") == ("True", "PodFailed"))
    assert condition(workspace.sandbox(), "Ready") == ("False", "PodFailed")
    assert workspace.pod()["status"]["reason"] == "Evicted"
    workspace.until(lambda: condition(workspace.claim(), "Finished")[0] == "True")
    workspace.suspend()
    assert uid(workspace.resume()) != uid(dead)
    assert condition(workspace.sandbox(), "Finished") == (None, None)
    workspace.until(lambda: condition(workspace.claim(), "Finished") == (None, None))


def test_a_container_is_started_again_where_its_policy_says_so(double):
    template = double.get(path_of("sandboxtemplates", CLAIMS, "standard")).json
    template["spec"]["podTemplate"]["spec"]["restartPolicy"] = "Always"
    double.make("sandboxtemplates", "again", CLAIMS, spec=template["spec"])
    double.make("sandboxwarmpools", "again", CLAIMS,
                spec={"replicas": 0, "sandboxTemplateRef": {"name": "again"}})
    workspace = Workspace(double, pool="again")
    first = workspace.pod()
    for number in range(1, 5):
        workspace.behave("kill")
        status = workspace.until(lambda number=number: container_of(
            workspace.pod(), number), f"it is started again: {number}")
        assert status["lastState"]["terminated"]["exitCode"] == 137
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert uid(workspace.pod()) == uid(first) and not workspace.is_running()


def container_of(pod, number):
    """Its status, once it runs for the time of that number, or is given up."""
    status = pod["status"]["containerStatuses"][0]
    is_up = status["restartCount"] == number and status["ready"]
    return (is_up or "waiting" in status["state"]) and status


def test_a_template_has_a_network_policy(double):
    path = path_of("networkpolicies", "/apis/networking.k8s.io/v1", "standard-network-policy")
    spec = double.get(path).json["spec"]
    workspace = Workspace(double)
    for key, value in spec["podSelector"]["matchLabels"].items():
        assert workspace.pod()["metadata"]["labels"][key] == value
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "169.254.0.0/16" in spec["egress"][0]["to"][0]["ipBlock"]["except"]


def test_all_goes_with_the_claim(double):
    workspace = Workspace(double)
    name = workspace.sandbox_name()
    workspace.remove()
    workspace.until(lambda: name not in names(double, "sandboxes", SANDBOXES), "the Sandbox goes")
    workspace.until(lambda: name not in names(double, "pods", CORE), "the Pod goes")


def test_expiry_of_a_claim(double):
    gone = Workspace(double, lifecycle={"shutdownTime": in_seconds(1), "shutdownPolicy": "Delete"},
                     is_ready=False)
    kept = Workspace(double, lifecycle={"shutdownTime": in_seconds(1)}, is_ready=False)
    kept.until(lambda: condition(kept.claim(), "Ready") == ("False", "ClaimExpired"))
    kept.until(lambda: kept.name not in str(names(double, "sandboxes", SANDBOXES)))
    gone.until(lambda: gone.name not in names(double, "sandboxclaims", CLAIMS), "it goes")
    later = Workspace(double, lifecycle={"shutdownTime": in_seconds(1), "shutdownPolicy": "Delete"})
    double.patch(path_of("sandboxclaims", CLAIMS, later.name),
                 {"spec": {"lifecycle": {"shutdownTime": in_seconds(3600)}}})
    assert later.name in names(double, "sandboxclaims", CLAIMS)


def test_expiry_of_a_sandbox(double):
    workspace = Workspace(double)
    double.patch(path_of("sandboxes", SANDBOXES, workspace.sandbox_name()),
                 {"spec": {"shutdownTime": in_seconds(0)}})
    workspace.until(lambda: condition(workspace.sandbox(), "Ready") == ("False", "SandboxExpired"))
    workspace.until(lambda: workspace.pod() is None, "the Pod goes")
    workspace.until(lambda: condition(workspace.claim(), "Ready") == ("False", "SandboxExpired"))


def test_a_claim_that_is_told_to_wait(double):
    told = double.tell(do="behave", object="slow", how="claim-never")
    slow = Workspace(double, "slow", is_ready=False)
    slow.until(lambda: condition(slow.claim(), "Ready") == ("False", "SandboxCreatePending"))
    double.tell(do="behave", how="go", id=told["id"])
    slow.await_ready()
    double.tell(do="behave", object="hopeless", how="claim-hopeless", reason="TemplateNotFound")
    hopeless = Workspace(double, "hopeless", is_ready=False)
    hopeless.until(lambda: condition(hopeless.claim(), "Ready") == ("False", "TemplateNotFound"))


def test_a_pool_follows_its_size(double):
    path = path_of("sandboxwarmpools", CLAIMS, "standard")
    for size in (4, 1, 2):
        double.patch(path, {"spec": {"replicas": size}})

        def has_size(size=size):
            status = double.get(path).json["status"]
            return status["replicas"] == status["readyReplicas"] == size
        double.await_true(has_size, f"there are {size}")


def test_the_double_made_no_mistakes(double):
    assert double.tell(do="state")["controller_errors"] == 0
