"""What a workspace may reach: options that nest, what is told of it, and what it was refused."""

import asyncio

import pytest
from conftest import end_platform

import libsandbox
from libsandbox import aio

SECRET = "sk-real-0123456789"
RULE = {"match": {"host": "api.example.com",
                  "headers": [{"name": "x-api-key", "value_exact": "PLACEHOLDER"}]},
        "set": {"x-api-key": SECRET}}


@pytest.fixture(scope="module")
def host(gvisor):
    """A workspace on gVisor, whose proxy has no names to ask."""
    with libsandbox.Client(gvisor) as client:
        with client.create_workspace(
                temporary=True, egress={"allow": ["api.example.com"],
                                        "transformations": [RULE]}) as workspace:
            yield workspace
    # The proxy would wait ten minutes for another one.
    end_platform(gvisor.removeprefix("gvisor:").partition("?")[0] + "/egress")


def test_nested_options_are_checked(client):
    """Before anything is made."""
    for wrong, kind, said in (
            ({"allow": "api.example.com"}, TypeError, "allow"),
            ({"alow": []}, TypeError, "alow"),
            ({"mode": "open"}, ValueError, "mode"),
            (["api.example.com"], (TypeError, AttributeError), "")):
        with pytest.raises(kind, match=said):
            client.create_workspace(egress=wrong)


def test_a_driver_without_a_way_out_says_so(client, workspace):
    assert client.can("reach-out") is False
    with pytest.raises(libsandbox.Unsupported) as caught:
        client.create_workspace(egress={"allow": ["api.example.com"]})
    assert caught.value.reason == "no-egress"
    with pytest.raises(libsandbox.Unsupported):
        workspace.set_egress(allow=["api.example.com"])
    told = workspace.inspect_egress()
    assert (told.mode, told.allow, told.available, told.registered) == ("unset", [], False, False)
    assert workspace.read_egress_log() == []


def test_policy_and_credentials(host):
    told = host.inspect_egress()
    assert (told.mode, told.ech, told.allow, told.http) == ("custom", "deny", ["api.example.com"], [])
    assert told.credentials == ["api.example.com: x-api-key"]
    assert told.available and told.registered
    assert SECRET not in repr(told)
    host.set_egress(add_allow=["*.example.net"], remove=["api.example.com"], transformations=[])
    told = host.inspect_egress()
    assert (told.allow, told.credentials) == (["*.example.net"], [])
    host.set_egress(transformations="[]", mode="allow-all")
    assert host.inspect_egress().mode == "allow-all"
    host.set_egress(mode="custom", allow=["api.example.com"], transformations=[RULE])


def test_what_is_refused_is_told(host):
    said = host.run("curl -s -m 20 http://127.0.0.1:3128/https/evil.example/", text=True)
    assert "'evil.example' is not allowed" in said.stdout
    refused = host.read_egress_log()[-1]
    assert (refused.reason, refused.kind, refused.host) == ("host-not-allowed", "route",
                                                           "evil.example")
    assert refused.time > 1.7e9


def test_a_command_with_a_credential_is_refused(host):
    with pytest.raises(libsandbox.Denied) as caught:
        host.run(["echo", SECRET])
    assert caught.value.reason == "credential" and SECRET not in str(caught.value)


def test_a_resume_takes_credentials(host):
    host.suspend()
    assert host.inspect_egress().registered is False
    with pytest.raises(libsandbox.Suspended):
        host.set_egress(transformations=[RULE])
    host.resume(egress={"transformations": [RULE]})
    told = host.inspect_egress()
    assert (told.allow, told.credentials) == (["api.example.com"], ["api.example.com: x-api-key"])


def test_a_range_is_refused(host):
    with pytest.raises(libsandbox.Unsupported) as caught:
        host.set_egress(allow=["10.0.0.0/8"])
    assert caught.value.reason == "cidrs-unsupported"


def test_asyncio(host, gvisor):
    async def work():
        async with aio.Client(gvisor) as client:
            async with await client.find_workspace(host.name) as workspace:
                await workspace.set_egress(add_allow=["two.example"])
                return await workspace.inspect_egress()
    assert "two.example" in asyncio.run(work()).allow
