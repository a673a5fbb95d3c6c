"""Growing, shrinking, giving slots by hand: the fewest moves, and nobody let go who is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.unit.redis.world import (
    ABSENT,
    NEW,
    At,
    acts,
    formed,
    node_id,
    of,
    places_asked_for,
    plan,
    planned,
    replica,
    thirds,
    world,
)

M0, M1, M2, R0, R1, R2 = formed()
JOINED = At(epoch=0)
"""A new node that has joined."""

GONE = replace(ABSENT, recorded=0, disk=None)
"""A place that was let go, with its volume, whose node everybody has forgotten."""


def moves(made: Plan) -> dict[tuple[str, str], int]:
    """How many slots go from whom to whom, by the pods' numbers."""
    found = {}
    for call in of(made.actions, "MoveSlots"):
        for move in call.moves:
            found[move.source[:2], move.target[:2]] = len(move.slots)
    return found


def test_new_pods_are_asked_for_at_once() -> None:
    assert places_asked_for(planned(*formed(), replicas=9)) == 9


def test_a_new_master_has_its_replica_before_it_gets_slots() -> None:
    made = planned(*formed(), JOINED, JOINED)
    assert made.verdict.message == "demo-7 replicates demo-6."
    assert acts(made.actions) == [f"let demo-7 replicate {node_id(6)}"]


def test_a_new_master_gets_an_equal_part_from_each() -> None:
    made = planned(*formed(), JOINED, replica(6))
    assert moves(made) == {("00", "06"): 1365, ("01", "06"): 1366, ("02", "06"): 1365}
    assert made.status["migration"] == {
        "from": "demo-0,demo-1,demo-2",
        "to": "demo-6",
        "slots": 4096,
        "moved": 0,
        "since": "2026-01-01T12:00:00Z",
        "keys": 0,
    }
    assert made.status["phase"] == "Scaling"


def test_what_has_moved_is_counted_and_the_rest_goes_on() -> None:
    first = planned(*formed(), JOINED, replica(6))
    half = [replace(M0, slots="1000-5460"), M1, M2, R0, R1, R2, At("0-999", keys=3000), replica(6)]
    told = first.status["migration"] | {"since": "2026-01-01T11:59:30Z"}
    made = planned(*half, status={"migration": told})
    assert moves(made) == {("00", "06"): 365, ("01", "06"): 1366, ("02", "06"): 1365}
    assert made.status["migration"] == told | {"moved": 1000, "keysPerSecond": 100}
    again = planned(*half[:6], replace(half[6], keys=9999), half[7], status={"migration": made.status["migration"]})
    assert again.status["migration"] == made.status["migration"], "it tells of moves, and not of what clients write"


def test_a_new_node_beyond_what_makes_a_master_is_a_replica() -> None:
    made = planned(*formed(), JOINED)
    assert acts(made.actions) == [f"let demo-6 replicate {node_id(0)}"]
    assert planned(*formed(), replica(0)).verdict.done


def test_a_replica_follows_a_new_master_only_while_all_others_are_in_step() -> None:
    """From seven to eight: the fourth master comes with nobody of its own."""
    seven = [*formed(), replica(0), JOINED]
    assert acts(planned(*seven).actions) == [f"let demo-6 replicate {node_id(7)}"]
    assert acts(planned(*seven[:5], replace(R2, synced=False), *seven[6:]).actions) == []


def test_a_replica_of_who_owns_no_slots_does_not_wait_until_it_is_in_step_with_that_one() -> None:
    """Its master may have given them away and be gone: it would wait for ever, and all others for it."""
    gone = replica(0, up=False, failed=True, disk="disk-6b", pod=False)
    made = planned(*formed(), gone, replica(6, synced=False))
    assert [call.id for call in of(made.actions, "Replicate")] == [node_id(7)]


def test_no_replica_is_given_another_master_while_its_own_does_not_answer() -> None:
    away = [M0, M1, M2, R0, R1, R2, replica(0), JOINED]
    made = planned(replace(M0, up=False, failed=True), *away[1:])
    assert of(made.actions, "Replicate") == []


