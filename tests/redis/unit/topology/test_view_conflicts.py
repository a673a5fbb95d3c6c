"""Conflicts between the views of nodes, and their messages."""

from __future__ import annotations

from dataclasses import replace

from operators.redis.client.responses import Node
from operators.redis.slots.hash_slots import Slots
from tests.redis.unit.topology.tables import (
    NEW,
    P0,
    P1,
    P2,
    R0,
    R1,
    R2,
    SIX,
    THIRDS,
    Role,
    address,
    all_reports,
    changed,
    cluster,
    failed_over,
    flagged,
    ids,
    node_id,
    report_of,
    unaware,
    view,
)


def test_failure_that_all_nodes_report_is_settled() -> None:
    seen = view(all_reports(SIX, failed=[P1]))
    assert seen.settled == ""
    assert ids(seen.failing) == [P1]
    assert ids(seen.awaiting_election) == [P1]
    assert seen.owned == THIRDS
    assert not seen.uncovered
    assert seen.unserved == THIRDS[P1]
    assert seen.can_elect
    assert [candidate.id for candidate in seen.failover_candidates(P1)] == [R1]


def test_suspicion_is_no_failure() -> None:
    reports = {node: report_of(SIX, node, suspected=[P1]) for node in SIX if node != P1}
    seen = view(reports)
    assert not seen.failing
    assert seen.settled == (
        "demo-1 is unreachable, but demo-0, demo-2, demo-3 and 2 others do not report it as failed."
    )


def test_stale_failure_flag_of_one_node_is_no_failure() -> None:
    reports = all_reports(SIX)
    reports[R2] = flagged(reports[R2], P1, "fail")
    seen = view(reports)
    assert not seen.failing
    assert seen.settled == "demo-5 reports that demo-1 has failed, but it is reachable."


def test_failure_that_only_some_nodes_report_is_not_settled() -> None:
    reports = all_reports(SIX, failed=[P1])
    reports[R2] = report_of(SIX, R2)
    seen = view(reports)
    assert ids(seen.failing) == [P1]
    assert seen.settled == "demo-1 is unreachable, but demo-5 does not report it as failed."


def test_primary_without_a_live_replica_awaits_no_election() -> None:
    seen = view(all_reports(SIX, failed=[P1, R1]))
    assert ids(seen.failing) == [P1, R1]
    assert not seen.awaiting_election
    assert seen.failover_candidates(P1) == ()
    assert seen.holds_only_copy(P1)


def test_minority_of_primaries_neither_elects_nor_settles_the_view() -> None:
    seen = view(all_reports(SIX, unreachable=[P1, P2]))
    assert not seen.can_elect
    assert seen.settled.startswith(
        "Only 1 of 3 primaries reachable (unreachable: demo-1 and demo-2); a majority needs 2."
    )
    assert seen.disagreements[0].kind == "minority"
    assert seen.disagreements[0].about == (P1, P2)


def test_half_of_the_primaries_are_no_majority() -> None:
    four = cluster(4, 0)
    assert view(all_reports(four, failed=[node_id(3)])).settled == ""
    assert view(all_reports(four, failed=[node_id(2), node_id(3)])).disagreements[0].kind == "minority"


def test_primaries_without_slots_have_no_vote() -> None:
    truth = {**SIX, NEW: Role(9)}
    seen = view(all_reports(truth, failed=[P1, P2]))
    assert NEW in ids(seen.reachable_nodes)
    assert not seen.can_elect
    assert seen.majority == 2


def test_reachable_primary_that_the_others_report_as_failed_has_no_vote() -> None:
    reports = all_reports(SIX, failed=[P2])
    reports = {node: flagged(each, P1, "fail") if node != P1 else each for node, each in reports.items()}
    seen = view(reports)
    assert ids(seen.voters) == [P0]
    assert not seen.can_elect


def test_cluster_is_the_component_with_the_slots() -> None:
    empty = {node: Role() for node in (R0, R1, R2, NEW)}
    three = cluster(replicas=0)
    seen = view(all_reports(three) | all_reports(empty))
    assert seen.cluster == frozenset(three)
    assert ids(seen.outside) == [R0, R1, R2, NEW]
    assert seen.settled == ""


def test_partition_whose_sides_both_reach_the_operator() -> None:
    """Each side reports the other as failed or suspects it."""
    one, other = [P0, R1, R2], [P1, P2, R0]
    reports = {node: report_of(SIX, node, suspected=other) for node in one}
    reports |= {node: report_of(failed_over(SIX, R0), node, failed=one) for node in other}
    seen = view(reports)
    assert Slots.union(slots for _, _, slots in seen.disputes()) == THIRDS[P0]
    assert seen.owned[R0] == THIRDS[P0]
    kinds = {each.kind for each in seen.disagreements}
    assert kinds == {"claims", "absence", "slots", "role", "link"}
    assert seen.settled.endswith(" more.")


def test_missing_connection_between_reachable_nodes_is_reported() -> None:
    reports = all_reports(SIX)
    reports[P0] = changed(reports[P0], P2, linked=False)
    assert view(reports).settled == "demo-0 has no connection to demo-2."


def test_node_that_others_do_not_know_is_reported() -> None:
    reports = all_reports(SIX)
    reports[P0], reports[P1] = unaware(reports[P0], R2), unaware(reports[P1], R2)
    seen = view(reports)
    assert seen.settled == "demo-0 and demo-1 do not know demo-5 or its address."
    assert seen.missing([R1, R2]) == {R2: (P0, P1)}


def test_partially_forgotten_node_does_not_unsettle_the_view() -> None:
    """Otherwise an interrupted CLUSTER FORGET could never be completed."""
    reports = all_reports(SIX, failed=[R2])
    reports[P0] = unaware(reports[P0], R2)
    seen = view(reports)
    assert seen.settled == ""
    assert R2 in seen.cluster


