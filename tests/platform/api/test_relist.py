"""Events missed during a broken watch are recovered by relisting."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import POD, SERVICE, Kind
from shared.runtime import reflector
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, OWNED, World


@pytest.fixture
def settled(world: World, gate: Gate, gated: Operator) -> World:
    """Return a world with one healthy resource, with the operator behind the proxy."""
    world.create(size=2)
    world.eventually(world.is_ready)
    gate.wait_for_watches(len(gated.kinds))
    return world


def lists_of_resources(gate: Gate) -> int:
    """Return the number of lists of the resources, each of which refreshes the cache."""
    return sum(passed.path.endswith(MEMCACHED.plural) and not passed.watch for passed in gate.passed)


@pytest.mark.parametrize("kind", OWNED, ids=str)
def test_missed_deletion_is_recovered_from_an_empty_list(settled: World, gate: Gate, kind: Kind) -> None:
    before = settled.get(kind)["metadata"]["uid"]
    with gate.watches_broken():
        settled.delete(kind)
        assert settled.listed(kind) == []
    settled.eventually(lambda: settled.find(kind) and settled.is_ready())
    assert settled.get(kind)["metadata"]["uid"] != before


def test_missed_deletion_of_one_of_two_objects_is_recovered(settled: World, gate: Gate) -> None:
    settled.create("other")
    settled.eventually(lambda: settled.is_ready("other"))
    with gate.watches_broken():
        settled.delete(SERVICE)
    settled.eventually(lambda: settled.find(SERVICE) and settled.is_ready())


def test_missed_pod_deletions_are_reported(settled: World, gate: Gate) -> None:
    workloads, settled.workloads = settled.workloads, None
    with gate.watches_broken():
        for pod in settled.listed(POD):
            settled.delete(POD, pod["metadata"]["name"], gracePeriodSeconds=0)
    settled.eventually(lambda: settled.get(MEMCACHED)["status"]["nodes"] == [])
    assert settled.reason() == "Degraded"
    settled.workloads = workloads
    settled.eventually(settled.is_ready)


def test_missed_deletion_of_the_resource_is_recovered(settled: World, gate: Gate) -> None:
    """With a stale cache the operator would recreate the Service."""
    before = lists_of_resources(gate)
    with gate.watches_broken():
        settled.delete(MEMCACHED)
    settled.eventually(lambda: lists_of_resources(gate) > before)
    for kind in OWNED:
        settled.delete(kind)
    settled.create("next")
    settled.eventually(lambda: settled.is_ready("next"))
    assert [service["metadata"]["name"] for service in settled.listed(SERVICE)] == ["next"]


def test_missed_changes_are_applied(settled: World, gate: Gate) -> None:
    with gate.watches_broken():
        settled.change(size=3)
        settled.edit(SERVICE, {"spec": {"selector": None}})
    settled.eventually(lambda: settled.is_ready() and len(settled.get(MEMCACHED)["status"]["servers"]) == 3)
    settled.eventually(lambda: settled.get(SERVICE)["spec"].get("selector"))


def test_repeated_watch_failures_are_recovered(
    settled: World, gate: Gate, gated: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "MAX_RETRY_SECONDS", 1.0)
    monkeypatch.setattr(reflector, "MAX_OPTIONAL_RETRY_SECONDS", 1.0)  # the watch of Secrets

    def resize(size: int) -> None:
        with gate.watches_broken():
            settled.change(size=size)
        settled.eventually(lambda: settled.is_ready() and len(settled.listed(POD)) == size)
        gate.wait_for_watches(len(gated.kinds))

    for size in (1, 2, 3):
        resize(size)
