"""Scaling out and in, and manual slot assignment: the fewest moves, and no removal of a node that is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.harness import cost
from tests.redis.unit import world as redis_world
from tests.redis.unit.world import (
    ABSENT,
    NEW,
    At,
    acts,
    formed,
    node_id,
    of,
    plan,
    planned,
    replica,
    requested_replicas,
    seen,
    thirds,
    world,
)

P0, P1, P2, R0, R1, R2 = formed()
JOINED = At(epoch=0)
"""A new node that has joined."""

FORGOTTEN = replace(ABSENT, recorded=0, disk=None)
"""A removed pod whose volume still exists and whose node every member has forgotten."""


def moves(made: Plan) -> dict[tuple[str, str], int]:
    """Number of slots of each move, by the first digits of the source and target ids."""
    found = {}
    for call in of(made.actions, "MoveSlots"):
        for move in call.moves:
            found[move.source[:2], move.target[:2]] = len(move.slots)
    return found


def recorded(source: int, target: int, slots: str, **more: Any) -> Obj:
    """Return a status that records a move."""
    return {"moves": [{"from": node_id(source), "to": node_id(target), "slots": slots, **more}]}


def test_scale_out_creates_all_new_pods_at_once() -> None:
    assert requested_replicas(planned(*formed(), replicas=9)) == 9


def test_new_primary_has_a_replica_before_slots_move_to_it() -> None:
    made = planned(*formed(), JOINED, JOINED)
    assert made.verdict.message == "Configuring demo-7 to replicate demo-6."
    assert acts(made.actions) == [f"let demo-7 replicate {node_id(6)}"]


def test_planned_moves_are_not_recorded_before_their_slots_are_opened() -> None:
    """Of a slot that was recorded, a lone importing mark counts as the operator's own after a failover."""
    made = planned(*formed(), JOINED, replica(6))
    assert moves(made)
    assert made.status["moves"] == []


def test_new_primary_receives_an_equal_share_from_each_primary() -> None:
    made = planned(*formed(), JOINED, replica(6))
    assert moves(made) == {("00", "06"): 1365, ("01", "06"): 1366, ("02", "06"): 1365}
    assert made.status["migration"] == {
        "from": "demo-0,demo-1,demo-2",
        "to": "demo-6",
        "slots": 4096,
        "moved": 0,
        "since": "2026-01-01T12:00:00Z",
        "keys": 0,
        "primaries": 3,
    }
    assert made.status["phase"] == "Scaling"


def test_progress_counts_moved_slots_and_the_rest_continues() -> None:
    first = planned(*formed(), JOINED, replica(6))
    half = [replace(P0, slots="1000-5460"), P1, P2, R0, R1, R2, At("0-999", keys=3000), replica(6)]
    migration = first.status["migration"] | {"since": "2026-01-01T11:59:30Z"}
    made = planned(*half, status={"migration": migration})
    assert moves(made) == {("00", "06"): 365, ("01", "06"): 1366, ("02", "06"): 1365}
    assert made.status["migration"] == migration | {"moved": 1000, "keysPerSecond": 100}
    again = planned(*half[:6], replace(half[6], keys=9999), half[7], status={"migration": made.status["migration"]})
    assert again.status["migration"] == made.status["migration"], "moved slots count, not the keys that clients write"


def test_surplus_new_node_becomes_a_replica() -> None:
    made = planned(*formed(), JOINED)
    assert acts(made.actions) == [f"let demo-6 replicate {node_id(0)}"]
    assert planned(*formed(), replica(0)).verdict.done


def test_replica_changes_its_primary_only_while_all_others_are_in_sync() -> None:
    """From seven to eight nodes: the fourth primary has no replica of its own."""
    seven = [*formed(), replica(0), JOINED]
    assert acts(planned(*seven).actions) == [f"let demo-6 replicate {node_id(7)}"]
    assert acts(planned(*seven[:5], replace(R2, synced=False), *seven[6:]).actions) == []


def test_replica_of_a_primary_without_slots_moves_without_being_in_sync() -> None:
    """The primary may be drained and deleted: the replica would never be in sync, and would block all others."""
    lost = replica(0, up=False, failed=True, disk="disk-6b", pod=False)
    made = planned(*formed(), lost, replica(6, synced=False))
    assert [call.id for call in of(made.actions, "Replicate")] == [node_id(7)]


def test_replica_of_an_unreachable_primary_is_not_moved() -> None:
    away = [P0, P1, P2, R0, R1, R2, replica(0), JOINED]
    made = planned(replace(P0, up=False, failed=True), *away[1:])
    assert of(made.actions, "Replicate") == []


