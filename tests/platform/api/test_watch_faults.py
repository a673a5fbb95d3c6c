"""Faults of watches on a real API server: error frames, refused collections, cut connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from shared.kubernetes.errors import Forbidden
from shared.kubernetes.kinds import POD, SERVICE
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World
from tools.local.controlplane import ControlPlane


@pytest.fixture
def settled(world: World, gate: Gate, gated: Operator) -> World:
    """Return a world with one healthy resource, with the operator behind the proxy."""
    world.create(size=2)
    world.eventually(world.is_ready)
    gate.wait_for_watches(len(gated.kinds))
    return world


def frame(code: int) -> dict[str, object]:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": f"injected: {code}"}
    return {"type": "ERROR", "object": status}


@pytest.mark.parametrize("code", [410, 500, 504])
def test_error_frame_leads_to_a_relist(settled: World, gate: Gate, gated: Operator, code: int) -> None:
    gate.inject(frame(code), "")
    settled.delete(SERVICE)
    settled.change(size=3)
    settled.eventually(lambda: settled.find(SERVICE) and settled.is_ready() and len(settled.listed(POD)) == 3, 30)
    gate.wait_for_watches(len(gated.kinds))


def test_removed_crd_is_awaited(settled: World, gate: Gate, gated: Operator) -> None:
    with gate.refused(f"/{MEMCACHED.plural}", 404):
        settled.eventually(lambda: any(passed.status == 404 for passed in gate.passed))
    settled.create("next")
    settled.eventually(lambda: settled.is_ready("next"), 60)


@pytest.fixture
def other(plane: ControlPlane) -> Iterator[World]:
    other = World(plane)
    yield other
    other.close()


@pytest.mark.parametrize("position", ["first", "last"])  # namespaces are read in the order of their names
def test_forbidden_namespace_is_lost_alone(
    plane: ControlPlane, world: World, other: World, gate: Gate, position: str
) -> None:
    first, last = sorted((world, other), key=lambda each: each.namespace)
    lost, served = (first, last) if position == "first" else (last, first)
    operator = Operator(plane.kubeconfig, world.namespace, other.namespace, host=gate.url)
    with gate.refused(f"/{lost.namespace}/", 403):
        try:
            operator.start()
            served.create()
            served.eventually(served.is_ready)
        finally:
            operator.stop()


def test_operator_without_rights_in_any_namespace_does_not_start(plane: ControlPlane, world: World, gate: Gate) -> None:
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url)
    with gate.refused(f"/{world.namespace}/", 403):
        try:
            with pytest.raises(Forbidden, match=world.namespace):
                operator.start()
        finally:
            with suppress(Forbidden):
                operator.stop()


def test_namespace_that_becomes_forbidden_is_lost_alone_and_served_again(
    plane: ControlPlane, world: World, other: World, gate: Gate
) -> None:
    operator = Operator(plane.kubeconfig, world.namespace, other.namespace, host=gate.url, resync=1)
    operator.start()
    try:
        for each in (world, other):
            each.create()
            each.eventually(each.is_ready)
        with gate.refused(f"/{other.namespace}/", 403):
            with gate.watches_broken():  # what is missed can only be found by a list
                world.delete(SERVICE)
            world.eventually(lambda: world.find(SERVICE) and world.is_ready(), 40)
            other.change(size=1)
        other.eventually(lambda: other.is_ready() and len(other.get(MEMCACHED)["status"]["servers"]) == 1, 60)
    finally:
        operator.stop()
