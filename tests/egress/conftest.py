"""What the tests of the egress proxy share: a world, an authority, a proxy of each test's own."""

import os

import pytest
from authority import Authority, over_tls
from guest import POLICY, RULES, Relay
from servers import application, serve
from targets import Ours
from world import GUEST, PUBLIC_TLS, World


@pytest.fixture(scope="session")
def world():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        return World()
    except PermissionError as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")


@pytest.fixture(scope="session")
def authority(world):
    return Authority(world.directory)


@pytest.fixture
def start(world, authority):
    """Starts proxies of ours; each must end well when asked to."""
    world.reset()
    started = []

    def begin(policy=None, **options):
        proxy = Ours(world, authority)
        started.append(proxy)
        proxy.start(policy, **options)
        return proxy
    yield begin
    for proxy in started:
        ended_itself = not proxy.is_alive()
        proxy.stop()
        assert ended_itself or proxy.process.returncode == 0, proxy.output()
        assert "Sanitizer" not in proxy.output(), proxy.output()


@pytest.fixture
def proxy(start):
    """One with a workspace at the guest's address, and no clock that a test meets by chance."""
    begun = start(timeouts={"hello": 10000, "connect": 10000, "head": 10000})
    begun.register("w1", {"address": GUEST}, policy=POLICY, transformations=RULES)
    return begun


@pytest.fixture
def relay(proxy):
    return Relay(proxy)


@pytest.fixture
def api(world, authority):
    """https://api.example.com and its like, as the world has them."""
    kind = application()
    context = authority.context("api.example.com", "github.com", "*.cdn.example.net")
    world.servers.behind[PUBLIC_TLS] = over_tls(context, serve(kind))
    world.names.anything = PUBLIC_TLS
    return kind
