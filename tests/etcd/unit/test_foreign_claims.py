"""Claims with the names of an EtcdCluster's volumes and another owner are neither used, nor changed, nor deleted."""

from __future__ import annotations

from typing import Any

import pytest

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, Obj
from tests.harness.scenario import ScenarioStep, create
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, NAME, cluster

FOREIGN: dict[str, tuple[Obj, str]] = {
    "without labels": ({}, "a user: it has no owner"),
    "with labels of redis": (
        {"app.kubernetes.io/name": "redis", "app.kubernetes.io/instance": NAME},
        f"redis {NAME}, by its labels",
    ),
    "with a controller": ({"app": "postgres"}, "ConfigMap postgres (uid"),
}
"""Labels of claims, and their owner as the message names it."""


def claim_of(number: int, labels: Obj) -> ScenarioStep:
    """Create the claim of another owner; that of Postgres has a controller."""

    def act(stage: Any) -> None:
        metadata: Obj = {"name": f"data-{NAME}-{number}", "namespace": stage.namespace, "labels": labels}
        if "app" in labels:
            create(CONFIG_MAP, "postgres").act(stage)
            [uid] = (obj["metadata"]["uid"] for obj in stage.find(CONFIG_MAP) if obj["metadata"]["name"] == "postgres")
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "postgres", "uid": uid, "controller": True}
            metadata["ownerReferences"] = [owner]
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        stage.user_client.create(PERSISTENT_VOLUME_CLAIM, claim)

    return ScenarioStep(f"another owner has data-{NAME}-{number}", act)


@pytest.mark.parametrize("given", [(), (cluster(1),)], ids=["new", "growing"])
@pytest.mark.parametrize(("labels", "owner"), FOREIGN.values(), ids=FOREIGN)
async def test_claim_of_another_owner_is_not_used(labels: Obj, owner: str, given: tuple[ScenarioStep, ...]) -> None:
    run = ScenarioRun(World(ETCD))
    number = len(given)
    await run.run_steps((*given, claim_of(number, labels), cluster(3)))
    reported = condition(run.stage.find()[0], "Ready")
    assert (reported["status"], reported["reason"]) == ("False", "VolumeInTheWay")
    assert f"PersistentVolumeClaim data-{NAME}-{number} belongs to {owner}" in reported["message"]
    claims = {claim["metadata"]["name"]: claim["metadata"] for claim in run.stage.find(PERSISTENT_VOLUME_CLAIM)}
    assert len(claims) == number + 1
    assert (claims[f"data-{NAME}-{number}"].get("labels") or {}) == labels
