"""Recovery of slots whose keys are lost: only the loss that the user confirmed is given up."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.client.responses import Node, NodeReport
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.observed import Observed, max_lag_seconds
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.redis.unit.steps.test_membership_repair import lost
from tests.redis.unit.world import (
    JUST_NOW,
    LONG_AGO,
    NOW,
    PLANNER,
    At,
    acts,
    cluster,
    formed,
    node_id,
    of,
    plan,
    replica,
    seen,
    world,
)

P0, P1, P2, R0, R1, R2 = formed()
LOSS = (lost(P0, 0), P1, P2, lost(R0, 3, member=False), R1, R2)
TWO_LOSSES = (lost(P0, 0), lost(P1, 1), P2, lost(R0, 3, member=False), lost(R1, 4, member=False), R2)


def confirmed(*at: At, token: str, loss: Obj, now: datetime = NOW, **spec: Any) -> Plan:
    resource, found = world(*at, status={"recovery": loss}, recovery={"confirm": token}, **spec)
    return PLANNER.plan(resource, found, now)


def recovery_of(*at: At) -> dict[str, Any]:
    found: dict[str, Any] = plan(*world(*at)).status["recovery"]
    return found


def test_data_loss_is_reported_and_blocks_changes() -> None:
    made = plan(*world(*LOSS))
    assert (made.verdict.reason, made.verdict.progress) == ("SlotsLost", Progress.BLOCKED)
    assert made.verdict.message.startswith(
        "demo-0, demo-3 lost their data, and no other node has it: the keys of slots 0-5460 are lost."
    )
    token = made.status["recovery"]["token"]
    assert f"set spec.recovery.confirm to {token}" in made.verdict.message
    confirm = json.dumps({"spec": {"recovery": {"confirm": token}}}, separators=(",", ":"))
    assert made.verdict.message.endswith(f": `kubectl patch rediscluster demo -n default --type merge -p '{confirm}'`")
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
    more = TWO_LOSSES
    assert recovery_of(*more)["token"] != loss["token"]
    made = confirmed(*more, token=loss["token"], loss=loss)
    assert made.verdict.reason == "SlotsLost", "the token confirms a smaller loss"
    assert made.status["recovery"]["priorConfirm"] == loss["token"]
    assert of(made.actions, "Forget") == []


def after(**time: float) -> datetime:
    """Return a later time than the record of a loss was written at."""
    return NOW + timedelta(**time)


def test_consent_to_one_shard_is_none_to_recreate_the_cluster_while_other_primaries_are_out_of_reach() -> None:
    loss = recovery_of(*LOSS)
    hidden = (LOSS[0], replace(P1, up=False), replace(P2, up=False), *LOSS[3:])
    made = confirmed(*hidden, token=loss["token"], loss=loss)
    assert made.status["formed"] is True
    assert (of(made.actions, "AddSlots"), of(made.actions, "Forget")) == ([], [])
    assert made.verdict.reason == "Recovering"


def test_later_loss_of_the_same_nodes_needs_another_consent() -> None:
    loss = recovery_of(*LOSS)
    ended = confirmed(*formed(), token=loss["token"], loss=loss)
    assert "recovery" not in ended.status, "the loss has ended"
    again, found = world(*LOSS, recovery={"confirm": loss["token"]})
    made = PLANNER.plan(again, found, after(days=300))
    offered = made.status["recovery"]
    assert offered["token"] != loss["token"]
    assert made.verdict.reason == "SlotsLost", "a token that a finished recovery left in the spec is not refused"
    assert f"to {offered['token']} (its present value is of an earlier loss)" in made.verdict.message
    made = confirmed(*LOSS, token=loss["token"], loss=offered, now=after(days=300))
    assert (made.verdict.reason, made.status["recovery"]) == ("SlotsLost", offered)
    assert of(made.actions, "Forget") == []
    made = confirmed(*LOSS, token="0123456789ab", loss=offered, now=after(days=300))
    assert made.verdict.reason == "TokenRefused", "a user confirmed something else after the loss was found"
    made = confirmed(*LOSS, token=offered["token"], loss=offered, now=after(days=300))
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(0)]


WITH_REPLACED = (
    lost(P0, 0),
    lost(replace(P1, slots=""), 1, member=False),
    P2,
    lost(R0, 3, member=False),
    At(P1.slots),
    R2,
)
"""A shard is lost, and the primary of another one, which was replaced. Their pods do not start."""

FORGOTTEN = (replace(WITH_REPLACED[0], member=False, slots=""), *WITH_REPLACED[1:])
"""The same cluster after CLUSTER FORGET of the lost owner, whose slots have no owner."""


def test_consent_stays_valid_after_the_owners_are_forgotten_although_other_nodes_are_lost() -> None:
    """Without an owner, the slots may have been those of any lost node."""
    loss = recovery_of(*WITH_REPLACED)
    assert loss["slots"] == "0-5460"
    made = confirmed(*WITH_REPLACED, token=loss["token"], loss=loss)
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(0)]
    made = confirmed(*FORGOTTEN, token=loss["token"], loss=made.status["recovery"])
    assert made.status["recovery"]["token"] == loss["token"]
    assert of(made.actions, "AddSlots")


def test_node_that_is_lost_after_the_owners_are_forgotten_needs_another_consent() -> None:
    """A lost node may have taken the slots, and the writes since are not part of the first loss."""
    loss = recovery_of(*LOSS)
    assert node_id(1) not in loss["nodes"]
    made = confirmed(*FORGOTTEN, token=loss["token"], loss=loss)
    assert made.status["recovery"]["token"] != loss["token"]
    assert of(made.actions, "AddSlots") == []


@pytest.mark.parametrize(
    ("hours", "stays"), [(0.9, True), (1.1, False), (-1.1, False)], ids=["minutes", "hours", "clock set back"]
)
def test_loss_that_the_operator_did_not_observe_for_an_hour_is_another_one(hours: float, stays: bool) -> None:
    loss = recovery_of(*LOSS)
    made = confirmed(*LOSS, token=loss["token"], loss=loss, now=after(hours=hours))
    assert (made.status["recovery"]["token"] == loss["token"]) is stays
    assert bool(of(made.actions, "Forget")) is stays


def test_observed_loss_keeps_its_token() -> None:
    record, now = recovery_of(*LOSS), NOW
    token, written = record["token"], 0
    for _ in range(100):
        now += timedelta(minutes=3)
        resource, found = world(*LOSS, status={"recovery": record})
        before, record = record, PLANNER.plan(resource, found, now).status["recovery"]
        written += record != before
    assert record["token"] == token
    assert written == 25, "the time of the last observation is renewed when it is ten minutes old"


def test_record_stays_while_it_is_unknown_whether_the_loss_has_ended() -> None:
    loss = recovery_of(*LOSS)
    unknown = (*LOSS[:3], replace(R0, up=False, failed=True), R1, R2)
    made = confirmed(*unknown, token=loss["token"], loss=loss, now=after(minutes=30))
    assert (made.verdict.reason, made.status["recovery"]["token"]) == ("SlotsUnserved", loss["token"])
    assert made.status["recovery"]["observed"] == loss["observed"], "nothing was observed"
    assert "unknown" in made.status["recovery"]["message"]
    assert of(made.actions, "Forget") == []
    assert "recovery" not in confirmed(*unknown, token=loss["token"], loss=loss, now=after(hours=2)).status


def test_token_of_the_first_release_is_replaced() -> None:
    former = {"token": "36e87aa32c1b", "slots": "0-5460", "message": "…"}
    made = confirmed(*LOSS, token=former["token"], loss=former)
    assert made.verdict.reason == "SlotsLost"
    assert made.status["recovery"]["priorConfirm"] == former["token"]
    assert of(made.actions, "Forget") == []


def test_token_stays_although_an_older_crd_keeps_nothing_else() -> None:
    kept = {name: value for name, value in recovery_of(*LOSS).items() if name in ("token", "slots", "message")}
    resource, found = world(*LOSS, status={"recovery": kept})
    assert PLANNER.plan(resource, found, after(minutes=5)).status["recovery"]["token"] == kept["token"]


def test_consent_to_two_shards_ends_for_the_one_that_comes_back() -> None:
    loss = recovery_of(*TWO_LOSSES)
    made = confirmed(*LOSS, token=loss["token"], loss=loss)
    left = made.status["recovery"]
    assert (left["token"], left["slots"]) == (loss["token"], "0-5460")
    assert set(left["nodes"]) == {node_id(0), node_id(3)}
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(0)], "the consent covers what is left"
    made = confirmed(*TWO_LOSSES, token=loss["token"], loss=left, now=after(minutes=5))
    assert made.verdict.reason == "SlotsLost"
    assert of(made.actions, "Forget") == []


def test_consent_does_not_cover_a_node_that_took_the_slots() -> None:
    loss = recovery_of(*LOSS)
    heir = At("0-5460", incarnation=1, recorded=1)
    at = (lost(heir, 0), P1, P2, lost(R0, 3, member=False), R1, R2)
    made = confirmed(*at, token=loss["token"], loss=loss)
    assert made.verdict.reason == "SlotsLost"
    assert of(made.actions, "Forget") == []


def succeeded(*at: At, successors: tuple[int, ...] = (3,), **more: Any) -> tuple[RedisCluster, Observed]:
    """Return a cluster in which demo-3 took over from demo-0, and so on, by the record of these successors."""
    nodes = cluster(*at, **more).obj["status"]["nodes"]
    for number in successors:
        nodes[number]["copyOf"] = node_id(number - 3)
    for number in range(3):
        if at[number].of is not None and at[number].copied is False:
            nodes[number]["copyOf"] = node_id(number)
    status = {"nodes": nodes} | (more.pop("status", None) or {})
    return world(*at, status=status, **more)


def former(at: At, number: int, **more: Any) -> At:
    """State of a former primary that replicates its successor, and was never in sync with it."""
    return replace(at, of=number + 3, slots="", copied=False, synced=False, keys=10, **more)


HEIR = lost(replace(P0, epoch=9), 3)
"""The successor of demo-0, which is lost with its volume."""

REPLACED = (former(P0, 0), P1, P2, HEIR, R1, R2)


def test_former_primary_does_not_replace_its_successor_without_consent() -> None:
    """A former primary has none of the writes since the successor took over."""
    made = plan(*succeeded(*REPLACED))
    assert (made.verdict.reason, acts(made.actions)) == ("SlotsLost", [])
    assert made.verdict.message.startswith(
        "demo-3 lost their data: no node has all keys of slots 0-5460. demo-0 can serve slots 0-5460 with older keys, "
        "without later writes; all other keys stay. To allow it, set spec.recovery.confirm to "
    )
    assert made.status["recovery"]["older"] == [node_id(0)]
    assert made.status["recovery"]["nodes"] == [node_id(3)], "the keys of demo-0 are not given up"


def test_former_primary_takes_over_after_the_confirmation_and_no_slot_is_assigned_empty() -> None:
    loss = plan(*succeeded(*REPLACED)).status["recovery"]
    given: dict[str, Any] = {"status": {"recovery": loss}, "recovery": {"confirm": loss["token"]}}
    made = plan(*succeeded(*REPLACED, **given))
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.primary, call.mode) == (node_id(0), node_id(3), "FORCE")
    assert (of(made.actions, "AddSlots"), of(made.actions, "Forget")) == ([], [])
    assert made.verdict.message == ("The loss of demo-3 is confirmed; demo-0 is taking over, with its older keys.")
    first = REPLACED[0]
    for busy in (replace(first, syncing=True), replace(first, loading=True), replace(first, leaving=True)):
        waiting = plan(*succeeded(busy, *REPLACED[1:], **given))
        assert acts(waiting.actions) == []


def test_slots_are_not_lost_while_a_former_primary_is_unreachable() -> None:
    away = replace(P0, slots="", up=False, failed=True)
    made = plan(*succeeded(away, *REPLACED[1:]))
    assert made.verdict.reason == "SlotsUnserved"
    assert "waiting for the nodes that may hold their keys. demo-0" in made.verdict.message
    assert "recovery" not in made.status


def test_node_that_has_no_older_keys_is_not_offered() -> None:
    emptied = replace(REPLACED[0], keys=0)
    elsewhere = replace(REPLACED[0], of=1)
    for at in (emptied, elsewhere):
        made = plan(*succeeded(at, *REPLACED[1:]))
        assert made.verdict.reason == "SlotsLost"
        assert "older" not in made.status["recovery"]


def test_replica_of_the_former_primary_has_older_keys_too() -> None:
    """The replica was in sync with demo-0, and not yet with demo-3, which took over."""
    sibling = replica(3, keys=10, synced=False, copied=False)
    at = (lost(replace(P0, slots=""), 0), P1, P2, HEIR, R1, R2, sibling)
    resource, found = succeeded(*at, replicas=7)
    nodes = resource.obj["status"]["nodes"]
    nodes[6]["copyOf"] = node_id(0)
    made = plan(*world(*at, status={"nodes": nodes}, replicas=7))
    assert made.status["recovery"]["older"] == [node_id(6)]
    assert found.lost(node_id(3))


def test_replica_without_keys_takes_over_from_its_lost_primary_after_the_confirmation() -> None:
    """A replica rejects CLUSTER FORGET for its primary."""
    at = (lost(P0, 0), P1, P2, replace(R0, copied=False, keys=0), R1, R2)
    loss = recovery_of(*at)
    made = confirmed(*at, token=loss["token"], loss=loss)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(3), "FORCE")
    assert of(made.actions, "Forget") == []
    made = confirmed(*at[:3], replace(R0, copied=False, keys=7), R1, R2, token=loss["token"], loss=loss)
    assert (made.verdict.reason, made.verdict.progress, acts(made.actions)) == ("NodeNotEmpty", Progress.BLOCKED, [])
    assert "demo-3 replicates demo-0, which lost its data, and holds 7 keys of unknown age." in made.verdict.message


RESTARTED = replace(R0, unlinked_seconds=math.inf)
"""A replica of demo-0 that started after demo-0 ended, with the data of an unknown time."""


@pytest.mark.parametrize("on_hosts", [False, True], ids=["lost", "on another host"])
def test_replica_that_was_not_connected_since_its_start_takes_over_only_with_consent(on_hosts: bool) -> None:
    at = (lost(P0, 0, pod=on_hosts), P1, P2, RESTARTED, R1, R2)
    where = ON_HOSTS if on_hosts else {}
    made = plan(*world(*at, **where))
    assert of(made.actions, "FailOver") == []
    assert made.verdict.reason == ("DataAway" if on_hosts else "SlotsLost")
    assert "demo-3 can serve slots 0-5460 with older keys, without later writes" in made.verdict.message
    loss = made.status["recovery"]
    assert loss["older"] == [node_id(3)]
    made = confirmed(*at, token=loss["token"], loss=loss, **where)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(3), "FORCE")
    assert (of(made.actions, "AddSlots"), of(made.actions, "Forget")) == ([], [])


@pytest.mark.parametrize(
    ("answered", "takes_over"),
    [
        ({"P1": 5, "P2": 100}, False),
        ({"P1": 100, "P2": 100, "R0": 5}, False),
        ({"P1": 39, "P2": 39}, False),
        ({"P1": 41, "P2": 41}, True),
        ({"P1": 100, "R0": 100, "R1": 100, "R2": 100}, False),
        ({}, False),
    ],
    ids=[
        "another node reached it",
        "only the link was lost",
        "a minute",
        "less than a minute",
        "the other primary may have reached it",
        "unknown",
    ],
)
def test_replica_that_lost_its_link_long_before_its_primary_ended_takes_over_only_with_consent(
    answered: dict[str, float], *, takes_over: bool
) -> None:
    """A replica lost its link 100 seconds ago; the primary answered nodes until later."""
    unlinked = {"P1": P1, "P2": P2, "R0": replace(R0, unlinked_seconds=100.0), "R1": R1, "R2": R2}
    at = [replace(each, answered={0: answered[name]} if name in answered else {}) for name, each in unlinked.items()]
    made = plan(*world(lost(P0, 0), *at))
    assert bool(of(made.actions, "FailOver")) == takes_over
    assert made.verdict.reason == ("TakingOver" if takes_over else "SlotsLost")
    assert made.status.get("recovery", {}).get("older") == (None if takes_over else [node_id(3)])


def test_replica_that_lost_its_link_within_the_last_minute_takes_over_without_consent() -> None:
    """Nothing shows when its primary ended, but that may have outlived the link by a minute at most."""
    made = plan(*world(lost(P0, 0), P1, P2, replace(R0, unlinked_seconds=60.0), R1, R2))
    assert len(of(made.actions, "FailOver")) == 1


UNREACHABLE = replace(R0, up=False)
HUNG = replace(UNREACHABLE, failed=True)
LINKED = replace(R0, link="10.0.0.1:6379")


@pytest.mark.parametrize(
    ("before", "between", "takes_over"),
    [
        (HUNG, [], False),
        (HUNG, [(lost(P0, 0), LINKED)], False),
        (HUNG, [(replace(P0, up=False), LINKED)], False),
        (HUNG, [(P0, R0)], True),
        (replace(UNREACHABLE, ready=True), [], True),
        (replace(R0, ready=False), [], True),
        (replace(R0, ready=False), [(replace(P0, up=False), replace(LINKED, ready=False))], True),
        (R0, [(lost(P0, 0), LINKED)], True),
    ],
    ids=[
        "hung",
        "resumes, and has not noticed the end of its primary",
        "resumes while its primary is out of reach",
        "hung, and was in sync again",
        "out of reach",
        "in sync, and not ready for the kubelet",
        "in sync and not ready, while its primary is out of reach",
        "in sync until the end of its primary",
    ],
)
def test_replica_that_was_not_in_sync_takes_over_only_with_consent(
    before: At, between: list[tuple[At, At]], *, takes_over: bool
) -> None:
    """When it resumes, it reports that it lost its link a second ago: the record shows since when it was not in sync.

    Args:
        before: the replica for the last hour.
        between: the primary and the replica in the last seconds.
    """
    at, status = (P0, P1, P2, before, R1, R2), cluster(*formed()).obj["status"]
    for seconds, (primary, copy) in [(3600, (P0, before)), *((2, each) for each in between)]:
        at = (primary, P1, P2, copy, R1, R2)
        resource = cluster(*at, status={"nodes": status["nodes"]})
        status = PLANNER.plan(resource, seen(resource, *at), NOW - timedelta(seconds=seconds)).status
    made = plan(
        *world(lost(P0, 0), P1, P2, replace(R0, unlinked_seconds=1.0), R1, R2, status={"nodes": status["nodes"]})
    )
    assert bool(of(made.actions, "FailOver")) == takes_over
    assert made.status.get("recovery", {}).get("older") == (None if takes_over else [node_id(3)])


@pytest.mark.parametrize(
    ("before", "between", "takes_over"),
    [
        (HUNG, [], False),
        (HUNG, [(P0, HUNG)], False),
        (replace(R0, synced=False), [(lost(P0, 0), LINKED)], False),
        (replace(R0, ready=False), [], True),
        (replace(UNREACHABLE, ready=True), [], True),
        (R0, [], True),
    ],
    ids=["hung", "hung, and observed", "not in sync, and resumes", "in sync, and not ready", "out of reach", "in sync"],
)
def test_replica_that_was_not_in_sync_for_an_earlier_build_takes_over_only_with_consent(
    before: At, between: list[tuple[At, At]], *, takes_over: bool
) -> None:
    """An earlier build recorded since when the replica did not serve, but not since when it was not in sync."""
    at, recorded = (P0, P1, P2, before, R1, R2), cluster(*formed()).obj["status"]["nodes"]
    resource = cluster(*at, status={"nodes": recorded})
    recorded = PLANNER.plan(resource, seen(resource, *at), NOW - timedelta(seconds=3600)).status["nodes"]
    later = ("outOfSyncSince", "inSync")
    recorded = [{key: value for key, value in entry.items() if key not in later} for entry in recorded]
    for primary, copy in between:
        at = (primary, P1, P2, copy, R1, R2)
        resource = cluster(*at, status={"nodes": recorded})
        recorded = PLANNER.plan(resource, seen(resource, *at), NOW - timedelta(seconds=2)).status["nodes"]
    made = plan(*world(lost(P0, 0), P1, P2, replace(R0, unlinked_seconds=1.0), R1, R2, status={"nodes": recorded}))
    assert bool(of(made.actions, "FailOver")) == takes_over
    assert made.status.get("recovery", {}).get("older") == (None if takes_over else [node_id(3)])


@pytest.mark.parametrize(
    ("primaries", "reporting", "takes_over"),
    [(1, 0, False), (2, 0, False), (2, 1, True), (4, 1, False), (4, 2, True), (5, 2, False), (5, 3, True)],
)
def test_end_of_a_primary_is_known_if_each_majority_has_a_node_that_reports_its_last_answer(
    primaries: int, reporting: int, *, takes_over: bool
) -> None:
    """A primary serves clients while it reaches a majority."""
    first, *others = formed(primaries, copies=2)
    at = [
        replace(
            each, answered={0: 100.0} if number < reporting else {}, unlinked_seconds=0.0 if each.of is None else 100.0
        )
        for number, each in enumerate(others)
    ]
    made = plan(*world(lost(first, 0), *at))
    assert bool(of(made.actions, "FailOver")) == takes_over


@pytest.mark.parametrize(
    ("record", "takes_over"),
    [
        ({}, True),
        ({"copyOf": node_id(7), "lastTransitionTime": LONG_AGO}, True),
        ({"copyOf": node_id(7), "lastTransitionTime": JUST_NOW}, False),
        ({"copyOf": node_id(7), "lastTransitionTime": None}, False),
        ({"copyOf": node_id(7), "primaryId": node_id(7), "role": "replica"}, False),
    ],
    ids=["never a replica", "elected before", "elected since", "at an unknown time", "just elected"],
)
def test_end_of_a_primary_is_not_known_from_one_that_was_elected_since(record: Obj, *, takes_over: bool) -> None:
    """A replica lost its link long before. Of its four other primaries one restarted, and the record of one varies."""
    first, restarted, *others = formed(5)
    at = [replace(each, answered={0: 100.0}, unlinked_seconds=150.0 if each.of == 0 else 0.0) for each in others]
    lost_one = (lost(first, 0), restarted, *at)
    nodes = cluster(*lost_one).obj["status"]["nodes"]
    nodes[2] |= record
    made = plan(*world(*lost_one, status={"nodes": nodes}))
    assert bool(of(made.actions, "FailOver")) == takes_over
    assert made.verdict.reason == ("TakingOver" if takes_over else "SlotsLost")


@pytest.mark.parametrize(("timeout", "seconds"), [("5000", 60), ("15000", 160), ("1000", 20), ("", 60)])
def test_primary_may_outlive_a_link_for_as_long_as_redis_elects_the_replica(timeout: str, seconds: float) -> None:
    settings = {"cluster-node-timeout": timeout} if timeout else {}
    assert max_lag_seconds(NodeReport("a", settings=settings)) == seconds


def test_replica_that_was_connected_takes_over_before_one_that_started_since() -> None:
    at = (lost(P0, 0), P1, P2, RESTARTED, R1, R2, replica(0, keys=10, offset=900))
    (call,) = of(plan(*world(*at, replicas=7)).actions, "FailOver")
    assert call.id == node_id(6)


def test_consent_is_for_older_keys_or_for_none() -> None:
    older = plan(*succeeded(*REPLACED)).status["recovery"]
    both_lost = (lost(replace(P0, slots=""), 0, member=False), *REPLACED[1:])
    empty = plan(*succeeded(*both_lost)).status["recovery"]
    assert "older" not in empty
    for loss, at in ((older, both_lost), (empty, REPLACED)):
        made = plan(*succeeded(*at, status={"recovery": loss}, recovery={"confirm": loss["token"]}))
        assert made.verdict.reason == "SlotsLost"
        assert made.status["recovery"]["token"] != loss["token"]
        assert [of(made.actions, kind) for kind in ("FailOver", "Forget", "AddSlots")] == [[], [], []]


def test_consent_covers_the_slots_that_are_left_after_an_older_copy_took_over() -> None:
    at = (former(P0, 0), lost(P1, 1), P2, HEIR, lost(R1, 4, member=False), R2)
    loss = plan(*succeeded(*at)).status["recovery"]
    assert loss["older"] == [node_id(0)]
    assert "slots 0-5460 with older keys" in loss["message"]
    assert "; slots 5461-10922 can be served again, empty; all other keys stay." in loss["message"]
    then = (
        replace(P0, epoch=10),
        lost(P1, 1),
        P2,
        replace(HEIR, slots="", of=0, member=False),
        lost(R1, 4, member=False),
        R2,
    )
    made = plan(*succeeded(*then, status={"recovery": loss}, recovery={"confirm": loss["token"]}))
    assert made.status["recovery"]["token"] == loss["token"]
    assert "older" not in made.status["recovery"]
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(1)]


def test_cluster_that_lost_all_primaries_is_not_created_again_while_former_primaries_have_older_keys() -> None:
    at = (
        *(former(each, number) for number, each in enumerate((P0, P1, P2))),
        *(lost(replace(each, epoch=9 + number), 3 + number) for number, each in enumerate((P0, P1, P2))),
    )
    loss = plan(*succeeded(*at, successors=(3, 4, 5))).status["recovery"]
    assert loss["older"] == [node_id(number) for number in range(3)]
    made = plan(*succeeded(*at, successors=(3, 4, 5), status={"recovery": loss}, recovery={"confirm": loss["token"]}))
    assert made.status["formed"] is True
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode) == (node_id(0), "TAKEOVER")


ON_HOSTS: dict[str, Any] = {"storage": None, "pod": [{"volumes": {"type": "hostPath"}}]}


def elsewhere(at: At, number: int) -> At:
    """State of a node whose pod runs on another Kubernetes node, where another node started in an empty directory."""
    return replace(at, up=True, failed=True, disk=f"host-{number}b", incarnation=1, member=False, knows=False, keys=0)


def test_data_on_a_kubernetes_node_that_the_pod_left_is_away_and_not_lost() -> None:
    at = (lost(P0, 0, pod=True), P1, P2, lost(R0, 3, pod=True), R1, R2)
    resource, found = world(*at, **ON_HOSTS)
    made = plan(resource, found)
    assert made.verdict.reason == "DataAway"
    assert made.verdict.message.startswith(
        "No node serves slots 0-5460: the data of demo-0 is on disk-0, of demo-3 is on disk-3, where their pods do not "
        "run. These slots can be served again, empty"
    )
    assert of(made.actions, "Forget") == [], "neither of them: the replica may have the only copy"
    loss = made.status["recovery"]
    back = (P0, P1, P2, lost(R0, 3, pod=True), R1, R2)
    made = confirmed(*back, token=loss["token"], loss=loss, **ON_HOSTS)
    assert "recovery" not in made.status
    assert [call.id for call in of(made.actions, "Forget")] == [node_id(3)], "its primary has the data"


def test_pod_that_runs_where_its_data_is_ends_the_consent_although_it_is_unreachable() -> None:
    at = (lost(P0, 0, pod=True), P1, P2, lost(R0, 3, pod=True), R1, R2)
    loss = plan(*world(*at, **ON_HOSTS)).status["recovery"]
    back = (replace(P0, up=False, failed=True), *at[1:])
    made = confirmed(*back, token=loss["token"], loss=loss, **ON_HOSTS)
    assert "recovery" not in made.status


def test_empty_directory_on_the_recorded_volume_is_named_as_the_evidence() -> None:
    unmounted = At(incarnation=1, recorded=0, member=False, knows=False, epoch=0)
    at = (unmounted, P1, P2)
    resource, found = world(*at, replicasPerMaster=0)
    instances = [replace(each) for each in found.instances]
    others = [
        replace(each, report=replace(each.report, nodes=(*each.report.nodes, _failed_owner())))
        for each in instances[1:]
        if each.report
    ]
    made = plan(resource, replace(found, instances=(instances[0], *others)))
    assert made.verdict.reason == "SlotsLost"
    assert "demo-0 started with an empty directory: first check that the disk is mounted." in made.verdict.message


def _failed_owner() -> Node:
    return Node(node_id(0), "10.0.0.1", 6379, frozenset({"master", "fail"}), epoch=1, slots=Slots.parse("0-5460"))


def test_owner_that_the_reachable_members_know_without_its_slots_is_not_forgotten() -> None:
    """A node that joined after the loss never learns the slots of the lost owner."""
    late = At(incarnation=1, recorded=1, epoch=0)
    resource = cluster(lost(P0, 0), lost(P1, 1), lost(P2, 2), late, replicas=4, replicasPerMaster=0)
    found = seen(resource, *(lost(replace(at, slots=""), number) for number, at in enumerate((P0, P1, P2))), late)
    made = plan(resource, found)
    assert of(made.actions, "Forget") == []
    assert [entry.get("slots") for entry in made.status["nodes"]][:3] == ["0-5460", "5461-10922", "10923-16383"]


def test_recovery_starts_only_after_the_loss_is_recorded() -> None:
    token = recovery_of(*LOSS)["token"]
    made = plan(*world(*LOSS, recovery={"confirm": token}))
    assert made.verdict.reason == "SlotsLost"
    assert made.status["recovery"]["token"] == made.status["recovery"]["priorConfirm"] == token
    assert of(made.actions, "Forget") == [], "the token was in the spec before the loss was found"
    made = confirmed(*LOSS, token=token, loss=made.status["recovery"])
    assert made.verdict.reason == "SlotsLost"
    assert of(made.actions, "Forget") == []


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


SHARED = {"type": "nfs", "persistentVolumeClaimName": "all"}


def replica_left(**spec: Any) -> tuple[RedisCluster, Observed]:
    """A loss of all slots that is confirmed: only demo-3 has kept its volume, an empty replica of the lost demo-0."""
    at = [*NO_DATA[:3], At(incarnation=0, member=False, knows=False, epoch=1), *NO_DATA[4:]]
    resource, found = world(*at, is_formed=False, status={"formed": False}, **spec)
    former = [Node(node_id(n), f"10.0.1.{n}", 6379, frozenset({"master", "fail"}), "", n + 1) for n in range(3)]
    me = Node(node_id(3), "10.0.0.4", 6379, frozenset({"slave", "myself"}), node_id(0), 1)
    report = found.instances[3].report
    assert report is not None
    left = replace(found.instances[3], report=replace(report, nodes=(me, *former), replicates="10.0.1.0:6379"))
    return resource, replace(found, instances=(*found.instances[:3], left, *found.instances[4:]))


def test_replica_that_a_total_loss_left_is_recreated_before_the_cluster_is_created_again() -> None:
    """No replica forgets its primary, or takes slots."""
    made = plan(*replica_left())
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-3", "delete Pod demo-3"]
    assert made.verdict.reason == "Creating"
    shared = plan(*replica_left(storage=None, pod=[{"volumes": SHARED}]))
    assert (acts(shared.actions), shared.verdict.reason) == ([], "NotEmpty")
    assert "demo-3 is a replica of node 0000aaaa" in shared.verdict.message


NO_DATA = [At(incarnation=1, recorded=0, disk=f"disk-{n}b", member=False, knows=False, epoch=0) for n in range(6)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"disk": "disk-2"}, "demo-2 started with an empty directory, as if the disk were not mounted"),
        ({"keys": 5}, "demo-2 may have keys."),
    ],
    ids=["the same volume", "keys"],
)
def test_cluster_is_not_created_again_while_a_disk_may_have_keys(change: dict[str, Any], why: str) -> None:
    new = list(NO_DATA)
    loss = recovery_of(*new)
    new[2] = replace(new[2], **change)
    made = confirmed(*new, token=loss["token"], loss=loss)
    assert (made.status["formed"], made.verdict.reason) == (True, "DataAway")
    assert why in made.verdict.message
    assert acts(made.actions) == []


def test_cluster_on_hosts_is_not_created_again_while_a_host_may_have_keys() -> None:
    made = plan(*world(*NO_DATA, **ON_HOSTS))
    assert (made.status["formed"], made.verdict.reason) == (True, "DataAway")
    assert "the data of demo-0 is on disk-0" in made.verdict.message
    assert "recovery" not in made.status


def test_cluster_whose_status_lost_its_records_is_not_created_again() -> None:
    new = [replace(at, recorded=1, disk=None) for at in NO_DATA]
    made = plan(*world(*new))
    assert (made.status["formed"], made.verdict.reason) == (True, "DataAway")
    assert "recovery" not in made.status


def older_keys_at(*numbers: int) -> Plan:
    """Return the recovery of a lost shard of whose slots these primaries hold older keys."""
    loss = recovery_of(*LOSS)
    forgotten = replace(lost(P0, 0), member=False)
    at = [forgotten, P1, P2, replace(forgotten, disk="disk-3b"), R1, R2]
    for number in numbers:
        at[number] = replace(at[number], strays={100: 3})
    foreign = [{"nodeId": node_id(number), "slots": "100"} for number in numbers]
    resource, found = world(*at, status={"recovery": loss, "foreign": foreign}, recovery={"confirm": loss["token"]})
    return PLANNER.plan(resource, found, NOW)


def test_lost_slots_go_to_no_primary_with_older_keys_of_them() -> None:
    """Keys that were deleted since would be back."""
    [call] = of(older_keys_at(2).actions, "AddSlots")
    assert (call.id, str(call.slots)) == (node_id(1), "0-5460")


def test_lost_slots_wait_while_every_primary_has_older_keys_of_them() -> None:
    made = older_keys_at(1, 2)
    assert of(made.actions, "AddSlots") == []
    assert made.verdict.reason == "SlotsUnserved"
    assert "demo-1, demo-2 would serve older keys of them. Delete these keys" in made.verdict.message


OUTDATED = (P0, lost(P1, 1), lost(P2, 2), *(lost(each, 3 + at, member=False) for at, each in enumerate((R0, R1, R2))))
"""The replica of demo-0 took over; all volumes but that of demo-0 are lost, whose nodes.conf is older than that."""


def outdated(*at: At, **more: Any) -> tuple[RedisCluster, Observed]:
    """Return a cluster in whose status demo-3 took over from demo-0, and its observed state."""
    resource = cluster(*at, **more)
    first, *_, successor = resource.obj["status"]["nodes"][:4]
    del first["slots"]
    del successor["primaryId"]
    successor |= {"role": "primary", "slots": "0-5460", "copyOf": node_id(0)}
    resource = RedisCluster(resource.obj, resource.spec)
    return resource, seen(resource, *at)


def owners(made: Plan) -> dict[str, str]:
    return {entry["name"]: entry["slots"] for entry in made.status["nodes"] if entry.get("slots")}


@pytest.mark.parametrize("at", [OUTDATED, (P0, *(replace(each, up=False) for each in formed()[1:]))])
def test_outdated_primary_does_not_replace_recorded_owners_while_no_majority_answers(at: tuple[At, ...]) -> None:
    resource, found = outdated(*at)
    assert owners(plan(resource, found)) == {"demo-3": "0-5460", "demo-1": "5461-10922", "demo-2": "10923-16383"}


def test_older_keys_of_an_outdated_primary_need_consent() -> None:
    made = plan(*outdated(*OUTDATED))
    loss = made.status["recovery"]
    assert (loss["slots"], loss["older"]) == ("0-16383", [node_id(0)])
    assert made.verdict.reason == "SlotsLost"
    assert "demo-0 can serve slots 0-5460 with older keys" in made.verdict.message
    again = plan(*outdated(*OUTDATED, status={"recovery": loss}))
    assert again.status["recovery"] == loss
    resource, found = outdated(*OUTDATED, status={"recovery": loss}, recovery={"confirm": loss["token"]})
    made = PLANNER.plan(resource, found, NOW)
    assert {call.id for call in of(made.actions, "Forget")} == {node_id(1), node_id(2)}
    assert of(made.actions, "AddSlots") == of(made.actions, "FailOver") == []
    assert made.verdict.reason == "Recovering"


def test_outdated_primary_is_no_loss_while_a_majority_may_come_back() -> None:
    away = (P0, replace(P1, up=False), replace(P2, up=False), lost(R0, 3), R1, R2)
    assert "recovery" not in plan(*outdated(*away)).status


@pytest.mark.parametrize("answers", [True, False], ids=["its primary answers", "its primary is lost"])
def test_replica_whose_disk_may_not_be_mounted_is_forgotten_only_while_its_primary_has_the_data(
    *, answers: bool
) -> None:
    unmounted = replace(R0, incarnation=1, member=False, knows=False, keys=0)
    at = (P0 if answers else lost(P0, 0, pod=True), P1, P2, unmounted, R1, R2)
    resource, found = world(*at)
    former = Node(node_id(3), "10.0.0.4", 6379, frozenset({"slave", "fail"}), node_id(0), 1)
    others = [
        replace(each, report=replace(each.report, nodes=(*each.report.nodes, former)))
        if each.report and each.number != 3
        else each
        for each in found.instances
    ]
    made = plan(resource, replace(found, instances=tuple(others)))
    assert [call.id for call in of(made.actions, "Forget")] == ([node_id(3)] if answers else [])
    if not answers:
        assert made.verdict.reason == "SlotsLost"
        assert "demo-3 started with an empty directory: first check that the disk is mounted." in made.verdict.message


def test_successor_whose_data_is_away_is_not_forgotten_by_the_primary_that_serves_older_keys() -> None:
    """The others were away while demo-3 was the primary: they report it as a replica of demo-0."""
    at = (P0, P1, P2, lost(R0, 3, pod=True), R1, R2)
    resource = cluster(*at, **ON_HOSTS)
    nodes = resource.reported["nodes"]
    nodes[3] |= {"role": "primary", "slots": "0-5460", "copyOf": node_id(0)}
    del nodes[3]["primaryId"], nodes[0]["slots"]
    status = {**resource.reported, "nodes": nodes}
    resource = cluster(*at, status=status, **ON_HOSTS)
    made = plan(resource, seen(resource, *at))
    assert made.verdict.reason == "DataAway"
    assert made.verdict.message.startswith("demo-0 serves older keys: demo-3 took over from it")
    assert of(made.actions, "Forget") == []
    entry = made.status["nodes"][3]
    assert (entry["role"], entry["slots"], entry["copyOf"]) == ("primary", "0-5460", node_id(0))
