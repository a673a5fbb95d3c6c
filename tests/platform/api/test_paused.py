"""The operator changes nothing while a resource is paused or its spec is invalid."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.kubernetes.errors import Invalid
from shared.kubernetes.kinds import CRD, SERVICE, STATEFUL_SET, Obj
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, OWNED, World


@pytest.fixture
def settled(world: World, operator: Operator) -> World:
    """Return a world with one healthy resource."""
    world.create(size=2)
    world.eventually(world.is_ready)
    return world


def test_paused_resource_updates_only_its_status(settled: World, operator: Operator) -> None:
    settled.change(paused=True, size=3)
    settled.eventually(lambda: settled.reason() == "Paused")
    operator.wire.sent.clear()
    settled.edit(STATEFUL_SET, {"spec": {"replicas": 1}})
    settled.delete(SERVICE)
    settled.eventually(lambda: settled.get(MEMCACHED)["status"]["readyReplicas"] == 1)
    assert settled.get(MEMCACHED)["status"]["phase"] == "Paused"
    assert settled.find(SERVICE) is None
    assert {sent.path.rpartition("/")[2] for sent in operator.wire.writes} == {"status"}
    settled.change(paused=False)
    settled.eventually(lambda: settled.is_ready() and settled.find(SERVICE))
    assert settled.get(STATEFUL_SET)["spec"]["replicas"] == 3


def test_resource_created_paused_gets_no_objects(world: World, operator: Operator) -> None:
    world.create(paused=True)
    world.eventually(lambda: world.reason() == "Paused")
    assert [world.find(kind) for kind in OWNED] == [None, None]
    assert world.condition()["status"] == "False"


@pytest.fixture
def without_cel(settled: World) -> Iterator[World]:
    """Return the same world with the CEL rules removed from the CRD, as with an older CRD."""
    path = MEMCACHED.plural + "." + MEMCACHED.group
    strict = settled.user_client.get(CRD, None, path)
    relaxed = _without_rules(strict["spec"]["versions"])
    settled.user_client.merge(CRD, None, path, {"spec": {"versions": relaxed}})
    settled.eventually(lambda: _is_accepted(settled, memoryMB=8, maxItemSizeMB=8))
    yield settled
    settled.user_client.merge(CRD, None, path, {"spec": {"versions": strict["spec"]["versions"]}})
    settled.eventually(lambda: not _is_accepted(settled, memoryMB=8, maxItemSizeMB=8))


def test_invalid_spec_past_admission_stalls_without_changing_objects(without_cel: World) -> None:
    before = without_cel.snapshot()
    objects = [without_cel.get(kind) for kind in OWNED]
    servers = without_cel.get(MEMCACHED)["status"]["servers"]
    without_cel.change(maxItemSizeMB=60)
    without_cel.eventually(lambda: without_cel.reason() == "InvalidSpec")
    stalled = without_cel.condition(of="Stalled")
    assert stalled["status"] == "True"
    assert "spec.maxItemSizeMB" in stalled["message"]
    assert without_cel.get(MEMCACHED)["status"]["phase"] == "Failed"
    assert without_cel.get(MEMCACHED)["status"]["servers"] == servers
    assert [without_cel.get(kind) for kind in OWNED] == objects
    assert without_cel.eventually(lambda: without_cel.events(reason="InvalidSpec"))[0]["type"] == "Warning"

    without_cel.change(maxItemSizeMB=1)
    without_cel.eventually(without_cel.is_ready)
    assert without_cel.snapshot() == before
    assert [without_cel.get(kind) for kind in OWNED] == objects


def _without_rules(schema: Obj | list[Obj]) -> Obj | list[Obj]:
    def strip(part: object) -> object:
        if isinstance(part, list):
            return [strip(item) for item in part]
        if isinstance(part, dict):
            return {key: strip(value) for key, value in part.items() if key != "x-kubernetes-validations"}
        return part

    return strip(schema)  # type: ignore[return-value]


def _is_accepted(world: World, **spec: int) -> bool:
    """Whether the API server accepts a spec; the created resource is deleted again."""
    body = {"apiVersion": MEMCACHED.api_version, "kind": MEMCACHED.name, "metadata": world.metadata("tried")}
    try:
        world.user_client.create(MEMCACHED, {**body, "spec": {"size": 0, "paused": True, **spec}})
    except Invalid:
        return False
    world.delete(MEMCACHED, "tried")
    return True