def test_replicas_keep_their_primaries_during_a_restart() -> None:
    seven = [*formed(), replica(0)]
    assert of(planned(*seven[:4], replace(R1, up=False, failed=True), *seven[5:]).actions, "Replicate") == []


def test_primary_and_replica_are_spread_over_hosts_if_possible() -> None:
    together = [replace(at, host=host) for at, host in zip(formed(), "abcabc", strict=True)]
    made = planned(*together)
    assert len(of(made.actions, "Replicate")) == 1, "one at a time"


def test_removed_primary_is_drained_before_its_pod_is_deleted() -> None:
    eight = [*(At(slots, keys=10) for slots in thirds(4)[:3]), replica(0), replica(1), replica(2)]
    last = At(thirds(4)[3], keys=10)
    made = planned(*eight, last, replica(6), replicas=6)
    assert sum(moves(made).values()) == 4096
    assert {source for source, _ in moves(made)} == {"06"}
    assert requested_replicas(made) == 8
    given = ["0-4095 12288-13652", "4096-8191 13653-15018", "8192-12287 15019-16382"]
    almost = [replace(at, slots=slots) for at, slots in zip(eight, given, strict=False)]
    made = planned(*almost, *eight[3:], At("16383"), replica(6), replicas=6)
    assert (moves(made), requested_replicas(made)) == ({("06", "02"): 1}, 8)


def test_reverted_scale_in_moves_the_slots_back() -> None:
    eight = [*(At(slots, keys=10) for slots in thirds(4)[:3]), replica(0), replica(1), replica(2)]
    made = planned(replace(eight[0], slots="0-4095 12288-13287"), *eight[1:], At("13288-16383"), replica(6))
    assert moves(made) == {("00", "06"): 1000}


def empty(**more: Any) -> list[At]:
    """Six nodes in their desired state, and a drained primary with its replica."""
    return [*formed(), replace(JOINED, **more), replica(6)]


def test_drained_pods_are_removed_once_all_members_agree() -> None:
    assert requested_replicas(planned(*empty(), replicas=6)) == 6


@pytest.mark.parametrize(
    "at",
    [
        empty(open_slots={77: ("<", 0)}),
        [*empty()[:5], replace(R2, synced=False), *empty()[6:]],
        [*empty()[:5], replace(R2, up=False), *empty()[6:]],
        [*empty()[:5], replace(R2, up=False, failed=True), *empty()[6:]],
        [P0, P1, replace(P2, up=False, failed=True), *empty()[3:]],
        [P0, P1, P2, R0, R1, replica(6), *empty()[6:]],
    ],
    ids=[
        "open slot",
        "lagging replica",
        "disagreement",
        "failed replica",
        "failed primary",
        "replica of a remaining pod",
    ],
)
def test_drained_pods_stay_until_their_removal_is_safe(at: list[At]) -> None:
    assert requested_replicas(planned(*at, replicas=6)) == 8


@pytest.mark.parametrize(("since", "expected"), [("11:59:56Z", 7), ("11:59:55Z", 6)])
def test_drained_node_stays_until_clients_know_the_new_owners(since: str, expected: int) -> None:
    assert requested_replicas(planned(*empty(since=f"2026-01-01T{since}"), replicas=6)) == expected


def test_former_primary_stays_until_clients_know_the_new_primary() -> None:
    handed_over = planned(*formed(), replica(0, since="2026-01-01T11:59:56Z"), replicas=6)
    assert (requested_replicas(handed_over), requested_replicas(planned(*formed(), replica(0), replicas=6))) == (7, 6)


def test_node_with_keys_stays_though_it_owns_no_slot() -> None:
    assert requested_replicas(planned(*empty(keys=3), replicas=6)) == 7


def test_new_pods_that_never_started_can_be_removed() -> None:
    pending = At(up=False, recorded=None, member=False, problem="Unschedulable: no node")
    assert requested_replicas(planned(*formed(), pending, pending, replicas=6)) == 6


def test_lost_empty_primary_does_not_block_the_removal_of_others() -> None:
    assert requested_replicas(planned(*formed(), replace(JOINED, up=False, failed=True), replicas=6)) == 6


def test_removed_replica_stays_while_it_may_have_the_only_copy() -> None:
    at = [P0, P1, replace(P2, up=False, failed=True), R0, R1, replace(R2, up=False, failed=True), replica(2, keys=10)]
    assert requested_replicas(planned(*at, replicas=6)) == 7


