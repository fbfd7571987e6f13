"""What the package offers: all of the library, and nothing that a typing mistake gets past."""

import datetime
import inspect
import pickle
import re

import pytest
from conftest import ROOT

import _libsandbox
import libsandbox


def test_every_public_function_is_behind_the_package():
    """What is left out is what Python does in another way, and says so here."""
    elsewhere = {"sandbox_set_log": "log.c", "sandbox_check_opencode": "callbacks.c",
                 "sandbox_bytes_free": "typemaps.swg",
                 "sandbox_doctor": "sandbox_doctor_with() in its place"}
    elsewhere |= dict.fromkeys(
        re.findall(r"sandbox_\w+_(?:count|at|free)\b",
                   (ROOT / "tests/public/symbols.txt").read_text()), "typemaps.swg")
    described = (ROOT / "bindings/sandbox.i").read_text()
    aliases = dict(reversed(found) for found in re.findall(
        r"#define (\w+) (\w+)\n", (ROOT / "bindings/aliases.h").read_text()))
    methods = {f"{kind}_{verb}" for kind, body in re.findall(
        r"%extend (\w+) \{(.*?)\n\}", described, re.DOTALL)
        for verb in re.findall(r"^    [\w ]+?[ *](\w+)\(", body, re.MULTILINE)}
    for symbol in (ROOT / "tests/public/symbols.txt").read_text().split():
        assert (symbol in methods or aliases.get(symbol) in methods or symbol in elsewhere
                or re.search(rf"^[\w ]+?[ *]{symbol}\(", described, re.MULTILINE)), symbol


def public_functions():
    for name in libsandbox.__all__:
        found = getattr(libsandbox, name)
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found) and found.__module__ == "libsandbox":
            for verb, method in vars(found).items():
                if callable(method) and not verb.startswith("_"):
                    yield f"{name}.{verb}", method


def test_everything_has_a_docstring():
    for name in libsandbox.__all__:
        assert getattr(libsandbox, name).__doc__, name
    for name, function in public_functions():
        assert function.__doc__, name
        if "cancel" in inspect.signature(function).parameters:
            assert "timeout" in inspect.signature(function).parameters, name


def test_unknown_options_are_refused(client, workspace):
    with pytest.raises(TypeError, match="memory_mb"):
        client.create_workspace(memory_mb=5)
    with pytest.raises(TypeError, match="cwd"):
        workspace.run("true", cwd="/")
    # Not even the extension lets one through.
    with pytest.raises(TypeError, match="memory_mb"):
        _libsandbox.open_client({"memory_mb": 5}, None)


@pytest.mark.parametrize("options, error", [
    ({"memory_mib": -1}, OverflowError), ({"memory_mib": 1 << 32}, OverflowError),
    ({"memory_mib": "5"}, TypeError), ({"name": 5}, TypeError), ({"name": "a\0b"}, ValueError),
    ({"name": "No Name"}, libsandbox.Invalid), ({"labels": "a=b"}, TypeError),
    ({"labels": {"a": 1}}, TypeError), ({"env": {"A=B": "x"}}, ValueError),
    ({"env": {"": "x"}}, ValueError), ({"env": {"A\0": "x"}}, ValueError),
    ({"env": {"A": "x\0"}}, ValueError), ({"expires_after": -1}, ValueError),
    ({"expires_after": "1h"}, TypeError), ({"expires_after": float("inf")}, OverflowError),
    ({"checks": ["unknown"]}, libsandbox.Invalid), ({"retain": 17}, libsandbox.Invalid),
])
def test_wrong_values_are_refused_before_anything_is_made(client, options, error):
    before = len(client.list_workspaces())
    with pytest.raises(error):
        client.create_workspace(**options)
    assert len(client.list_workspaces()) == before


def test_p190_the_value_of_a_secret_is_in_no_message(client):
    for env in ({"TOKEN": "s3cret\0"}, ["=s3cret"], {"TOKEN": b"s3cret"}):
        with pytest.raises((TypeError, ValueError)) as raised:
            client.create_workspace(env=env)
        assert "s3cret" not in str(raised.value)


