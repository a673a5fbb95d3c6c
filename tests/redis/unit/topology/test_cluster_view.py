"""The cluster view of all reachable nodes: open slots, only copies and names of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from operators.redis.client.responses import NodeReport, parse_nodes
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.cluster_view import ClusterView
from tests.redis.unit.topology.tables import (
    NEW,
    P0,
    P1,
    P2,
    R0,
    R2,
    SIX,
    THIRDS,
    Role,
    Truth,
    address,
    all_reports,
    changed,
    failed_over,
    ids,
    line,
    report_of,
    slots_moved,
    view,
)


def test_view_of_a_healthy_cluster() -> None:
    seen = view(all_reports(SIX))
    assert seen.settled == ""
    assert seen.owned == THIRDS
    assert seen.owners == {slot: node for node, slots in THIRDS.items() for slot in slots}
    assert ids(seen.primaries) == [P0, P1, P2]
    assert ids(seen.replicas_of(P0)) == [R0]
    assert seen.cluster == frozenset(SIX)
    assert seen.components == (frozenset(SIX),)
    assert (seen.majority, seen.can_elect) == (2, True)
    for problems in (
        seen.uncovered, list(seen.disputes()), seen.unserved, seen.open, seen.failing, seen.outside,
        seen.refusing, seen.awaiting_election, seen.being_met, seen.unknown_nodes(SIX),
        seen.missing(SIX), seen.misplaced({node: address(node) for node in SIX}),
    ):  # fmt: skip
        assert not problems


def test_view_without_any_report() -> None:
    empty = ClusterView.of({})
    assert (empty.settled, empty.primaries, empty.cluster, empty.components) == ("", (), frozenset(), ())
    assert empty.uncovered == Slots.all()
    assert not empty.can_elect
    assert not empty.holds_only_copy(P0)


# Open slots.


def test_open_slots_at_both_ends_and_at_one_end() -> None:
    reports = all_reports(SIX)
    reports[P0] = changed(reports[P0], P0, migrating={7: P1, 8: P1})
    reports[P1] = changed(reports[P1], P1, importing={7: P0, 9: P0})
    assert view(reports).open == Slots.of(7, 8, 9)
    assert view(reports).settled == "", "an open slot still has one owner"


def test_slot_that_its_target_owns_is_open_until_the_source_closes_it() -> None:
    reports = all_reports(slots_moved(SIX, P0, P1, Slots.of(7)))
    reports[P0] = changed(report_of(SIX, P0), P0, migrating={7: P1})
    assert view(reports).open == Slots.of(7)


# Copies.


def replication_reports(truth: Truth, **of: Mapping[str, object]) -> dict[str, NodeReport]:
    return {
        node: replace(report, keys=10, offset=100, **of.get(node, {}))  # type: ignore[arg-type]
        for node, report in all_reports(truth).items()
    }


def test_primary_and_replica_are_copies_of_each_other() -> None:
    seen = view(replication_reports(SIX))
    assert ids(seen.other_copies(P0)) == [R0]
    assert ids(seen.other_copies(R0)) == [P0]
    assert not any(seen.holds_only_copy(node) for node in SIX)


@pytest.mark.parametrize("lag", [{"link_up": False}, {"syncing": True}, {"loading": True}])
def test_replica_that_is_out_of_sync_is_no_copy(lag: dict[str, object]) -> None:
    seen = view(replication_reports(SIX, **{R0: lag}))
    assert seen.holds_only_copy(P0)
    assert not seen.holds_only_copy(R0)
    assert seen.failover_candidates(P0) == ()


def test_replicas_of_a_lost_primary_are_ordered_by_offset() -> None:
    truth = {**SIX, NEW: Role(primary=P0)}
    reports = replication_reports(truth)
    del reports[P0]
    reports[R0] = replace(reports[R0], link_up=False, offset=90)
    reports[NEW] = replace(reports[NEW], link_up=False, offset=95)
    seen = view(reports)
    assert [candidate.id for candidate in seen.failover_candidates(P0)] == [NEW, R0]
    assert all(seen.holds_only_copy(node) for node in (P0, R0, NEW))


def test_loading_primary_is_no_copy() -> None:
    assert view(replication_reports(SIX, **{P0: {"loading": True}})).holds_only_copy(R0)


def test_unreachable_replica_of_an_unreachable_primary_may_have_the_only_copy() -> None:
    assert view(all_reports(SIX, failed=[P0, R0])).holds_only_copy(R0)
    assert not view(all_reports(SIX, failed=[R0])).holds_only_copy(R0)


def test_primary_without_slots_and_keys_has_no_data() -> None:
    truth = {**SIX, NEW: Role()}
    reports = all_reports(truth)
    assert not view(reports).holds_only_copy(NEW)
    reports[NEW] = replace(reports[NEW], keys=3)
    assert view(reports).holds_only_copy(NEW)


def test_unreachable_primary_has_no_data_after_a_failover() -> None:
    seen = view(all_reports(failed_over(SIX, R0), unreachable=[P0]))
    assert not seen.holds_only_copy(P0)


# Names, and tables of real servers.


def test_node_without_a_pod_is_named_by_its_host_or_address() -> None:
    seen = ClusterView.of(
        {P0: NodeReport(P0, nodes=(replace(line(SIX, P0, "myself"), host="demo-0.demo.default.svc"), line(SIX, P1)))}
    )
    assert seen.name(P0) == "demo-0"
    assert seen.name(P1) == "node 00000000 at 10.0.0.1"
    assert seen.name("a" * 40) == "node aaaaaaaa at an unknown address"


def test_nodes_that_accept_no_commands_are_refusing() -> None:
    reports = all_reports(SIX)
    reports[R2] = replace(reports[R2], state_ok=False)
    assert ids(view(reports).refusing) == [R2]


def test_migration_in_the_tables_of_real_servers() -> None:
    one, two = "1" * 40, "2" * 40
    tables = {
        one: f"{one} 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-8191 [5->-{two}]\n"
        f"{two} 10.0.0.2:6379@16379 master - 0 1700000000000 2 connected 8192-16383\n",
        two: f"{two} 10.0.0.2:6379@16379 myself,master - 0 0 2 connected 8192-16383 [5-<-{one}]\n"
        f"{one} 10.0.0.1:6379@16379 master - 0 1700000000000 1 connected 0-8191\n",
    }
    seen = ClusterView.of({node: NodeReport(node, nodes=parse_nodes(table)) for node, table in tables.items()})
    assert seen.settled == ""
    assert seen.open == Slots.of(5)
