"""What all reachable nodes say, put together: open slots, whose data is whose only copy, who is called what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from operators.redis.client.responses import NodeReport, parse_nodes
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.cluster_view import ClusterView, OpenSlot
from tests.unit.redis.topology.tables import (
    M0,
    M1,
    M2,
    NEW,
    R0,
    R2,
    SIX,
    THIRDS,
    Role,
    Truth,
    address,
    all_said,
    changed,
    failed_over,
    ids,
    line,
    said,
    slots_moved,
    view,
)


def test_a_healthy_cluster() -> None:
    seen = view(all_said(SIX))
    assert seen.settled == ""
    assert seen.owned == THIRDS
    assert seen.owners == {slot: node for node, slots in THIRDS.items() for slot in slots}
    assert ids(seen.primaries) == [M0, M1, M2]
    assert ids(seen.replicas_of(M0)) == [R0]
    assert seen.cluster == frozenset(SIX)
    assert seen.components == (frozenset(SIX),)
    assert (seen.majority, seen.can_elect) == (2, True)
    for nothing in (
        seen.uncovered, seen.contested, seen.unserved, seen.open, seen.failing, seen.empty_primaries, seen.outside,
        seen.refusing, seen.awaiting_election, seen.being_met, seen.unknown_nodes(SIX),
        seen.missing(SIX), seen.misplaced({node: address(node) for node in SIX}),
    ):  # fmt: skip
        assert not nothing


def test_nobody_answers() -> None:
    nobody = ClusterView.of({})
    assert (nobody.settled, nobody.primaries, nobody.cluster, nobody.components) == ("", (), frozenset(), ())
    assert nobody.uncovered == Slots.all()
    assert not nobody.can_elect
    assert not nobody.holds_only_copy(M0)


# Open slots.


def test_a_slot_that_is_open_on_both_ends_and_two_on_one() -> None:
    spoken = all_said(SIX)
    spoken[M0] = changed(spoken[M0], M0, migrating={7: M1, 8: M1})
    spoken[M1] = changed(spoken[M1], M1, importing={7: M0, 9: M0})
    assert view(spoken).open == (
        OpenSlot(7, M0, M1, owner=M0, at_source=True, at_target=True),
        OpenSlot(8, M0, M1, owner=M0, at_source=True, at_target=False),
        OpenSlot(9, M0, M1, owner=M0, at_source=False, at_target=True),
    )
    assert view(spoken).settled == "", "who owns it is beyond doubt"


def test_a_slot_whose_target_owns_it_already_is_open_at_the_source_alone() -> None:
    spoken = all_said(slots_moved(SIX, M0, M1, Slots.of(7)))
    spoken[M0] = changed(said(SIX, M0), M0, migrating={7: M1})
    (slot,) = view(spoken).open
    assert (slot.owner, slot.at_source, slot.at_target) == (M1, True, False)


# Copies.


def followed(truth: Truth, **of: Mapping[str, object]) -> dict[str, NodeReport]:
    return {node: replace(spoken, keys=10, offset=100, **of.get(node, {})) for node, spoken in all_said(truth).items()}  # type: ignore[arg-type]


def test_who_has_a_copy_of_what() -> None:
    seen = view(followed(SIX))
    assert ids(seen.other_copies(M0)) == [R0]
    assert ids(seen.other_copies(R0)) == [M0]
    assert not any(seen.holds_only_copy(node) for node in SIX)


@pytest.mark.parametrize("lag", [{"link_up": False}, {"syncing": True}, {"loading": True}])
def test_a_replica_that_does_not_follow_is_no_copy(lag: dict[str, object]) -> None:
    seen = view(followed(SIX, **{R0: lag}))
    assert seen.holds_only_copy(M0)
    assert not seen.holds_only_copy(R0)
    assert seen.failover_candidates(M0) == ()


def test_without_their_master_any_replica_may_be_the_one_that_has_the_most() -> None:
    truth = {**SIX, NEW: Role(primary=M0)}
    spoken = followed(truth)
    del spoken[M0]
    spoken[R0] = replace(spoken[R0], link_up=False, offset=90)
    spoken[NEW] = replace(spoken[NEW], link_up=False, offset=95)
    seen = view(spoken)
    assert [heir.id for heir in seen.failover_candidates(M0)] == [NEW, R0]
    assert all(seen.holds_only_copy(node) for node in (M0, R0, NEW))


def test_a_master_that_reads_its_data_still_is_no_copy_yet() -> None:
    assert view(followed(SIX, **{M0: {"loading": True}})).holds_only_copy(R0)


def test_a_replica_that_does_not_answer_may_have_the_only_copy_if_its_master_does_not_either() -> None:
    assert view(all_said(SIX, failed=[M0, R0])).holds_only_copy(R0)
    assert not view(all_said(SIX, failed=[R0])).holds_only_copy(R0)


def test_a_master_without_slots_and_keys_holds_nothing() -> None:
    truth = {**SIX, NEW: Role()}
    spoken = all_said(truth)
    assert not view(spoken).holds_only_copy(NEW)
    spoken[NEW] = replace(spoken[NEW], keys=3)
    assert view(spoken).holds_only_copy(NEW)


def test_a_master_that_was_taken_over_while_away_holds_nothing_any_more() -> None:
    seen = view(all_said(failed_over(SIX, R0), unreachable=[M0]))
    assert not seen.holds_only_copy(M0)


# Names, and what a real server says.


def test_a_node_without_a_pod_is_called_by_its_host_or_by_its_address() -> None:
    seen = ClusterView.of(
        {M0: NodeReport(M0, nodes=(replace(line(SIX, M0, "myself"), host="demo-0.demo.default.svc"), line(SIX, M1)))}
    )
    assert seen.name(M0) == "demo-0"
    assert seen.name(M1) == "node 00000000 at 10.0.0.1"
    assert seen.name("a" * 40) == "node aaaaaaaa at an unknown address"


def test_refusing_are_those_who_take_no_commands() -> None:
    spoken = all_said(SIX)
    spoken[R2] = replace(spoken[R2], state_ok=False)
    assert ids(view(spoken).refusing) == [R2]


def test_what_real_servers_say_of_a_migration() -> None:
    one, two = "1" * 40, "2" * 40
    tables = {
        one: f"{one} 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-8191 [5->-{two}]\n"
        f"{two} 10.0.0.2:6379@16379 master - 0 1700000000000 2 connected 8192-16383\n",
        two: f"{two} 10.0.0.2:6379@16379 myself,master - 0 0 2 connected 8192-16383 [5-<-{one}]\n"
        f"{one} 10.0.0.1:6379@16379 master - 0 1700000000000 1 connected 0-8191\n",
    }
    seen = ClusterView.of({node: NodeReport(node, nodes=parse_nodes(table)) for node, table in tables.items()})
    assert seen.settled == ""
    assert seen.open == (OpenSlot(5, one, two, one, at_source=True, at_target=True),)
