"""Suspending and coming back, proven; snapshots; activity; idleness; what is watched."""

import threading

import pytest
from conftest import wait_until

import libsandbox


def test_what_ran_goes_on(own):
    process = own.start("n=0; while sleep 0.02; do echo $n; n=$((n+1)); done", role="service")
    before = [int(process.next().data.split()[-1])]
    slept = own.suspend()
    assert slept.kept == "memory" and slept.why_files == "" and slept.took > 0
    assert own.inspect().state == "suspended"
    with pytest.raises(libsandbox.Suspended):
        own.run("true")
    woke = own.resume()
    assert (woke.restored, woke.proof, woke.snapshot) == (True, "memory", slept.snapshot)
    data = b""
    while data.count(b"\n") < 5:
        data += process.next().data
    numbers = [int(line) for line in data.split(b"\n")[:-1]]
    assert numbers == list(range(before[0] + 1, before[0] + 1 + len(numbers)))


def test_files_alone(own):
    own.files.write("kept", b"1")
    assert own.suspend(keep="files").kept == "files"
    assert own.resume().kept == "files"
    assert own.files.read("kept") == b"1"


def test_snapshots_are_listed_verified_restored_and_deleted(own):
    own.files.write("f", b"first")
    first = own.checkpoint(keep="files").snapshot
    own.files.write("f", b"second")
    second = own.checkpoint(keep="files").snapshot
    found = own.list_snapshots()
    assert [each.id for each in found] == [second, first]
    assert [each.is_recovery_point for each in found] == [True, False]
    assert own.verify().verdict == own.verify(first).verdict == "intact"
    woke = own.restore(first, timeout=120)
    assert woke.snapshot == first and woke.restored
    assert own.files.read("f") == b"first"
    with pytest.raises(libsandbox.NotFound):
        own.verify("0" * 32)
    with pytest.raises(libsandbox.Invalid):
        own.delete_snapshot(first)  # what it was resumed from is the recovery point
    own.delete_snapshot(second)
    assert second not in [each.id for each in own.list_snapshots()]


def test_somebody_who_works_is_not_suspended(own):
    process = own.start("sleep 60")
    with pytest.raises(libsandbox.Busy) as raised:
        own.suspend()
    assert raised.value.reason == "active" and "sleep" in str(raised.value)
    activity = own.activity()
    assert activity.tasks == 1 and "sleep" in activity.who
    assert own.suspend(force=True).kept == "memory"
    own.resume()
    process.kill()


def test_checks_are_asked_on_this_thread(own):
    asked = []

    def check(workspace):
        asked.append((threading.get_ident(), workspace.name, workspace.run("echo x").stdout))
        check.kept = workspace
        return answers.pop()
    answers = ["the tester types", True]
    for word in ("", "the tester types"):
        with pytest.raises(libsandbox.Busy, match=word):
            own.suspend(checks=[check])
    assert asked == [(threading.get_ident(), own.name, b"x\n")] * 2
    # The handle was lent for the question.
    with pytest.raises(ValueError):
        check.kept.run("true")
    with pytest.raises(ValueError):
        check.kept.name
    del check.kept
    for answer in (None, False, ""):
        answers.append(answer)
        own.suspend(checks=[check])
        own.resume()


def test_what_a_check_raises_comes_out_of_the_suspend(own):
    def check(workspace):
        raise ZeroDivisionError("of the caller's")
    with pytest.raises(ZeroDivisionError, match="of the caller's"):
        own.suspend(checks=[check])
    assert own.inspect().state == "running"
    assert own.run("echo x").stdout == b"x\n"
    for wrong in ([5], ["opencode:1"], 5):
        with pytest.raises(TypeError):
            own.suspend(checks=wrong)


def test_opencode_is_asked_by_the_library(own):
    check = libsandbox.Opencode(4097, user="me", password="s3cret")
    assert "s3cret" not in repr(check)
    assert own.suspend(checks=[check]).kept == "memory"  # nothing listens there
    own.resume()


def test_idle_ones_are_suspended_and_functions_are_asked_on_threads_of_pythons(client):
    asked = []

    def check(workspace):
        asked.append(threading.current_thread())
        return "busy" if workspace.name == busy.name else None
    labels = {"idle": "test"}
    with client.create_workspace(temporary=True, labels=labels) as idle, \
            client.create_workspace(temporary=True, labels=labels) as busy:
        wait_until(lambda: min(idle.activity().idle, busy.activity().idle) > 0.01)
        result = client.suspend_idle(idle=0.01, labels=labels, checks=[check], parallel=8)
        assert (result.suspended, result.active, result.failed) == (1, 1, 0)
        assert idle.inspect().state == "suspended" and busy.inspect().state == "running"
        assert len(asked) == 2
        result = client.suspend_idle(idle=3600, labels=labels)
        assert (result.suspended, result.active) == (0, 1)


def test_open_takes_it_from_wherever_it_is(client):
    name = "opened-by-python"
    with client.open_workspace(name, temporary=True) as made:
        made.files.write("f", b"1")
        made.suspend()
        with client.open_workspace(name) as again:
            assert again.id == made.id and again.files.read("f") == b"1"


def test_an_instance_that_is_gone_is_told_and_gone_on_from(client):
    import os
    import signal

    with client.create_workspace(temporary=True) as made:
        made.files.write("f", b"1")
        os.kill(int(made.inspect().incarnation.split("-")[2]), signal.SIGKILL)
        wait_until(lambda: made.inspect().state == "interrupted", "that it is known")
        with pytest.raises(libsandbox.Interrupted):
            client.open_workspace(made.name)
        with client.open_workspace(made.name, from_="live-files") as again:
            assert again.files.read("f") == b"1"


def test_a_watch_tells_the_steps(client):
    with client.watch() as watch, client.create_workspace(temporary=True) as made:
        made.suspend()
        events = []
        while not any(event.state == "suspended" for event in events):
            events.append(watch.next(timeout=30))
        mine = [event for event in events if event.id == made.id]
        assert {"state", "step"} <= {event.kind for event in mine}
        assert all(event.workspace == made.name and event.time > 1.6e9 for event in mine)
        with pytest.raises(libsandbox.TimedOut):
            while True:
                watch.next(timeout=0.01)
    assert list(watch) == []
