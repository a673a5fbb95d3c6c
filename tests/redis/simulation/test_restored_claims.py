"""Volume claims that were restored in another Kubernetes cluster, while the original cluster runs.

Backup tools restore claims with their names, labels and annotations. If pod addresses are routable, the restored nodes
would contact the original ones as soon as they start: a node has their addresses in its nodes.conf.
"""

from __future__ import annotations

import copy
from typing import Any

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD
from simulator.redis.process import Process
from tests.harness.messages import commands
from tests.harness.scenario import ScenarioStep, delete, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import NAME, REDIS, adopted, cluster

ORIGINAL = "original"
"""Prefix of the UIDs of the original pods and claims, which the API server of the restored cluster does not know."""


def copied(redis: FakeRedis) -> list[Process]:
    """Return the servers as they run in another Kubernetes cluster, whose pods have the present addresses."""
    found = []
    for process in copy.deepcopy(redis.running):
        process.uid, process.disk = f"{ORIGINAL}-{process.uid}", f"{ORIGINAL}-{process.disk}"
        process.pod = f"{ORIGINAL}-{process.pod}"
        found.append(process)
    return found


def original_runs(redis: FakeRedis, processes: list[Process]) -> None:
    for process in processes:
        redis.processes[process.uid], redis.disks[process.disk] = process, process.node


def claims_restored(stage: Any) -> None:
    """Recreate the claims with their labels, annotations and data, as in a cluster that has only a backup of them."""
    redis: FakeRedis = stage.database
    assert not stage.find(POD)
    for claim in stage.find(PERSISTENT_VOLUME_CLAIM):
        metadata = claim["metadata"]
        disk, file = copy.deepcopy(redis.disks[metadata["uid"]]), redis.files[metadata["uid"]]
        stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, metadata["name"])
        stage.workloads.settle()
        kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations")}
        made = stage.user_client.create(PERSISTENT_VOLUME_CLAIM, claim | {"metadata": kept})
        redis.disks[made["metadata"]["uid"]], redis.files[made["metadata"]["uid"]] = disk, file


def consent(message: str) -> ScenarioStep:
    """Carry out the command of a message."""
    [words] = commands(message)

    def act(stage: Any) -> None:
        assert words[:6] == ["kubectl", "annotate", "rediscluster", NAME, "-n", stage.namespace]
        key, _, value = words[-1].partition("=")
        stage.user_client.merge(stage.kind, stage.namespace, NAME, {"metadata": {"annotations": {key: value}}})

    return ScenarioStep("a user confirms that the original is deleted", act)


def original_deleted(stage: Any) -> None:
    redis: FakeRedis = stage.database
    redis.processes = {uid: each for uid, each in redis.processes.items() if not uid.startswith(ORIGINAL)}
    redis.disks = {uid: disk for uid, disk in redis.disks.items() if not uid.startswith(ORIGINAL)}


async def test_restored_nodes_do_not_contact_the_original_ones() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(10)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    redis.client.idle = True
    redis.settle("replicas receive the last writes")
    original, keys = copied(redis), {key for process in redis.running for key in process.node.keys}
    await run.run_steps((delete(),))
    original_runs(redis, original)
    await run.run_steps((ScenarioStep("the claims are restored", claims_restored),))
    addresses = {process.node.id: process.address for process in redis.running}
    assert len(addresses) == 6
    await run.run_steps((adopted(), later(20)))
    for process in redis.running:
        assert process.uid.startswith(ORIGINAL)
        assert {node_id: known.address for node_id, known in process.node.known.items()} == addresses
    ready = condition(run.stage.find()[0], "Ready")
    assert ready["reason"] == "AdoptionRefused"
    assert len(ready["message"]) <= 400
    await run.run_steps((ScenarioStep("the original is deleted", original_deleted), consent(ready["message"])))
    ready = condition(run.stage.find()[0], "Ready")
    assert "written by another client" in ready["message"]
    await run.run_steps((adopted(config={"appendonly": "yes"}),))
    assert condition(run.stage.find()[0], "Ready")["status"] == "True"
    assert {key for process in redis.running for key in process.node.keys} == keys