def test_a_restart_gives_nobody_another_master() -> None:
    seven = [*formed(), replica(0)]
    assert of(planned(*seven[:4], replace(R1, up=False, failed=True), *seven[5:]).actions, "Replicate") == []


def test_a_master_and_its_replica_are_put_on_different_hosts_where_there_are_any() -> None:
    together = [replace(at, host=host) for at, host in zip(formed(), "abcabc", strict=True)]
    made = planned(*together)
    assert len(of(made.actions, "Replicate")) == 1, "one at a time"
    cramped = planned(*(replace(at, host="a") for at in formed()))
    assert cramped.verdict.done
    assert cramped.verdict.message.endswith(
        "on the same host as their masters, for want of another: demo-3, demo-4, demo-5."
    )


def test_a_master_that_goes_gives_all_it_has_and_stays_until_it_has_none() -> None:
    eight = [*(At(slots, keys=10) for slots in thirds(4)[:3]), replica(0), replica(1), replica(2)]
    last = At(thirds(4)[3], keys=10)
    made = planned(*eight, last, replica(6), replicas=6)
    assert sum(moves(made).values()) == 4096
    assert {source for source, _ in moves(made)} == {"06"}
    assert places_asked_for(made) == 8
    given = ["0-4095 12288-13652", "4096-8191 13653-15018", "8192-12287 15019-16382"]
    almost = [replace(at, slots=slots) for at, slots in zip(eight, given, strict=False)]
    made = planned(*almost, *eight[3:], At("16383"), replica(6), replicas=6)
    assert (moves(made), places_asked_for(made)) == ({("06", "02"): 1}, 8)


def test_a_scale_in_that_is_taken_back_midway_moves_back_what_had_moved() -> None:
    eight = [*(At(slots, keys=10) for slots in thirds(4)[:3]), replica(0), replica(1), replica(2)]
    made = planned(replace(eight[0], slots="0-4095 12288-13287"), *eight[1:], At("13288-16383"), replica(6))
    assert moves(made) == {("00", "06"): 1000}


def empty(**more: Any) -> list[At]:
    """Six nodes as wanted, and two whose slots have gone."""
    return [*formed(), replace(JOINED, **more), replica(6)]


def test_pods_end_when_nothing_that_counts_is_there_and_members_agree() -> None:
    assert places_asked_for(planned(*empty(), replicas=6)) == 6


@pytest.mark.parametrize(
    "at",
    [
        empty(opens={77: ("<", 0)}),
        [*empty()[:5], replace(R2, synced=False), *empty()[6:]],
        [*empty()[:5], replace(R2, up=False), *empty()[6:]],
        [*empty()[:5], replace(R2, up=False, failed=True), *empty()[6:]],
        [M0, M1, replace(M2, up=False, failed=True), *empty()[3:]],
        [M0, M1, M2, R0, R1, replica(6), *empty()[6:]],
    ],
    ids=[
        "an open slot",
        "a lagging replica",
        "disagreement",
        "a replica that is away",
        "a silent master",
        "a replica that stays",
    ],
)
def test_else_they_stay(at: list[At]) -> None:
    assert places_asked_for(planned(*at, replicas=6)) == 8


@pytest.mark.parametrize(("since", "asked_for"), [("11:59:56Z", 7), ("11:59:55Z", 6)])
def test_a_node_that_gave_away_its_slots_stays_until_clients_have_heard_of_it(since: str, asked_for: int) -> None:
    assert places_asked_for(planned(*empty(since=f"2026-01-01T{since}"), replicas=6)) == asked_for


def test_so_does_a_former_master() -> None:
    handed_over = planned(*formed(), replica(0, since="2026-01-01T11:59:56Z"), replicas=6)
    assert (places_asked_for(handed_over), places_asked_for(planned(*formed(), replica(0), replicas=6))) == (7, 6)


def test_a_node_that_holds_keys_stays_though_it_owns_no_slot() -> None:
    assert places_asked_for(planned(*empty(keys=3), replicas=6)) == 7


