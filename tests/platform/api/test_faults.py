"""Requests fail, yet the resource ends in the same state and no object is created twice.

test_crash.py injects one fault per write of a reconcile; this module covers faults of event writes, and many at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from shared.kubernetes.kinds import SERVICE, STATEFUL_SET, Obj
from simulator.faults import Faults, requests, writes
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly

Fault = Callable[[Faults, Any], None]

FAULTS: dict[str, Fault] = {
    "409": lambda faults, when: faults.answer(409, when=when),
    "429": lambda faults, when: faults.answer(429, when=when, retry_after=0.3),
    "500": lambda faults, when: faults.answer(500, when=when),
    "503": lambda faults, when: faults.answer(503, when=when),
    "lost request": lambda faults, when: faults.lose_request(when=when),
    "lost response": lambda faults, when: faults.lose_answer(when=when),
}


def is_event(method: str, path: str) -> bool:
    return writes(method, path) and "/events" in path


def run_lifecycle(world: World, strike: Callable[[], None] = lambda: None) -> list[Obj]:
    """Create, scale and change a resource and lose an object; faults may strike before each action."""
    strike()
    world.create(size=1)
    world.eventually(world.is_ready, 40)
    strike()
    world.change(size=2)
    world.eventually(lambda: world.is_ready() and world.get(STATEFUL_SET)["spec"]["replicas"] == 2, 40)
    strike()
    world.delete(SERVICE)
    world.eventually(lambda: world.find(SERVICE) and world.is_ready(), 40)
    strike()
    world.change(memoryMB=128)
    world.eventually(lambda: world.is_ready() and world.get(STATEFUL_SET)["metadata"]["generation"] == 3, 40)
    return world.snapshot()


@pytest.fixture(scope="module")
def undisturbed(plane: ControlPlane) -> tuple[list[Obj], dict[str, int]]:
    """Return the final objects without faults, and the number of objects created, by collection."""
    world = World(plane)
    operator = Operator(plane.kubeconfig, world.namespace)
    operator.start()
    try:
        return run_lifecycle(world), created(operator)
    finally:
        operator.stop()
        world.close()


def created(operator: Operator) -> dict[str, int]:
    """Return the number of created objects of each kind."""
    return {path.split("/")[-2]: count for path, count in operator.wire.created.items()}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_event_writes_do_not_change_the_end(
    world: World, operator: Operator, undisturbed: tuple[list[Obj], dict[str, int]], fault: str
) -> None:
    faults = operator.wire.faults
    end = run_lifecycle(world, lambda: FAULTS[fault](faults, is_event))
    assert (end, created(operator)) == undisturbed
    world.eventually(lambda: not faults.pending)


def test_random_faults_do_not_change_the_end(
    world: World, operator: Operator, undisturbed: tuple[list[Obj], dict[str, int]]
) -> None:
    """Strike with each fault several times at random; the fixed seed makes failures reproducible."""
    chance = random.Random(7)
    faults = operator.wire.faults

    def strike() -> None:
        for _ in range(2):
            for fault in sorted(FAULTS, key=lambda _: chance.random()):
                FAULTS[fault](faults, writes if chance.random() < 0.7 else lambda *_: True)

    end = run_lifecycle(world, strike)
    assert (end, created(operator)) == undisturbed


def test_lasting_api_failure_is_reported_until_it_ends(world: World, operator: Operator) -> None:
    operator.wire.faults.answer(503, when=requests("PATCH", "/statefulsets/"), times=5)
    world.create()
    world.eventually(lambda: world.reason() == "ApiUnavailable")
    assert world.condition(of="Reconciling")["status"] == "True"
    assert world.find(STATEFUL_SET) is None
    world.eventually(world.is_ready)
    assert world.get(MEMCACHED)["status"]["phase"] == "Running"


@pytest.mark.commit
def test_retry_respects_retry_after(world: World, operator: Operator) -> None:
    operator.wire.faults.answer(429, when=requests("PATCH", "/services/"), retry_after=2)
    world.create()
    world.eventually(lambda: not operator.wire.faults.pending)
    before = _writes_of_services(operator)
    with pytest.raises(AssertionError, match="did not become true in time"):
        world.eventually(lambda: _writes_of_services(operator) > before, 1.5)
    world.eventually(world.is_ready)


def _writes_of_services(operator: Operator) -> int:
    return sum("/services/" in write.path for write in operator.wire.writes)
