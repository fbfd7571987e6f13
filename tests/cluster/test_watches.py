"""Watches of the double, and the faults that tests order."""

import contextlib
import http.client
import threading
import time

import pytest
from conftest import CORE, SNAPSHOTS, path_of

MAPS = path_of("configmaps")


def put(double, name, **metadata):
    answer = double.ask("POST", MAPS, {"metadata": {"name": name, **metadata}})
    assert answer.code == 201, answer.body
    return answer.json


def version_now(double):
    return double.get(MAPS).json["metadata"]["resourceVersion"]


def test_a_watch_goes_on_from_a_version(double):
    since = version_now(double)
    put(double, "w1")
    with double.watch(MAPS, resourceVersion=since) as following:
        assert following()["type"] == "ADDED"
        double.patch(path_of("configmaps", name="w1"), {"data": {"a": "b"}})
        changed = following()
        assert (changed["type"], changed["object"]["data"]) == ("MODIFIED", {"a": "b"})
        double.ask("DELETE", path_of("configmaps", name="w1"))
        gone = following()
        assert gone["type"] == "DELETED"
        assert int(gone["object"]["metadata"]["resourceVersion"]) > int(
            changed["object"]["metadata"]["resourceVersion"])


def test_a_watch_without_a_version_tells_first_what_is_there(double):
    put(double, "there")
    with double.watch(MAPS, fieldSelector="metadata.name=there") as following:
        assert following()["type"] == "ADDED"


def test_what_leaves_a_selector_is_told_as_deleted(double):
    put(double, "mover", labels={"in": "yes"})
    with double.watch(MAPS, resourceVersion=version_now(double),
                      labelSelector="in=yes") as following:
        for value, event in (("no", "DELETED"), ("yes", "ADDED")):
            double.patch(path_of("configmaps", name="mover"),
                         {"metadata": {"labels": {"in": value}}})
            assert following()["type"] == event


def test_a_forgotten_version_is_410(double):
    since = version_now(double)
    put(double, "forgotten")
    double.tell(do="compact")
    with pytest.raises(LookupError) as refused:
        with double.watch(MAPS, resourceVersion=since):
            pass
    assert refused.value.args[0] == 410 and b"too old resource version" in refused.value.args[1]
    double.tell(do="fault", on={"verb": "watch", "resource": "configmaps"}, what="watch-410")
    with double.watch(MAPS, resourceVersion=version_now(double)) as following:
        event = following()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert following() is None


def test_a_watch_ends_in_time_and_bookmarks_where_it_is(double):
    with double.watch(MAPS, timeoutSeconds=1, resourceVersion=version_now(double)) as following:
        assert following() is None
    with double.watch(MAPS, allowWatchBookmarks="true",
                      resourceVersion=version_now(double)) as following:
        policies = path_of("podsnapshotpolicies", SNAPSHOTS)
        made = double.ask("POST", policies, {"metadata": {"name": "elsewhere"}, "spec": {
            "selector": {}, "storageConfigName": "x", "triggerConfig": {"type": "manual"}}}).json
        double.tell(do="bookmark")
        event = following()
        assert event["type"] == "BOOKMARK"
        assert int(event["object"]["metadata"]["resourceVersion"]) >= int(
            made["metadata"]["resourceVersion"])
        double.tell(do="close-watches")
        assert following() is None


def test_initial_events(double):
    put(double, "initial")
    with pytest.raises(LookupError) as refused:
        with double.watch(MAPS, sendInitialEvents="true"):
            pass
    assert refused.value.args[0] == 422
    with double.watch(MAPS, sendInitialEvents="true", resourceVersionMatch="NotOlderThan",
                      allowWatchBookmarks="true") as following:
        while (event := following())["type"] == "ADDED":
            pass
        assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_version_that_is_not_yet_there(double):
    with pytest.raises(LookupError) as refused:
        with double.watch(MAPS, resourceVersion="999999999"):
            pass
    assert refused.value.args[0] == 504 and b"Too large resource version" in refused.value.args[1]


@pytest.mark.parametrize("what,code,reason", [
    ("429", 429, "TooManyRequests"), ("status-500", 500, "InternalError"),
    ("status-503", 503, "ServiceUnavailable"), ("410", 410, "Expired")])
