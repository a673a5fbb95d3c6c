"""Nodes that come back with other data, another identity or another address than they had.

After each failure the cluster heals, clients find what they were promised, and nothing that they deleted comes back.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.status import conditions
from simulator.redis.client import Entry
from simulator.redis.node import slot_of
from simulator.redis.process import Process
from tests.harness.scenario import ScenarioStep, Stage, apply, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.guard import values
from tests.redis.simulation.losses import destroyed, shard_of
from tests.redis.simulation.moving_slots import Shape, healed, of_migration, redis_of, settled, start_of
from tests.support.plays import ready, run
from tests.support.redis.scenarios import DISKS, NAME, OLD, OTHER, REDIS, cluster, in_memory, recovery_confirmed

pytestmark = pytest.mark.nightly

ELECTION_SECONDS = 12.0

NO_PERSISTENCE: Obj = {"config": {"appendonly": "no", "save": ""}}

REPLICAS = pytest.mark.parametrize("replicas", [0, 1], ids=["without replicas", "with replicas"])


async def begun(*steps: ScenarioStep) -> ScenarioRun:
    """Return a run in which the steps have settled, clients have written, and the operator runs."""
    play = ScenarioRun(await settled(World(REDIS), *steps))
    await idle(play, 5)
    play.begin()
    await play.settle()
    return play


async def idle(play: ScenarioRun, seconds: float) -> None:
    """Let time pass, in which clients write."""
    later(seconds).act(play.stage)
    redis_of(play.world).advance()
    play.world.require_safe()


def primary_of(redis: FakeRedis) -> Process:
    return next(process for process in redis.running if process.cluster == NAME and process.node.me.slots)


async def come_back(play: ScenarioRun, pod: str, change: Callable[[FakeRedis], object], seconds: float = 0.0) -> None:
    """End a server, change its disk, and let it start again after some seconds."""
    redis = redis_of(play.world)
    redis.failing[pod] = "NodeLost"
    redis.stop(redis.named(pod), "killed")
    change(redis)
    if seconds:
        await idle(play, seconds)
        play.resync()
        await play.settle()
    redis.failing.clear()
    play.resync()
    await play.settle()


def delete_keys(redis: FakeRedis, keys: list[bytes]) -> None:
    for key in keys:
        assert redis.client.send(redis, key, "DEL")


async def moved_away(replicas: int) -> tuple[ScenarioRun, FakeRedis, str, dict[bytes, Entry], list[bytes]]:
    """Move slots from a primary, and delete some of their keys.

    Returns:
        The run, its servers, the pod of the former owner, its data before, and the deleted keys.
    """
    start = await start_of(Shape("out", replicas))
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    before = redis.snapshot(start.source)
    await play.step(start.step)
    slots = redis.named(start.target).node.me.slots
    deleted = [key for key in before if slots >> slot_of(key) & 1 and b"old" in key][:6]
    delete_keys(redis, deleted)
    await idle(play, 2)
    return play, redis, start.source, before, deleted


@REPLICAS
async def test_deleted_keys_stay_deleted_if_their_former_owner_comes_back_with_older_data(replicas: int) -> None:
    play, _, pod, older, deleted = await moved_away(replicas)
    assert deleted
    await come_back(play, pod, lambda redis: redis.roll_back(pod, older))
    await healed(play)


async def test_deleted_keys_stay_deleted_if_their_former_owner_comes_back_as_a_replica_with_older_data() -> None:
    play, _, pod, older, _ = await moved_away(1)
    await come_back(play, pod, lambda redis: redis.roll_back(pod, older), ELECTION_SECONDS)
    await healed(play)


async def test_replica_with_older_data_resyncs() -> None:
    play = await begun(cluster(6))
    redis = redis_of(play.world)
    pod = redis.replicas_of(primary_of(redis))[0].pod
    older = redis.snapshot(pod)
    await idle(play, 10)
    await come_back(play, pod, lambda redis: redis.roll_back(pod, older))
    await healed(play)


@REPLICAS
async def test_restored_volume_with_an_old_nodes_conf_revives_no_key(replicas: int) -> None:
    """Restore the whole disk of a former owner as it was before its slots moved, its cluster view included."""
    start = await start_of(Shape("out", replicas))
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    disk = redis.copy_of_disk(start.source)
    await play.step(start.step)
    slots = redis.named(start.target).node.me.slots
    delete_keys(redis, [key for key in disk.keys if slots >> slot_of(key) & 1 and b"old" in key][:6])
    await idle(play, 2)
    await come_back(play, start.source, lambda redis: redis.restore_disk(start.source, disk))
    await healed(play)


@pytest.mark.commit
@pytest.mark.parametrize(
    "replicas", [0, pytest.param(1, marks=pytest.mark.nightly)], ids=["without replicas", "with replicas"]
)
async def test_node_that_lost_its_nodes_conf_is_adopted_with_its_data(replicas: int) -> None:
    """Without replicas, it has the only copy of its keys; with some, its copy is outdated once a replica is elected."""
    play = await begun(cluster(3 * (1 + replicas), replicasPerMaster=replicas))
    redis = redis_of(play.world)
    pod = primary_of(redis).pod
    await come_back(play, pod, lambda redis: redis.lose_identity(pod), ELECTION_SECONDS if replicas else 0.0)
    [found] = play.stage.find()
    reason = accessors.condition(found, conditions.READY)["reason"]
    assert reason != "SlotsLost", "a confirmed recovery would serve the slots empty"
    await healed(play)


async def test_replica_that_lost_its_nodes_conf_serves_its_keys_only_with_consent() -> None:
    """Clients wrote to the lost primary while the replica did not run, which takes itself for the owner."""
    play = await begun(cluster(6))
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.failing[replica] = "NodeLost"
    redis.stop(redis.named(replica), "killed")
    redis.lose_identity(replica)
    await idle(play, 10)
    await run(play, (*destroyed([primary]), later(30)))
    redis.failing.clear()
    await run(play, (later(30), later(30)))
    assert ready(play)["reason"] == "SlotsLost"
    assert f"{replica} can serve slots" in ready(play)["message"]
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


async def test_all_pods_of_a_cluster_exchange_their_addresses() -> None:
    def act(stage: Stage) -> None:
        pods = stage.find(POD)
        addresses = [pod["status"]["podIP"] for pod in pods]
        stage.workloads.reuse_addresses(addresses[1:] + addresses[:1])
        for pod in pods:
            stage.user_client.delete(POD, stage.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)

    play = await begun(cluster(6))
    await play.step(ScenarioStep("all pods exchange their addresses", act))
    await healed(play)


@pytest.mark.parametrize("seconds", [0.0, ELECTION_SECONDS], ids=["at once", "after an election"])
async def test_node_of_another_cluster_is_not_joined(seconds: float) -> None:
    """At once, the replicas copy the other disk before anyone can act: both copies are lost, and none is served."""
    play = await begun(cluster(6), apply(OTHER, replicas=6, version=OLD, **DISKS))
    redis = redis_of(play.world)
    pod = primary_of(redis).pod
    other = next(process.pod for process in redis.running if process.cluster == OTHER and process.node.me.slots)
    await come_back(play, pod, lambda redis: redis.replace_disk(pod, other), seconds)
    await idle(play, 60)
    play.resync()
    await play.settle()
    redis.guard.require_resolved(redis)
    shape = {each["clusters"] for each in redis.state()}
    assert shape <= {1, 2}, "only the one foreign node is not of the cluster"
    if not seconds:
        found = next(found for found in play.stage.find() if found["metadata"]["name"] == NAME)
        assert accessors.condition(found, conditions.READY)["reason"] == "SlotsLost"


async def test_primary_without_persistence_does_not_resume_empty() -> None:
    play = await begun(in_memory(6, **NO_PERSISTENCE))
    redis = redis_of(play.world)
    redis.stop(primary_of(redis), "killed")
    play.resync()
    await play.settle()
    await healed(play)


async def test_primary_without_persistence_and_replicas_comes_back_empty() -> None:
    """The keys are lost, as the user chose; the cluster serves again."""
    play = await begun(in_memory(3, replicasPerMaster=0, **NO_PERSISTENCE))
    redis = redis_of(play.world)
    redis.stop(primary_of(redis), "killed")
    play.resync()
    await play.settle()
    await healed(play)


async def test_late_restore_does_not_revive_a_deleted_key() -> None:
    """The target carries out a MIGRATE after the source has given up; then a client deletes the keys at the source.

    Until the operator's next commands, no server can know that the copies at the target are outdated. They must
    not exist at the end.
    """
    start = await start_of(Shape("out", 1))
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    redis.stalled.add(start.target)
    in_doubt: dict[bytes, Entry] = {}
    deleted: list[bytes] = []

    def observe(what: str) -> None:
        if redis.late and not in_doubt:
            in_doubt.update({each.key: each.value for each in redis.late})
        elif in_doubt and of_migration(what) and not what.startswith("MIGRATE"):
            redis.after = str  # the operator has seen the failure, and sent a command
            redis.client.keys = tuple(key for key in redis.client.keys if key not in in_doubt)
            for key, value in in_doubt.items():
                redis.guard.records[key].revived.add(value.number)
                if redis.client.send(redis, key, "DEL"):
                    deleted.append(key)

    redis.after = observe
    await play.step(start.step)
    await healed(play)
    assert deleted, "a MIGRATE timed out, and a client deleted its keys"
    assert not values(redis).keys() & {*deleted}, "deleted keys came back"


async def test_slots_do_not_depend_on_one_process() -> None:
    """Every replica lags; the new owner of moved slots is lost with its volume."""
    start = await start_of(Shape("in", 1))
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    redis.lagging |= {process.pod for process in redis.running if process.node.me.primary}
    await play.step(start.step)
    stage = play.stage
    claims = {claim["metadata"]["name"] for claim in stage.find(PERSISTENT_VOLUME_CLAIM)}
    assert f"data-{start.target}" in claims
    stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{start.target}")
    stage.user_client.delete(POD, stage.namespace, start.target, gracePeriodSeconds=0)
    play.resync()
    await play.settle()
    await idle(play, ELECTION_SECONDS)
    redis.lagging.clear()
    await healed(play)


async def test_restarted_pods_keep_the_marks_of_an_open_slot() -> None:
    """Both ends restart in the middle of a migration, while the operator is down."""
    start = await start_of(Shape("out", 1))
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    count = len(start.points) // 2
    seen: list[str] = []

    def observe(what: str) -> None:
        if of_migration(what):
            seen.append(what)
            if len(seen) == count:
                for pod in (start.source, start.target):
                    redis.stop(redis.named(pod), "killed")

    redis.after = observe
    await play.step(start.step)
    assert len(seen) >= count
    await healed(play)
