"""The API server of the double, by its answers on the wire: objects, patches, deletion, access."""

import pytest
from conftest import CLAIMS, CORE, MERGE, SANDBOXES, SNAPSHOTS, SPACE, claim, path_of

STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
# A kind on which no controller of the double works.
POOLLESS = {"spec": {"selector": {}, "storageConfigName": "x", "triggerConfig": {"type": "manual"}}}


def policy(double, name, **metadata):
    answer = double.ask("POST", path_of("podsnapshotpolicies", SNAPSHOTS),
                        {"metadata": {"name": name, **metadata}, **POOLLESS})
    assert answer.code == 201, answer.body
    return answer.json


def config_map(double, name, data=None, **metadata):
    answer = double.ask("POST", path_of("configmaps"),
                        {"metadata": {"name": name, **metadata}, "data": data or {}})
    assert answer.code == 201, answer.body
    return answer.json


def test_who_may_ask(double):
    for token, code in ((double.token, 200), ("wrong", 401)):
        connection = double.connect()
        connection.request("GET", "/version", headers=double.headers(token=token))
        answer = connection.getresponse()
        assert answer.status == code
        answer.read()
        connection.close()
    connection = double.connect(certificate="client")
    connection.request("GET", path_of("pods"))
    assert connection.getresponse().status == 200
    connection.close()


def test_a_changed_token_is_the_only_one(double):
    fresh = double.tell(do="token")["token"]
    assert double.get("/version").code == 401
    double.token = fresh
    assert double.get("/version").code == 200


def test_what_does_not_exist(double):
    assert double.get("/apis/no.such/v1/things").code == 404
    assert b"404 page not found" in double.get("/api/v1/namespaces/x/things").body
    answer = double.get(path_of("pods", name="none"))
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.json["message"] == 'pods "none" not found'
    assert answer.json["details"] == {"name": "none", "kind": "pods"}
    answer = double.ask("POST", path_of("configmaps", space="nowhere"), {"metadata": {"name": "x"}})
    assert (answer.code, answer.json["message"]) == (404, 'namespaces "nowhere" not found')


def test_what_a_new_object_gets(double):
    made = policy(double, "fresh")
    metadata = made["metadata"]
    assert metadata["generation"] == 1 and metadata["namespace"] == SPACE
    assert metadata["uid"] and metadata["creationTimestamp"].endswith("Z")
    assert made["spec"]["snapshotScope"] == "whole-pod"
    assert made["spec"]["triggerConfig"] == {"type": "manual", "postCheckpoint": "resume"}
    again = double.ask("POST", path_of("podsnapshotpolicies", SNAPSHOTS),
                       {"metadata": {"name": "fresh"}, **POOLLESS})
    assert (again.code, again.reason) == (409, "AlreadyExists")
    named = double.ask("POST", path_of("configmaps"), {"metadata": {"generateName": "some-"}}).json
    assert named["metadata"]["name"].startswith("some-") and len(named["metadata"]["name"]) == 10


