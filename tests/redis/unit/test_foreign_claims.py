"""Claims with the names of a RedisCluster's volumes and another owner are neither used, nor changed, nor deleted."""

from __future__ import annotations

from typing import Any

import pytest

from operators.redis.objects.names import CLUSTER_UID, COMPONENT
from operators.redis.slots.hash_slots import SLOTS
from shared.kubernetes import ownership
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from tests.harness.messages import commands
from tests.harness.scenario import ScenarioStep, apply, at_once, create, delete, edit, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import NAME, OLD, REDIS, node

NOT_RETAINED: Obj = {"storage": {"size": "1Gi", "retain": False}}

OWN = {ownership.MANAGED_BY: "redis-operator", ownership.INSTANCE: NAME, ownership.NAME: "redis"}
ETCD = {ownership.MANAGED_BY: "etcd-operator", ownership.INSTANCE: NAME, ownership.NAME: "etcd"}
FOREIGN: dict[str, tuple[Obj, str]] = {
    "without labels": ({}, "a user: it has no owner"),
    "with labels of etcd": ({"labels": ETCD | {"etcd.ydzs.io/cluster-uid": "etcd-1"}}, f"etcd {NAME}, by its labels"),
    "of a former RedisCluster": (
        {"labels": OWN | {ownership.COMPONENT: COMPONENT, CLUSTER_UID: "former"}},
        "a former RedisCluster (uid former)",
    ),
    "of a former RedisCluster, without other labels": ({"labels": {CLUSTER_UID: "former"}}, "another RedisCluster"),
    "with a controller": ({"labels": {"app": "postgres"}}, "ConfigMap postgres (uid"),
}
"""Metadata of claims, and their owner as the message names it."""


def cluster(replicas: int = 6, **spec: Any) -> ScenarioStep:
    return apply(NAME, replicas=replicas, version=OLD, **{**NOT_RETAINED, **spec})


def claim_of(number: int, about: Obj) -> ScenarioStep:
    """Create the claim of another owner."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    made = create(PERSISTENT_VOLUME_CLAIM, f"data-{node(number)}", spec=spec)

    def act(stage: Any) -> None:
        nonlocal about
        made.act(stage)
        if "app" in (about.get("labels") or {}):
            create(CONFIG_MAP, "postgres").act(stage)
            [owner] = (each["metadata"] for each in stage.find(CONFIG_MAP) if each["metadata"]["name"] == "postgres")
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "postgres", "uid": owner["uid"]}
            about = about | {"ownerReferences": [reference | {"controller": True}]}
        stage.user_client.merge(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{node(number)}", {"metadata": about})

    return ScenarioStep(f"another owner has data-{node(number)}", act)


async def play(*steps: ScenarioStep) -> ScenarioRun:
    run = ScenarioRun(World(REDIS))
    await run.run_steps(steps)
    return run


def claims(run: ScenarioRun) -> dict[str, Obj]:
    return {claim["metadata"]["name"]: claim for claim in run.stage.find(PERSISTENT_VOLUME_CLAIM)}


def content(claim: Obj) -> Obj:
    """Return what nothing but its owner may change of a claim."""
    metadata = {key: claim["metadata"].get(key) for key in ("uid", "labels", "annotations", "ownerReferences")}
    return {"metadata": metadata, "requested": claim["spec"]["resources"]}


def ready(run: ScenarioRun) -> Obj:
    [found] = run.stage.find()
    return condition(found, "Ready")


def is_served(run: ScenarioRun) -> bool:
    [state] = run.world.database.state()
    return bool(sum(state["slots by primary"]) == SLOTS and state["clusters"] == 1 and state["healthy"])


@pytest.mark.parametrize(("about", "owner"), FOREIGN.values(), ids=FOREIGN)
async def test_new_cluster_does_not_use_a_claim_of_another_owner(about: Obj, owner: str) -> None:
    run = await play(claim_of(2, about))
    before = content(claims(run)[f"data-{node(2)}"])
    await run.run_steps((cluster(),))
    reported = ready(run)
    assert (reported["status"], reported["reason"]) == ("False", "ForeignData")
    assert f"PersistentVolumeClaim data-{node(2)}" in reported["message"]
    assert owner in reported["message"]
    assert run.stage.find(STATEFUL_SET) == run.stage.find(POD) == []
    await run.run_steps((delete(),))
    assert {name: content(claim) for name, claim in claims(run).items()} == {f"data-{node(2)}": before}


@pytest.mark.parametrize(("about", "owner"), FOREIGN.values(), ids=FOREIGN)
async def test_cluster_does_not_grow_into_a_claim_of_another_owner(about: Obj, owner: str) -> None:
    run = await play(cluster(), claim_of(7, about))
    before = content(claims(run)[f"data-{node(7)}"])
    await run.run_steps((cluster(8),))
    reported = ready(run)
    assert (reported["status"], reported["reason"]) == ("False", "ForeignData")
    assert f"PersistentVolumeClaim data-{node(7)} belongs to" in reported["message"]
    assert owner.replace("a former", "another") in reported["message"]
    assert len(run.stage.find(POD)) == 6
    assert is_served(run)
    await run.run_steps((delete(),))
    assert {name: content(claim) for name, claim in claims(run).items()} == {f"data-{node(7)}": before}


async def test_claim_that_appears_above_a_running_cluster_changes_nothing() -> None:
    """Before, the operator did not see it, and the cluster could grow into it later."""
    run = await play(cluster(), claim_of(6, {}))
    assert ready(run)["status"] == "True"


async def test_cluster_is_created_once_the_claim_is_deleted() -> None:
    run = await play(claim_of(2, {}), cluster())
    assert ready(run)["reason"] == "ForeignData"
    await run.run_steps((delete(PERSISTENT_VOLUME_CLAIM, f"data-{node(2)}"), later(31)))
    run.resync()
    await run.settle()
    assert ready(run)["status"] == "True"


def handed_over(message: str) -> ScenarioStep:
    """Carry out the command of a message."""
    [[_, verb, claim, _, namespace, *words]] = commands(message)

    def act(stage: Any) -> None:
        kind, name = claim.split("/")
        assert (verb, kind, namespace) == ("label", "persistentvolumeclaim", stage.namespace)
        labels = dict(word.split("=", 1) for word in words if "=" in word)
        stage.user_client.merge(PERSISTENT_VOLUME_CLAIM, namespace, name, {"metadata": {"labels": labels}})

    return ScenarioStep(f"{claim} is handed over", act)


@pytest.mark.parametrize("kind", ["without labels", "with labels of etcd"])
async def test_claim_is_used_once_its_user_has_handed_it_over(kind: str) -> None:
    run = await play(claim_of(2, FOREIGN[kind][0]), cluster())
    await run.run_steps((handed_over(condition(run.stage.find()[0], "Stalled")["message"]),))
    assert ready(run)["status"] == "True"
    assert is_served(run)


async def test_claim_of_another_owner_that_replaces_a_deleted_one_is_reported() -> None:
    """The StatefulSet mounts it before the operator can know."""
    run = await play(cluster())
    name = f"data-{node(5)}"
    released = edit(PERSISTENT_VOLUME_CLAIM, {"metadata": {"finalizers": None}}, name)
    await run.run_steps(
        at_once(delete_now(POD, node(5)), delete_now(PERSISTENT_VOLUME_CLAIM, name), released, claim_of(5, {}))
    )
    assert ready(run)["reason"] == "ForeignData"
    assert f"data-{node(5)} belongs to a user" in ready(run)["message"]
    [state] = run.world.database.state()
    assert sum(state["slots by primary"]) == SLOTS
