"""Hibernation of a RedisCluster: all pods stop and return with every key. The guard judges each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from operators.redis.database import HIBERNATION as HIBERNATES
from operators.redis.plan import Planner
from shared.kubernetes import accessors
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, STATEFUL_SET, Obj
from shared.status.verdict import Verdict
from shared.steps.database import HIBERNATION
from shared.steps.hibernation import Hibernation
from tests.harness.scenario import Scenario, ScenarioStep, Unsafe, delete, edit, later, limit_turns
from tests.harness.scenario_runner import ScenarioRun
from tests.redis.simulation.moving_slots import redis_of
from tests.support.hibernating import forged, require_refused_stop_costs_no_pod
from tests.support.plays import begun_once, played
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import (
    NAME,
    NEW_PASSWORD,
    OLD,
    REDIS,
    cluster,
    failing,
    hangs,
    primary_lost,
    recovery_confirmed,
)

PLAIN = cluster(6)
ASLEEP = cluster(6, hibernate=True)
VALKEY = {"repository": "valkey/valkey"}
Roles = dict[str, tuple[str, int, str]]


def mine(run: ScenarioRun) -> Obj:
    [found] = run.stage.find()
    return found


def reason(run: ScenarioRun, name: str = "Ready") -> str:
    return str(accessors.condition(mine(run), name).get("reason"))


def roles(run: ScenarioRun) -> Roles:
    """Return the id, the slots and the primary of each running node."""
    return {each.pod: (each.node.id, each.node.me.slots, each.node.me.primary) for each in redis_of(run.world).running}


def claims(run: ScenarioRun) -> set[str]:
    """Return the UIDs of the volume claims."""
    return {claim["metadata"]["uid"] for claim in run.stage.find(PERSISTENT_VOLUME_CLAIM)}


async def carry_out(run: ScenarioRun, *steps: ScenarioStep) -> None:
    await run.run_steps(steps)


def require_all_keys(run: ScenarioRun) -> None:
    redis = redis_of(run.world)
    redis.settle("clients read")
    redis.guard.require_resolved(redis)
    assert redis.guard.records, "clients have written"


@pytest.mark.parametrize("engine", ["redis", pytest.param("valkey", marks=pytest.mark.nightly)])
async def test_nodes_return_with_their_roles_and_all_keys(engine: str) -> None:
    """Valkey 9 would let a replica take over from a primary that stops."""
    spec = {"version": "9.0.1", **VALKEY} if engine == "valkey" else {"version": OLD}
    run = await begun_once(REDIS, cluster(6, **spec))
    before, kept = roles(run), {kind: len(run.stage.find(kind)) for kind in (SERVICE, SECRET, DISRUPTION_BUDGET)}
    await carry_out(run, cluster(6, hibernate=True, **spec))
    assert (reason(run), reason(run, "Available"), mine(run)["status"]["phase"]) == ("Hibernated",) * 3
    assert (len(run.stage.find(POD)), len(run.stage.find(PERSISTENT_VOLUME_CLAIM))) == (0, 6)
    assert {kind: len(run.stage.find(kind)) for kind in kept} == kept
    await run.wait(30 * 86400)
    assert (reason(run), mine(run)["status"].get("recovery")) == ("Hibernated", None)
    await carry_out(run, cluster(6, **spec))
    assert (reason(run), roles(run)) == ("Ready", before)
    assert HIBERNATION not in run.stage.find(STATEFUL_SET)[0]["metadata"]["annotations"]
    require_all_keys(run)


@pytest.mark.nightly
@pytest.mark.parametrize("turns", [2, 5, 8, 12, 18, 26])
async def test_hibernation_that_is_withdrawn_midway_ends_as_if_there_was_none(turns: int) -> None:
    run = await begun_once(REDIS, PLAIN)
    await carry_out(run, limit_turns(ASLEEP, turns), PLAIN)
    assert reason(run) == "Ready"
    require_all_keys(run)
    await carry_out(run, limit_turns(ASLEEP, turns), limit_turns(PLAIN, turns), ASLEEP)
    assert (reason(run), len(run.stage.find(POD))) == ("Hibernated", 0)
    await carry_out(run, PLAIN)
    assert reason(run) == "Ready"
    require_all_keys(run)


@pytest.mark.parametrize("turns", [3, *(pytest.param(turns, marks=pytest.mark.nightly) for turns in (2, 4, 5, 8, 12))])
async def test_cluster_that_is_paused_midway_serves_or_has_stopped(turns: int) -> None:
    run = await begun_once(REDIS, PLAIN)
    run.stage.workloads.sleep_before_stop()
    await carry_out(run, limit_turns(ASLEEP, turns), cluster(6, hibernate=True, pause=True), later(60))
    pods = len(run.stage.find(POD))
    assert (pods, reason(run, "Available")) in ((6, "Served"), (0, "Hibernated"))
    await carry_out(run, ASLEEP)
    assert (reason(run), len(run.stage.find(POD))) == ("Hibernated", 0)
    await carry_out(run, PLAIN)
    assert reason(run) == "Ready"
    require_all_keys(run)


@pytest.mark.parametrize("seconds", [-10, 10])
async def test_clock_of_the_operator_has_no_influence_on_the_order(seconds: int) -> None:
    run = await begun_once(REDIS, PLAIN)
    await run.wait(60)
    run.end()
    run.world.clock.error = timedelta(seconds=seconds)
    run.stage.workloads.sleep_before_stop()
    await carry_out(run, ASLEEP, later(60))
    assert (reason(run), len(run.stage.find(POD))) == ("Hibernated", 0)


@pytest.mark.nightly
@pytest.mark.parametrize("turns", [0, 4, 12, 40])
async def test_size_that_changes_meanwhile_applies_once_all_nodes_are_back(turns: int) -> None:
    run = await begun_once(REDIS, cluster(8))
    await carry_out(run, cluster(8, hibernate=True), cluster(6, hibernate=True))
    assert (reason(run), len(run.stage.find(PERSISTENT_VOLUME_CLAIM))) == ("Hibernated", 8)
    await carry_out(run, limit_turns(cluster(6), turns), cluster(7), cluster(6))
    assert (reason(run), len(run.stage.find(POD)), len(run.stage.find(PERSISTENT_VOLUME_CLAIM))) == ("Ready", 6, 6)
    require_all_keys(run)


@pytest.mark.nightly
async def test_persistence_that_is_switched_off_meanwhile_loses_no_key() -> None:
    run = await begun_once(REDIS, PLAIN)
    await carry_out(run, ASLEEP, cluster(6, config={"appendonly": "no", "save": ""}))
    assert reason(run) == "Ready"
    require_all_keys(run)


@pytest.mark.nightly
async def test_password_that_is_rotated_meanwhile_is_that_of_the_nodes() -> None:
    run = await begun_once(REDIS, cluster(6, auth={}))
    await carry_out(run, cluster(6, auth={}, hibernate=True), edit(None, NEW_PASSWORD, NAME))
    await run.wait(3600, times=2)
    assert reason(run) == "Hibernated"
    await carry_out(run, cluster(6, auth={}))
    assert reason(run) == "Ready"
    require_all_keys(run)


@pytest.mark.nightly
async def test_volume_of_a_replica_that_is_lost_meanwhile_is_replaced() -> None:
    run = await begun_once(REDIS, PLAIN)
    [replica, *_] = [pod for pod, (_, slots, _) in roles(run).items() if not slots]
    await carry_out(run, ASLEEP, delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{replica}"), PLAIN, later(60))
    assert reason(run) == "Ready"
    require_all_keys(run)


@pytest.mark.nightly
async def test_volumes_of_a_shard_that_are_lost_meanwhile_need_consent() -> None:
    run = await begun_once(REDIS, PLAIN)
    first = roles(run)
    [(primary, (node_id, *_)), *_] = [(pod, found) for pod, found in first.items() if found[1]]
    shard = [primary, *(pod for pod, (_, _, lead) in first.items() if lead == node_id)]
    await carry_out(run, ASLEEP, *(delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{pod}") for pod in shard))
    assert (reason(run), mine(run)["status"].get("recovery")) == ("Hibernated", None)
    await carry_out(run, PLAIN, later(60))
    assert reason(run) == "SlotsLost"
    await carry_out(run, recovery_confirmed(), later(60))
    assert reason(run) == "Ready"


@pytest.mark.nightly
async def test_loss_that_waits_for_a_decision_delays_a_hibernation() -> None:
    run = await begun_once(REDIS, PLAIN)
    await carry_out(run, primary_lost(with_replicas=True), ASLEEP)
    assert (reason(run), len(run.stage.find(POD))) == ("SlotsLost", 6)
    await carry_out(run, recovery_confirmed(), later(60))
    assert reason(run) == "Hibernated"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "step",
    [
        delete(STATEFUL_SET, NAME),
        edit(STATEFUL_SET, {"metadata": {"annotations": {HIBERNATION: None}}}, NAME),
        forged(NAME, replicas=3, replicas_per_master=0, wakes=1),
        edit(STATEFUL_SET, {"spec": {"replicas": 6}}, NAME),
        edit(STATEFUL_SET, {"spec": {"replicas": 2}}, NAME),
    ],
    ids=["StatefulSet deleted", "record removed", "record edited", "scaled by hand", "scaled to fewer by hand"],
)
async def test_hibernation_that_another_client_interrupts_continues(step: ScenarioStep) -> None:
    run = await begun_once(REDIS, PLAIN)
    await carry_out(run, ASLEEP, step, later(60))
    assert (reason(run), len(run.stage.find(POD))) == ("Hibernated", 0)
    await carry_out(run, PLAIN)
    assert reason(run) == "Ready"
    require_all_keys(run)


@pytest.mark.parametrize(("status", "expected"), [(403, "Forbidden"), (422, "Rejected")])
async def test_stop_that_a_policy_refuses_costs_no_pod_and_is_reported(status: int, expected: str) -> None:
    run = await begun_once(REDIS, PLAIN)
    await require_refused_stop_costs_no_pod(run, ASLEEP, NAME, status, expected)


async def test_record_of_another_client_neither_scales_a_cluster_nor_deletes_a_volume() -> None:
    run = await begun_once(REDIS, cluster(8))
    before = claims(run)
    await carry_out(run, forged(NAME, replicas=6, replicas_per_master=1, wakes=1), later(60))
    assert (reason(run), claims(run)) == ("Ready", before)


async def test_pods_whose_claims_are_being_deleted_keep_running() -> None:
    """The claims end with the pods that use them (kubernetes.io/pvc-protection)."""
    run = await begun_once(REDIS, PLAIN)
    claims = [each["metadata"]["name"] for each in run.stage.find(PERSISTENT_VOLUME_CLAIM)]
    await carry_out(run, *(delete(PERSISTENT_VOLUME_CLAIM, name) for name in claims), ASLEEP)
    assert (reason(run), len(run.stage.find(POD))) == ("VolumesTerminating", 6)
    require_all_keys(run)


@pytest.mark.nightly
async def test_hibernating_cluster_is_deleted_with_its_pods_and_keeps_its_volumes() -> None:
    run = await begun_once(REDIS, PLAIN)
    await carry_out(run, ASLEEP, delete())
    assert (run.stage.find(), run.stage.find(STATEFUL_SET), len(run.stage.find(PERSISTENT_VOLUME_CLAIM))) == ([], [], 6)


def stops_at_once(patch: pytest.MonkeyPatch) -> None:
    """Does not wait for the end of what is in progress, and takes a server that it does not reach for a saved one."""
    begin = Hibernation._begin
    patch.setattr(Planner, "hibernation", replace(HIBERNATES, why_running=lambda _: ""))
    patch.setattr(Hibernation, "_begin", lambda self, seen, _: begin(self, seen, Verdict()))


def stops_all_pods_at_once(patch: pytest.MonkeyPatch) -> None:
    """Stops primaries together with their replicas."""
    patch.setattr(Planner, "hibernation", replace(HIBERNATES, stop_first=lambda _: ()))


IN_SYNC = Scenario("asleep", (ASLEEP,), given=(PLAIN,))
HUNG = Scenario("asleep while a node hangs", (hangs(0), ASLEEP), given=(PLAIN,))


@pytest.mark.parametrize(
    ("sabotage", "scenario", "violation"),
    [
        (stops_all_pods_at_once, IN_SYNC, "while the replica .* could take over"),
        (stops_at_once, HUNG, "cache-0 does not serve in sync|while 5 servers run"),
    ],
)
async def test_unsafe_hibernation_is_detected(
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[[pytest.MonkeyPatch], None],
    scenario: Scenario,
    violation: str,
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=violation):
        await played(REDIS, scenario)


@pytest.mark.nightly
async def test_wake_up_without_enough_nodes_continues_with_fewer_replicas_once_a_user_ends_the_record() -> None:
    """The commands of docs/how-to/hibernate.md; the guard requires every key."""
    run = await begun_once(REDIS, cluster(7))
    absent = 6
    await run.run_steps((cluster(7, hibernate=True), failing(absent), cluster(7), later(90)))
    assert (reason(run), reason(run, "Available")) == ("WakingUp", "Served")
    await run.run_steps((edit(STATEFUL_SET, {"metadata": {"annotations": {HIBERNATION: None}}}, NAME), cluster(6)))
    for _ in range(6):
        await run.run_steps((later(60),))
    assert (reason(run), len(run.stage.find(POD))) == ("Ready", 6), mine(run)["status"]["conditions"]
    require_all_keys(run)