@pytest.mark.parametrize("body,told", [
    ({"metadata": {"name": "x"}, "spec": {}}, "spec.warmPoolRef: Required value"),
    ({"metadata": {"name": "x"}, **claim(lifecycle={"shutdownPolicy": "Keep"})},
     'spec.lifecycle.shutdownPolicy: Unsupported value: "Keep": supported values: "Delete", '
     '"DeleteForeground", "Retain"'),
    ({"metadata": {"name": "x"}, **claim(env=[{"name": "A", "value": 1}])},
     "spec.env[0].value in body must be of type string"),
    ({"metadata": {"name": "x"}, **claim(lifecycle={"ttlSecondsAfterFinished": -1})},
     "should be greater than or equal to 0"),
    ({"metadata": {"name": "x"}, **claim(lifecycle={"shutdownTime": "soon"})}, "date-time"),
    ({"metadata": {"name": "Not_A_Name"}, **claim()}, "a lowercase RFC 1123 subdomain"),
    ({"metadata": {"name": "x", "labels": {"a": "b" * 64}}, **claim()}, "no more than 63"),
    ({"metadata": {}, **claim()}, "name or generateName is required"),
])
def test_a_wrong_object_is_refused(double, body, told):
    answer = double.ask("POST", path_of("sandboxclaims", CLAIMS), body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert told in answer.json["message"]
    assert answer.json["details"]["causes"]


def test_an_unknown_field_is_refused_or_told_or_dropped(double):
    body = {"metadata": {"name": "strict"}, **claim(operatingMode="Suspended")}
    answer = double.ask("POST", path_of("sandboxclaims", CLAIMS), body, fieldValidation="Strict")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert 'unknown field "spec.operatingMode"' in answer.json["message"]
    answer = double.ask("POST", path_of("sandboxclaims", CLAIMS), body, dryRun="All")
    assert answer.code == 201 and "operatingMode" not in answer.json["spec"]
    assert 'unknown field' in answer.headers["Warning"]
    answer = double.ask("POST", path_of("sandboxclaims", CLAIMS), body, dryRun="All",
                        fieldValidation="Ignore")
    assert answer.code == 201 and "Warning" not in answer.headers
    assert double.get(path_of("sandboxclaims", CLAIMS, "strict")).code == 404


def test_what_is_too_large(double):
    answer = double.ask("POST", path_of("configmaps"), b"x" * (3 << 20) + b"x")
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    answer = double.ask("POST", path_of("configmaps"),
                        {"metadata": {"name": "large"}, "data": {"a": "x" * (1 << 20) + "x"}})
    assert answer.code == 422 and "Too long" in answer.json["message"]
    answer = double.ask("POST", path_of("configmaps"), "x", "text/plain")
    assert answer.code == 415


def test_the_real_definitions_refuse_the_same(double):
    """Where they are at hand: a field that only they know well is checked by them."""
    spec = {"podTemplate": {"spec": {"containers": [{"name": "a", "resources": {"limits": 3}}]}}}
    answer = double.ask("POST", path_of("sandboxes", SANDBOXES),
                        {"metadata": {"name": "real"}, "spec": spec}, dryRun="All")
    if answer.code == 201:
        pytest.skip("the real CustomResourceDefinitions are not at hand")
    assert answer.code == 422
    assert "spec.podTemplate.spec.containers[0].resources.limits" in answer.json["message"]
    spec["podTemplate"]["spec"]["containers"][0]["resources"] = {"limit": {}}
    answer = double.ask("POST", path_of("sandboxes", SANDBOXES), {
        "metadata": {"name": "real"}, "spec": spec}, fieldValidation="Strict")
    assert answer.code == 400 and "containers[0].resources.limit" in answer.json["message"]


def test_writes_with_an_old_version_lose(double):
    made = config_map(double, "locked", {"a": "1"})
    path, old = path_of("configmaps", name="locked"), made["metadata"]["resourceVersion"]
    newer = double.patch(path, {"data": {"a": "2"}}).json
    assert int(newer["metadata"]["resourceVersion"]) > int(old)
    answer = double.patch(path, {"metadata": {"resourceVersion": old}, "data": {"a": "3"}})
    assert (answer.code, answer.reason) == (409, "Conflict")
    answer = double.ask("PUT", path, {**made, "data": {"a": "4"}})
    assert "the object has been modified; please apply" in answer.json["message"]
    answer = double.ask("PUT", path, {**newer, "data": {"a": "5"}})
    assert (answer.code, answer.json["data"]) == (200, {"a": "5"})
    # A write that changes nothing makes no new version.
    same = double.patch(path, {"data": {"a": "5"}}).json
    assert same["metadata"]["resourceVersion"] == answer.json["metadata"]["resourceVersion"]
    for wrong in ({"uid": "other"}, {"resourceVersion": old}):
        answer = double.ask("DELETE", path, {"preconditions": wrong})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "Precondition failed" in answer.json["message"]
    assert double.ask("DELETE", path, {"preconditions": {"uid": made["metadata"]["uid"]}}).code == 200


def test_status_and_the_rest_are_apart(double):
    apps = "/apis/apps/v1"
    double.make("deployments", "parts", apps, spec={"replicas": 1})
    path = path_of("deployments", apps, "parts")
    after = double.patch(path, {"status": {"observedGeneration": 7}, "metadata": {
        "labels": {"a": "b"}}}).json
    assert "status" not in after and after["metadata"]["generation"] == 1
    after = double.patch(path + "/status", {"status": {"observedGeneration": 7},
                                            "spec": {"replicas": 2}}).json
    assert after["status"] == {"observedGeneration": 7}
    assert after["spec"]["replicas"] == 1 and after["metadata"]["generation"] == 1
    after = double.patch(path, {"spec": {"replicas": 2}}).json
    assert after["metadata"]["generation"] == 2 and after["status"] == {"observedGeneration": 7}


def test_what_may_not_change(double):
    spec = {"podTemplate": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    double.make("sandboxes", "fixed", SANDBOXES, spec={**spec, "operatingMode": "Suspended"})
    answer = double.patch(path_of("sandboxes", SANDBOXES, "fixed"), {"spec": {
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}})
    assert answer.code == 422 and "volumeClaimTemplates is immutable" in answer.json["message"]
    double.make("configmaps", "stone", data={"a": "b"}, immutable=True)
    assert double.patch(path_of("configmaps", name="stone"), {"data": {"a": "c"}}).code == 422


def test_patches(double):
    config_map(double, "patched", {"a": "1", "b": "2"})
    path = path_of("configmaps", name="patched")
    assert double.patch(path, {"data": {"a": None, "c": "3"}}).json["data"] == {"b": "2", "c": "3"}
    steps = [{"op": "test", "path": "/data/b", "value": "2"},
             {"op": "move", "from": "/data/b", "path": "/data/x~1y"},
             {"op": "add", "path": "/data/d", "value": "4"},
             {"op": "remove", "path": "/data/c"}]
    assert double.patch(path, steps, JSON_PATCH).json["data"] == {"x/y": "2", "d": "4"}
    assert double.patch(path, steps, JSON_PATCH).code == 422
    assert double.patch(path, {}, "application/json").code == 415
    policy(double, "patched")
    custom = path_of("podsnapshotpolicies", SNAPSHOTS, "patched")
    assert double.patch(custom, {}, STRATEGIC).code == 415


def test_a_strategic_patch_knows_the_keys_of_lists(double):
    double.make("pods", "listed", spec={"containers": [
        {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}], "tolerations": []})
    path = path_of("pods", name="listed")
    patch = {"metadata": {"finalizers": ["x/y"]}, "spec": {"tolerations": [{"key": "t"}]}}
    assert double.patch(path, patch, STRATEGIC).json["metadata"]["finalizers"] == ["x/y"]
    patch = {"metadata": {"finalizers": ["x/z"]}}
    after = double.patch(path, patch, STRATEGIC).json
    assert after["metadata"]["finalizers"] == ["x/y", "x/z"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/y"]}}
    assert double.patch(path, patch, STRATEGIC).json["metadata"]["finalizers"] == ["x/z"]
    patch = {"status": {"conditions": [{"type": "A", "status": "True"}]}}
    double.patch(path + "/status", patch, STRATEGIC)
    patch = {"status": {"conditions": [{"type": "B", "status": "True"},
                                       {"type": "A", "status": "False"}]}}
    found = double.patch(path + "/status", patch, STRATEGIC).json["status"]["conditions"]
    assert {"A": "False", "B": "True"}.items() <= {
        one["type"]: one["status"] for one in found}.items()
    double.patch(path, {"metadata": {"finalizers": None}})


def test_server_side_apply(double):
    path = path_of("configmaps", name="applied")

    def apply(manager, data, **query):
        return double.patch(path, {"apiVersion": "v1", "kind": "ConfigMap", "data": data}, APPLY,
                            **({"fieldManager": manager} if manager else {}), **query)
    assert apply(None, {}).code == 422
    assert apply("one", {"a": "1", "b": "1"}).code == 201
    answer = apply("two", {"a": "2"})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.json["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert answer.json["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert apply("two", {"a": "2"}, force="true").json["data"] == {"a": "2", "b": "1"}
    # "one" no longer wants b, which is nobody else's; it lost a before.
    assert apply("one", {}).json["data"] == {"a": "2"}
    double.patch(path, {"data": {"a": "3"}})
    answer = apply("two", {"a": "2"})
    assert answer.code == 409 and 'conflict with "raw"' in answer.json["message"]
    # An equal value is no conflict.
    assert apply("two", {"a": "3"}).code == 200


def test_lists(double):
    for name, team in (("l1", "red"), ("l2", "red"), ("l3", "blue")):
        config_map(double, name, labels={"team": team})

    def names(**query):
        answer = double.get(path_of("configmaps"), **query).json
        return [one["metadata"]["name"] for one in answer["items"]]
    assert names(labelSelector="team=red") == ["l1", "l2"]
    assert names(labelSelector="team in (blue,green)") == ["l3"]
    assert names(labelSelector="team,team!=red") == ["l3"]
    assert "l1" not in names(labelSelector="!team")
    assert names(fieldSelector="metadata.name=l2") == ["l2"]
    assert double.get(path_of("configmaps"), fieldSelector="data.x=y").code == 400
    assert double.get(path_of("configmaps"), labelSelector="=x").code == 400


def test_pages(double):
    for number in range(5):
        config_map(double, f"page-{number}", labels={"pages": "yes"})
    query = {"labelSelector": "pages=yes", "limit": 2}
    seen, token = [], None
    while True:
        page = double.get(path_of("configmaps"), **query,
                          **({"continue": token} if token else {})).json
        seen += [one["metadata"]["name"] for one in page["items"]]
        token = page["metadata"].get("continue")
        if not token:
            break
        # What is made meanwhile is not in the list that was begun.
        double.ask("POST", path_of("configmaps"), {"metadata": {
            "name": f"page-{number}-{len(seen)}", "labels": {"pages": "yes"}}})
    assert seen == [f"page-{number}" for number in range(5)]
    token = double.get(path_of("configmaps"), **query).json["metadata"]["continue"]
    double.tell(do="compact")
    answer = double.get(path_of("configmaps"), **query, **{"continue": token})
    assert (answer.code, answer.reason) == (410, "Expired")


def test_finalizers_hold_a_deletion_up(double):
    policy(double, "held", finalizers=["a.b/c"])
    path = path_of("podsnapshotpolicies", SNAPSHOTS, "held")
    answer = double.ask("DELETE", path)
    assert answer.code == 200 and answer.json["metadata"]["deletionTimestamp"]
    assert double.get(path).json["metadata"]["generation"] == 2
    assert double.ask("DELETE", path).code == 200
    assert double.patch(path, {"metadata": {"finalizers": []}}).code == 200
    assert double.get(path).code == 404


def owned_by(owner, block=False):
    return [{"apiVersion": owner["apiVersion"], "kind": owner["kind"],
             "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
             "blockOwnerDeletion": block}]


@pytest.mark.parametrize("propagation,stays", [("Background", False), ("Foreground", False),
                                               ("Orphan", True)])
def test_what_an_owner_leaves(double, propagation, stays):
    owner = config_map(double, "owner")
    middle = config_map(double, "middle", ownerReferences=owned_by(owner, True))
    config_map(double, "leaf", ownerReferences=owned_by(middle, True))
    double.ask("DELETE", path_of("configmaps", name="owner"), {"propagationPolicy": propagation})
    double.await_true(lambda: double.get(path_of("configmaps", name="owner")).code == 404)
    if stays:
        left = double.get(path_of("configmaps", name="middle")).json
        assert not left["metadata"].get("ownerReferences")
        double.ask("DELETE", path_of("configmaps", name="middle"))
    double.await_true(lambda: double.get(path_of("configmaps", name="leaf")).code == 404)
    assert double.get(path_of("configmaps", name="middle")).code == 404


def test_a_dependent_with_a_finalizer_holds_a_deletion_in_the_foreground(double):
    owner = config_map(double, "front")
    config_map(double, "back", ownerReferences=owned_by(owner, True), finalizers=["a.b/c"])
    double.ask("DELETE", path_of("configmaps", name="front"), {"propagationPolicy": "Foreground"})
    double.await_true(lambda: double.get(path_of("configmaps", name="back")).json["metadata"].get(
        "deletionTimestamp"))
    assert double.get(path_of("configmaps", name="front")).json["metadata"]["finalizers"] == [
        "foregroundDeletion"]
    double.patch(path_of("configmaps", name="back"), {"metadata": {"finalizers": None}})
    double.await_true(lambda: double.get(path_of("configmaps", name="front")).code == 404)


def test_an_object_whose_owner_never_was_is_collected(double):
    config_map(double, "foundling", ownerReferences=[
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "ghost"}])
    double.await_true(lambda: double.get(path_of("configmaps", name="foundling")).code == 404)


def test_a_namespace_takes_all_along(double):
    assert double.ask("POST", f"{CORE}/namespaces", {"metadata": {"name": "brief"}}).code == 201
    made = double.ask("POST", path_of("configmaps", space="brief"),
                      {"metadata": {"name": "x", "finalizers": ["a.b/c"]}})
    assert made.code == 201
    double.ask("DELETE", f"{CORE}/namespaces/brief")
    answer = double.ask("POST", path_of("configmaps", space="brief"), {"metadata": {"name": "y"}})
    assert answer.code == 403 and "because it is being terminated" in answer.json["message"]
    double.patch(path_of("configmaps", name="x", space="brief"), {"metadata": {"finalizers": None}})
    double.await_true(lambda: double.get(f"{CORE}/namespaces/brief").code == 404)


def test_nobody_but_the_controllers_writes_snapshots(double):
    double.tell(do="put", resource="podsnapshots", object={
        "metadata": {"name": "snap", "namespace": SPACE}, "spec": {"policyName": "p"}})
    path = path_of("podsnapshots", SNAPSHOTS, "snap")
    for answer in (double.patch(path, {"metadata": {"labels": {"a": "b"}}}),
                   double.ask("POST", path_of("podsnapshots", SNAPSHOTS),
                              {"metadata": {"name": "other"}})):
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert "ValidatingAdmissionPolicy" in answer.json["message"]
    assert double.ask("DELETE", path).code == 200


def test_denied(double):
    double.tell(do="deny", verb="create", resource="pods/exec")
    double.tell(do="deny", verb="patch", resource="sandboxes", name="s*")

    def may(verb, resource, **more):
        answer = double.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": resource, **more}}})
        assert answer.code == 201
        return answer.json["status"]["allowed"]
    assert may("get", "pods") and not may("create", "pods", subresource="exec")
    answer = double.patch(path_of("sandboxes", SANDBOXES, "some"), {})
    assert answer.code == 403
    assert answer.json["message"] == (
        'sandboxes.agents.x-k8s.io "some" is forbidden: User "tester" cannot patch resource '
        f'"sandboxes" in API group "agents.x-k8s.io" in the namespace "{SPACE}"')
    assert double.patch(path_of("sandboxes", SANDBOXES, "other"), {}).code == 404


def test_a_group_that_is_not_served(double):
    double.tell(do="serve", group="podsnapshot.gke.io", versions=[])
    assert double.get(SNAPSHOTS).code == 404
    assert double.get(path_of("podsnapshots", SNAPSHOTS)).code == 404
    double.tell(do="serve", group="podsnapshot.gke.io", versions=["v1"])
    kinds = [one["kind"] for one in double.get(SNAPSHOTS).json["resources"]]
    assert "PodSnapshot" in kinds


def test_merge_patches_are_what_most_clients_send(double):
    made = policy(double, "merged", annotations={"a": "b"})
    after = double.patch(path_of("podsnapshotpolicies", SNAPSHOTS, "merged"),
                         {"metadata": {"annotations": {"a": None, "c": "d"}}}, MERGE).json
    assert after["metadata"]["annotations"] == {"c": "d"}
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
