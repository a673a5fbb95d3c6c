"""OpenShift's restricted-v2 admits every pod whose fixed IDs are removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.backup import pods as backup_pods
from shared.kubernetes.kinds import POD, Obj
from tests.etcd.unit.backup.states import snapshot_pod
from tests.etcd.unit.world import SETTINGS, cluster
from tests.harness.scenario import ScenarioStep, Subject, apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.openshift import violations
from tests.support.redis import scenarios as redis

SECURE: Obj = {"auth": {}, "tls": {"mode": "self"}}
PLATFORM: Obj = {"podSecurityContext": {"runAs": "Platform"}}

CASES: dict[str, tuple[Subject, Callable[..., ScenarioStep]]] = {
    "memcached": (memcached.MEMCACHED, lambda **spec: apply(size=1, metrics={}, **SECURE, **spec)),
    "memcached: warm restart": (
        memcached.MEMCACHED,
        lambda **spec: apply(size=1, warmRestart=True, workload="StatefulSet", **spec),
    ),
    "memcached: external storage": (
        memcached.MEMCACHED,
        lambda **spec: apply(size=1, extstore={"sizeMB": 512}, **spec),
    ),
    "etcd": (etcd.ETCD, lambda **spec: etcd.cluster(1, **SECURE, **spec)),
    "etcd: in memory": (etcd.ETCD, lambda **spec: etcd.cluster(1, storage={"medium": "Memory"}, **spec)),
    "redis": (redis.REDIS, lambda **spec: redis.cluster(3, replicasPerMaster=0, metrics={}, **SECURE, **spec)),
    "redis: in memory": (redis.REDIS, lambda **spec: redis.in_memory(3, replicasPerMaster=0, **spec)),
}


async def pods_of(name: str, **spec: Any) -> list[Obj]:
    subject, create = CASES[name]
    world = World(subject)
    await ScenarioRun(world).run_steps((create(**spec),))
    return [obj["spec"] for _, obj in world.server.objects(POD)]


@pytest.mark.parametrize("name", CASES)
async def test_pods_are_admitted_if_the_platform_assigns_the_ids(name: str) -> None:
    pods = await pods_of(name, **PLATFORM)
    assert pods
    assert [problem for pod in pods for problem in violations(pod)] == []


async def test_fixed_ids_are_refused() -> None:
    """The check above finds them."""
    [pod] = await pods_of("etcd")
    assert list(violations(pod)) == ["pod: runAsUser is 65532", "pod: fsGroup is 65532"]


@pytest.mark.parametrize(
    "store", [VolumeStore(claim_name="c"), S3(bucket="abc", credentials_secret="s")], ids=["volume", "S3"]
)
def test_pods_of_backups_are_admitted_if_the_platform_assigns_the_ids_of_the_cluster(store: VolumeStore | S3) -> None:
    of = cluster(**PLATFORM)
    made = [
        snapshot_pod(of=of),
        backup_pods.restore_pod(SETTINGS, of, store, "a.db"),
        backup_pods.recovery_pod(SETTINGS, of, 1, "t1"),
        backup_pods.cleaning_pod(SETTINGS, of, 1, "node-1", "t1"),
    ]
    assert [problem for pod in made for problem in violations(pod["spec"])] == []
