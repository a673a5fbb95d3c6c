"""Recovery of slots whose keys are lost: only the loss that the user confirmed is given up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.unit.redis.steps.test_membership_repair import lost
from tests.unit.redis.world import At, acts, cluster, formed, node_id, of, plan, seen, world

P0, P1, P2, R0, R1, R2 = formed()
LOSS = (lost(P0, 0), P1, P2, lost(R0, 3, member=False), R1, R2)


def confirmed(*at: At, token: str, loss: Obj) -> Plan:
    return plan(*world(*at, status={"recovery": loss}, recovery={"confirm": token}))


def recovery_of(*at: At) -> dict[str, Any]:
    found: dict[str, Any] = plan(*world(*at)).status["recovery"]
    return found


def test_data_loss_is_reported_and_blocks_changes() -> None:
    made = plan(*world(*LOSS))
    assert (made.verdict.reason, made.verdict.progress) == ("SlotsLost", Progress.BLOCKED)
    assert made.verdict.message.startswith(
        "demo-0, demo-3 lost their data, and no other node has it: the keys of slots 0-5460 are lost."
    )
    assert f"set spec.recovery.confirm to {made.status['recovery']['token']}" in made.verdict.message
    assert made.status["recovery"]["slots"] == "0-5460"
    assert [call for call in acts(made.actions) if "forget" not in call] == []
    assert made.status["phase"] == "Failed"


def test_slots_are_not_lost_while_a_possible_copy_is_unreachable() -> None:
    for at in (
        (replace(P0, up=False, failed=True), P1, P2, lost(R0, 3), R1, R2),
        (lost(P0, 0), P1, P2, replace(R0, up=False, failed=True), R1, R2),
        (lost(P0, 0), P1, P2, replace(R0, up=False, member=False), R1, R2),
    ):
        made = plan(*world(*at))
        assert "recovery" not in made.status
        assert of(made.actions, "AddSlots") == of(made.actions, "FailOver") == []
    assert made.verdict.reason == "SlotsUnserved"
    assert "waiting for the nodes that may hold their keys. demo-3" in made.verdict.message


def test_operator_that_reaches_only_a_new_node_reports_no_loss() -> None:
    at = [replace(spot, up=False, failed=True) for spot in formed()[:5]]
    new = At(incarnation=1, recorded=0, disk="disk-5b", member=False, knows=False)
    made = plan(*world(*at, new))
    assert made.verdict.reason == "SlotsUnserved"
    assert "recovery" not in made.status
    assert acts(made.actions) == []


def test_token_of_another_loss_is_refused() -> None:
    loss = recovery_of(*LOSS)
    made = confirmed(*LOSS, token="0123456789ab", loss=loss)
    assert (made.verdict.reason, made.verdict.progress) == ("TokenRefused", Progress.BLOCKED)
    assert loss["token"] in made.verdict.message
    more = (lost(P0, 0), lost(P1, 1), P2, lost(R0, 3, member=False), lost(R1, 4, member=False), R2)
    assert recovery_of(*more)["token"] != loss["token"]
    assert confirmed(*more, token=loss["token"], loss=loss).verdict.reason == "SlotsLost", (
        "the token confirms a smaller loss"
    )
    assert of(confirmed(*more, token=loss["token"], loss=loss).actions, "Forget") == []


def test_recovery_starts_only_after_the_loss_is_recorded() -> None:
    token = recovery_of(*LOSS)["token"]
    made = plan(*world(*LOSS, recovery={"confirm": token}))
    assert (made.verdict.reason, made.requeue) == ("SlotsLost", 0)
    assert of(made.actions, "AddSlots") == []


def test_confirmed_recovery_first_forgets_the_lost_owner() -> None:
    loss = recovery_of(*LOSS)
    made = confirmed(*LOSS, token=loss["token"], loss=loss)
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(0)]
    assert made.status["recovery"] == loss, "the loss stays in the status during the recovery"


def test_lost_slots_go_to_an_empty_node_or_the_primary_with_the_fewest_slots() -> None:
    loss = recovery_of(*LOSS)
    forgotten = replace(lost(P0, 0), member=False)
    left = (forgotten, P1, P2, replace(forgotten, disk="disk-3b"), R1, R2)
    made = confirmed(*left, token=loss["token"], loss=loss)
    (call,) = of(made.actions, "AddSlots")
    assert (call.id, str(call.slots), call.outbid) == (node_id(2), "0-5460", True)
    fresh = At(epoch=0, incarnation=1)
    resource = cluster(*LOSS, status={"recovery": loss}, recovery={"confirm": loss["token"]})
    status = resource.obj["status"]
    status["nodes"][0] |= {"nodeId": node_id(0, 1), "disk": "disk-0b"}
    resource = cluster(*LOSS, status=status, recovery={"confirm": loss["token"]})
    made = plan(resource, seen(resource, replace(fresh, disk="disk-0b"), P1, P2, left[3], R1, R2))
    assert [(call.id, str(call.slots)) for call in of(made.actions, "AddSlots")] == [(node_id(0, 1), "0-5460")]


def test_slots_outside_the_confirmed_loss_are_not_assigned() -> None:
    loss = recovery_of(*LOSS)
    forgotten = replace(lost(P0, 0), member=False)
    at = (forgotten, replace(P1, slots="6000-10922"), P2, replace(forgotten, disk="disk-3b"), R1, R2)
    made = confirmed(*at, token=loss["token"], loss=loss)
    assert of(made.actions, "AddSlots") == []


def test_cluster_without_any_data_is_formed_again_after_confirmation() -> None:
    new = [At(incarnation=1, recorded=0, disk=f"disk-{n}b", member=False, knows=False, epoch=0) for n in range(6)]
    resource, found = world(*new)
    made = plan(resource, found)
    assert (made.verdict.reason, made.status["formed"]) == ("SlotsLost", True)
    loss = made.status["recovery"]
    assert Slots.parse(loss["slots"]) == Slots.all()
    made = confirmed(*new, token=loss["token"], loss=loss)
    assert (made.status["formed"], made.requeue, acts(made.actions)) == (False, 0, [])
    again = cluster(*new, is_formed=False, status=made.status | {"formed": False}, recovery={"confirm": loss["token"]})
    is_formed = plan(again, seen(again, *new))
    assert is_formed.verdict.reason == "Creating"
    assert is_formed.status["forming"]
