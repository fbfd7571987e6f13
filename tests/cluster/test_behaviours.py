"""Pod snapshots of the double, and what it is told to do wrong."""

import pytest
from conftest import SNAPSHOTS, Double, path_of
from steps import Workspace, condition, message, restored, uid


@pytest.fixture(scope="module")
def whole_double():
    made = Double("--pods", "none", "--plain")
    yield made
    made.end()


@pytest.fixture
def workspace(double):
    made = Workspace(double)
    yield made
    double.tell(do="clear")
    made.remove()


def suspended(workspace):
    """With one good snapshot, whose name is returned."""
    name = workspace.take()
    workspace.suspend()
    return name


def test_a_snapshot_is_what_gke_makes(workspace):
    trigger = workspace.make_trigger()
    told, name = workspace.await_triggered(trigger)
    assert told == ("True", "Complete")
    workspace.until(lambda: condition(workspace.snapshot(name), "Ready") ==
                    ("True", "AllSnapshotsAvailable"))
    snapshot, pod = workspace.snapshot(name), workspace.pod()
    assert condition(snapshot, "Checkpoint") == condition(snapshot, "StorageReplicated") == \
        ("True", "Succeeded")
    hash_label = "agents.x-k8s.io/sandbox-name-hash"
    assert snapshot["metadata"]["labels"] == {
        hash_label: pod["metadata"]["labels"][hash_label], "gke-pod-snapshot-triggered-by": trigger}
    assert snapshot["metadata"]["annotations"]["podsnapshot.gke.io/origin-pod"] == \
        pod["metadata"]["name"]
    assert snapshot["metadata"]["finalizers"] == ["podsnapshot.gke.io/podsnapshot-finalizer"]
    assert snapshot["spec"] == {"policyName": "standard"} and len(name) == 36
    assert snapshot["status"]["storageStatus"]["gcs"]["observedGCSPath"].endswith(name)
    assert f"PodSnapshot workspaces/{name}" in workspace.events()[0]


def test_complete_comes_before_ready(workspace):
    held = workspace.behave("snapshot-late")
    told, name = workspace.await_triggered(workspace.make_trigger())
    assert told == ("True", "Complete")
    assert condition(workspace.snapshot(name), "Ready")[0] == "False"
    workspace.double.tell(do="behave", how="go", id=held["id"])
    workspace.until(lambda: condition(workspace.snapshot(name), "Ready")[0] == "True")


def test_a_pod_that_goes_before_ready_leaves_no_snapshot(workspace):
    workspace.behave("snapshot-late")
    _, name = workspace.await_triggered(workspace.make_trigger())
    workspace.suspend()
    workspace.double.tell(do="behave", how="go")
    workspace.until(lambda: condition(workspace.snapshot(name), "Ready") == ("False", "Failed"))
    assert restored(workspace.resume()) is None


@pytest.mark.parametrize("how,words,leaves", [
    ("trigger-failed", "context deadline exceeded", True),
    ("storage-unavailable", "storage backend may not be available", False)])
def test_a_trigger_that_fails(workspace, how, words, leaves):
    workspace.behave(how)
    trigger = workspace.make_trigger()
    assert workspace.await_triggered(trigger) == (("False", "Failed"), None)
    assert words in message(workspace.trigger(trigger), "Triggered")
    left = [one for one in workspace.snapshots()
            if one["metadata"]["labels"]["gke-pod-snapshot-triggered-by"] == trigger]
    assert bool(left) == leaves and all(condition(one, "Ready")[0] == "False" for one in left)
    assert workspace.take(), "the next one is good"


def test_a_trigger_that_nothing_is_heard_of(workspace):
    held = workspace.behave("trigger-never")
    trigger = workspace.make_trigger()
    second = workspace.take()
    assert condition(workspace.trigger(trigger), "Triggered") == (None, None)
    workspace.double.tell(do="behave", how="go", id=held["id"])
    told, name = workspace.await_triggered(trigger)
    assert told == ("True", "Complete") and name != second


def test_a_trigger_without_a_pod(double):
    double.make("podsnapshotmanualtriggers", "nobody", SNAPSHOTS, spec={"targetPod": "nobody"})
    path = path_of("podsnapshotmanualtriggers", SNAPSHOTS, "nobody")
    double.await_true(lambda: condition(double.get(path).json, "Triggered") == ("False", "Failed"))


def test_a_snapshot_that_fails_after_complete(workspace):
    workspace.behave("snapshot-failed")
    told, name = workspace.await_triggered(workspace.make_trigger())
    assert told == ("True", "Complete")
    workspace.until(lambda: condition(workspace.snapshot(name), "Ready") == ("False", "Failed"))


