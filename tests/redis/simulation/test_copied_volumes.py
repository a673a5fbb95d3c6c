"""Copies of a running cluster's volumes, as clones or restored snapshots have them.

A copy has the node id of the original, and the addresses of its cluster. If it contacted them, they would take it for
the original at a new address.
"""

from __future__ import annotations

import copy
from typing import Any

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM
from tests.harness.messages import commands
from tests.harness.scenario import ScenarioStep, apply, create, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.losses import destroyed, hidden
from tests.support.redis.scenarios import DISKS, NAME, OLD, REDIS, cluster

COPY = "copy"


def volumes_copied(count: int) -> ScenarioStep:
    """Create claims from snapshots of all volumes of the cluster: without labels and annotations."""

    def act(stage: Any) -> None:
        redis: FakeRedis = stage.database
        for number in range(count):
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            create(PERSISTENT_VOLUME_CLAIM, f"data-{COPY}-{number}", spec=spec).act(stage)
            claims = {each["metadata"]["name"]: each["metadata"]["uid"] for each in stage.find(PERSISTENT_VOLUME_CLAIM)}
            source, target = (claims[f"data-{name}-{number}"] for name in (NAME, COPY))
            redis.disks[target] = copy.deepcopy(redis.disks[source])
            redis.disks[target].name = f"data-{COPY}-{number}"
            redis.files[target] = redis.files[source]

    return ScenarioStep("all volumes are copied", act)


def handed_over(message: str) -> ScenarioStep:
    """Carry out the command of a message."""
    [[_, _, claim, _, namespace, *words]] = commands(message)

    def act(stage: Any) -> None:
        labels, name = dict(word.split("=", 1) for word in words if "=" in word), claim.partition("/")[2]
        stage.user_client.merge(PERSISTENT_VOLUME_CLAIM, namespace, name, {"metadata": {"labels": labels}})

    return ScenarioStep(f"{claim} is handed over", act)


def ready(run: ScenarioRun, name: str, kind: str = "Ready") -> dict[str, Any]:
    [found] = (each for each in run.stage.find() if each["metadata"]["name"] == name)
    return condition(found, kind)


async def test_copies_do_not_contact_the_cluster_that_they_were_made_of() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(10), volumes_copied(6), apply(COPY, replicas=6, version=OLD, **DISKS)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    addresses = {process.node.id: process.address for process in redis.running if process.cluster == NAME}
    for _ in range(6):
        assert ready(run, COPY)["reason"] == "ForeignData"
        await run.run_steps((handed_over(ready(run, COPY, "Stalled")["message"]),))
    await run.run_steps((later(20),))
    redis.advance()
    await run.settle()
    for process in redis.running:
        if process.cluster == NAME:
            assert {node_id: known.address for node_id, known in process.node.known.items()} == addresses
        else:
            assert not process.node.known.keys() & addresses.keys()
    assert ready(run, NAME)["status"] == "True"
    assert ready(run, COPY)["reason"] == "NotEmpty"


def restored_at(target: str, source: str) -> ScenarioStep:
    """Restore a snapshot of one pod's volume as the volume of another one, with the labels and annotations."""

    def act(stage: Any) -> None:
        redis: FakeRedis = stage.database
        [claim] = (each for each in stage.find(PERSISTENT_VOLUME_CLAIM) if each["metadata"]["name"] == f"data-{source}")
        original = claim["metadata"]
        disk, file = copy.deepcopy(redis.disks[original["uid"]]), redis.files[original["uid"]]
        stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{target}")
        stage.workloads.settle()
        kept = {key: original[key] for key in ("namespace", "labels", "annotations") if key in original}
        restored = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": claim["spec"]}
        made = stage.user_client.create(
            PERSISTENT_VOLUME_CLAIM, restored | {"metadata": kept | {"name": f"data-{target}"}}
        )
        redis.disks[made["metadata"]["uid"]], redis.files[made["metadata"]["uid"]] = disk, file
        disk.name = f"data-{target}"

    return ScenarioStep(f"a snapshot of data-{source} is restored as data-{target}", act)


async def test_copy_in_the_same_cluster_is_not_introduced_as_the_original() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), later(10)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    [original, *_] = [process for process in redis.running if process.node.me.slots]
    [target] = [each.pod for each in redis.running if each.node.me.primary not in ("", original.node.id)][:1]
    redis.client.idle = True  # two servers with one id accept different writes
    started = len(redis.commanded)
    asleep = (cluster(6, hibernate=True), restored_at(target, original.pod), hidden([original.pod]))
    await run.run_steps((*asleep, cluster(6), later(60)))
    nodes = {each["name"]: each["nodeId"] for each in run.stage.find()[0]["status"]["nodes"]}
    assert [name for name, node_id in nodes.items() if node_id == original.node.id] == [original.pod]
    assert f"CLUSTER MEET at {target}" not in redis.commanded[started:]
    message = ready(run, NAME)["message"]
    assert f"{target} is unreachable: its server has the node id of {original.pod}: one of" in message
    await run.run_steps((hidden([]), *destroyed([target]), later(60)))  # as the message requests
    assert ready(run, NAME)["status"] == "True"
