"""Hibernation of an EtcdCluster: all members stop and return with every write. The guard judges each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from operators.etcd import plan as etcd_plan
from operators.etcd.steps import availability
from shared.kubernetes import accessors
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, STATEFUL_SET, Obj
from shared.runtime.plan import PASS
from shared.status.verdict import Verdict
from shared.steps.database import HIBERNATION
from shared.steps.hibernation import Hibernation
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import Scenario, ScenarioStep, Unsafe, delete, edit, later, limit_turns
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd.scenarios import (
    ETCD,
    MIDDLE,
    NAME,
    OLD,
    cluster,
    differs,
    failing,
    hangs,
    lost,
    member,
    pods_start,
)
from tests.support.hibernating import require_refused_stop_costs_no_pod
from tests.support.plays import begun_once, played
from tests.support.pod_loss import delete_now

PLAIN = cluster(3)
ASLEEP = cluster(3, hibernate=True)


def mine(run: ScenarioRun) -> Obj:
    [found] = run.stage.find()
    return found


def reason(run: ScenarioRun, name: str = "Ready") -> str:
    return str(accessors.condition(mine(run), name).get("reason"))


def etcd_of(run: ScenarioRun) -> FakeEtcd:
    found: FakeEtcd = run.world.database  # type: ignore[assignment]
    return found


def counts(run: ScenarioRun) -> tuple[int, int]:
    """Return the numbers of pods and of volume claims."""
    return len(run.stage.find(POD)), len(run.stage.find(PERSISTENT_VOLUME_CLAIM))


async def test_members_return_as_they_were_with_every_write() -> None:
    run = await begun_once(ETCD, PLAIN)
    cluster_before = etcd_of(run).cluster()
    before = {record.id for record in cluster_before.now}
    kept = {kind: len(run.stage.find(kind)) for kind in (SERVICE, SECRET, DISRUPTION_BUDGET)}
    await run.run_steps((ASLEEP,))
    assert (reason(run), reason(run, "Available"), mine(run)["status"]["phase"]) == ("Hibernated",) * 3
    assert (counts(run), {kind: len(run.stage.find(kind)) for kind in kept}) == ((0, 3), kept)
    await run.wait(30 * 86400)
    assert (reason(run), mine(run)["status"].get("recovery")) == ("Hibernated", None)
    await run.run_steps((PLAIN,))
    assert reason(run) == "Ready"
    assert {record.id for record in etcd_of(run).cluster().now} == before, "no member was replaced"
    assert HIBERNATION not in run.stage.find(STATEFUL_SET)[0]["metadata"]["annotations"]


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 6, 9])
async def test_hibernation_that_is_withdrawn_midway_ends_as_if_there_was_none(turns: int) -> None:
    run = await begun_once(ETCD, PLAIN)
    before = {record.id for record in etcd_of(run).cluster().now}
    await run.run_steps((limit_turns(ASLEEP, turns), PLAIN))
    assert reason(run) == "Ready"
    await run.run_steps((limit_turns(ASLEEP, turns), limit_turns(PLAIN, turns), ASLEEP))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    await run.run_steps((PLAIN,))
    assert reason(run) == "Ready"
    assert {record.id for record in etcd_of(run).cluster().now} == before


@pytest.mark.parametrize("turns", [0, 2, 5, 20])
async def test_size_that_changes_meanwhile_applies_once_all_members_are_back(turns: int) -> None:
    run = await begun_once(ETCD, PLAIN)
    await run.run_steps((ASLEEP, cluster(1, hibernate=True)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    await run.run_steps((limit_turns(cluster(1), turns), cluster(5), cluster(1)))
    assert (reason(run), counts(run)) == ("Ready", (1, 1))


async def test_upgrade_that_is_requested_meanwhile_follows_the_wake_up() -> None:
    run = await begun_once(ETCD, cluster(3, OLD))
    await run.run_steps((cluster(3, OLD, hibernate=True), cluster(3, MIDDLE, hibernate=True)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    await run.run_steps((cluster(3, MIDDLE),))
    assert reason(run) == "Ready"
    assert {str(process.command.version) for process in etcd_of(run).running} == {MIDDLE}


async def test_password_that_is_rotated_meanwhile_is_set_after_the_wake_up() -> None:
    run = await begun_once(ETCD, cluster(3, auth={}))
    rotate = {"metadata": {"annotations": {"platform.ydzs.io/rotate-password": "1"}}}
    await run.run_steps((cluster(3, auth={}, hibernate=True), edit(None, rotate, NAME), later(3600)))
    assert reason(run) == "Hibernated"
    await run.run_steps((cluster(3, auth={}), later(60)))
    assert reason(run) == "Ready"


@pytest.mark.parametrize(("status", "expected"), [(403, "Forbidden"), (422, "Rejected")])
async def test_stop_that_a_policy_refuses_costs_no_pod_and_is_reported(status: int, expected: str) -> None:
    run = await begun_once(ETCD, PLAIN)
    await require_refused_stop_costs_no_pod(run, ASLEEP, NAME, status, expected)


async def test_claims_that_a_user_has_deleted_do_not_end_with_a_hibernation() -> None:
    """The runbook has the remedy: delete one pod at a time, and wait until its member is replaced."""
    run = await begun_once(ETCD, PLAIN)
    claims = {claim["metadata"]["uid"] for claim in run.stage.find(PERSISTENT_VOLUME_CLAIM)}
    await run.run_steps(
        (*(delete(PERSISTENT_VOLUME_CLAIM, f"data-{member(number)}") for number in range(3)), later(60))
    )
    assert (reason(run), reason(run, "Available")) == ("VolumesTerminating", "Served")
    await run.run_steps((ASLEEP, later(60)))
    assert (reason(run), counts(run)) == ("VolumesTerminating", (3, 3))
    for number in range(3):
        await run.run_steps((delete_now(POD, member(number)), later(60)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    assert claims.isdisjoint(claim["metadata"]["uid"] for claim in run.stage.find(PERSISTENT_VOLUME_CLAIM))
    await run.run_steps((PLAIN,))
    assert reason(run) == "Ready"


async def test_volume_that_is_lost_meanwhile_is_replaced_by_a_new_member() -> None:
    run = await begun_once(ETCD, PLAIN)
    await run.run_steps((ASLEEP, delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(1)}"), PLAIN, later(700)))
    assert (reason(run), counts(run)) == ("Ready", (3, 3))


async def test_volumes_of_a_majority_that_are_lost_meanwhile_need_consent() -> None:
    run = await begun_once(ETCD, PLAIN)
    claims = (delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(number)}") for number in (0, 1))
    await run.run_steps((ASLEEP, *claims))
    assert (reason(run), mine(run)["status"].get("recovery")) == ("Hibernated", None)
    await run.run_steps((PLAIN, later(700)))
    assert reason(run) == "QuorumLost"


async def test_lost_member_is_replaced_before_a_hibernation() -> None:
    run = await begun_once(ETCD, PLAIN)
    await run.run_steps((*lost(1), ASLEEP, later(60)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    await run.run_steps((PLAIN,))
    assert reason(run) == "Ready"


async def test_wake_up_without_enough_nodes_can_be_withdrawn_or_continued_with_a_smaller_size() -> None:
    run = await begun_once(ETCD, cluster(5))
    before = {record.id for record in etcd_of(run).cluster().now}
    await run.run_steps((cluster(5, hibernate=True), failing(3), failing(4), cluster(5), later(90)))
    assert (reason(run), counts(run)) == ("WakingUp", (5, 5))
    await run.run_steps((cluster(5, hibernate=True), later(60)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 5))
    await run.run_steps((pods_start(), cluster(5), later(60)))
    assert reason(run) == "Ready"
    assert {record.id for record in etcd_of(run).cluster().now} == before, "no member was replaced"
    await run.run_steps((cluster(5, hibernate=True), failing(3), failing(4), cluster(5), later(90), cluster(3)))
    await run.run_steps((later(60), later(60), later(60)))
    assert (reason(run), counts(run)) == ("Ready", (3, 3))


@pytest.mark.parametrize(
    "step",
    [
        delete(STATEFUL_SET, NAME),
        edit(STATEFUL_SET, {"metadata": {"annotations": {HIBERNATION: None}}}, NAME),
        edit(STATEFUL_SET, {"metadata": {"annotations": {HIBERNATION: '{"size":1,"wakes":1}'}}}, NAME),
        edit(STATEFUL_SET, {"spec": {"replicas": 3}}, NAME),
        edit(STATEFUL_SET, {"spec": {"replicas": 1}}, NAME),
    ],
    ids=["StatefulSet deleted", "record removed", "record edited", "scaled by hand", "scaled to fewer by hand"],
)
async def test_hibernation_that_another_client_interrupts_continues(step: ScenarioStep) -> None:
    run = await begun_once(ETCD, PLAIN)
    await run.run_steps((ASLEEP, step, later(60)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    await run.run_steps((PLAIN,))
    assert reason(run) == "Ready"


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_member_whose_keys_differ_is_replaced_before_the_members_stop_again(turns: int) -> None:
    run = await begun_once(ETCD, PLAIN)
    before = {record.id for record in etcd_of(run).cluster().now}
    await run.run_steps((ASLEEP, differs(2), limit_turns(PLAIN, turns)))
    await run.run_steps((ASLEEP, later(60), later(60), later(60)))
    assert (reason(run), counts(run)) == ("Hibernated", (0, 3))
    assert not any(disk.corrupt for disk in etcd_of(run).disks.values())
    await run.run_steps((PLAIN,))
    assert (reason(run), len(before & {record.id for record in etcd_of(run).cluster().now})) == ("Ready", 2)


async def test_hibernation_with_a_member_whose_keys_differ_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "differed", lambda _: False)
    monkeypatch.setattr(availability, "suspected", lambda _: False)
    monkeypatch.setattr(etcd_plan, "replace_corrupt_member", lambda _: PASS)  # as without a majority of hashes
    run = await begun_once(ETCD, PLAIN)
    await run.run_steps((ASLEEP, differs(2), limit_turns(PLAIN, 8)))
    with pytest.raises(Unsafe, match="the keys of cache-2 differ"):
        await run.run_steps((ASLEEP,))


def stops_at_once(patch: pytest.MonkeyPatch) -> None:
    """Does not wait for the end of what is in progress."""
    begin = Hibernation._begin
    patch.setattr(Hibernation, "_begin", lambda self, seen, _: begin(self, seen, Verdict()))


def repairs_stopped_members(patch: pytest.MonkeyPatch) -> None:
    """Takes stopped members for missing ones."""
    patch.setattr(etcd_plan, "keep_stopped", lambda _: PASS)


async def test_hibernation_that_does_not_wait_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    stops_at_once(monkeypatch)
    with pytest.raises(Unsafe, match="2 of 3 members keep up"):
        await played(ETCD, Scenario("a member hangs", (hangs(1), ASLEEP), given=(PLAIN,)))


async def test_hibernation_that_ends_with_the_claims_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    stops_at_once(monkeypatch)
    claims = (delete(PERSISTENT_VOLUME_CLAIM, f"data-{member(number)}") for number in range(3))
    with pytest.raises(Unsafe, match="and the data are deleted"):
        await played(ETCD, Scenario("claims are deleted", (*claims, ASLEEP), given=(PLAIN,)))


@pytest.mark.parametrize("sabotage", [repairs_stopped_members], ids=lambda each: each.__name__)
async def test_stopped_members_that_count_as_missing_are_detected(
    monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[pytest.MonkeyPatch], None]
) -> None:
    sabotage(monkeypatch)
    run = await begun_once(ETCD, PLAIN)
    await run.run_steps((ASLEEP,))
    assert reason(run) != "Hibernated"