def test_forgotten_node_that_is_reachable_is_reported() -> None:
    reports = {node: unaware(report, R2) if node != R2 else report for node, report in all_reports(SIX).items()}
    seen = view(reports)
    assert seen.cluster == frozenset(SIX)
    assert "do not know demo-5" in seen.settled
    assert seen.without([R2]).settled == ""
    assert R2 not in seen.without([R2]).nodes


def test_new_nodes_are_outside_the_cluster() -> None:
    reports = all_reports(SIX) | {NEW: report_of({NEW: Role()}, NEW)}
    seen = view(reports)
    assert ids(seen.outside) == [NEW]
    assert seen.settled == ""
    assert seen.cluster == frozenset(SIX)
    assert seen.missing([NEW]) == {NEW: tuple(sorted(SIX))}


def test_view_is_settled_before_the_cluster_is_formed() -> None:
    seen = view({node: report_of({node: Role()}, node) for node in SIX})
    assert seen.settled == ""
    assert len(seen.components) == 6
    assert seen.uncovered == Slots.all()


def test_primary_that_knows_no_other_node_is_another_cluster() -> None:
    reports = {node: unaware(each, P1) for node, each in all_reports(SIX).items()}
    reports[P1] = report_of({P1: SIX[P1]}, P1)
    seen = view(reports)
    assert seen.settled == ("demo-1 owns slots 5461-10921 but knows nothing of demo-0, demo-2, demo-3 and 2 others.")
    assert seen.uncovered == THIRDS[P1], "its claims do not count in the other cluster"
    assert seen.outside == (seen.nodes[P1],)


def test_node_in_handshake_is_no_member() -> None:
    """The entry has a random id until the node answers (cluster.c, clusterStartHandshake)."""
    in_handshake = Node("f" * 40, "10.0.0.6", 6379, frozenset({"handshake"}))
    reports = all_reports(SIX)
    reports[P0] = replace(reports[P0], nodes=(*reports[P0].nodes, in_handshake))
    seen = view(reports)
    assert in_handshake.id not in seen.nodes
    assert seen.being_met == {(P0, "10.0.0.6")}
    assert not seen.unknown_nodes(SIX)
    assert seen.settled == ""


def test_node_whose_address_was_reused_is_lost_without_a_failure_flag() -> None:
    """A node that returns empty has another id; its former entry has no address, so no node pings it."""
    truth = {**SIX, NEW: Role()}
    reports = {
        node: changed(report, R2, address="", flags=frozenset({"slave", "noaddr"}), linked=False)
        for node, report in all_reports(truth, unreachable=[R2]).items()
    }
    seen = view(reports)
    assert not seen.failing
    assert seen.nodes[R2].lost
    assert seen.settled == ""
    assert seen.missing([R2]) == {R2: (P0, P1, P2, R0, R1, NEW)}
    assert not seen.misplaced({R2: address(R2)})


def test_reachable_node_without_a_known_address_is_missing() -> None:
    reports = all_reports(SIX)
    reports[P0] = changed(reports[P0], R2, address="", flags=frozenset({"slave", "noaddr"}))
    seen = view(reports)
    assert seen.settled == "demo-0 does not know demo-5 or its address."
    assert seen.missing(SIX) == {R2: (P0,)}


def test_unknown_nodes_are_members_without_a_pod() -> None:
    truth = {**SIX, NEW: Role()}
    assert ids(view(all_reports(truth, unreachable=[NEW])).unknown_nodes(SIX)) == [NEW]


def test_outdated_address_is_reported() -> None:
    reports = all_reports(SIX)
    reports[R2] = changed(reports[R2], R2, address="10.0.7.7")
    reports[P0] = changed(reports[P0], R2, address="10.0.7.7")
    seen = view(reports)
    assert seen.misplaced({R2: "10.0.7.7", P0: address(P0)}) == {R2: (P1, P2, R0, R1)}
    assert seen.settled == (
        "demo-1, demo-2, demo-3 and demo-4 have the address 10.0.0.5 for demo-5; it is at 10.0.7.7."
    )


def test_node_that_does_not_know_its_own_address_is_not_misplaced() -> None:
    """A node learns its address when it is met (cluster.c, clusterProcessPacket)."""
    reports = all_reports(SIX)
    reports[P0] = changed(reports[P0], P0, address="")
    reports[P1] = changed(reports[P1], P2, address="")
    assert view(reports).settled == ""


def test_wrong_role_of_a_node_is_reported() -> None:
    reports = all_reports(SIX)
    reports[P0] = changed(reports[P0], R2, primary=P1)
    assert view(reports).settled == "demo-0 reports demo-5 as a replica of demo-1; it is a replica of demo-2."
    reports[P0] = changed(reports[P0], R2, primary="")
    assert view(reports).settled == "demo-0 reports demo-5 as a primary; it is a replica of demo-2."


def test_role_of_an_unreachable_node_is_decided_by_majority() -> None:
    """Only the node itself announces its role: what others recorded of a removed node never changes."""
    reports = all_reports(SIX, failed=[R0])
    reports[P1] = changed(reports[P1], R0, primary=P1, epoch=2)
    seen = view(reports)
    assert ids(seen.replicas_of(P0)) == [R0]
    assert seen.settled == ""


def test_missing_slot_owner_in_a_table_is_reported() -> None:
    reports = all_reports(SIX)
    reports[R0] = changed(reports[R0], P0, slots=THIRDS[P0] - Slots.of(7))
    assert view(reports).settled == "demo-3 reports no owner of slot 7; the owner is demo-0."