def test_removed_primary_fails_over_to_a_replica_that_stays() -> None:
    """From seven to six nodes, after a failover to the seventh."""
    at = [P0, P1, replica(6), R0, R1, replica(6), At(P2.slots, keys=10)]
    made = planned(*at, replicas=6)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(2), "")
    assert (moves(made), requested_replicas(made)) == ({}, 7)
    lagging = planned(*at[:2], replica(6, synced=False), *at[3:], replicas=6)
    assert acts(lagging.actions) == [], "the replica is not in sync yet"


def test_replica_waits_until_its_planned_primary_has_taken_over() -> None:
    """Redis replicates no replica: it would refuse the command for ever, and the failover would never follow."""
    at = [P0, P1, replica(6), R0, replica(0), replica(1), At(P2.slots, keys=10)]
    made = planned(*at, replicas=6)
    assert of(made.actions, "Replicate") == []
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(2)]
    made = planned(*at[:2], P2, *at[3:6], replica(2), replicas=6)
    assert [(call.id, call.primary) for call in of(made.actions, "Replicate")] == [(node_id(4), node_id(2))]


def test_volumes_of_removed_pods_are_deleted_once_their_nodes_are_forgotten() -> None:
    made = planned(*formed(), FORGOTTEN, replace(FORGOTTEN, member=True, of=6, failed=True), replicas=6)
    assert acts(made.actions) == [f"let 6 nodes forget {node_id(7)}"]
    made = planned(*formed(), FORGOTTEN, FORGOTTEN, replicas=6)
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-6"]
    assert planned(*formed(), *[replace(ABSENT)] * 2, replicas=6).verdict.done


def test_volumes_of_pods_that_the_spec_requests_again_stay() -> None:
    assert acts(planned(*formed(), FORGOTTEN, FORGOTTEN).actions) == []


def test_replica_is_recreated_empty_if_a_primary_is_missing() -> None:
    """No command of Redis empties a node safely."""
    at = [*(At(slots, keys=10) for slots in thirds(3)), *(replica(number % 3, keys=10) for number in range(5))]
    made = planned(*at)
    assert acts(made.actions) == ["evict Pod demo-7", "delete PersistentVolumeClaim data-demo-7"]
    assert acts(planned(*at[:6], replace(at[6], synced=False), at[7]).actions) == [], (
        "only while all replicas are in sync"
    )


TRIMMING = At(epoch=7, keys=10, trimming=10)
"""A primary that gave all slots away at once (Redis 8.4 and later), and still deletes their keys."""


def test_no_replica_is_recreated_while_a_node_is_only_emptying_itself() -> None:
    """The node can become a primary as soon as its server has deleted the moved keys, with no loss of a copy."""
    at = [*(At(slots, keys=10) for slots in thirds(3)), *(replica(number % 3, keys=10) for number in range(5))]
    made = planned(*at, TRIMMING, replicas=9, replicasPerMaster=1)
    assert acts(made.actions) == []
    assert "demo-8 still deletes 10 keys of slots that moved away" in made.verdict.message
    emptied = planned(*at, replace(TRIMMING, keys=0, trimming=0), replicas=9)
    assert "delete PersistentVolumeClaim data-demo-7" not in acts(emptied.actions)


def test_no_claim_is_advised_to_be_deleted_while_the_server_deletes_moved_keys() -> None:
    made = planned(*formed(), TRIMMING)
    assert (made.verdict.reason, acts(made.actions)) == ("Pairing", [])
    assert made.verdict.message == (
        "Waiting before configuring demo-6 to replicate demo-0: demo-6 still deletes 10 keys of slots that moved away."
    )
    assert planned(*formed(), replace(TRIMMING, trimming=9)).verdict.reason == "Pairing", "until all are known"
    assert planned(*formed(), replace(TRIMMING, trimming=0)).verdict.reason == "NodeNotEmpty"


def test_removed_primary_stays_until_its_server_has_deleted_the_moved_keys() -> None:
    made = planned(*formed(), TRIMMING, replica(6), replicas=6)
    assert requested_replicas(made) == 7
    assert "demo-6 still deletes 10 keys of slots that moved away" in made.verdict.message
    assert "delete them" not in made.verdict.message


def test_failed_primary_does_not_change_the_number_of_primaries() -> None:
    """Only the spec adds primaries."""
    spare = [P0, P1, replace(P2, up=False, failed=True), R0, R1, replace(R2, up=False, failed=True), JOINED]
    made = planned(*spare)
    assert of(made.actions, "MoveSlots") == of(made.actions, "AddSlots") == []


