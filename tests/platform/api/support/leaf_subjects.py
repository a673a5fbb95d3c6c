"""The kinds whose leaves are edited: their operators, databases, valid values, and what makes a leaf show."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hypothesis import strategies as st

from operators.etcd import database as etcd_database
from operators.etcd import operator as etcd_registry
from operators.etcd.api import backup as etcd_backup
from operators.etcd.api import resource as etcd
from operators.etcd.api.arguments import ACCEPTED as ETCD_ARGUMENT
from operators.etcd.api.arguments import absent
from operators.etcd.api.versions import Version
from operators.etcd.objects import names
from operators.memcached.api import resource as memcached
from operators.memcached.api.reserved_flags import VALUED
from operators.redis import database as redis_database
from operators.redis import operator as redis_registry
from operators.redis.api import resource as redis
from operators.redis.api.node_entries import is_node
from operators.redis.objects.names import READ_ONCE
from operators.redis.objects.pod import TEMPLATE
from operators.redis.objects.redis_conf import WITHDRAWN
from shared.api.schedule import last_due
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, SECRET, Obj
from shared.runtime.operator import Operator, ServedKind
from shared.steps.certificates import CERTIFICATE
from simulator.etcd.raft import Cluster
from tests.platform.api.crash import test_etcd, test_redis
from tests.platform.api.support.leaf_batch import Subject
from tests.platform.api.support.leaf_edits import leaves_of, versions
from tests.platform.api.support.running import NAME
from tests.platform.api.support.scenario_runner import MEMCACHED_CAST, Run
from tests.support import network_cases
from tests.support.etcd import cases as etcd_cases
from tests.support.etcd.backup_cases import S3
from tests.support.extension_cases import FULL
from tests.support.memcached import cases as memcached_cases
from tests.support.redis import cases as redis_cases
from tests.support.schema import spec_schema

MEMCACHED_ARGUMENT = "|".join(
    f"--{name}={VALUED[short, name]}" for short, name in (("n", "slab-min-size"), ("b", "listen-backlog"))
)
ETCD_SERIES = Version.parse(etcd_cases.VERSION).series
ETCD_ARGUMENTS = st.from_regex(
    ETCD_ARGUMENT.removeprefix("^").removesuffix("$"), fullmatch=True, alphabet=st.characters(codec="ascii")
).filter(lambda text: len(text) <= 256 and not re.match(absent(ETCD_SERIES), text))


FREE = {True: 25, False: 48}
"""Percentage of free space in files, by whether the first threshold is at most the default, 45."""

PAST = datetime(2025, 1, 1, tzinfo=UTC)
SCHEDULES = st.builds(lambda day, month: f"0 4 {day} {month} *", st.integers(1, 28), st.integers(1, 12))
"""Schedules whose last due time is the same during the test."""


def etcd_operator(fake: test_etcd.LockedFake) -> Operator:
    served = (
        ServedKind(etcd.API, partial(etcd_registry.clusters, connect=fake.connect)),
        ServedKind(etcd_backup.API, partial(etcd_registry.backups, connect=fake.connect)),
    )
    return replace(etcd_registry.OPERATOR, kinds=served)


def clusters_of(fake: test_etcd.LockedFake, name: str) -> list[Cluster]:
    """Return the clusters whose members are pods of a resource."""
    return [cluster for cluster in fake.clusters.values() if any(f"//{name}-" in each.url for each in cluster.now)]


def etcd_state(run: Run, name: str) -> Any:
    fake: test_etcd.LockedFake = run.database
    with fake.lock:
        found = clusters_of(fake, name)
        sizes = sorted(
            (disk.name, disk.size) for cluster in found for disk in fake.disks.values() if disk.cluster == cluster.id
        )
        return [(len(cluster.now), cluster.auth, cluster.version) for cluster in found], sizes, reported(run, name)


def reported(run: Run, name: str) -> Any:
    """Return the parts of the status that report work on a schedule, and the Secrets in use."""
    status = run.world.get(etcd.API.kind, name).get("status") or {}
    secrets = [each["name"] for each in status.get("observedSecrets") or ()]
    return status.get("lastDefragmentation"), (status.get("backup") or {}).get("nextTime"), secrets


def fragment(run: Run, name: str) -> None:
    """Let each member's file have free space, and a defragmentation be due.

    The share of free space is between the default threshold and the first one, so that another one makes a difference.
    """
    fake: test_etcd.LockedFake = run.database
    given = run.world.get(etcd.API.kind, name)["spec"].get("defragmentation") or {}
    with fake.lock:
        for cluster in clusters_of(fake, name):
            if cluster.in_use < 2**29:
                cluster.in_use = 2**30 * (100 - FREE[given.get("threshold", 45) <= 45]) // 100
            for disk in fake.disks.values():
                if disk.cluster == cluster.id:
                    disk.size = 2**30
    report(run, name, {"lastDefragmentation": rfc3339(PAST)})


def take_due_snapshot(run: Run, name: str) -> None:
    """Let a snapshot of the schedule be due, in addition to three older ones."""
    kind, world = etcd_backup.API.kind, run.world
    for each in world.listed(kind):
        if each["metadata"]["name"].startswith(f"{name}-"):
            world.remove(kind, each["metadata"]["name"])
    obj = world.get(etcd.API.kind, name)
    schedule = (obj["spec"].get("backup") or {}).get("schedule")
    due = schedule and last_due(schedule, PAST, datetime.now(UTC))
    if not due or not obj.get("status", {}).get("clusterID"):
        return
    own = names.owner(etcd.EtcdCluster.parse(obj), NAME)
    spec = {"clusterName": name, "destination": obj["spec"]["backup"]["destination"]}
    for year in (2001, 2002, 2003):
        former = own.object(kind, f"{name}-{year}0101000000", component="backup", spec=spec)
        former["metadata"]["labels"][etcd_backup.SCHEDULED] = obj["metadata"]["uid"]
        world.user_client.create(kind, former)
        status = {"phase": etcd_backup.COMPLETE, "completedAt": f"{year}-01-01T00:00:00Z"}
        world.user_client.merge(
            kind, world.namespace, former["metadata"]["name"], {"status": status}, subresource="status"
        )
    report(run, name, {"backup": {"nextTime": rfc3339(due)}})


def report(run: Run, name: str, status: Obj) -> None:
    run.world.user_client.merge(etcd.API.kind, run.world.namespace, name, {"status": status}, subresource="status")


def rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def redis_state(run: Run, name: str) -> Any:
    fake: test_redis.LockedFake = run.database
    status = run.world.get(redis.API.kind, name).get("status") or {}
    entries = sum(map(is_node, status.get("conditions") or ()))
    with fake.lock:
        fake.advance()
        return (fake._shape(name), entries) if any(process.cluster == name for process in fake.running) else None


def redis_operator(fake: test_redis.LockedFake) -> Operator:
    served = ServedKind(redis.API, partial(redis_registry.clusters, connect=fake.connect))
    return replace(redis_registry.OPERATOR, kinds=(served,))


COMMON: tuple[Obj, ...] = (
    {"env": [{"name": "A", "value": "1"}]},
    {"tolerations": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
)
"""Fields of all kinds, in a context in which each of them can have other values."""

VOLUMES = st.sampled_from([volume["name"] for volume in FULL["extraVolumes"]])
MOUNTED: dict[str, Any] = {
    f"{field}[].name": lambda _: VOLUMES
    for field in ("extraVolumeMounts", "extraContainers[].volumeMounts", "extraInitContainers[].volumeMounts")
}
"""A mount names a volume of the spec."""

UNCHANGEABLE = {
    "extraInitContainers[].restartPolicy": "it has one value: tests/support/extension_cases.py sets and removes it"
}

STOPS = "all pods stop, and no other edit shows meanwhile: tests/etcd/simulation, tests/redis/simulation"
APPROVALS = "it determines when later changes apply: tests/platform/unit/test_approval.py"
PROTECTION = "a policy reads it when the resource is deleted: tests/platform/api/charts/test_deletion_protection.py"
TOKEN = "a token that the status names after a loss; before that, it means nothing: {}"
KEPT = "volumes keep their class when the field is removed: tests/platform/unit/shared/steps/test_modify_volumes.py"
VOLUME_SIZE = "volumes cannot shrink, and one whose amount is only written otherwise is not changed"
MOVES = (
    "read when slots move to a new primary; nothing shows in a cluster at rest: tests/redis/unit/steps/test_scaling.py"
)

RANGES: dict[str, Any] = {
    f"network.{clients}[].ipBlock.{name}": lambda _, given=given: st.sampled_from(given)
    for clients in ("allowFrom", "metricsFrom")
    for name, given in (("cidr", network_cases.RANGES), ("except[]", network_cases.PARTS))
}

SUBJECTS = {
    "Memcached": Subject(
        memcached.API,
        replace(MEMCACHED_CAST, kinds=(*MEMCACHED_CAST.kinds, PERSISTENT_VOLUME_CLAIM, CERTIFICATE)),
        {"size": 1},
        memcached_cases,
        memcached.Memcached.parse,
        unseen=UNCHANGEABLE | {"changes": APPROVALS},
        specs={
            "image": {"image": "example.com/memcached", "version": "1.6.44"},  # without a version, the last one stays
            "workload": {"workload": "StatefulSet"},  # without it, the last kind stays
            "tls.mode": {"tls": {"mode": "self"}},  # a reversal keeps its Secrets, for the operator may delete none
        },
        accepted={
            **MOUNTED,
            **RANGES,
            "version": versions,
            "extraArgs[]": lambda _: st.from_regex(MEMCACHED_ARGUMENT, fullmatch=True),
        },
        with_pods=("workload",),
        also=(*COMMON, {"metrics": {"image": "exporter:1"}}, {"paused": False}),
    ),
    "EtcdCluster": Subject(
        etcd.API,
        replace(test_etcd.CAST, operator=etcd_operator, kinds=(*test_etcd.CAST.kinds, SECRET, CERTIFICATE)),
        {"size": 1, "version": etcd_cases.VERSION},
        etcd_cases,
        etcd.EtcdCluster.parse,
        accepted={
            **MOUNTED,
            **RANGES,
            "version": versions,
            "extraArgs[]": lambda _: ETCD_ARGUMENTS,
            "size": lambda _: st.integers(1, 4),
            "backup.schedule": lambda _: SCHEDULES,
            "backup.retention": lambda before: st.integers(4, 9) if before < 4 else st.integers(1, 3),
            "defragmentation.schedule": lambda _: SCHEDULES,
            "defragmentation.threshold": lambda before: (
                st.integers(FREE[True] + 1, 99) if before <= 45 else st.integers(1, FREE[False])
            ),
        },
        # A member that is added again has another id and volume; claims record the last growth that was refused.
        history=(names.MEMBER_ID, names.VOTERS, "volumeName", etcd_database.DATABASE.refusal),
        lasting={"storage.size": VOLUME_SIZE},
        with_pods=("size", "storage.", "version", "auth.", "backup.", "connectionSecret", "defragmentation."),
        immutable=("storage.medium", "storage.storageClassName", "tls.mode"),
        unseen={
            **UNCHANGEABLE,
            "autoCompaction.mode": "no retention is valid in both modes: tests/support/etcd/cases.py changes both",
            "recovery.confirm": TOKEN.format("tests/platform/api/crash/test_etcd.py, lost quorum and recovery"),
            "recovery.release": TOKEN.format("tests/etcd/simulation, scenarios of recoveries"),
            "changes": APPROVALS,
            "deletionProtection": PROTECTION,
            "hibernate": STOPS,
            "storage.volumeAttributesClassName": KEPT,
        },
        specs={
            "backup.retention": {"backup": etcd_cases.NIGHTLY | {"retention": 2}},
        },
        state=etcd_state,
        provoked={
            leaf.path: act
            for part, act in (("backup", take_due_snapshot), ("defragmentation", fragment))
            for leaf in leaves_of(spec_schema(etcd.API))
            if leaf.path.startswith(part)
        },
        also=(
            *COMMON,
            {"restore": {"from": {"volume": {"claimName": "snapshots", "path": "a"}, "file": "monday.db"}}},
            {
                "restore": {
                    "from": {"s3": S3 | {"endpoint": "http://s:9", "region": "a", "prefix": "b"}, "file": "a.db"}
                }
            },
        ),
    ),
    "RedisCluster": Subject(
        redis.API,
        replace(test_redis.CAST, operator=redis_operator, kinds=(*test_redis.CAST.kinds, SECRET, CERTIFICATE)),
        {"replicas": 3, "replicasPerMaster": 0, "version": redis_cases.VERSION},
        redis_cases,
        redis.RedisCluster.parse,
        accepted={
            **MOUNTED,
            **RANGES,
            "version": versions,
            "replicas": lambda _: st.integers(3, 6),
            "replicasPerMaster": lambda _: st.integers(0, 1),
        },
        also=(
            {"updateStrategy": {"type": "RollingUpdate", "waitForReplicas": False}},
            *COMMON,
            {"pod": [{"configmap": "redis-conf"}]},
        ),
        size="replicas",
        specs={
            "engine": {"version": "7.2.4", "engine": "valkey", "repository": "example.com/kv"},
            # A node without a replica and without a volume is not restarted for settings.
            "pod[].configmap": {"replicas": 6, "replicasPerMaster": 1, "pod": [{"configmap": "redis-conf"}]},
            "pod[].monitorImage": {"metrics": {"enabled": True}, "pod": [{"monitorImage": "exporter:1"}]},
            "replicasPerMaster": {"replicas": 6, "replicasPerMaster": 1},
        },
        history=(READ_ONCE, TEMPLATE, WITHDRAWN, redis_database.DATABASE.refusal),
        lasting={"storage.size": VOLUME_SIZE},
        # The last three: what is missing or refused is reported once nodes run.
        with_pods=("replicas", "storage.", "nodesInConditions", "auth.secretName", "config", "pod[].configmap"),
        immutable=("storage.storageClassName", "tls.mode", "pod[].volumes."),
        unseen={
            **UNCHANGEABLE,
            "pod[].updateStrategy.type": "read when pods are outdated (tests/redis/unit/steps)",
            "updateStrategy.type": MOVES,
            "updateStrategy.pipeline": MOVES,
            "updateStrategy.waitForReplicas": MOVES,
            "updateStrategy.assignStrategies[].slots": MOVES,
            "updateStrategy.assignStrategies[].fromReplicas": MOVES,
            "recovery.confirm": TOKEN.format("tests/platform/api/crash/test_redis.py, lose slots and recover"),
            "changes": APPROVALS,
            "deletionProtection": PROTECTION,
            "hibernate": STOPS,
            "storage.volumeAttributesClassName": KEPT,
        },
        state=redis_state,
    ),
}