def test_new_pods_that_never_came_can_be_taken_back() -> None:
    pending = At(up=False, recorded=None, member=False, trouble="Unschedulable: no node")
    assert places_asked_for(planned(*formed(), pending, pending, replicas=6)) == 6


def test_an_empty_master_that_is_away_for_good_does_not_hold_the_others() -> None:
    assert places_asked_for(planned(*formed(), replace(JOINED, up=False, failed=True), replicas=6)) == 6


def test_a_replica_that_goes_is_kept_while_it_may_have_the_only_copy() -> None:
    at = [M0, M1, replace(M2, up=False, failed=True), R0, R1, replace(R2, up=False, failed=True), replica(2, keys=10)]
    assert places_asked_for(planned(*at, replicas=6)) == 7


def test_who_goes_and_leads_hands_over_to_a_replica_that_stays_and_no_slot_moves() -> None:
    """From seven to six, after the seventh had taken over."""
    at = [M0, M1, replica(6), R0, R1, replica(6), At(M2.slots, keys=10)]
    made = planned(*at, replicas=6)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(2), "")
    assert (moves(made), places_asked_for(made)) == ({}, 7)
    lagging = planned(*at[:2], replica(6, synced=False), *at[3:], replicas=6)
    assert acts(lagging.actions) == [], "not before it has everything"


def test_the_volumes_of_places_that_were_let_go_are_dropped_once_nobody_knows_their_nodes() -> None:
    made = planned(*formed(), GONE, replace(GONE, member=True, of=6, failed=True), replicas=6)
    assert acts(made.actions) == [f"let 6 nodes forget {node_id(7)}"]
    made = planned(*formed(), GONE, GONE, replicas=6)
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-6"]
    assert planned(*formed(), *[replace(ABSENT)] * 2, replicas=6).verdict.done


def test_volumes_of_places_that_are_wanted_again_stay() -> None:
    assert acts(planned(*formed(), GONE, GONE).actions) == []


def test_with_more_masters_than_empty_nodes_a_replica_begins_anew() -> None:
    """There is no command that empties a node and is safe."""
    at = [*(At(slots, keys=10) for slots in thirds(3)), *(replica(number % 3, keys=10) for number in range(5))]
    made = planned(*at)
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-7", "delete Pod demo-7"]
    assert acts(planned(*at[:6], replace(at[6], synced=False), at[7]).actions) == [], "only while all are in step"


def test_a_failed_master_is_no_reason_for_another_number_of_masters() -> None:
    """New masters come by the spec alone."""
    spare = [M0, M1, replace(M2, up=False, failed=True), R0, R1, replace(R2, up=False, failed=True), JOINED]
    made = planned(*spare)
    assert of(made.actions, "MoveSlots") == of(made.actions, "AddSlots") == []


# By hand.


def by_hand(*strategies: tuple[int, str]) -> dict[str, Obj]:
    entries = [{"slots": slots, "fromReplicas": sources} for slots, sources in strategies]
    return {"updateStrategy": {"type": "AssignReceive", "assignStrategies": entries}}


GROWN = [*formed(), JOINED, replica(6)]


def test_by_hand_what_a_new_master_gets_is_written_down_first() -> None:
    spec = by_hand((2000, f"{node_id(0)},{node_id(1)}"))
    made = planned(*GROWN, **spec)
    assert (moves(made), made.requeue) == ({}, 0)
    assert [(move["from"], move["to"]) for move in made.status["assigned"]] == [
        (node_id(0), node_id(6)),
        (node_id(1), node_id(6)),
    ]
    then = planned(*GROWN, status={"assigned": made.status["assigned"]}, **spec)
    assert moves(then) == {("00", "06"): 1000, ("01", "06"): 1000}


def test_by_hand_nothing_is_promised_before_all_nodes_are_there() -> None:
    """One that comes later may be the better master: on a host that has none."""
    late = At(up=False, recorded=None, member=False)
    made = planned(*formed(), JOINED, late, **by_hand((2000, node_id(0))))
    assert (made.status["assigned"], moves(made)) == ([], {})


