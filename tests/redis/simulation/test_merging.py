"""Two clusters of Valkey 8.1, in a network without policies: a pod gets the former address of another cluster's.

Since 8.1, a node sends MEET by itself to a node that sent it nothing for the node timeout. Whichever node has
that address by then, and listens at that port, becomes a member, and introduces its whole cluster.
"""

from __future__ import annotations

import pytest

from operators.redis.client.server import BUS_PORT
from operators.redis.facts import bus_port
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, STATEFUL_SET, Obj
from tests.harness.scenario import apply, delete, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import VALKEY, redis_of, settled
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import NAME, NEW, OTHER, REDIS, cluster

SPEC: Obj = {"repository": "valkey/valkey", "storage": {"size": "1Gi"}}


async def begun() -> tuple[ScenarioRun, FakeRedis]:
    """Return two clusters with keys."""
    other = apply(OTHER, replicas=6, version=VALKEY, **SPEC)
    run = ScenarioRun(await settled(World(REDIS), cluster(6, VALKEY, **SPEC), other))
    run.begin()
    await run.settle()
    return run, redis_of(run.world)


async def address_reused(run: ScenarioRun, redis: FakeRedis) -> None:
    """Let a pod of the other cluster get the address of one that is away for longer than the node timeout."""
    stage, lost = run.stage, f"{NAME}-5"
    address = redis.named(lost).address
    redis.failing = {lost: "ImagePullBackOff"}
    await run.run_steps((delete_now(POD, lost),))
    later(20).act(stage)
    redis.advance()
    stage.workloads.reuse_addresses([address])
    await run.run_steps((delete_now(POD, f"{OTHER}-5"),))
    assert redis.named(f"{OTHER}-5").address == address


async def test_pod_with_the_former_address_of_another_cluster_does_not_join_it() -> None:
    run, redis = await begun()
    await address_reused(run, redis)
    await run.wait(30)
    redis.failing = {}
    await run.wait(20, times=3)
    members = {
        name: {process.node.id for process in redis.running if process.cluster == name} for name in (NAME, OTHER)
    }
    for process in redis.running:
        assert process.node.known.keys() == members[process.cluster]
    for found in run.stage.find():
        assert accessors.condition(found, "Ready")["status"] == "True"
    run.world.require_safe()


@pytest.mark.nightly
async def test_cluster_of_an_earlier_build_keeps_its_port_and_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its StatefulSet was deleted without its pods."""
    monkeypatch.setattr(bus_port, "PORTS", range(BUS_PORT, BUS_PORT + 1))
    run = ScenarioRun(await settled(World(REDIS), cluster(6)))
    monkeypatch.undo()
    redis = redis_of(run.world)
    before = set(redis.processes)
    run.begin()
    await run.settle()
    await run.run_steps((delete(STATEFUL_SET, NAME, propagationPolicy="Orphan"),))
    await run.wait(30)
    [made] = run.stage.find(STATEFUL_SET)
    assert bus_port._port_of(made["spec"]["template"]) == BUS_PORT
    assert set(redis.processes) == before
    await run.run_steps((cluster(8, NEW),))
    await run.wait(30, times=3)
    assert {(process.bus, process.version) for process in redis.running} == {(BUS_PORT, NEW)}
    assert len(redis.running) == 8
    run.world.require_safe()
