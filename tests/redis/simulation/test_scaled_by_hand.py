"""A user scales the StatefulSet directly, in the middle of any change: no node with data stays away."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import STATEFUL_SET
from tests.harness.disturbance import Disturbance
from tests.harness.outage import Outage, disturbance, every, sample
from tests.harness.scenario import Scenario, Stage, later
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.redis.scenarios import NAME, REDIS, cluster

COMMIT_SHARE, NIGHTLY_SHARE = 48, 12
"""Points of a scenario for each one that runs at each commit, and each night; all run each week."""


def scaled_to(replicas: int) -> Disturbance:
    """Scale the StatefulSet as `kubectl scale` does; its controller deletes pods before the operator observes it."""

    def act(stage: Stage) -> None:
        stage.user_client.merge(STATEFUL_SET, stage.namespace, NAME, {"spec": {"replicas": replicas}})
        stage.workloads.settle()

    return disturbance(f"kubectl scale statefulset --replicas {replicas}", Outage(act, every()))


SCALED = [scaled_to(6), scaled_to(7), scaled_to(2)]

SCENARIOS = (
    Scenario("scale in by a primary", (cluster(6),), given=(cluster(8),), exact_counts=False),
    Scenario("scale out", (cluster(8), later(60)), given=(cluster(6),), exact_counts=False),
)


async def test_scale_in_by_hand_is_reverted_while_nodes_have_data(scoreboard: Scoreboard) -> None:
    """To the fewest pods; each night, to the other numbers as well."""
    scoreboard.require(await sweep(REDIS, SCENARIOS[0], sample(SCALED[-1], COMMIT_SHARE)))


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
@pytest.mark.parametrize("hand", SCALED, ids=str)
async def test_scaling_by_hand_at_some_points(scenario: Scenario, hand: Disturbance, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, sample(hand, NIGHTLY_SHARE)))


@pytest.mark.weekly
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
@pytest.mark.parametrize("hand", SCALED, ids=str)
async def test_scaling_by_hand_at_all_points(scenario: Scenario, hand: Disturbance, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(REDIS, scenario, hand))
