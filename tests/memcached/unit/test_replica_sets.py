"""Which pods are servers of a Deployment, when a ReplicaSet is read late, or cannot be found."""

from __future__ import annotations

from typing import Any, cast

import pytest

from operators.memcached.replica_sets import ReplicaSets
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Kind, Obj

FORMER, NEW = "former", "new"


class Found:
    """An API server that has some ReplicaSets of the Deployment."""

    def __init__(self, *templates: str) -> None:
        self.templates = set(templates)
        self.reads = 0

    async def find(self, _kind: Kind, _namespace: str, name: str) -> Obj | None:
        self.reads += 1
        template = name.removeprefix("cache-")
        if template not in self.templates:
            return None
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cache", "uid": "u-1", "controller": True}
        return {"metadata": {"name": name, "uid": f"uid-{template}", "ownerReferences": [owner]}}


def deployment(version: int) -> Obj:
    return {"metadata": {"name": "cache", "namespace": "default", "uid": "u-1", "resourceVersion": str(version)}}


def pod(template: str) -> Obj:
    name = f"cache-{template}"
    owner: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{template}"}
    labels = {"pod-template-hash": template}
    return {"metadata": {"name": f"{name}-0", "labels": labels, "ownerReferences": [owner | {"controller": True}]}}


@pytest.mark.parametrize("left", [(FORMER, NEW), (FORMER,), (NEW,), ()], ids=["both", "former", "new", "none"])
async def test_pod_that_was_a_server_once_stays_one_if_no_replica_set_is_found(left: tuple[str, ...]) -> None:
    """So in a rolling update, the former servers are listed as long as they are ready."""
    found, replica_sets = Found(FORMER), ReplicaSets()
    kube = cast("Kube", found)
    assert await replica_sets.of(deployment(1), [pod(FORMER)], kube) == {"uid-former"}
    found.templates = {*left}
    for version in (1, 2, 3):
        own = await replica_sets.of(deployment(version), [pod(FORMER), pod(NEW)], kube)
        assert own == {"uid-former", *(f"uid-{each}" for each in left)}


async def test_replica_set_that_was_not_found_is_read_again_after_the_next_change_of_its_deployment() -> None:
    found, replica_sets = Found(), ReplicaSets()
    kube = cast("Kube", found)
    assert await replica_sets.of(deployment(1), [pod(NEW)], kube) == frozenset()
    found.templates = {NEW}
    assert await replica_sets.of(deployment(1), [pod(NEW)], kube) == frozenset()
    assert found.reads == 1
    assert await replica_sets.of(deployment(2), [pod(NEW)], kube) == {"uid-new"}
