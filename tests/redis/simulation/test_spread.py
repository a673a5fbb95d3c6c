"""Drained hosts: afterwards the primaries are on several hosts again, and no acknowledged write is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from simulator.kubelet.kubelet import Kubelet
from tests.harness.scenario import later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import REDIS, cluster

HOSTS = ("node-1", "node-2", "node-3", "node-4")


class Cordons:
    """Kubernetes nodes that get no further pods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: set[str] = set()
        cordons = self

        def choose(kubelet: Kubelet) -> str:
            taken = Counter(pod["spec"].get("nodeName") for _, pod in kubelet._server.objects(POD))
            return min((host for host in HOSTS if host not in cordons.hosts), key=lambda host: taken[host])

        monkeypatch.setattr(Kubelet, "_node", choose)


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
async def test_primaries_are_spread_again_after_hosts_were_drained_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicas of a drained host's primaries take over wherever they are; without failovers, two share a host."""
    cordons = Cordons(monkeypatch)
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(6))
    await settle(play)
    assert max(hosts_of_primaries(play).values()) == 1
    for host in (*HOSTS, *HOSTS):
        cordons.hosts = {host}
        for _, pod in list(play.world.server.objects(POD)):
            if pod["spec"].get("nodeName") == host:
                play.stage.user_client.delete(POD, "default", pod["metadata"]["name"], gracePeriodSeconds=0)
                play.resync()
                await play.settle()
                await settle(play, 20)
    cordons.hosts = set()
    await settle(play, 40, times=12)
    assert max(hosts_of_primaries(play).values()) == 1
    degraded = condition(play, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("False", "Redundant")
    play.world.require_safe()
    [found] = play.stage.find()
    assert "placement" not in found["status"]
    ready = condition(play, "Ready")
    assert ready["status"] == "True"
