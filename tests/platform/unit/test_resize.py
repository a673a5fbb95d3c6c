"""CPU and memory change in the running pods of etcd and Redis, where the cluster can and the database follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.kubernetes.kinds import POD, STATEFUL_SET, Obj
from tests.harness.scenario import Subject
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.redis import scenarios as redis

SUBJECTS: dict[str, tuple[Subject, int, Callable[..., Any]]] = {
    "etcd": (etcd.ETCD, 3, etcd.cluster),
    "redis": (redis.REDIS, 6, redis.cluster),
}


def requested(cpu: str, *, limit: str = "") -> Obj:
    limits = {"limits": {"memory": limit}} if limit else {}
    return {"resources": {"requests": {"cpu": cpu, "memory": "128Mi"}, **limits}}


def world(subject: Subject, *, resizes: bool) -> World:
    """Return a world whose API server has the subresource resize of pods, or is older."""
    found = World(subject)
    found.server.set_resizes(POD, resizes)
    return found


def resources(found: World) -> list[Obj]:
    pods = [obj["spec"] for _, obj in found.server.objects(POD)]
    return [pod["containers"][0]["resources"] for pod in pods]


def uids(found: World) -> set[str]:
    return {obj["metadata"]["uid"] for _, obj in found.server.objects(POD)}


def template(found: World) -> Obj:
    [(_, stateful_set)] = found.server.objects(STATEFUL_SET)
    amounts: Obj = stateful_set["spec"]["template"]["spec"]["containers"][0]["resources"]
    return amounts


@pytest.mark.parametrize("name", SUBJECTS)
async def test_other_cpu_replaces_no_pod(name: str) -> None:
    subject, size, cluster = SUBJECTS[name]
    found = world(subject, resizes=True)
    before, after = requested("100m"), requested("200m")
    await ScenarioRun(found).run_steps((cluster(size, **before),))
    pods = uids(found)
    await ScenarioRun(found).run_steps((cluster(size, **after),))
    assert uids(found) == pods
    assert resources(found) == [after["resources"]] * size
    assert template(found) == before["resources"]


@pytest.mark.parametrize("name", SUBJECTS)
async def test_other_cpu_replaces_pods_where_the_cluster_cannot_resize(name: str) -> None:
    subject, size, cluster = SUBJECTS[name]
    found = world(subject, resizes=False)
    await ScenarioRun(found).run_steps((cluster(size, **requested("100m")),))
    pods = uids(found)
    await ScenarioRun(found).run_steps((cluster(size, **requested("200m")),))
    assert pods.isdisjoint(uids(found))
    assert template(found) == requested("200m")["resources"]


@pytest.mark.parametrize("name", SUBJECTS)
async def test_another_memory_limit_replaces_pods_because_the_database_depends_on_it(name: str) -> None:
    subject, size, cluster = SUBJECTS[name]
    found = world(subject, resizes=True)
    await ScenarioRun(found).run_steps((cluster(size, **requested("100m", limit="1Gi")),))
    pods = uids(found)
    await ScenarioRun(found).run_steps((cluster(size, **requested("100m", limit="2Gi")),))
    assert pods.isdisjoint(uids(found))
    assert template(found)["limits"] == {"memory": "2Gi"}