def test_ordered_answers(double, what, code, reason):
    double.tell(do="fault", on={"verb": "get", "resource": "configmaps", "name": "x*"}, what=what,
                after=1, times=2, **({"retry_after": 7} if code in (429, 503) else {}))
    path = path_of("configmaps", name="x1")
    assert double.get(path_of("configmaps", name="y")).code == 404
    assert double.get(path).code == 404
    for _ in range(2):
        answer = double.get(path)
        assert (answer.code, answer.reason) == (code, reason)
        assert answer.headers.get("Retry-After") == ("7" if code in (429, 503) else None)
    assert double.get(path).code == 404


def test_a_reset_before_and_after_the_write(double):
    for what, code in (("reset", 404), ("reset-after", 200)):
        double.tell(do="fault", on={"verb": "create", "resource": "configmaps"}, what=what)
        with pytest.raises((OSError, http.client.HTTPException)):  # TLS has words of its own
            double.ask("POST", MAPS, {"metadata": {"name": what}})
        assert double.get(path_of("configmaps", name=what)).code == code
    double.tell(do="fault", on={"verb": "create", "resource": "configmaps"},
                what="status-after-500")
    assert double.ask("POST", MAPS, {"metadata": {"name": "told-wrong"}}).code == 500
    assert double.get(path_of("configmaps", name="told-wrong")).code == 200


@pytest.mark.parametrize("what,there", [("late", 404), ("late-after", 200)])
def test_a_late_answer_comes_when_it_is_let_go(double, what, there):
    double.tell(do="fault", on={"verb": "create", "resource": "configmaps"}, what=what)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(
        double.ask("POST", MAPS, {"metadata": {"name": what}})))
    asking.start()
    double.await_true(lambda: double.tell(do="state")["held"] == 1)
    assert not answers and double.get(path_of("configmaps", name=what)).code == there
    double.tell(do="release")
    asking.join()
    assert answers[0].code == 201


def test_a_stale_read(double):
    put(double, "stale")
    path = path_of("configmaps", name="stale")
    double.patch(path, {"data": {"a": "b"}})
    double.tell(do="fault", on={"verb": "get", "resource": "configmaps"}, what="stale")
    assert "data" not in double.get(path).json
    assert double.get(path).json["data"] == {"a": "b"}
    double.ask("DELETE", path)
    double.tell(do="fault", on={"resource": "configmaps"}, what="stale", times=2)
    assert double.get(path).code == 200
    assert "stale" in [one["metadata"]["name"] for one in double.get(MAPS).json["items"]]
    assert double.get(path).code == 404


def test_a_watch_that_is_closed_or_cut_early(double):
    put(double, "early")
    for what in ("watch-close", "watch-cut"):
        double.tell(do="fault", on={"verb": "watch", "resource": "configmaps", "name": "early"},
                    what=what, events=1)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            with double.watch(MAPS, fieldSelector="metadata.name=early") as following:
                first = following()
                assert what == "watch-close" and first["type"] == "ADDED"
                assert following() is None
                continue
        assert what == "watch-cut"


def test_faults_are_cleared(double):
    double.tell(do="fault", on={}, what="status-500", times=0)
    assert double.get(MAPS).code == 500
    assert double.get(MAPS).code == 500
    double.tell(do="clear")
    assert double.get(MAPS).code == 200


def test_what_the_double_tells_of_itself(double):
    before = double.tell(do="state")
    put(double, "counted")
    after = double.tell(do="state")
    assert after["requests"]["create configmaps"] - before["requests"].get(
        "create configmaps", 0) == 1
    last = double.tell(do="log")["requests"][-1]
    assert (last["verb"], last["resource"], last["code"], last["agent"]) == (
        "create", "configmaps", 201, "raw/1")


def test_ten_thousand_objects_under_a_watch(double):
    """Made past HTTP, so that it is the watch and the paging that are tried."""
    many, since = 10_000, version_now(double)
    started = time.monotonic()
    for number in range(0, many, 1000):
        double.tell(do="many", resource="configmaps", count=1000, prefix=f"many-{number}")
    with double.watch(MAPS, resourceVersion=since, labelSelector="many=yes") as following:
        for _ in range(many):
            assert following()["type"] == "ADDED"
    seen, token = 0, ""
    while True:
        page = double.get(MAPS, labelSelector="many=yes", limit=500,
                          **({"continue": token} if token else {})).json
        seen += len(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == many
    answer = double.ask("DELETE", MAPS, labelSelector="many=yes")
    assert answer.code == 200 and len(answer.json["items"]) == many
    print(f"{many} objects: {time.monotonic() - started:.1f} s, at {CORE}")
