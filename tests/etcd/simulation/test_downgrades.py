"""A downgrade goes one series at a time, also if the user changes the version again before it ends."""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from tests.harness.scenario import later, limit_turns
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd.scenarios import ETCD, MIDDLE, NEW, OLD, cluster
from tests.support.plays import begun_once

OLDEST = "3.4.44"


async def changed_midway(turns: int, then: str) -> tuple[ScenarioRun, tuple[str, str]]:
    """Return a run in which the version changes again during a downgrade from 3.7, and what Ready has as its reason."""
    play = await begun_once(ETCD, cluster(3, NEW))
    await play.step(limit_turns(cluster(3, MIDDLE), turns))
    await play.step(cluster(3, then))
    for _ in range(4):
        await play.step(later(60))
    return play, found(play)


def found(play: ScenarioRun) -> tuple[str, str]:
    [resource] = play.stage.find()
    assert resource["status"]["readyMembers"] == 3
    return accessors.condition(resource, "Ready")["reason"], resource["status"]["version"]


@pytest.mark.parametrize("turns", range(1, 12))
async def test_downgrade_that_has_begun_ends_before_the_next(turns: int) -> None:
    """The guard ends a run in which a member starts two series below its data, or below the version of the cluster."""
    _, ended = await changed_midway(turns, OLD)
    assert ended == ("Ready", OLD)


async def test_downgrade_by_two_series_is_refused_before_it_begins() -> None:
    _, ended = await changed_midway(0, OLD)
    assert ended == ("UpgradeRefused", NEW)


@pytest.mark.parametrize("turns", range(1, 8))
async def test_downgrade_that_has_begun_can_be_completed_after_a_version_that_is_refused(turns: int) -> None:
    play, (reason, _) = await changed_midway(turns, OLDEST)
    assert reason == "UpgradeRefused"
    await play.step(cluster(3, MIDDLE))
    for _ in range(4):
        await play.step(later(60))
    assert found(play) == ("Ready", MIDDLE)
