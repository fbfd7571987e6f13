"""Every vector of the acceptance table against the running program."""

import pytest
import vectors
from targets import Ours
from world import GUEST

TABLE = vectors.load()


@pytest.fixture(scope="module")
def proxy(world, authority):
    target = Ours(world, authority)
    target.start()
    yield target
    target.stop()
    assert target.process.returncode == 0, target.output()


@pytest.fixture
def with_policy(proxy):
    """Registered anew where the vector before had another policy."""
    def set_policy(name):
        if getattr(proxy, "policy", None) != name:
            proxy.policy, policy = name, TABLE["policies"][name]
            proxy.register("vector", {"address": GUEST}, policy=proxy.policy_of(policy),
                           transformations=policy.get("credentials", []))
        return proxy
    return set_policy


@pytest.mark.parametrize("vector", TABLE["vectors"], ids=lambda vector: vector["name"])
def test_vector_passes(with_policy, vector):
    faults = vectors.Run(vector, with_policy(vector["policy"]["ref"])).run()
    assert not faults, vector["why"]