def test_the_newest_is_restored_unless_one_is_pinned(workspace):
    first, second = workspace.take(), workspace.take()
    workspace.suspend()
    assert second in restored(workspace.resume())[1]
    workspace.suspend()
    workspace.pin(first)
    status, text = restored(workspace.resume())
    assert status == "True" and first in text and second not in text
    workspace.suspend()
    workspace.pin("")
    assert restored(workspace.resume()) is None, "an empty name bypasses the restore"
    workspace.suspend()
    workspace.pin("11111111-2222-4333-8444-555555555555")
    assert restored(workspace.resume()) is None, "what does not fit is a cold start without a word"


def test_the_policy_prunes_the_oldest_at_the_next_attempt(workspace):
    path = path_of("podsnapshotpolicies", SNAPSHOTS, "standard")

    def limit(count):
        rules = {"labels": ["agents.x-k8s.io/sandbox-name-hash"],
                 "groupRetentionPolicy": {"maxSnapshotCountPerGroup": count}}
        workspace.double.patch(path, {"spec": {"snapshotGroupingRules":
                                               {"groupByLabelValue": rules}}})
    limit(2)
    try:
        first, second = workspace.take(), workspace.take()
        workspace.behave("trigger-failed")
        workspace.await_triggered(workspace.make_trigger())
        workspace.until(lambda: workspace.snapshot(first) is None, "the good old one is gone")
        assert workspace.snapshot(second)
    finally:
        limit(8)


def test_another_template_does_not_match(workspace):
    suspended(workspace)
    path = path_of("sandboxes", "/apis/agents.x-k8s.io/v1beta1", workspace.sandbox_name())
    spec = workspace.sandbox()["spec"]["podTemplate"]["spec"]
    spec["containers"][0]["image"] = "registry.example/other"
    workspace.double.patch(path, {"spec": {"podTemplate": {"spec": spec}}})
    assert restored(workspace.resume()) is None


def test_deleting_a_snapshot(workspace):
    name = workspace.take()
    held = workspace.behave("snapshot-slow-delete")
    path = path_of("podsnapshots", SNAPSHOTS, name)
    workspace.double.ask("DELETE", path)
    workspace.until(lambda: condition(workspace.snapshot(name), "Ready") == ("False", "Deleting"))
    assert workspace.snapshot(name)["metadata"]["deletionTimestamp"]
    workspace.double.tell(do="behave", how="go", id=held["id"])
    workspace.until(lambda: workspace.snapshot(name) is None, "it goes")
    assert not (workspace.double.directory / "bucket" / name).exists()


# ---- restores that are none ----


@pytest.mark.parametrize("how,event", [("cold", False), ("cold-event", True), ("node-new", False)])
def test_a_cold_start_in_place_of_a_restore(workspace, how, event):
    name = suspended(workspace)
    workspace.behave(how)
    assert restored(workspace.resume()) is None
    said = [text for text in workspace.events() if "falling back to a cold start of pod" in text]
    assert bool(said) == event
    if how == "node-new":
        trigger = workspace.make_trigger()
        assert workspace.await_triggered(trigger)[0] == ("False", "Failed")
        assert "storage backend" in message(workspace.trigger(trigger), "Triggered")
    workspace.suspend()
    assert name in restored(workspace.resume())[1], "once"


def test_another_snapshot_is_restored(workspace):
    first, second = workspace.take(), workspace.take()
    workspace.suspend()
    workspace.behave("other-snapshot")
    text = restored(workspace.resume())[1]
    assert first in text and second not in text
    foreign = Workspace(workspace.double)
    theirs = foreign.take()
    workspace.suspend()
    workspace.behave("foreign-snapshot")
    assert theirs in restored(workspace.resume())[1]
    foreign.remove()


def test_what_the_condition_says(workspace):
    name = suspended(workspace)
    workspace.behave("condition-absent")
    assert restored(workspace.resume()) is None
    workspace.suspend()
    workspace.behave("condition-false")
    assert restored(workspace.resume())[0] == "False"
    workspace.suspend()
    workspace.behave("condition-other", name="not-this-one")
    status, text = restored(workspace.resume())
    assert status == "True" and "not-this-one" in text and name not in text
    workspace.suspend()
    workspace.behave("cold-lying")
    assert name in restored(workspace.resume())[1]


def test_the_condition_may_come_after_ready(workspace):
    name = suspended(workspace)
    held = workspace.behave("condition-late")
    assert restored(workspace.resume()) is None
    workspace.double.tell(do="behave", how="go", id=held["id"])
    workspace.until(lambda: restored(workspace.pod()), "it is told")
    assert name in restored(workspace.pod())[1]


