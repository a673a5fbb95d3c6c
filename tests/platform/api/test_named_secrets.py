"""A change of a Secret that a spec names is noticed within seconds, with and without the right to watch Secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from shared.kubernetes.kinds import SECRET
from shared.runtime import dependencies
from simulator.memcached.fake_servers import mounted_secrets, secret
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World
from tools.local.controlplane import ControlPlane


def create_secret(world: World, users: str) -> None:
    world.user_client.apply(SECRET, secret("users", users=users) | {"metadata": world.metadata("users")}, force=True)


@pytest.fixture(params=["watched", "polled"])
def reads(
    request: pytest.FixtureRequest, plane: ControlPlane, world: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Run the operator with or without the right to watch Secrets."""
    monkeypatch.setattr(dependencies, "POLL_SECONDS", 1.0)
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url)
    operator.fleet.volumes = partial(mounted_secrets, world.server)
    if request.param == "watched":
        operator.start()
        yield request.param
        operator.stop()
        return
    with gate.refused("/secrets$", 403):
        operator.start()
        yield request.param
        operator.stop()


def test_changed_secret_is_noticed_within_seconds(world: World, gate: Gate, reads: str) -> None:
    create_secret(world, "app:first\nold:leaked\n")
    world.create(size=1, auth={"secretName": "users"})
    world.eventually(world.is_ready)
    before = world.get(MEMCACHED)["status"]["users"]
    create_secret(world, "app:first\n")
    world.eventually(lambda: world.get(MEMCACHED)["status"]["users"] != before, 4)
    world.delete(SECRET, "users")
    world.eventually(lambda: world.reason() == "SecretMissing", 4)
    create_secret(world, "app:first\n")
    world.eventually(world.is_ready, 4)
    if reads == "watched":
        gate.passed.clear()
        time.sleep(3)
        assert not [passed for passed in gate.passed if "/secrets" in passed.path]