# Manual assignment.


def manually(*strategies: tuple[int, str]) -> dict[str, Obj]:
    entries = [{"slots": slots, "fromReplicas": sources} for slots, sources in strategies]
    return {"updateStrategy": {"type": "AssignReceive", "assignStrategies": entries}}


GROWN = [*formed(), JOINED, replica(6)]


def test_manual_assignment_is_recorded_before_slots_move() -> None:
    spec = manually((2000, f"{node_id(0)},{node_id(1)}"))
    made = planned(*GROWN, **spec)
    assert (moves(made), made.requeue) == ({}, 0)
    assert [(move["from"], move["to"]) for move in made.status["assigned"]] == [
        (node_id(0), node_id(6)),
        (node_id(1), node_id(6)),
    ]
    then = planned(*GROWN, status={"assigned": made.status["assigned"]}, **spec)
    assert moves(then) == {("00", "06"): 1000, ("01", "06"): 1000}


@pytest.mark.parametrize(("given", "keys"), [({}, 100), ({"pipeline": "7"}, 7)])
def test_pipeline_is_the_number_of_keys_in_one_command(given: Obj, keys: int) -> None:
    spec = manually((2000, node_id(0)))
    spec["updateStrategy"] |= given
    assigned = planned(*GROWN, **spec).status["assigned"]
    then = planned(*GROWN, status={"assigned": assigned}, **spec)
    assert [call.keys for call in of(then.actions, "MoveSlots")] == [keys]


def test_manual_assignment_waits_for_all_nodes() -> None:
    """A node that starts later may be a better primary, on a host without one."""
    late = At(up=False, recorded=None, member=False)
    made = planned(*formed(), JOINED, late, **manually((2000, node_id(0))))
    assert (made.status["assigned"], moves(made)) == ([], {})


@pytest.mark.parametrize("waiting", [replace(JOINED, up=False), replace(JOINED, host="host-0")])
def test_node_with_pending_assignments_stays_a_primary(waiting: At) -> None:
    spec = manually((2000, f"{node_id(0)},{node_id(1)}"))
    assigned = planned(*GROWN, **spec).status["assigned"]
    made = planned(*formed(), waiting, replace(JOINED, host="host-of-its-own"), status={"assigned": assigned}, **spec)
    assert made.status["assigned"] == assigned


def test_completed_manual_assignment_is_not_repeated() -> None:
    spec = manually((2000, f"{node_id(0)},{node_id(1)}"))
    assigned = planned(*GROWN, **spec).status["assigned"]
    first, second = Slots.parse(assigned[0]["slots"]), Slots.parse(assigned[1]["slots"])
    left = Slots.parse(P0.slots) - first
    half = [replace(P0, slots=str(left)), *GROWN[1:6], At(str(first)), replica(6)]
    assert moves(planned(*half, status={"assigned": assigned}, **spec)) == {("01", "06"): 1000}
    done = [
        half[0],
        replace(P1, slots=str(Slots.parse(P1.slots) - second)),
        *half[2:6],
        At(str(first | second)),
        half[7],
    ]
    made = planned(*done, status={"assigned": assigned}, **spec)
    assert (made.verdict.done, made.status["assigned"]) == (True, [])
    assert planned(*done, **spec).verdict.done, "the uneven distribution stays"


def test_manual_assignment_continues_with_promoted_replicas() -> None:
    spec = manually((2000, node_id(0)))
    assigned = planned(*GROWN, **spec).status["assigned"]
    failed_over = [replica(3), P1, P2, At(P0.slots), *GROWN[4:6], replica(7), At("")]
    made = planned(*failed_over, status={"assigned": assigned}, **spec)
    assert moves(made) == {("03", "07"): 2000}


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        ((6000, node_id(0)), "owns 5461"),
        ((100, "a" * 40), f"names {'a' * 40}, which owns no slots"),
        ((100, node_id(3)), "which owns no slots"),
        ((100, "nodeId1"), "names nodeId1"),
    ],
)
def test_manual_assignment_that_cannot_be_exact_is_refused(strategy: tuple[int, str], problem: str) -> None:
    made = planned(*GROWN, **manually(strategy))
    assert (made.verdict.reason, made.verdict.progress) == ("AssignRefused", Progress.BLOCKED)
    assert problem in made.verdict.message
    assert made.verdict.message.endswith("Nothing was changed.")
    assert acts(made.actions) == []