@pytest.mark.parametrize("waiting", [replace(JOINED, up=False), replace(JOINED, host="host-0")])
def test_by_hand_who_was_promised_slots_is_a_master_even_if_another_would_be_chosen_now(waiting: At) -> None:
    spec = by_hand((2000, f"{node_id(0)},{node_id(1)}"))
    told = planned(*GROWN, **spec).status["assigned"]
    made = planned(*formed(), waiting, replace(JOINED, host="host-of-its-own"), status={"assigned": told}, **spec)
    assert made.status["assigned"] == told


def test_by_hand_what_is_done_is_not_done_again() -> None:
    spec = by_hand((2000, f"{node_id(0)},{node_id(1)}"))
    told = planned(*GROWN, **spec).status["assigned"]
    first, second = Slots.parse(told[0]["slots"]), Slots.parse(told[1]["slots"])
    left = Slots.parse(M0.slots) - first
    half = [replace(M0, slots=str(left)), *GROWN[1:6], At(str(first)), replica(6)]
    assert moves(planned(*half, status={"assigned": told}, **spec)) == {("01", "06"): 1000}
    done = [
        half[0],
        replace(M1, slots=str(Slots.parse(M1.slots) - second)),
        *half[2:6],
        At(str(first | second)),
        half[7],
    ]
    made = planned(*done, status={"assigned": told}, **spec)
    assert (made.verdict.done, made.status["assigned"]) == (True, [])
    assert planned(*done, **spec).verdict.done, "and it rests, unequal as it is"


def test_by_hand_after_a_failover_the_one_who_took_over_gives_and_takes() -> None:
    spec = by_hand((2000, node_id(0)))
    told = planned(*GROWN, **spec).status["assigned"]
    turned = [replica(3), M1, M2, At(M0.slots), *GROWN[4:6], replica(7), At("")]
    made = planned(*turned, status={"assigned": told}, **spec)
    assert moves(made) == {("03", "07"): 2000}


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ((6000, node_id(0)), "owns 5461"),
        ((100, "a" * 40), f"names {'a' * 40}, which owns no slots"),
        ((100, node_id(3)), "which owns no slots"),
        ((100, "nodeId1"), "names nodeId1"),
    ],
)
def test_by_hand_what_cannot_be_done_to_the_letter_is_refused(strategy: tuple[int, str], told: str) -> None:
    made = planned(*GROWN, **by_hand(strategy))
    assert (made.verdict.reason, made.verdict.progress) == ("AssignRefused", Progress.BLOCKED)
    assert told in made.verdict.message
    assert made.verdict.message.endswith("Nothing was changed.")
    assert acts(made.actions) == []


def test_by_hand_without_a_new_master_the_strategies_say_nothing() -> None:
    """The seed's manifest names nodes that never were."""
    assert planned(*formed(), **by_hand((2000, "nodeId1"), (1000, "nodeId3,nodeId4"))).verdict.done


@pytest.mark.parametrize(
    ("strategies", "told"),
    [([], "has 0 entries, and 1 new master"), ([(10, node_id(0))] * 2, "has 2 entries, and 1 new master")],
)
def test_by_hand_there_is_one_entry_for_each_new_master(strategies: list[tuple[int, str]], told: str) -> None:
    made = planned(*GROWN, **by_hand(*strategies))
    assert (made.verdict.reason, acts(made.actions)) == ("AssignRefused", [])
    assert told in made.verdict.message


def test_by_hand_several_new_masters_take_in_turn_and_each_once() -> None:
    ten = [*formed(), JOINED, JOINED, replica(6), replica(7)]
    spec = by_hand((100, node_id(0)), (200, node_id(1)))
    told = planned(*ten, **spec).status["assigned"]
    made = planned(*ten, status={"assigned": told}, **spec)
    assert moves(made) == {("00", "06"): 100, ("01", "07"): 200}
    first = Slots.parse(told[0]["slots"])
    half = [replace(M0, slots=str(Slots.parse(M0.slots) - first)), *ten[1:6], At(str(first)), *ten[7:]]
    made = planned(*half, status={"assigned": told}, **spec)
    assert moves(made) == {("01", "07"): 200}
    assert moves(planned(*half, status={"assigned": made.status["assigned"]}, **spec)) == {("01", "07"): 200}