def test_words_are_checked_and_the_allowed_ones_told(own):
    with pytest.raises(ValueError, match="'best', 'memory', 'files'"):
        own.suspend(keep="everything")
    with pytest.raises(TypeError):
        own.suspend(keep=1)


@pytest.mark.parametrize("timeout, error", [
    (-1, ValueError), (-0.001, ValueError), (float("nan"), ValueError), (2**64, OverflowError),
    (2**32, OverflowError), (10**400, OverflowError), ("1", TypeError), (True, TypeError),
    (datetime.timedelta(seconds=-1), ValueError), (datetime.timedelta(days=50), OverflowError),
])
def test_p158_a_timeout_out_of_range_is_refused(workspace, timeout, error):
    with pytest.raises(error):
        workspace.measure(timeout=timeout)
    with pytest.raises(error):
        workspace.run("true", timeout=timeout)


@pytest.mark.parametrize("timeout", [None, 30, 30.5, float("inf"),
                                     datetime.timedelta(seconds=30)])
def test_p158_timeouts_are_seconds_or_a_timedelta(workspace, timeout):
    assert workspace.measure(timeout=timeout).uptime > 0
    assert workspace.run("echo x", timeout=timeout).stdout == b"x\n"


def test_p158_a_timeout_of_zero_only_looks(workspace):
    process = workspace.start("sleep 60")
    with pytest.raises(libsandbox.TimedOut):
        process.next(timeout=0)
    process.kill()


def test_each_status_has_its_class():
    statuses = dict(_libsandbox.words["status"])
    assert statuses.pop("ok") == 0
    classes = {found.status: found for found in libsandbox.Error.__subclasses__()
               if found.__module__ == "libsandbox"}
    assert classes.keys() == statuses.keys()
    for word, code in statuses.items():
        assert classes[word]("x").code == code
        assert _libsandbox.status_name(code).replace(" ", "-") == word


def test_errors_carry_what_the_library_said(client, workspace):
    with pytest.raises(libsandbox.NotFound) as raised:
        workspace.files.read("nothing-here")
    error = raised.value
    assert (error.status, error.code, error.reason) == ("not-found", -2, "no-such-file")
    assert error.message == str(error) and "nothing-here" in str(error) and "\n" not in str(error)
    assert (error.http_status, error.process_id) == (None, "")
    assert isinstance(error, LookupError) and isinstance(error, libsandbox.Error)
    with pytest.raises(libsandbox.Exists):
        client.create_workspace(workspace.name)
    with pytest.raises(libsandbox.Unsupported) as raised:
        libsandbox.Client("nonsense:")
    assert raised.value.reason == "unknown-driver"
    with pytest.raises(ValueError):
        client.find_workspace("No Name")
    with pytest.raises(TimeoutError):
        workspace.start("sleep 60", deadline=60).wait(timeout=0.01)


def test_errors_survive_a_process_pool(workspace):
    with pytest.raises(libsandbox.NotFound) as raised:
        workspace.files.read("nothing-here")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert type(copy) is libsandbox.NotFound and vars(copy) == vars(raised.value)
    info = workspace.inspect()
    assert pickle.loads(pickle.dumps(info)) == info
    with pytest.raises(libsandbox.CommandTimedOut) as raised:
        workspace.run("echo x; sleep 60", timeout=0.05)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.cmd, copy.output, str(copy)) == ("echo x; sleep 60", b"x\n", str(raised.value))


def test_a_closed_handle_is_told_and_deletes_nothing(client):
    made = client.create_workspace(expires_after=600)
    name = made.name
    made.close()
    made.close()
    assert made.closed and repr(made) == "<libsandbox.Workspace closed>"
    for use in (lambda: made.name, made.inspect, lambda: made.files.read("x"),
                lambda: made.run("true"), made.delete):
        with pytest.raises(libsandbox.Closed):
            use()
    with client.find_workspace(name) as again:
        again.delete()
        with pytest.raises(libsandbox.Closed):
            again.run("true")