def test_strategies_have_no_effect_without_a_new_primary() -> None:
    """The seed's manifest names nodes that do not exist."""
    assert planned(*formed(), **manually((2000, "nodeId1"), (1000, "nodeId3,nodeId4"))).verdict.done


@pytest.mark.parametrize(
    ("strategies", "problem"),
    [([], "has 0 entries, and 1 new primary"), ([(10, node_id(0))] * 2, "has 2 entries, and 1 new primary")],
)
def test_manual_assignment_requires_one_entry_per_new_primary(strategies: list[tuple[int, str]], problem: str) -> None:
    made = planned(*GROWN, **manually(*strategies))
    assert (made.verdict.reason, acts(made.actions)) == ("AssignRefused", [])
    assert problem in made.verdict.message


def test_new_primaries_receive_their_entries_in_order_and_once() -> None:
    ten = [*formed(), JOINED, JOINED, replica(6), replica(7)]
    spec = manually((100, node_id(0)), (200, node_id(1)))
    assigned = planned(*ten, **spec).status["assigned"]
    made = planned(*ten, status={"assigned": assigned}, **spec)
    assert moves(made) == {("00", "06"): 100, ("01", "07"): 200}
    first = Slots.parse(assigned[0]["slots"])
    half = [replace(P0, slots=str(Slots.parse(P0.slots) - first)), *ten[1:6], At(str(first)), *ten[7:]]
    made = planned(*half, status={"assigned": assigned}, **spec)
    assert moves(made) == {("01", "07"): 200}
    assert moves(planned(*half, status={"assigned": made.status["assigned"]}, **spec)) == {("01", "07"): 200}


def test_slots_move_to_a_new_primary_once_all_nodes_are_running() -> None:
    made = planned(*formed(), JOINED, At(up=False, recorded=None, member=False))
    assert moves(made) == {}
    assert (
        made.verdict.message
        == "Waiting for all nodes to be reachable before moving slots to demo-6. demo-7 is starting."
    )


def test_slots_move_to_a_new_primary_once_it_accepts_commands() -> None:
    resource, found = world(*formed(), JOINED, replica(6))
    joined = found.instances[6]
    assert joined.report
    joined = replace(joined, report=replace(joined.report, state_ok=False))
    made = plan(resource, replace(found, instances=(*found.instances[:6], joined, found.instances[7])))
    assert moves(made) == {}
    assert (
        made.verdict.message == "Waiting for demo-6 to accept commands (cluster_state:fail) before moving slots to it."
    )


def test_removed_primary_is_drained_without_rebalancing_the_others() -> None:
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
    made = planned(*at, replicas=6, **manually())
    assert {source for source, _ in moves(made)} == {"06"}
    assert sum(moves(made).values()) == 4383


# Obstacles.


def test_recorded_open_slots_are_completed_first() -> None:
    at = [replace(P0, open_slots={7: (">", 6)}), *GROWN[1:6], At("", open_slots={7: ("<", 0)}), replica(6)]
    made = planned(*at, status=recorded(0, 6, "7"))
    assert (made.verdict.reason, moves(made)) == ("RepairingSlots", {("00", "06"): 1})


def test_open_slot_moves_to_the_promoted_replica_of_its_target() -> None:
    """The promoted replica has the keys that had moved, but the slot is not importing there."""
    at = [replace(P0, open_slots={7: (">", 6)}), *GROWN[1:6], replica(7), At("")]
    made = planned(*at, status=recorded(0, 6, "7"))
    assert moves(made) == {("00", "07"): 1}
    (call,) = of(made.actions, "ReopenSlots")
    assert (call.source, call.target, str(call.slots)) == (node_id(0), node_id(7), "7")
    assert made.status["moves"][0]["to"] == node_id(7)


def test_open_slot_moves_from_the_promoted_replica_of_its_source() -> None:
    """The promoted replica is not migrating: it would create keys again that had moved."""
    at = [replica(3), P1, P2, At(P0.slots), *GROWN[4:6], At("", open_slots={7: ("<", 0)}), replica(6)]
    made = planned(*at, status=recorded(0, 6, "7"))
    assert moves(made) == {("03", "06"): 1}
    (call,) = of(made.actions, "ReopenSlots")
    assert (call.source, call.target, str(call.slots)) == (node_id(3), node_id(6), "7")
    (move,) = of(made.actions, "MoveSlots")
    assert str(move.promoted) == "7"
    (kept,) = (each for each in made.status["moves"] if each["from"] == node_id(3) and each.get("promoted"))
    assert (kept["to"], kept["slots"]) == (node_id(6), "7")


