"""All pods restart in the middle of a change, as during an upgrade of a node pool; each gets another address.

Nodes above spec.replicas are members until their slots have moved. Their peers must learn their new addresses like
those of all other nodes, or the nodes never agree again, and no later step runs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.redis.objects.names import CONFIG_MARK
from operators.redis.steps.placement import STABLE
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import POD
from tests.harness.disturbance import Disturbance
from tests.harness.outage import Outage, disturbance, every, sample
from tests.harness.scenario import Scenario, Stage, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.redis.scenarios import REDIS, SCENARIOS, cluster

COMMIT_SHARE, NIGHTLY_SHARE = 48, 5
"""Points of a scenario for each one that runs at each commit, and each night. All run each week."""

OF_ALL_SHARE = 120
"""Points of every other scenario for each one that runs each night: one at least. All run each week."""


def _restart_all(stage: Stage) -> None:
    """Delete all pods at once, without an event for the operator."""
    for pod in stage.find(POD):
        stage.user_client.delete(POD, stage.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)


_IN_MEMORY = "without volumes, a restart of all pods is a total loss"
_DELETED = "nothing is left to compare"
EXCLUDED = {
    "create without volumes": _IN_MEMORY,
    "scale out and in without volumes": _IN_MEMORY,
    "upgrade without volumes": _IN_MEMORY,
    "lose a primary without volumes": _IN_MEMORY,
    "delete": _DELETED,
    "delete and keep all objects": _DELETED,
    "delete with data": _DELETED,
}
"""Scenarios that are not played with a restart, and why."""

PODS = ("updatedReplicas", f"Pod {CONFIG_MARK}", "by")
"""Fields that follow from the template of each pod: one that restarts has the newest, also if that is edited by hand.

A StatefulSet counts the pods that have it. And a pod keeps the mark of the settings that its server started with, if
the server reports those that it has applied since.
"""

ROLES = ("outOfSyncSince",)
"""Fields of replicas: which of two new pods becomes one is not fixed, as the roles that each comparison leaves out."""

SPREAD = later(STABLE.total_seconds())
"""Primaries may share a host after the restart: the operator waits before it spreads them."""

RESTARTED: Disturbance = disturbance(
    "all pods restart", Outage(_restart_all, every(), SPREAD.act), unstable=(*PODS, *ROLES)
)


def _spread(scenario: Scenario) -> Scenario:
    """Return a scenario that waits for it as well: a replica on the same host may take over without a restart."""
    return replace(scenario, steps=(*scenario.steps, SPREAD))


SCALE_IN = (
    Scenario("scale in by a replica", (cluster(6),), given=(cluster(7),), exact_counts=False),
    Scenario("scale in by a primary", (cluster(6),), given=(cluster(8),), exact_counts=False),
)

PLAYED = [_spread(each) for each in SCENARIOS if each.name not in EXCLUDED]

ADOPTION = next(each for each in SCENARIOS if each.name == "adopt more volumes than replicas")


def test_each_scenario_is_played_with_a_restart_or_has_a_reason_why_not() -> None:
    played = [each.name for each in PLAYED]
    assert sorted([*played, *EXCLUDED]) == sorted(each.name for each in SCENARIOS)
    assert all(EXCLUDED.values())


@pytest.mark.parametrize("scenario", SCALE_IN, ids=str)
async def test_restart_of_all_pods_does_not_stop_a_scale_in(scenario: Scenario, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, sample(RESTARTED, COMMIT_SHARE)))


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", [*SCALE_IN, ADOPTION], ids=str)
async def test_restart_of_all_pods_at_some_points(scenario: Scenario, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, sample(RESTARTED, NIGHTLY_SHARE)))


@pytest.mark.weekly
@pytest.mark.parametrize("scenario", SCALE_IN, ids=str)
async def test_restart_of_all_pods_at_all_points(scenario: Scenario, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, RESTARTED))


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", PLAYED[::2], ids=str)
async def test_restart_of_all_pods_at_some_points_of_a_change(scenario: Scenario, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, sample(RESTARTED, OF_ALL_SHARE)))


@pytest.mark.weekly
@pytest.mark.parametrize("scenario", PLAYED, ids=str)
async def test_restart_of_all_pods_at_all_points_of_a_change(scenario: Scenario, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, RESTARTED))


async def test_more_volumes_than_replicas_are_adopted() -> None:
    """All nodes start at new addresses, those above spec.replicas as well; then these are removed."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((*ADOPTION.given, *ADOPTION.steps))
    [found] = run.stage.find()
    assert condition(found, "Ready")["reason"] == "Ready"
    assert len(run.stage.find(POD)) == 6
