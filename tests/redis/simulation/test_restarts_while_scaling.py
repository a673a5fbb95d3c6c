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
"""Points of a scenario for each one that runs at each commit, and each night; those of a scale-in all run each week."""

OF_ALL_SHARE = 60
"""Points of each scenario in `HOLD` for each one that runs each night."""


def _restart_all(stage: Stage) -> None:
    """Delete all pods at once, without an event for the operator."""
    for pod in stage.find(POD):
        stage.user_client.delete(POD, stage.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)


HOLD = (
    "create",
    "lose a primary",
    "lose a replica",
    "lose slots",
    "lose slots and recover",
    "edit owned objects",
    "adopt volumes",
    "change the certificate authority",
    "set a password for the first time",
    "upgrade",
    "change settings at runtime",
    "scale out and in with valkey",
)
"""Scenarios that end as without a restart, at the points of the sample. The others were not judged yet.

Nodes without volumes lose all data when they restart.
"""

PODS = ("updatedReplicas", f"Pod {CONFIG_MARK}")
"""Fields that follow from the template of each pod: a pod that restarts has the newest one.

A StatefulSet counts the pods that have it. And a pod keeps the mark of the settings that its server started with, if
the server reports those that it has applied since.
"""

SPREAD = later(STABLE.total_seconds())
"""Primaries may share a host after the restart: the operator waits before it spreads them."""

RESTARTED: Disturbance = disturbance("all pods restart", Outage(_restart_all, every(), SPREAD.act), unstable=PODS)


def _spread(scenario: Scenario) -> Scenario:
    """Return a scenario that waits for it as well: a replica on the same host may take over without a restart."""
    return replace(scenario, steps=(*scenario.steps, SPREAD))


SCALE_IN = (
    Scenario("scale in by a replica", (cluster(6),), given=(cluster(7),), exact_counts=False),
    Scenario("scale in by a primary", (cluster(6),), given=(cluster(8),), exact_counts=False),
)

ADOPTION = next(each for each in SCENARIOS if each.name == "adopt more volumes than replicas")


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
@pytest.mark.parametrize("scenario", [_spread(each) for each in SCENARIOS if each.name in HOLD], ids=str)
async def test_restart_of_all_pods_at_some_points_of_a_change(scenario: Scenario, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, sample(RESTARTED, OF_ALL_SHARE)))


async def test_more_volumes_than_replicas_are_adopted() -> None:
    """All nodes start at new addresses, those above spec.replicas as well; then these are removed."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((*ADOPTION.given, *ADOPTION.steps))
    [found] = run.stage.find()
    assert condition(found, "Ready")["reason"] == "Ready"
    assert len(run.stage.find(POD)) == 6
