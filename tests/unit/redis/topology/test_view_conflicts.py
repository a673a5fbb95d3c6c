"""Who is there for whom, and in which words people are told that nodes do not agree."""

from __future__ import annotations

from dataclasses import replace

from operators.redis.client.responses import Node
from operators.redis.slots.hash_slots import Slots
from tests.unit.redis.topology.tables import (
    M0,
    M1,
    M2,
    NEW,
    R0,
    R1,
    R2,
    SIX,
    THIRDS,
    Role,
    address,
    all_said,
    changed,
    cluster,
    failed_over,
    flagged,
    ids,
    node_id,
    said,
    unaware,
    view,
)


def test_one_who_has_failed_for_all_is_agreed_on() -> None:
    seen = view(all_said(SIX, failed=[M1]))
    assert seen.settled == ""
    assert ids(seen.failing) == [M1]
    assert ids(seen.awaiting_election) == [M1]
    assert seen.owned == THIRDS
    assert not seen.uncovered
    assert seen.unserved == THIRDS[M1]
    assert seen.can_elect
    assert [heir.id for heir in seen.failover_candidates(M1)] == [R1]


def test_the_suspicion_of_one_is_no_failure() -> None:
    spoken = {node: said(SIX, node, suspected=[M1]) for node in SIX if node != M1}
    seen = view(spoken)
    assert not seen.failing
    assert seen.settled == (
        "demo-1 does not answer, yet demo-0, demo-2, demo-3 and 2 others do not say that it has failed."
    )


def test_a_flag_that_one_node_kept_is_no_failure() -> None:
    spoken = all_said(SIX)
    spoken[R2] = flagged(spoken[R2], M1, "fail")
    seen = view(spoken)
    assert not seen.failing
    assert seen.settled == "demo-5 says that demo-1 has failed, yet it answers."


def test_while_only_some_know_of_a_failure_nobody_acts_on_it() -> None:
    spoken = all_said(SIX, failed=[M1])
    spoken[R2] = said(SIX, R2)
    seen = view(spoken)
    assert ids(seen.failing) == [M1]
    assert seen.settled == "demo-1 does not answer, yet demo-5 does not say that it has failed."


def test_a_master_without_a_replica_that_lives_awaits_no_election() -> None:
    seen = view(all_said(SIX, failed=[M1, R1]))
    assert ids(seen.failing) == [M1, R1]
    assert not seen.awaiting_election
    assert seen.failover_candidates(M1) == ()
    assert seen.holds_only_copy(M1)


def test_without_a_majority_of_masters_nobody_is_elected_and_nobody_speaks_for_the_cluster() -> None:
    seen = view(all_said(SIX, unreachable=[M1, M2]))
    assert not seen.can_elect
    assert seen.settled.startswith(
        "Only 1 of 3 masters answer, not demo-1 and demo-2: 2 must, to speak for the cluster."
    )
    assert seen.disagreements[0].kind == "minority"
    assert seen.disagreements[0].about == (M1, M2)


def test_half_of_the_masters_are_no_majority() -> None:
    four = cluster(4, 0)
    assert view(all_said(four, failed=[node_id(3)])).settled == ""
    assert view(all_said(four, failed=[node_id(2), node_id(3)])).disagreements[0].kind == "minority"


def test_masters_without_slots_have_no_vote() -> None:
    truth = {**SIX, NEW: Role(9)}
    seen = view(all_said(truth, failed=[M1, M2]))
    assert ids(seen.empty_primaries) == [NEW]
    assert not seen.can_elect
    assert seen.majority == 2


def test_one_who_answers_and_has_failed_for_the_others_has_no_vote_for_them() -> None:
    spoken = all_said(SIX, failed=[M2])
    spoken = {node: flagged(each, M1, "fail") if node != M1 else each for node, each in spoken.items()}
    seen = view(spoken)
    assert ids(seen.voters) == [M0]
    assert not seen.can_elect


