"""Drained hosts: afterwards the primaries are on several hosts again, and no acknowledged write is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from tests.harness.scenario import later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import REDIS, cluster

HOSTS = [f"node-{number + 1}" for number in range(REDIS.nodes)]


async def settle(play: ScenarioRun, seconds: int = 40, times: int = 1) -> None:
    for _ in range(times):
        later(seconds).act(play.stage)
        play.resync()
        await play.settle()


def condition(play: ScenarioRun, name: str) -> Obj:
    [found] = play.stage.find()
    return accessors.condition(found, name)


def hosts_of_primaries(play: ScenarioRun) -> Counter[str]:
    [found] = play.stage.find()
    return Counter(node["host"] for node in found["status"]["nodes"] if node["role"] == "primary" and node.get("slots"))


@pytest.mark.nightly
async def test_primaries_are_spread_again_after_hosts_were_drained_in_turn() -> None:
    """The replicas of a drained host's primaries take over wherever they are; without failovers, two share a host."""
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(6))
    await settle(play)
    assert max(hosts_of_primaries(play).values()) == 1
    for host in (*HOSTS, *HOSTS):
        play.world.workloads.cordon({host})
        for _, pod in list(play.world.server.objects(POD)):
            if pod["spec"].get("nodeName") == host:
                play.stage.user_client.delete(POD, "default", pod["metadata"]["name"], gracePeriodSeconds=0)
                play.resync()
                await play.settle()
                await settle(play, 20)
    play.world.workloads.cordon(())
    await settle(play, 40, times=12)
    assert max(hosts_of_primaries(play).values()) == 1
    degraded = condition(play, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("False", "Redundant")
    play.world.require_safe()
    [found] = play.stage.find()
    assert "placement" not in found["status"]
    ready = condition(play, "Ready")
    assert ready["status"] == "True"
