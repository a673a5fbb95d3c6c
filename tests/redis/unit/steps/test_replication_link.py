"""The replication link of a replica: what it copies is the primary's data only if it is connected to that primary.

Gossip about a new address of the primary does not move the link. So it may lead to a former address of the primary,
where a server of another cluster may be by now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.state.observed import Observed
from tests.redis.unit.world import acts, formed, node_id, of, plan, planned, world

P0, P1, P2, R0, R1, R2 = formed()
ELSEWHERE = "10.9.9.9:6379"
ASTRAY = replace(R0, link=ELSEWHERE)
RELINK = "let demo-3 connect to its primary demo-0 at 10.0.0.1:6379"
RELINK_4 = "let demo-4 connect to its primary demo-1 at 10.0.0.2:6379"


def running(found: Observed, numbers: Collection[int], engine: str, version: str) -> Observed:
    """Return the observed state in which some servers report another engine."""
    instances = (
        replace(each, report=replace(each.report, engine=engine, version=version))
        if each.report and each.number in numbers
        else each
        for each in found.instances
    )
    return replace(found, instances=tuple(instances))


def entry(resource: RedisCluster, found: Observed, number: int = 3) -> dict[str, Any]:
    status = plan(resource, found).status
    assert status is not None
    return next(each for each in status["nodes"] if each["name"] == f"demo-{number}")


def recorded(resource: RedisCluster, found: Observed, number: int = 3) -> str | None:
    return entry(resource, found, number).get("copyOf")


@pytest.mark.parametrize("synced", [True, False], ids=["link up", "link down"])
def test_replica_that_replicates_another_address_is_connected_to_its_primary_first(synced: bool) -> None:
    """Before other repairs and changes: its primary has one copy less than it seems."""
    made = planned(P0, P1, P2, replace(ASTRAY, synced=synced), R1, R2)
    assert acts(made.actions) == [RELINK]
    assert made.verdict.reason == "ReplicatingElsewhere"
    assert ELSEWHERE in made.verdict.message


def test_replica_of_valkey_is_restarted_instead() -> None:
    """There CLUSTER REPLICATE with the same primary does nothing; one at a time."""
    resource, found = world(P0, P1, P2, ASTRAY, replace(R1, link=ELSEWHERE), R2, engine="valkey", version="9.1.0")
    made = plan(resource, running(found, range(6), "valkey", "9.1.0"))
    assert acts(made.actions) == ["delete Pod demo-3"]
    assert "restarting its pod" in made.verdict.message


@pytest.mark.parametrize(
    ("valkey", "expected"),
    [((), [RELINK, RELINK_4]), ((4,), [RELINK]), ((3,), [RELINK_4]), ((3, 4), ["delete Pod demo-3"])],
    ids=["redis", "mixed", "mixed, the first one is restarted later", "valkey"],
)
@pytest.mark.parametrize("spec", [("redis", "8.0.2"), ("valkey", "9.1.0")], ids=lambda spec: spec[0])
def test_running_server_decides_how_its_link_is_moved(
    spec: tuple[str, str], valkey: Sequence[int], expected: list[str]
) -> None:
    """The spec may request another engine, to which the servers are changed one by one."""
    engine, version = spec
    resource, found = world(P0, P1, P2, ASTRAY, replace(R1, link=ELSEWHERE), R2, engine=engine, version=version)
    made = plan(resource, running(found, valkey, "valkey", "9.1.0"))
    assert acts(made.actions) == expected


def test_such_a_replica_is_no_copy() -> None:
    resource, found = world(P0, P1, P2, ASTRAY, R1, R2)
    assert not found.view.nodes[node_id(3)].synced
    assert not found.view.other_copies(node_id(0))
    assert found.view.other_copies(node_id(1))
    made = plan(resource, found)
    assert not made.verdict.done
    assert made.health
    assert made.health.degraded
    assert made.health.degraded.holds
    assert entry(resource, found)["status"] == "False"
    assert ELSEWHERE in entry(resource, found)["message"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [({}, None), ({"synced": False, "syncing": True}, None), ({"synced": False}, node_id(0))],
    ids=["connected", "syncing", "not connected"],
)
def test_record_of_its_copy_ends_once_it_may_have_other_data(state: dict[str, Any], expected: str | None) -> None:
    resource, found = world(P0, P1, P2, replace(ASTRAY, **state), R1, R2)
    assert recorded(resource, found) == expected


def test_record_of_its_copy_stays_while_its_primary_is_out_of_reach() -> None:
    resource, found = world(replace(P0, up=False, ready=True), P1, P2, R0, R1, R2)
    assert recorded(resource, found) == node_id(0)
    assert entry(resource, found)["status"] == "True"


def test_replica_is_no_copy_of_its_lost_primary_if_another_node_is_at_the_address_of_its_link() -> None:
    """The volume of the primary was replaced by that of another cluster, and the replica has copied it."""
    resource, found = world(replace(P0, up=False, ready=True), P1, P2, replace(R0, link="10.0.0.5:6379"), R1, R2)
    assert recorded(resource, found) is None
    assert entry(resource, found)["status"] == "False"
    assert entry(resource, found)["message"] == (
        "demo-3 replicates 10.0.0.5:6379, not its primary demo-0, which is unreachable"
    )


def test_new_record_needs_the_address_of_the_primary() -> None:
    resource, found = world(P0, P1, P2, replace(ASTRAY, copied=False), R1, R2)
    assert recorded(resource, found) is None
    resource, found = world(P0, P1, P2, replace(R0, copied=False), R1, R2)
    assert recorded(resource, found) == node_id(0)


def test_no_failover_to_a_replica_that_is_connected_elsewhere() -> None:
    """The primary lost its data: a server that answers this replica is another one."""
    lost = replace(P0, up=False, failed=True, disk="a new disk")
    made = planned(lost, P1, P2, ASTRAY, R1, R2)
    assert not of(made.actions, "FailOver")
    made = planned(lost, P1, P2, replace(R0, synced=False), R1, R2)
    assert of(made.actions, "FailOver")


def test_primary_is_not_restarted_while_its_only_replica_is_connected_elsewhere() -> None:
    made = planned(replace(P0, old=True), P1, P2, ASTRAY, R1, R2)
    assert acts(made.actions) == [RELINK]


def test_link_follows_after_the_replica_knows_the_address() -> None:
    """CLUSTER REPLICATE connects to the address that the replica knows: first it must know the present one."""
    made = planned(replace(P0, stale_address="10.9.9.9"), P1, P2, ASTRAY, R1, R2)
    assert not of(made.actions, "Relink")
    assert of(made.actions, "Meet")


LOST = replace(P0, up=False, failed=True, disk="a new disk")


def test_record_of_a_copy_ends_when_a_full_sync_begins() -> None:
    """The replica empties its data before it has that of the primary; the primary may fail in between."""
    resource, found = world(P0, P1, P2, replace(R0, synced=False, syncing=True), R1, R2)
    assert recorded(resource, found) is None
    resource, found = world(P0, P1, P2, replace(R0, synced=False), R1, R2)
    assert recorded(resource, found) == node_id(0)


def test_replica_that_lost_its_keys_is_not_promoted_without_consent() -> None:
    emptied = replace(R0, synced=False, keys=0, had_keys=True)
    made = planned(LOST, P1, P2, emptied, R1, R2)
    assert not of(made.actions, "FailOver")
    assert made.verdict.reason == "SlotsLost"
    assert made.status["recovery"]["token"]


def test_replica_of_an_empty_primary_is_promoted() -> None:
    made = planned(LOST, P1, P2, replace(R0, synced=False, keys=0), R1, R2)
    assert of(made.actions, "FailOver")


@pytest.mark.parametrize(("keys", "expected"), [(10, True), (0, None)])
def test_record_of_a_copy_has_whether_it_had_keys(keys: int, expected: bool | None) -> None:
    resource, found = world(P0, P1, P2, replace(R0, keys=keys, had_keys=not keys), R1, R2)
    assert entry(resource, found).get("copyHasKeys") is expected