def test_slots_move_to_a_new_master_once_all_nodes_are_there() -> None:
    made = planned(*formed(), JOINED, At(up=False, recorded=None, member=False))
    assert moves(made) == {}
    assert made.verdict.message == "Slots move to demo-6 once all nodes are there. demo-7 starts."


def test_slots_move_to_a_new_master_once_it_takes_commands() -> None:
    resource, found = world(*formed(), JOINED, replica(6))
    began = found.instances[6]
    assert began.report
    began = replace(began, report=replace(began.report, state_ok=False))
    made = plan(resource, replace(found, instances=(*found.instances[:6], began, found.instances[7])))
    assert moves(made) == {}
    assert made.verdict.message == "Slots move once demo-6 takes commands: it says cluster_state:fail."


def test_by_hand_a_master_that_goes_gives_to_the_others_and_nobody_else_moves() -> None:
    at = [
        At("0-99"),
        At("100-8000"),
        At("8001-12000"),
        replica(0),
        replica(1),
        replica(2),
        At("12001-16383"),
        replica(6),
    ]
    made = planned(*at, replicas=6, **by_hand())
    assert {source for source, _ in moves(made)} == {"06"}
    assert sum(moves(made).values()) == 4383


# What stands in the way.


def test_slots_that_were_left_on_their_way_arrive_first() -> None:
    at = [replace(M0, opens={7: (">", 6)}), *GROWN[1:6], At("", opens={7: ("<", 0)}), replica(6)]
    made = planned(*at)
    assert (made.verdict.reason, moves(made)) == ("MendingSlots", {("00", "06"): 1})


def test_after_a_failover_they_arrive_at_who_has_their_keys_in_part() -> None:
    """The target's replica took over: it has what had gone, and knows nothing of the way."""
    at = [replace(M0, opens={7: (">", 6)}), *GROWN[1:6], replica(7), At("")]
    assert moves(planned(*at)) == {("00", "07"): 1}


def test_from_who_took_over_from_their_owner() -> None:
    at = [replica(3), M1, M2, At(M0.slots), *GROWN[4:6], At("", opens={7: ("<", 0)}), replica(6)]
    assert moves(planned(*at)) == {("03", "06"): 1}


def test_a_slot_that_has_arrived_is_closed_and_never_given_by_a_word() -> None:
    at = [replace(M0, slots="0-6 8-5460", opens={7: (">", 6)}), *GROWN[1:6], At("7"), replica(6)]
    made = planned(*at)
    (call,) = of(made.actions, "CloseSlots")
    assert (call.source, call.target, str(call.slots)) == (node_id(0), node_id(6), "7")


def test_a_slot_whose_other_end_is_away_is_waited_for() -> None:
    at = [replace(M0, opens={7: (">", 6)}), *GROWN[1:6], replace(JOINED, up=False, failed=True), replica(0)]
    made = planned(*at)
    assert (made.verdict.reason, acts(made.actions)) == ("SlotsOpen", [])


def test_nothing_moves_while_a_master_does_not_answer() -> None:
    at = [M0, M1, replace(M2, up=False, failed=True), *GROWN[3:5], replace(R2, up=False, failed=True), *GROWN[6:]]
    assert moves(planned(*at)) == {}


def test_nothing_moves_to_a_node_that_has_no_room() -> None:
    gib = 2**30
    full = [replace(at, memory=gib) for at in formed()[:3]]
    at = [*full, *formed()[3:], replace(JOINED, max_memory=gib // 2), replica(6)]
    made = planned(*at)
    assert (made.verdict.reason, moves(made)) == ("TargetFull", {})
    assert "demo-6 would have 805,306,350 of 536,870,912 bytes" in made.verdict.message
    assert moves(planned(*full, *formed()[3:], replace(JOINED, max_memory=gib), replica(6)))


def test_a_new_node_is_not_used_before_it_is_written_down() -> None:
    made = planned(*formed(), NEW)
    assert acts(made.actions) == []