def test_the_cluster_is_where_the_slots_are_not_where_most_nodes_are() -> None:
    empty = {node: Role() for node in (R0, R1, R2, NEW)}
    three = cluster(replicas=0)
    seen = view(all_said(three) | all_said(empty))
    assert seen.cluster == frozenset(three)
    assert ids(seen.outside) == [R0, R1, R2, NEW]
    assert seen.settled == ""


def test_a_partition_that_the_operator_sees_over() -> None:
    """Both sides answer it, and each has found the other to have failed, or suspects it."""
    one, other = [M0, R1, R2], [M1, M2, R0]
    spoken = {node: said(SIX, node, suspected=other) for node in one}
    spoken |= {node: said(failed_over(SIX, R0), node, failed=one) for node in other}
    seen = view(spoken)
    assert seen.contested == THIRDS[M0]
    assert seen.owned[R0] == THIRDS[M0]
    kinds = {each.kind for each in seen.disagreements}
    assert kinds == {"claims", "absence", "slots", "role", "link"}
    assert seen.settled.endswith(" more of the kind.")


def test_nodes_that_reach_the_operator_and_not_each_other() -> None:
    spoken = all_said(SIX)
    spoken[M0] = changed(spoken[M0], M2, linked=False)
    assert view(spoken).settled == "demo-0 has no connection to demo-2."


def test_a_node_that_a_node_does_not_know() -> None:
    spoken = all_said(SIX)
    spoken[M0], spoken[M1] = unaware(spoken[M0], R2), unaware(spoken[M1], R2)
    seen = view(spoken)
    assert seen.settled == "demo-0 and demo-1 do not know demo-5, or where it is."
    assert seen.missing([R1, R2]) == {R2: (M0, M1)}


def test_one_who_is_being_forgotten_holds_nobody_up() -> None:
    """Else a FORGET that stopped half-way could never be gone on with."""
    spoken = all_said(SIX, failed=[R2])
    spoken[M0] = unaware(spoken[M0], R2)
    seen = view(spoken)
    assert seen.settled == ""
    assert R2 in seen.cluster


def test_one_who_was_forgotten_and_lives_is_told_of() -> None:
    spoken = {node: unaware(spoken, R2) if node != R2 else spoken for node, spoken in all_said(SIX).items()}
    seen = view(spoken)
    assert seen.cluster == frozenset(SIX)
    assert "do not know demo-5" in seen.settled
    assert seen.without([R2]).settled == ""
    assert R2 not in seen.without([R2]).nodes


def test_new_nodes_are_outside_and_disturb_nobody() -> None:
    spoken = all_said(SIX) | {NEW: said({NEW: Role()}, NEW)}
    seen = view(spoken)
    assert ids(seen.outside) == [NEW]
    assert seen.settled == ""
    assert seen.cluster == frozenset(SIX)
    assert seen.missing([NEW]) == {NEW: tuple(sorted(SIX))}
    assert not seen.empty_primaries


def test_before_there_is_a_cluster_nothing_is_disputed() -> None:
    seen = view({node: said({node: Role()}, node) for node in SIX})
    assert seen.settled == ""
    assert len(seen.components) == 6
    assert seen.uncovered == Slots.all()


def test_a_master_that_has_forgotten_everybody_is_another_cluster() -> None:
    spoken = {node: unaware(each, M1) for node, each in all_said(SIX).items()}
    spoken[M1] = said({M1: SIX[M1]}, M1)
    seen = view(spoken)
    assert seen.settled == ("demo-1 owns slots 5461-10921 and knows nothing of demo-0, demo-2, demo-3 and 2 others.")
    assert seen.uncovered == THIRDS[M1], "what it says counts for nothing among the others"
    assert seen.outside == (seen.nodes[M1],)