def test_slots_are_opened_again_before_the_nodes_agree() -> None:
    """The importing node ignores the claim of the promoted one, so that they do not agree before."""
    at = [
        replace(P0, up=False, slots=""),
        *(P1, P2, At(P0.slots), *GROWN[4:6]),
        At("", open_slots={7: ("<", 0)}),
        replica(6),
    ]
    resource = redis_world.cluster(*GROWN, status=recorded(0, 6, "7"))
    made = plan(resource, redis_world.seen(resource, *at))
    assert [call.source for call in of(made.actions, "ReopenSlots")] == [node_id(3)]
    assert moves(made) == {}


def test_slot_that_its_target_owns_is_closed_and_not_reassigned() -> None:
    at = [replace(P0, slots="0-6 8-5460", open_slots={7: (">", 6)}), *GROWN[1:6], At("7"), replica(6)]
    made = planned(*at, status=recorded(0, 6, "7"))
    (call,) = of(made.actions, "CloseSlots")
    assert (call.source, call.target, str(call.slots)) == (node_id(0), node_id(6), "7")
    assert any(7 in Slots.parse(move["slots"]) for move in made.status["moves"]), "recorded until it is closed"


def test_open_slots_stay_recorded_while_no_node_is_reachable() -> None:
    """A missing report is no evidence that slots are closed."""
    made = planned(*(replace(at, up=False) for at in formed()), status=recorded(0, 1, "7"))
    assert made.status["moves"] == recorded(0, 1, "7")["moves"]


def test_open_slot_with_an_unreachable_target_waits() -> None:
    at = [replace(P0, open_slots={7: (">", 6)}), *GROWN[1:6], replace(JOINED, up=False, failed=True), replica(0)]
    made = planned(*at, status=recorded(0, 6, "7"))
    assert (made.verdict.reason, acts(made.actions)) == ("SlotsOpen", [])
    assert made.status["moves"] == recorded(0, 6, "7")["moves"]


# Provenance: open slots that the operator did not open.


def condition(made: Plan, of_type: str) -> Obj:
    return next((each for each in made.status["conditions"] if each["type"] == of_type), {})


def test_lone_importing_mark_outside_the_record_is_removed_and_no_key_moves() -> None:
    """A primary that starts with older data marks slots of other nodes, of which it has keys, as importing."""
    at = [replace(P0, open_slots={6000: ("<", 1), 7000: ("<", 1)}, strays={7000: 3}), *formed()[1:]]
    made = planned(*at)
    assert (moves(made), acts(made.actions), made.requeue) == ({}, [], 0)
    assert made.status["foreign"] == [{"nodeId": node_id(0), "slots": "7000"}]
    made = planned(*at, status={"foreign": made.status["foreign"]})
    assert acts(made.actions) == ["close slots 6000 7000 at demo-0, which it imports from no migration"]
    assert made.verdict.done, "nothing else waits for it"
    assert "demo-0 holds 3 keys of slot 7000, which it does not own." in condition(made, "ForeignKeys")["message"]


def test_foreign_keys_are_reported_until_they_are_deleted() -> None:
    status = {"foreign": [{"nodeId": node_id(0), "slots": "7000"}]}
    made = planned(replace(P0, strays={7000: 3}), *formed()[1:], status=status)
    assert (made.verdict.done, acts(made.actions), made.status["foreign"]) == (True, [], status["foreign"])
    again = planned(replace(P0, strays={7000: 3}), *formed()[1:], status=made.status)
    assert condition(again, "ForeignKeys") == condition(made, "ForeignKeys")
    away = planned(replace(P0, up=False, failed=True), *formed()[1:], status=status)
    assert away.status["foreign"] == status["foreign"], "an unreachable node may still have them"
    assert "foreign" not in planned(*formed(), status=status).status


def test_slots_do_not_move_to_a_node_with_foreign_keys_of_them() -> None:
    at = [*formed(), At("", keys=2, epoch=0, strays={}), replica(6)]
    at[2] = replace(P2, slots="", keys=0)
    at[6] = At(P2.slots, keys=5)
    made = planned(*at[:2], replace(at[2], keys=0), R0, R1, replica(6), at[6], replica(6), status={"foreign": []})
    assert {source for source, _ in moves(made)} <= {"00", "01", "06"}
    uneven = [At("0-6000", keys=1), At("6001-10922", keys=1, strays={1000: 1, 6000: 1}), P2, R0, R1, R2]
    foreign = {"foreign": [{"nodeId": node_id(1), "slots": "1000 6000"}]}
    made = planned(*uneven, status=foreign)
    (call,) = of(made.actions, "MoveSlots")
    assert [6000 in move.slots or 1000 in move.slots for move in call.moves] == [False]
    assert sum(moves(made).values()) == 539


