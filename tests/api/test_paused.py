"""The operator keeps its hands off: while it is asked to, and while the spec cannot be made real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.kubernetes.errors import Invalid
from shared.kubernetes.kinds import CRD, DEPLOYMENT, SERVICE, Obj
from tests.api.support.running import Operator
from tests.api.support.world import MEMCACHED, OWNED, World


@pytest.fixture
def settled(world: World, operator: Operator) -> World:
    """A world with one healthy resource."""
    world.create(size=2)
    world.eventually(world.is_ready)
    return world


def test_while_paused_nothing_is_touched_and_the_status_goes_on(settled: World, operator: Operator) -> None:
    settled.change(paused=True, size=3)
    settled.eventually(lambda: settled.reason() == "Paused")
    operator.wire.asked.clear()
    settled.edit(DEPLOYMENT, {"spec": {"replicas": 1}})
    settled.delete(SERVICE)
    settled.eventually(lambda: settled.get(MEMCACHED)["status"]["readyReplicas"] == 1)
    assert settled.get(MEMCACHED)["status"]["phase"] == "Paused"
    assert settled.find(SERVICE) is None
    assert {asked.path.rpartition("/")[2] for asked in operator.wire.writes} == {"status"}
    settled.change(paused=False)
    settled.eventually(lambda: settled.is_ready() and settled.find(SERVICE))
    assert settled.get(DEPLOYMENT)["spec"]["replicas"] == 3


def test_one_that_is_paused_from_the_start_makes_nothing(world: World, operator: Operator) -> None:
    world.create(paused=True)
    world.eventually(lambda: world.reason() == "Paused")
    assert [world.find(kind) for kind in OWNED] == [None, None]
    assert world.condition()["status"] == "False"


@pytest.fixture
def lax(settled: World) -> Iterator[World]:
    """The same while the API server checks nothing that CEL says, as with an older CRD."""
    path = MEMCACHED.plural + "." + MEMCACHED.group
    strict = settled.person.get(CRD, None, path)
    relaxed = _without_rules(strict["spec"]["versions"])
    settled.person.merge(CRD, None, path, {"spec": {"versions": relaxed}})
    settled.eventually(lambda: _takes(settled, memoryMB=8, maxItemSizeMB=8))
    yield settled
    settled.person.merge(CRD, None, path, {"spec": {"versions": strict["spec"]["versions"]}})
    settled.eventually(lambda: not _takes(settled, memoryMB=8, maxItemSizeMB=8))


def test_an_invalid_spec_that_came_past_admission_stalls_and_what_runs_goes_on(lax: World) -> None:
    before = lax.snapshot()
    objects = [lax.get(kind) for kind in OWNED]
    servers = lax.get(MEMCACHED)["status"]["servers"]
    lax.change(maxItemSizeMB=60)
    lax.eventually(lambda: lax.reason() == "InvalidSpec")
    stalled = lax.condition(of="Stalled")
    assert stalled["status"] == "True"
    assert "spec.maxItemSizeMB" in stalled["message"]
    assert lax.get(MEMCACHED)["status"]["phase"] == "Failed"
    assert lax.get(MEMCACHED)["status"]["servers"] == servers
    assert [lax.get(kind) for kind in OWNED] == objects
    assert lax.eventually(lambda: lax.events(reason="InvalidSpec"))[0]["type"] == "Warning"

    lax.change(maxItemSizeMB=1)
    lax.eventually(lax.is_ready)
    assert lax.snapshot() == before
    assert [lax.get(kind) for kind in OWNED] == objects


def _without_rules(schema: Obj | list[Obj]) -> Obj | list[Obj]:
    def strip(part: object) -> object:
        if isinstance(part, list):
            return [strip(item) for item in part]
        if isinstance(part, dict):
            return {key: strip(value) for key, value in part.items() if key != "x-kubernetes-validations"}
        return part

    return strip(schema)  # type: ignore[return-value]


def _takes(world: World, **spec: int) -> bool:
    """Whether the API server would take a spec; nothing is made."""
    body = {"apiVersion": MEMCACHED.api_version, "kind": MEMCACHED.name, "metadata": world.metadata("tried")}
    try:
        world.person.create(MEMCACHED, {**body, "spec": {"size": 0, "paused": True, **spec}})
    except Invalid:
        return False
    world.delete(MEMCACHED, "tried")
    return True