def test_only_a_temporary_workspace_ends_with_its_block(client):
    with client.create_workspace(expires_after=600) as kept:
        name = kept.name
    with client.find_workspace(name):
        pass
    with pytest.raises(ZeroDivisionError), client.open_workspace(name, temporary=True):
        raise ZeroDivisionError
    with pytest.raises(libsandbox.NotFound):
        client.find_workspace(name)


def test_handles_may_go_in_any_order(uri):
    client = libsandbox.Client(uri)
    made = client.create_workspace(expires_after=600)
    process = made.start("cat", input="pipe")
    client.close()
    assert made.run("echo x").stdout == b"x\n"
    made.delete()
    made.close()
    with pytest.raises(libsandbox.Closed):
        process.wait()


def test_what_is_told_of_a_workspace(client):
    with client.create_workspace(temporary=True, labels={"a": "b", "c": "d=e"},
                                 expires_after=datetime.timedelta(hours=1),
                                 env={"X": "y"}) as made:
        info = made.inspect()
        assert (info.name, info.id, info.state) == (made.name, made.id, "running")
        assert info.labels == {"a": "b", "c": "d=e"} and info.driver == client.driver
        assert 3500 < info.expires - info.created < 3700
        assert [each.name for each in client.list_workspaces(labels={"a": "b"})] == [made.name]
        assert client.list_workspaces(labels=["a=other"]) == []
        made.renew(None)
        assert made.inspect().expires is None
        assert repr(made) == f"<libsandbox.Workspace '{made.name}'>"
        assert "y" not in repr(info).split("env")[1:]
        stats = made.measure()
        assert stats.uptime >= 0 and stats.memory_bytes > 0
        assert client.find_workspace(made.id).name == made.name


def test_what_a_client_can_is_asked_by_word(client):
    assert client.can("keep-memory") is True and client.driver == "memory"
    with pytest.raises(ValueError):
        client.can("fly")


def test_the_version_is_the_librarys():
    assert libsandbox.__version__ == libsandbox.version()
    assert f'SANDBOX_VERSION "{libsandbox.version()}"' in (
        ROOT / "include/sandbox/version.h").read_text()


def test_the_doctor_tells_findings(uri):
    findings = libsandbox.doctor(uri)
    assert findings and all(each.severity in ("good", "note", "problem") for each in findings)
    with pytest.raises(libsandbox.Unsupported):
        libsandbox.doctor("nonsense:")
    with pytest.raises(libsandbox.Unsupported) as failure:
        libsandbox.doctor(uri, save="/nowhere/description.json")
    assert failure.value.reason == "no-description"
    with pytest.raises(libsandbox.Error):
        libsandbox.doctor(from_="/dev/null")


def test_manifests_are_rendered():
    found = libsandbox.render_manifests("gke://context/space?pool=agents", bucket="b",
                                        agent_image="r/agent@sha256:" + "0" * 64)
    assert found and all(each.kind and each.text for each in found)
    assert found == libsandbox.render_manifests(
        "gke://context/space?pool=agents", bucket="b", agent_image="r/agent@sha256:" + "0" * 64)
    with pytest.raises(ValueError):
        libsandbox.render_manifests("gke://context/space?pool=agents")


def test_sweep_and_recover_say_how_many(client):
    with client.create_workspace() as brief:
        brief.renew(0.001)
    while client.sweep() == 0:
        pass
    assert client.recover() == 0


def test_types_of_the_extension_cannot_be_made_by_hand():
    for kind in (_libsandbox.Client, _libsandbox.Workspace, _libsandbox.Process):
        with pytest.raises((TypeError, AttributeError)):
            kind()
    with pytest.raises(TypeError):
        _libsandbox.Workspace.name(5)
    with pytest.raises(TypeError):
        _libsandbox.doctor({}, (1, object()))