def test_unbegun_move_to_a_node_that_restarted_with_older_keys_is_not_finished() -> None:
    """The record does not prove that the operator moved keys: no key moves before the source is migrating."""
    at = [*formed()[:6], At("", open_slots={7: ("<", 0)}, strays={7: 2}, keys=2), replica(6)]
    made = planned(*at, status=recorded(0, 6, "0-100"))
    assert made.status["foreign"] == [{"nodeId": node_id(6), "slots": "7"}]
    assert moves(made) == {}


def test_slots_that_another_client_migrates_are_left_alone_and_reported() -> None:
    at = [replace(P0, open_slots={7: (">", 1)}), replace(P1, open_slots={7: ("<", 0)}), *formed()[2:]]
    made = planned(*at)
    assert (made.verdict.done, acts(made.actions)) == (True, [])
    assert condition(made, "ForeignMigration")["message"].startswith("Slot 7 migrate from demo-0 to demo-1, and the op")
    assert moves(planned(*at, JOINED, replica(6))) == {("00", "06"): 1365, ("01", "06"): 1366, ("02", "06"): 1365}


def test_lone_migrating_mark_outside_the_record_is_closed_if_the_other_end_has_no_keys() -> None:
    at = [replace(P0, open_slots={7: (">", 1)}), *formed()[1:]]
    assert acts(planned(*at).actions) == ["close slots 7 that another client left open"]


def test_importing_mark_is_left_alone_on_an_engine_that_sets_none_itself() -> None:
    """Valkey 8 deletes such keys at its next start, unless the slot is importing."""
    at = replace(P0, open_slots={7000: ("<", 1)}, strays={7000: 3}, version="8.1.1")
    resource, found = world(at, *formed()[1:])
    report = found.instances[0].report
    assert report
    first = replace(found.instances[0], report=replace(report, engine="valkey"))
    made = plan(resource, replace(found, instances=(first, *found.instances[1:])))
    assert [act for act in acts(made.actions) if "close" in act] == []
    assert condition(made, "ForeignMigration")


def test_open_slots_whose_record_is_lost_are_of_another_client() -> None:
    at = [replace(P0, open_slots={7: (">", 6)}), *GROWN[1:6], At("", open_slots={7: ("<", 0)}), replica(6)]
    lost = redis_world.cluster(*at)
    del lost.obj["status"]["moves"]
    made = plan(lost, redis_world.seen(lost, *at))
    assert condition(made, "ForeignMigration"), "a lost status proves nothing"


# Replication of the targets.


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        (replica(6, offset=1000 - 64 * 2**20), "demo-7 is 67,108,864 bytes behind"),
        (replica(6, up=False, failed=True), "demo-7 is unreachable"),
    ],
)
def test_no_slot_moves_to_a_primary_that_does_not_replicate(copy: At, why: str) -> None:
    at = [*formed(), JOINED, copy]
    made = planned(*at)
    assert moves(made) == {}
    if copy.up:
        assert made.verdict.reason == "TargetNotReplicating"
        assert (
            f"demo-6 is to receive slots, and no replica of it is online and up to date: {why}." in made.verdict.message
        )
        cache = planned(*at, updateStrategy={"waitForReplicas": False})
        assert [call.acknowledge for call in of(cache.actions, "MoveSlots")] == [False]


def test_open_slot_waits_for_a_replica_of_its_target() -> None:
    at = [replace(P0, open_slots={7: (">", 6)}), *GROWN[1:6], At("", open_slots={7: ("<", 0)})]
    made = planned(*at, replica(6, up=False, failed=True), status=recorded(0, 6, "7"))
    assert (made.verdict.reason, moves(made)) == ("TargetNotReplicating", {})
    assert "demo-7 is unreachable" in made.verdict.message


def test_replica_of_a_target_that_is_no_member_is_no_copy() -> None:
    """Any client can replicate a server, such as a tool that exports its data."""
    target = At("", open_slots={7: ("<", 0)}, copied_elsewhere=True)
    made = planned(
        replace(P0, open_slots={7: (">", 6)}),
        *GROWN[1:6],
        target,
        replica(6, up=False, failed=True),
        status=recorded(0, 6, "7"),
    )
    assert (made.verdict.reason, moves(made)) == ("TargetNotReplicating", {})


