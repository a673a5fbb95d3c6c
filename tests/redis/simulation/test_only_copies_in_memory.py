"""Planned restarts of primaries whose keys are only in memory: a replica takes over first, or the pod stays."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import Obj
from tests.harness.scenario import ScenarioStep, later, limit_turns
from tests.harness.scenario_runner import ScenarioRun
from tests.redis.simulation.guard import values
from tests.redis.simulation.losses import SUBJECT
from tests.redis.simulation.moving_slots import redis_of, status
from tests.support.plays import begun, pods, ready, run
from tests.support.redis.scenarios import NEW, cluster, in_memory

MEMORY: Obj = {"config": {"appendonly": "no", "save": ""}}
SNAPSHOTS: Obj = {"config": {"appendonly": "no"}}
ALONE: Obj = {"replicasPerMaster": 0}


async def changed(given: ScenarioStep, *changes: ScenarioStep) -> ScenarioRun:
    """Return a run in which these changes end; clients find all keys, or the judge of the simulation fails."""
    play = await begun(SUBJECT, given, later(60))
    redis = redis_of(play.world)
    redis.client.idle = True  # so that no key changes
    before = {key: entry for key, entry in values(redis).items() if not entry.expires}
    assert before
    await run(play, (*changes, later(60), later(60)))
    assert {key for key, entry in before.items() if values(redis).get(key) != entry} == set()
    assert "recovery" not in status(play)
    redis.settle("clients read")
    redis.guard.require_resolved(redis)
    return play


@pytest.mark.parametrize("version", [None, NEW], ids=["alone", "with an upgrade"])
@pytest.mark.parametrize("replicas", [6, 3], ids=["become primaries", "are removed"])
async def test_replicas_take_over_before_they(replicas: int, version: str | None) -> None:
    """Without replicas, processes keep their ids: each pod changes, also without an upgrade."""
    to = {"version": version} if version else {}
    play = await changed(cluster(6, **MEMORY), cluster(replicas, **to, **MEMORY, **ALONE))
    assert ready(play)["reason"] == "Ready"
    assert len(pods(play)) == replicas


@pytest.mark.parametrize("files", [pytest.param({}, marks=pytest.mark.nightly), SNAPSHOTS], ids=["log", "snapshots"])
@pytest.mark.parametrize("replicas", [6, pytest.param(3, marks=pytest.mark.nightly)])
async def test_replicas_take_over_before_persistence_is_switched_on(replicas: int, files: Obj) -> None:
    """Files of a process that begins as a new node have its id in their names: the next pod does not read them."""
    play = await changed(cluster(6, **MEMORY), cluster(replicas, **files, **ALONE))
    assert ready(play)["reason"] == "Ready"
    assert len(pods(play)) == replicas


@pytest.mark.parametrize("version", [None, NEW], ids=["alone", "with an upgrade"])
async def test_primaries_become_replicas_before_only_copies_are_restarted(version: str | None) -> None:
    to = {"version": version} if version else {}
    play = await changed(cluster(6, **ALONE, **MEMORY), cluster(6, **to, **MEMORY), later(60))
    assert ready(play)["reason"] == "Ready"
    assert len([process for process in redis_of(play.world).running if process.node.me.slots]) == 3


@pytest.mark.parametrize("replicas", [5, 3], ids=["out", "in"])
async def test_cluster_whose_only_copies_are_not_restarted_still_scales(replicas: int) -> None:
    given = cluster(4, **ALONE, **MEMORY)
    play = await changed(given, cluster(replicas, NEW, **ALONE, **MEMORY), later(60))
    assert len([process for process in redis_of(play.world).running if process.node.me.slots]) == replicas
    assert ready(play)["reason"] == "RollBlocked"


@pytest.mark.parametrize(
    ("given", "change", "lacks"),
    [
        (cluster(3, **ALONE, **MEMORY), cluster(3, NEW, **ALONE, **MEMORY), "only in memory"),
        (cluster(3, **ALONE), cluster(3, NEW, **ALONE, **MEMORY), "only in memory"),
        (in_memory(3, **ALONE), in_memory(3, NEW, **ALONE), "no spec.storage"),
    ],
    ids=["upgrade", "upgrade and persistence off", "no volume"],
)
async def test_only_copy_is_not_restarted(given: ScenarioStep, change: ScenarioStep, lacks: str) -> None:
    play = await begun(SUBJECT, given)
    before = pods(play)
    play.end()
    play = await changed(given, change)
    assert len(before) == len(pods(play)) == 3
    assert ready(play)["reason"] == "RollBlocked"
    assert lacks in ready(play)["message"]


async def test_only_copies_are_restarted_once_they_have_replicas() -> None:
    play = await changed(
        cluster(3, **ALONE, **MEMORY), cluster(3, NEW, **ALONE, **MEMORY), cluster(6, NEW, **MEMORY), later(60)
    )
    assert ready(play)["reason"] == "Ready"


async def test_upgrade_waits_for_the_first_log() -> None:
    play = await changed(cluster(3, **ALONE, **MEMORY), cluster(3, "7.0.16", **ALONE))
    assert ready(play)["reason"] == "Ready"


@pytest.mark.nightly
@pytest.mark.parametrize("turns", [18, 30, None], ids=["first pods", "half of the pods", "all pods"])
@pytest.mark.parametrize("spec", [MEMORY, {}], ids=["memory", "log"])
async def test_replicas_stay_although_persistence_was_switched_off_just_before(spec: Obj, turns: int | None) -> None:
    off = cluster(6, **MEMORY)
    play = await changed(cluster(6), limit_turns(off, turns) if turns else off, cluster(6, **spec, **ALONE))
    assert ready(play)["reason"] == "Ready"
