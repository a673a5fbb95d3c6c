"""A healthy resource costs nothing, and neither does a change that changes nothing."""

from __future__ import annotations

import time

from shared.kubernetes.accessors import is_true
from shared.kubernetes.kinds import DEPLOYMENT, SERVICE
from shared.status.conditions import READY
from tests.api.support.gate import Gate
from tests.api.support.running import Operator
from tests.api.support.world import MEMCACHED, World

QUIET = 1.5
"""Seconds without a request after which the operator has come to rest."""


def come_to_rest(gate: Gate) -> None:
    """Wait until nothing but the watches goes on."""
    deadline = time.monotonic() + 30
    seen, since = len(gate.passed), time.monotonic()
    while time.monotonic() - since < QUIET:
        assert time.monotonic() < deadline, f"the operator does not come to rest: {gate.passed[-20:]}"
        time.sleep(0.05)
        if len(gate.passed) != seen:
            seen, since = len(gate.passed), time.monotonic()


def test_fifty_healthy_resources_cost_neither_reads_nor_writes(world: World, gate: Gate, gated: Operator) -> None:
    for number in range(50):
        world.create(f"cache-{number}", size=int(number < 4))
    world.eventually(lambda: all(is_true(resource, READY) for resource in world.listed(MEMCACHED)), 60)
    come_to_rest(gate)
    gate.passed.clear()
    time.sleep(8)
    assert gate.passed == []


def test_edits_that_concern_nobody_cost_nothing(world: World, gate: Gate, gated: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)
    come_to_rest(gate)
    gate.passed.clear()
    note = {"metadata": {"annotations": {"example.com/note": "mine"}}}
    for kind in (MEMCACHED, DEPLOYMENT, SERVICE):
        world.edit(kind, note)
    time.sleep(QUIET)
    assert [passed for passed in gate.passed if passed.method != "GET"] == []
    assert gate.passed == []


def test_one_scaling_costs_one_apply_and_a_status_for_each_turn(world: World, gated: Operator, gate: Gate) -> None:
    world.create()
    world.eventually(world.is_ready)
    come_to_rest(gate)
    gated.wire.asked.clear()
    workloads, world.workloads = world.workloads, None
    world.change(size=3)
    world.eventually(lambda: world.reason() == "Scaling")
    world.workloads = workloads
    world.eventually(world.is_ready)
    come_to_rest(gate)
    paths = [asked.path for asked in gated.wire.writes]
    assert sum(path.endswith("/deployments/cache") for path in paths) == 1
    assert not any(path.endswith("/services/cache") for path in paths)
    assert not any(asked.method == "GET" for asked in gated.wire.asked)


def test_a_status_that_somebody_wrote_over_is_mended_once(world: World, gate: Gate, gated: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)
    come_to_rest(gate)
    before = world.get(MEMCACHED)["status"]
    gated.wire.asked.clear()
    world.person.merge(MEMCACHED, world.namespace, "cache", {"status": {"phase": "Odd"}}, subresource="status")
    world.eventually(lambda: world.get(MEMCACHED)["status"] == before)
    come_to_rest(gate)
    assert [asked.path.rpartition("/")[2] for asked in gated.wire.asked] == ["status"]