def test_a_restore_that_crashes(workspace):
    name = suspended(workspace)
    workspace.behave("crash")
    workspace.mode("Running")
    status = workspace.until(lambda: [one for one in (workspace.pod() or {"status": {}})["status"]
                                      .get("containerStatuses", [])
                                      if one["state"].get("waiting", {}).get("reason") ==
                                      "CrashLoopBackOff"], "it crashes")[0]
    assert "OCI runtime restore failed" in status["lastState"]["terminated"]["message"]
    assert status["restartCount"] > 0 and not workspace.is_running()
    assert any("OCI runtime restore failed" in text for text in workspace.events("Failed"))
    workspace.suspend()
    assert name in restored(workspace.resume())[1]


def test_a_pod_is_replaced_right_after_ready(workspace):
    name = suspended(workspace)
    workspace.behave("replaced", ms=300)
    workspace.behave("cold", after=1)
    first = workspace.resume()
    assert name in restored(first)[1]
    workspace.until(lambda: (workspace.pod() or first)["metadata"]["uid"] != uid(first), "another")
    workspace.await_running()
    assert restored(workspace.pod()) is None


def is_restarted(pod):
    return pod["status"]["containerStatuses"][0]["restartCount"] == 1 and pod


def test_a_container_is_started_again_in_place(workspace):
    name = suspended(workspace)
    workspace.behave("restarted", ms=100)
    first = workspace.resume()
    pod = workspace.until(lambda: is_restarted(workspace.pod()), "it is restarted")
    assert uid(pod) == uid(first) and name in restored(pod)[1]
    assert "terminated" in pod["status"]["containerStatuses"][0]["lastState"]
    workspace.await_running()


# ---- Sandboxes and Pods that are late ----


def test_suspended_stays_true_after_a_resume(workspace):
    workspace.suspend()
    workspace.behave("stale-suspended")
    workspace.resume()
    assert condition(workspace.sandbox(), "Suspended") == ("True", "PodTerminated")
    assert condition(workspace.sandbox(), "Ready")[0] == "True"


def test_a_sandbox_whose_controller_is_late(workspace):
    held = workspace.behave("sandbox-late")
    before = workspace.pod()
    workspace.mode("Suspended")
    assert condition(workspace.sandbox(), "Ready")[0] == "True" and not workspace.is_running()
    assert uid(workspace.pod()) == uid(before)
    workspace.double.tell(do="behave", how="go", id=held["id"])
    workspace.until(lambda: workspace.pod() is None, "it goes on")


def test_a_pod_that_ends_slowly(workspace):
    held = workspace.behave("pod-slow-end")
    workspace.mode("Suspended")
    workspace.until(lambda: condition(workspace.sandbox(), "Suspended") ==
                    ("False", "PodTerminating"))
    assert workspace.pod()["metadata"]["deletionTimestamp"]
    assert message(workspace.sandbox(), "Ready") == "Sandbox is suspending"
    workspace.double.tell(do="behave", how="go", id=held["id"])
    workspace.until(lambda: workspace.pod() is None, "it ends")


def test_a_pod_that_hangs_is_removed_by_force(workspace):
    before = workspace.pod()
    workspace.behave("pod-slow-end")
    workspace.double.ask("DELETE", workspace.pod_path())
    assert uid(workspace.pod()) == uid(before)
    workspace.double.ask("DELETE", workspace.pod_path(), {"gracePeriodSeconds": 0})
    workspace.until(lambda: (workspace.pod() or before)["metadata"]["uid"] != uid(before),
                    "another takes its place")
    workspace.await_running()


@pytest.mark.parametrize("how,phase", [("pod-slow-start", "Pending"), ("pod-not-ready", "Running")])
def test_a_pod_that_is_not_ready(workspace, how, phase):
    workspace.suspend()
    held = workspace.behave(how)
    workspace.mode("Running")
    workspace.until(lambda: (workspace.pod() or {"status": {}})["status"].get("phase") == phase)
    assert not workspace.is_running()
    workspace.double.tell(do="behave", how="go", id=held["id"])
    workspace.await_running()


def test_a_lost_snapshot(workspace):
    name = suspended(workspace)
    assert workspace.behave("lose-snapshot")["hits"] == 1
    assert condition(workspace.snapshot(name), "Ready") == ("False", "Failed")
    assert restored(workspace.resume()) is None


def test_unknown_behaviours_are_refused(double):
    with pytest.raises(AssertionError, match="no such behaviour"):
        double.tell(do="behave", how="dance")


def test_the_double_made_no_mistakes(double):
    assert double.tell(do="state")["controller_errors"] == 0