def test_one_who_is_being_met_is_nobody_yet() -> None:
    """Its id is made up until it answers (cluster.c, clusterStartHandshake)."""
    made_up = Node("f" * 40, "10.0.0.6", 6379, frozenset({"handshake"}))
    spoken = all_said(SIX)
    spoken[M0] = replace(spoken[M0], nodes=(*spoken[M0].nodes, made_up))
    seen = view(spoken)
    assert made_up.id not in seen.nodes
    assert seen.being_met == {(M0, "10.0.0.6")}
    assert not seen.unknown_nodes(SIX)
    assert seen.settled == ""


def test_one_whose_address_another_took_is_lost_though_nobody_finds_it_failing() -> None:
    """A node that comes back empty has another id; the former is left without an address, and is asked by nobody."""
    truth = {**SIX, NEW: Role()}
    spoken = {
        node: changed(spoken, R2, address="", flags=frozenset({"slave", "noaddr"}), linked=False)
        for node, spoken in all_said(truth, unreachable=[R2]).items()
    }
    seen = view(spoken)
    assert not seen.failing
    assert seen.nodes[R2].lost
    assert seen.settled == ""
    assert seen.missing([R2]) == {R2: (M0, M1, M2, R0, R1, NEW)}
    assert not seen.misplaced({R2: address(R2)})


def test_one_who_answers_and_whose_address_is_not_known_is_to_be_met() -> None:
    spoken = all_said(SIX)
    spoken[M0] = changed(spoken[M0], R2, address="", flags=frozenset({"slave", "noaddr"}))
    seen = view(spoken)
    assert seen.settled == "demo-0 does not know demo-5, or where it is."
    assert seen.missing(SIX) == {R2: (M0,)}


def test_strangers_are_members_that_are_none_of_ours() -> None:
    truth = {**SIX, NEW: Role()}
    assert ids(view(all_said(truth, unreachable=[NEW])).unknown_nodes(SIX)) == [NEW]


def test_who_is_looked_for_where_it_no_longer_is() -> None:
    spoken = all_said(SIX)
    spoken[R2] = changed(spoken[R2], R2, address="10.0.7.7")
    spoken[M0] = changed(spoken[M0], R2, address="10.0.7.7")
    seen = view(spoken)
    assert seen.misplaced({R2: "10.0.7.7", M0: address(M0)}) == {R2: (M1, M2, R0, R1)}
    assert seen.settled == ("demo-1, demo-2, demo-3 and demo-4 look for demo-5 at 10.0.0.5; it is at 10.0.7.7.")


def test_who_does_not_know_its_own_address_is_looked_for_nowhere_else() -> None:
    """A node learns its address when it is met (cluster.c, clusterProcessPacket)."""
    spoken = all_said(SIX)
    spoken[M0] = changed(spoken[M0], M0, address="")
    spoken[M1] = changed(spoken[M1], M2, address="")
    assert view(spoken).settled == ""


def test_who_takes_a_node_for_what_it_is_not() -> None:
    spoken = all_said(SIX)
    spoken[M0] = changed(spoken[M0], R2, primary=M1)
    assert view(spoken).settled == "demo-0 takes demo-5 for a replica of demo-1; it is a replica of demo-2."
    spoken[M0] = changed(spoken[M0], R2, primary="")
    assert view(spoken).settled == "demo-0 takes demo-5 for a master; it is a replica of demo-2."


def test_of_one_who_does_not_answer_what_most_say_counts_and_nobody_is_waited_for_to_agree() -> None:
    """Nodes hear of a role from its bearer alone: what they think of one who is gone they think for ever."""
    spoken = all_said(SIX, failed=[R0])
    spoken[M1] = changed(spoken[M1], R0, primary=M1, epoch=2)
    seen = view(spoken)
    assert ids(seen.replicas_of(M0)) == [R0]
    assert seen.settled == ""


def test_one_who_knows_no_owner_of_a_slot() -> None:
    spoken = all_said(SIX)
    spoken[R0] = changed(spoken[R0], M0, slots=THIRDS[M0] - Slots.of(7))
    assert view(spoken).settled == "demo-3 knows no owner of slot 7; it is demo-0's."
