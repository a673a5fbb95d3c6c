"""A downgrade goes one series at a time, also if the user changes the version again before it, or an upgrade, ends."""

from __future__ import annotations

import pytest

from operators.etcd.steps import version_change
from shared.kubernetes import accessors
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import later, limit_turns
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd.scenarios import ETCD, MIDDLE, NEW, OLD, cluster
from tests.support.plays import begun_once

OLDEST = "3.4.44"

CONVERTS = 9
"""Turn of a downgrade from which on etcd converts its data; until then it can be cancelled."""


async def changed_midway(
    turns: int, then: str, *, at_first: str = NEW, to: str = MIDDLE
) -> tuple[ScenarioRun, tuple[str, str]]:
    """Return a run in which the version changes again during a change, and Ready's reason and the version at its end.

    By default that is a downgrade from 3.7.
    """
    play = await begun_once(ETCD, cluster(3, at_first))
    await play.step(limit_turns(cluster(3, to), turns))
    await play.step(cluster(3, then))
    for _ in range(4):
        await play.step(later(60))
    return play, found(play)


def found(play: ScenarioRun) -> tuple[str, str]:
    [resource] = play.stage.find()
    assert resource["status"]["readyMembers"] == 3
    return accessors.condition(resource, "Ready")["reason"], resource["status"]["version"]


@pytest.mark.parametrize("turns", range(CONVERTS, CONVERTS + 11))
async def test_downgrade_that_has_begun_ends_before_the_next(turns: int) -> None:
    """The guard ends a run in which a member starts two series below its data, or below the version of the cluster."""
    _, ended = await changed_midway(turns, OLD)
    assert ended == ("Ready", OLD)


@pytest.mark.parametrize("turns", [0, 1, 4, CONVERTS - 1])
async def test_downgrade_by_two_series_is_refused_before_it_begins(turns: int) -> None:
    _, ended = await changed_midway(turns, OLD)
    assert ended == ("UpgradeRefused", NEW)


@pytest.mark.parametrize("turns", range(1, CONVERTS + 11, 3))
async def test_downgrade_that_has_begun_can_be_completed_after_a_version_that_is_refused(turns: int) -> None:
    play, (reason, _) = await changed_midway(turns, OLDEST)
    assert reason == "UpgradeRefused"
    await play.step(cluster(3, MIDDLE))
    for _ in range(4):
        await play.step(later(60))
    assert found(play) == ("Ready", MIDDLE)


@pytest.mark.parametrize("turns", range(1, 21, 2))
async def test_upgrade_that_is_reverted_at_any_time_ends(turns: int) -> None:
    """Some seconds after all members run the later series, etcd raises the version of the cluster."""
    _, ended = await changed_midway(turns, MIDDLE, at_first=MIDDLE, to=NEW)
    assert ended == ("Ready", MIDDLE)


async def test_pod_of_the_earlier_series_in_a_later_cluster_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator reverted an upgrade that every member had made: its pod ends at each start until that is undone."""
    monkeypatch.setattr(FakeEtcd, "_require_converted", lambda *_: None)  # the guard would end the run
    with monkeypatch.context() as patch:
        patch.setattr(version_change, "_runs_later", lambda *_: False)
        play = await begun_once(ETCD, cluster(3, MIDDLE))
        await play.step(limit_turns(cluster(3, NEW), 20))
        await play.step(cluster(3, MIDDLE))
    database = play.world.database
    assert isinstance(database, FakeEtcd)
    assert [process.pod for process in database.processes.values() if process.exit_message] == ["cache-0"]
    await play.step(cluster(3, NEW))
    for _ in range(4):
        await play.step(later(60))
    assert found(play) == ("Ready", NEW)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_hidden", [False, True], ids=["of the operator", "that 3.5 does not report"])
async def test_cluster_grows_after_a_downgrade(size: int, *, is_hidden: bool) -> None:
    """3.5 ends a downgrade some seconds later, and only if each member answers; until then, it lets none join."""
    play = await begun_once(ETCD, cluster(size, OLD if is_hidden else MIDDLE))
    database = play.world.database
    assert isinstance(database, FakeEtcd)
    if is_hidden:
        database.cluster().downgrade = (3, 5)
    await play.step(cluster(size + 2, OLD))
    for _ in range(4):
        await play.step(later(60))
    [resource] = play.stage.find()
    assert accessors.condition(resource, "Ready")["reason"] == "Ready"
    assert (resource["status"]["readyMembers"], resource["status"]["version"]) == (size + 2, OLD)
