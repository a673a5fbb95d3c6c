"""Slots whose keys are lost: nothing is done but what a person allows, and that to the letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.unit.redis.steps.test_membership_repair import lost
from tests.unit.redis.world import At, acts, cluster, formed, node_id, of, plan, seen, world

M0, M1, M2, R0, R1, R2 = formed()
LOSS = (lost(M0, 0), M1, M2, lost(R0, 3, member=False), R1, R2)


def confirmed(*at: At, token: str, told: Obj) -> Plan:
    return plan(*world(*at, status={"recovery": told}, recovery={"confirm": token}))


def told_of(*at: At) -> dict[str, Any]:
    found: dict[str, Any] = plan(*world(*at)).status["recovery"]
    return found


def test_a_loss_is_told_and_nothing_is_done() -> None:
    made = plan(*world(*LOSS))
    assert (made.verdict.reason, made.verdict.progress) == ("SlotsLost", Progress.BLOCKED)
    assert made.verdict.message.startswith(
        "demo-0, demo-3 lost their data, and nobody else has it: the keys of slots 0-5460 are lost."
    )
    assert f"set spec.recovery.confirm to {made.status['recovery']['token']}" in made.verdict.message
    assert made.status["recovery"]["slots"] == "0-5460"
    assert [call for call in acts(made.actions) if "forget" not in call] == []
    assert made.status["phase"] == "Failed"


def test_as_long_as_one_that_may_have_the_keys_is_only_away_nothing_is_lost() -> None:
    for at in (
        (replace(M0, up=False, failed=True), M1, M2, lost(R0, 3), R1, R2),
        (lost(M0, 0), M1, M2, replace(R0, up=False, failed=True), R1, R2),
        (lost(M0, 0), M1, M2, replace(R0, up=False, member=False), R1, R2),
    ):
        made = plan(*world(*at))
        assert "recovery" not in made.status
        assert of(made.actions, "AddSlots") == of(made.actions, "FailOver") == []
    assert made.verdict.reason == "SlotsUnserved"
    assert "Nothing is lost for good yet. demo-3" in made.verdict.message


def test_an_operator_that_hears_one_new_node_alone_does_not_take_all_for_lost() -> None:
    at = [replace(spot, up=False, failed=True) for spot in formed()[:5]]
    new = At(incarnation=1, recorded=0, disk="disk-5b", member=False, knows=False)
    made = plan(*world(*at, new))
    assert made.verdict.reason == "SlotsUnserved"
    assert "recovery" not in made.status
    assert acts(made.actions) == []


def test_another_token_than_that_of_this_very_loss_is_refused() -> None:
    told = told_of(*LOSS)
    made = confirmed(*LOSS, token="0123456789ab", told=told)
    assert (made.verdict.reason, made.verdict.progress) == ("TokenRefused", Progress.BLOCKED)
    assert told["token"] in made.verdict.message
    more = (lost(M0, 0), lost(M1, 1), M2, lost(R0, 3, member=False), lost(R1, 4, member=False), R2)
    assert told_of(*more)["token"] != told["token"]
    assert confirmed(*more, token=told["token"], told=told).verdict.reason == "SlotsLost", (
        "it was not this that was told"
    )
    assert of(confirmed(*more, token=told["token"], told=told).actions, "Forget") == []


def test_what_was_not_written_down_is_not_done_yet() -> None:
    token = told_of(*LOSS)["token"]
    made = plan(*world(*LOSS, recovery={"confirm": token}))
    assert (made.verdict.reason, made.requeue) == ("SlotsLost", 0)
    assert of(made.actions, "AddSlots") == []


def test_once_it_is_allowed_the_lost_owner_is_forgotten_first() -> None:
    told = told_of(*LOSS)
    made = confirmed(*LOSS, token=told["token"], told=told)
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(0)]
    assert made.status["recovery"] == told, "what is being done stays told"


def test_then_the_slots_go_to_a_node_that_holds_nothing_or_to_who_has_fewest() -> None:
    told = told_of(*LOSS)
    forgotten = replace(lost(M0, 0), member=False)
    left = (forgotten, M1, M2, replace(forgotten, disk="disk-3b"), R1, R2)
    made = confirmed(*left, token=told["token"], told=told)
    (call,) = of(made.actions, "AddSlots")
    assert (call.id, str(call.slots), call.outbid) == (node_id(2), "0-5460", True)
    fresh = At(epoch=0, incarnation=1)
    resource = cluster(*LOSS, status={"recovery": told}, recovery={"confirm": told["token"]})
    status = resource.obj["status"]
    status["conditions"][0] |= {"nodeId": node_id(0, 1), "disk": "disk-0b"}
    resource = cluster(*LOSS, status=status, recovery={"confirm": told["token"]})
    made = plan(resource, seen(resource, replace(fresh, disk="disk-0b"), M1, M2, left[3], R1, R2))
    assert [(call.id, str(call.slots)) for call in of(made.actions, "AddSlots")] == [(node_id(0, 1), "0-5460")]


def test_slots_beyond_what_was_allowed_are_not_served_empty() -> None:
    told = told_of(*LOSS)
    gone = replace(lost(M0, 0), member=False)
    at = (gone, replace(M1, slots="6000-10922"), M2, replace(gone, disk="disk-3b"), R1, R2)
    made = confirmed(*at, token=told["token"], told=told)
    assert of(made.actions, "AddSlots") == []


def test_where_nothing_is_left_it_begins_anew_if_a_person_allows_it() -> None:
    new = [At(incarnation=1, recorded=0, disk=f"disk-{n}b", member=False, knows=False, epoch=0) for n in range(6)]
    resource, found = world(*new)
    made = plan(resource, found)
    assert (made.verdict.reason, made.status["formed"]) == ("SlotsLost", True)
    told = made.status["recovery"]
    assert Slots.parse(told["slots"]) == Slots.all()
    made = confirmed(*new, token=told["token"], told=told)
    assert (made.status["formed"], made.requeue, acts(made.actions)) == (False, 0, [])
    again = cluster(*new, begun=False, status=made.status | {"formed": False}, recovery={"confirm": told["token"]})
    begun = plan(again, seen(again, *new))
    assert begun.verdict.reason == "Creating"
    assert begun.status["forming"]