def test_missing_replica_of_a_target_is_configured_while_its_open_slot_waits() -> None:
    """Otherwise each would wait for the other."""
    at = [replace(P0, open_slots={7: (">", 6)}), *GROWN[1:6], At("", open_slots={7: ("<", 0)}), JOINED]
    made = planned(*at, status=recorded(0, 6, "7"))
    assert moves(made) == {}
    assert acts(made.actions) == [f"let demo-7 replicate {node_id(6)}"]


def test_message_shows_whether_the_size_changes() -> None:
    made = planned(*GROWN)
    assert made.verdict.message.startswith("Scaling to 4 primaries: moving 4096 slots (0 moved)")
    half = [replace(P0, slots="1000-5460"), *formed()[1:], At("0-999"), replica(6)]
    again = planned(*half, status={"migration": made.status["migration"]})
    assert again.verdict.message.startswith("Scaling to 4 primaries: moving 4096 slots (1000 moved)")
    uneven = [At("0-6460"), At("6461-10922"), *formed()[2:]]
    made = planned(*uneven)
    assert made.verdict.message.startswith(
        "Rebalancing 999 slots over 3 primaries (0 moved); remaining: 999 from demo-0"
    )


def test_no_slot_moves_while_a_primary_is_unreachable() -> None:
    at = [P0, P1, replace(P2, up=False, failed=True), *GROWN[3:5], replace(R2, up=False, failed=True), *GROWN[6:]]
    assert moves(planned(*at)) == {}


def test_no_slot_moves_to_a_node_without_enough_memory() -> None:
    gib = 2**30
    full = [replace(at, memory=gib) for at in formed()[:3]]
    at = [*full, *formed()[3:], replace(JOINED, max_memory=gib // 2), replica(6)]
    made = planned(*at)
    assert (made.verdict.reason, moves(made)) == ("TargetFull", {})
    assert "demo-6 would use 805,306,350 of 536,870,912 bytes" in made.verdict.message
    assert moves(planned(*full, *formed()[3:], replace(JOINED, max_memory=gib), replica(6)))


def test_new_node_is_not_used_before_it_is_recorded() -> None:
    made = planned(*formed(), NEW)
    assert acts(made.actions) == []


SCALED_AWAY: dict[str, Any] = {"up": False, "pod": False}


@pytest.mark.parametrize("by_hand", [6, 7])
def test_node_with_slots_comes_back_after_kubectl_scale(by_hand: int) -> None:
    """Before, its volume was kept and its pod never came back: no message named the way to serve its slots again."""
    owners = [At(slots, keys=10) for slots in thirds(4)]
    eight = [
        *owners[:3],
        replica(0),
        replica(1),
        replica(2),
        replace(owners[3], **SCALED_AWAY),
        replica(6, **SCALED_AWAY),
    ]
    resource, _ = world(*eight, replicas=6)
    made = plan(resource, seen(resource, *eight, replicas=by_hand, scaled_by_hand=True))
    assert requested_replicas(made) == 8
    assert of(made.actions, "Forget") == []


async def test_number_that_no_spec_permits_is_not_counted_down() -> None:
    """Neither one of `kubectl scale`, nor that of a claim that a user created."""
    resource, _ = world(*formed())
    observed = seen(resource, *formed(), replicas=2**31 - 1, scaled_by_hand=True)
    claim = replace(observed.instances[5], number=9_999_999, name="demo-9999999", pod=None, pod_obj=None, recorded=None)
    async with cost.bounded():
        made = plan(resource, replace(observed, instances=(*observed.instances, replace(claim, report=None))))
    assert requested_replicas(made) == 6


def test_replica_comes_back_after_kubectl_scale_until_its_primary_has_another_one() -> None:
    """The replica that stays has to change its primary first; no slot moves to a primary without a replica."""
    seven = [P0, P1, P2, R0, R1, replace(R2, of=0), replica(2, **SCALED_AWAY)]
    resource, _ = world(*seven, replicas=6)
    made = plan(resource, seen(resource, *seven, replicas=6, scaled_by_hand=True))
    assert requested_replicas(made) == 7
    assert of(made.actions, "Forget") == []


def test_node_that_the_operator_removed_does_not_come_back_while_a_primary_restarts() -> None:
    seven = [replace(P0, up=False, ready=False), P1, P2, R0, R1, R2, replica(0, **SCALED_AWAY)]
    resource, _ = world(*seven, replicas=6)
    assert requested_replicas(plan(resource, seen(resource, *seven, replicas=6))) == 6
