"""Whatever requests come to, the resource ends as if nothing had happened, and nothing is made twice.

One fault on each write of a reconcile is for test_crash.py; here are those of events, and many at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from shared.kubernetes.kinds import DEPLOYMENT, SERVICE, Obj
from shared.testing.faults import Faults, requests, writes
from tests.api.support.running import Operator
from tests.api.support.world import MEMCACHED, World

Fault = Callable[[Faults, Any], None]

FAULTS: dict[str, Fault] = {
    "409": lambda faults, when: faults.answer(409, when=when),
    "429": lambda faults, when: faults.answer(429, when=when, retry_after=0.3),
    "500": lambda faults, when: faults.answer(500, when=when),
    "503": lambda faults, when: faults.answer(503, when=when),
    "request lost": lambda faults, when: faults.lose_request(when=when),
    "answer lost": lambda faults, when: faults.lose_answer(when=when),
}


def is_event(method: str, path: str) -> bool:
    return writes(method, path) and "/events" in path


def live_a_life(world: World, strike: Callable[[], None] = lambda: None) -> list[Obj]:
    """Create, scale, lose an object and change a resource; faults may strike before each turn."""
    strike()
    world.create(size=1)
    world.eventually(world.is_ready, 40)
    strike()
    world.change(size=2)
    world.eventually(lambda: world.is_ready() and world.get(DEPLOYMENT)["spec"]["replicas"] == 2, 40)
    strike()
    world.delete(SERVICE)
    world.eventually(lambda: world.find(SERVICE) and world.is_ready(), 40)
    strike()
    world.change(memoryMB=128)
    world.eventually(lambda: world.is_ready() and world.get(DEPLOYMENT)["metadata"]["generation"] == 3, 40)
    return world.snapshot()


@pytest.fixture(scope="module")
def undisturbed(plane: ControlPlane) -> tuple[list[Obj], dict[str, int]]:
    """How it ends without faults, and what was created on the way, by collection."""
    world = World(plane)
    operator = Operator(plane.kubeconfig, world.namespace)
    operator.start()
    try:
        return live_a_life(world), created(operator)
    finally:
        operator.stop()
        world.close()


def created(operator: Operator) -> dict[str, int]:
    """How many objects of each kind came to be."""
    return {path.split("/")[-2]: count for path, count in operator.wire.created.items()}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_event_that_cannot_be_told_changes_nothing_in_the_end(
    world: World, operator: Operator, undisturbed: tuple[list[Obj], dict[str, int]], fault: str
) -> None:
    faults = operator.wire.faults
    end = live_a_life(world, lambda: FAULTS[fault](faults, is_event))
    assert (end, created(operator)) == undisturbed
    world.eventually(lambda: not faults.pending)


def test_a_storm_of_all_faults_changes_nothing_in_the_end(
    world: World, operator: Operator, undisturbed: tuple[list[Obj], dict[str, int]]
) -> None:
    """Each fault strikes several times at random; the seed makes a failure come again."""
    chance = random.Random(7)
    faults = operator.wire.faults

    def strike() -> None:
        for _ in range(2):
            for fault in sorted(FAULTS, key=lambda _: chance.random()):
                FAULTS[fault](faults, writes if chance.random() < 0.7 else lambda *_: True)

    end = live_a_life(world, strike)
    assert (end, created(operator)) == undisturbed


def test_trouble_that_lasts_is_told_and_forgotten_when_it_is_over(world: World, operator: Operator) -> None:
    operator.wire.faults.answer(503, when=requests("PATCH", "/deployments/"), times=5)
    world.create()
    world.eventually(lambda: world.reason() == "ApiUnavailable")
    assert world.condition(of="Reconciling")["status"] == "True"
    assert world.find(DEPLOYMENT) is None
    world.eventually(world.is_ready)
    assert world.get(MEMCACHED)["status"]["phase"] == "Running"


def test_a_retry_waits_as_long_as_the_server_asks(world: World, operator: Operator) -> None:
    operator.wire.faults.answer(429, when=requests("PATCH", "/services/"), retry_after=2)
    world.create()
    world.eventually(lambda: not operator.wire.faults.pending)
    before = len(operator.wire.writes)
    with pytest.raises(AssertionError, match="it did not come"):
        world.eventually(lambda: len(operator.wire.writes) > before, 1.5)
    world.eventually(world.is_ready)
