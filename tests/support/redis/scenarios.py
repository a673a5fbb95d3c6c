"""Scenarios of a RedisCluster for the crash harness: in memory, and on an API server (`tests/platform/api/crash`)."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

from operators.redis.api.resource import API, RedisCluster
from operators.redis.objects.names import CLUSTER_UID, COPY_OF, PRIMARY
from operators.redis.security.users import Passwords
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.observed import Observed
from shared.cli.options import parse_options
from shared.kubernetes.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
from shared.pki.ca import fulfil
from shared.pki.rotation import CertificateOrder
from shared.runtime.controller import Controller
from shared.runtime.options import Options
from shared.steps.passwords import ROTATE
from simulator.api_server.kinds import CUSTOM, Served
from simulator.harness import NOW
from simulator.redis.seed import build
from tests.harness.scenario import (
    Scenario,
    ScenarioStep,
    Stage,
    Subject,
    apply,
    at_once,
    create,
    delete,
    edit,
    later,
    limit_turns,
    operator_down,
    unobserved,
)
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.guard import Loss
from tests.support.attributes_class import attributes_class
from tests.support.issuing import issued
from tests.support.pod_loss import delete_now, pods_and_volumes_lost

OPTIONS = parse_options("redis-operator", "redis", [], {})

AS_CONDITIONS = "type", "masterNodeId", "hostname"
"""Names of the same fields in status.conditions."""


def controller(options: Options, redis: FakeRedis) -> Controller[RedisCluster, Observed]:
    """Return the controller, whose pauses let the simulated time pass."""
    return dataclasses.replace(build(options, redis), issue=issued)


REDIS = Subject(
    "redis",
    partial(controller, OPTIONS),
    database=FakeRedis,
    serves=(Served(API.kind, schema=dataclasses.replace(CUSTOM, keys={"metadata.ownerReferences": ("uid",)})),),
    patience=20.0,  # a failed primary has a successor by then, and gossip has spread
    nodes=4,
    # Roles and shards of the pods are not fixed, nor the Kubernetes nodes that they run on.
    unstable=(
        "role",
        "primaryId",
        "copyOf",
        "copyHasKeys",
        "inSync",
        COPY_OF,
        PRIMARY,
        "slots",
        "shards",
        "nodeId",
        "host",
        "nodeName",
        *AS_CONDITIONS,
    ),
)

NAME = "cache"
OTHER = "other"
OLD, NEW = "7.0.15", "7.2.5"
DISKS: Obj = {"storage": {"size": "1Gi"}}
SNAPSHOTS: Obj = {"config": {"appendonly": "no"}}
STUCK = "ImagePullBackOff"


def cluster(replicas: int = 6, version: str = OLD, **spec: object) -> ScenarioStep:
    return apply(NAME, replicas=replicas, version=version, **{**DISKS, **spec})


def in_memory(replicas: int = 6, version: str = OLD, **spec: object) -> ScenarioStep:
    """Apply a cluster without volumes."""
    return apply(NAME, replicas=replicas, version=version, **spec)


def node(number: int) -> str:
    return f"{NAME}-{number}"


def to_redis(text: str, act: Callable[[FakeRedis], object]) -> ScenarioStep:
    """Change Redis without an event for the operator, which reconciles after its next resync."""
    return unobserved(ScenarioStep(text, lambda stage: act(stage.database)))


lost = partial(pods_and_volumes_lost, NAME)


def all_pods_deleted(count: int = 6) -> tuple[ScenarioStep, ...]:
    """Delete all pods at once; each comes back with a new address, which its peers do not know."""
    return at_once(*(delete_now(POD, node(number)) for number in range(count)))


def addresses_swapped() -> ScenarioStep:
    """Delete all pods of two clusters at once, and swap the addresses of the clusters."""

    def act(stage: Stage) -> None:
        pods = stage.find(POD)
        at = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
        here = [address for name, address in at.items() if name.startswith(NAME)]
        there = [address for name, address in at.items() if name.startswith(OTHER)]
        stage.workloads.reuse_addresses([*there, *here])
        for pod in pods:
            stage.user_client.delete(POD, stage.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)

    return ScenarioStep("two clusters swap their addresses", act)


def adopted(**spec: Any) -> ScenarioStep:
    """Recreate the resource, and let it adopt the volumes that the former one left."""

    def act(stage: Stage) -> None:
        former = {found["metadata"]["labels"][CLUSTER_UID] for found in stage.find(PERSISTENT_VOLUME_CLAIM)}
        [uid] = former - {found["metadata"]["uid"] for found in stage.find()}
        cluster(6, adopt={"fromUID": uid}, **spec).act(stage)

    return ScenarioStep("recreated, adopting the volumes", act)


def claim_deleted(number: int) -> ScenarioStep:
    return delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{node(number)}")


def _shard(stage: Stage) -> tuple[str, list[str]]:
    """Return the pod of the first primary that has replicas, and the pods of these."""
    redis: FakeRedis = stage.database
    for process in redis.running:
        if not process.node.me.primary and (replicas := redis.replicas_of(process)):
            return process.pod, [replica.pod for replica in replicas]
    raise AssertionError("no primary has a replica")


def primary_lost(*, with_replicas: bool = False) -> ScenarioStep:
    """Delete the pod of a primary, with its volume if it has one."""

    def act(stage: Stage) -> None:
        primary, replicas = _shard(stage)
        claims = {claim["metadata"]["name"] for claim in stage.find(PERSISTENT_VOLUME_CLAIM)}
        for pod in (primary, *(replicas if with_replicas else ())):
            if f"data-{pod}" in claims:
                stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{pod}")
            stage.user_client.delete(POD, stage.namespace, pod, gracePeriodSeconds=0)

    return ScenarioStep(f"a primary is lost{' with its replicas' if with_replicas else ''}", act)


def hangs(number: int, *, hung: bool = True) -> ScenarioStep:
    return to_redis(
        f"{node(number)} {'hangs' if hung else 'recovers'}", lambda redis: redis.hang(node(number), hangs=hung)
    )


def lags(number: int) -> ScenarioStep:
    """Stop the replication of a replica."""
    return to_redis(f"{node(number)} lags", lambda redis: redis.lagging.add(node(number)))


def cut_off(*, off: bool = True) -> ScenarioStep:
    return to_redis(
        f"the operator {'reaches no node' if off else 'reaches nodes'}", lambda redis: setattr(redis, "cut_off", off)
    )


def failing(number: int, why: str = STUCK) -> ScenarioStep:
    """Keep a pod from starting."""
    return ScenarioStep(f"{node(number)}: {why}", lambda stage: stage.database.failing.update({node(number): why}))


def unpullable(tag: str) -> ScenarioStep:
    return ScenarioStep(f"{tag} cannot be pulled", lambda stage: stage.database.missing.add(tag))


def faults_end() -> ScenarioStep:
    """End all faults of pods and replication."""

    def act(redis: FakeRedis) -> None:
        redis.failing.clear()
        redis.missing.clear()
        redis.lagging.clear()

    return to_redis("all faults end", act)


def agreed(stage: Stage) -> str:
    """Let the guard know that the user agrees to the recovery that the status offers; return its token."""
    [found] = stage.find()
    offered = found["status"]["recovery"]
    loss = Loss(Slots.parse(offered["slots"]).mask, frozenset(offered.get("older") or ()))
    token = str(offered["token"])
    stage.database.guard.agree(stage.database, token, loss)
    return token


def recovery_confirmed() -> ScenarioStep:
    """Confirm the recovery that the status offers, as the user does."""

    def act(stage: Stage) -> None:
        patch = {"spec": {"recovery": {"confirm": agreed(stage)}}}
        stage.user_client.merge(stage.kind, stage.namespace, NAME, patch)

    return ScenarioStep("the user confirms the recovery", act)


def password_given(password: str = "one") -> ScenarioStep:
    return create(SECRET, "secret", data=_encoded(password=password))


def password_changed(password: str) -> ScenarioStep:
    """Change the password in the Secret; the operator reads it at its next resync."""
    return unobserved(edit(SECRET, {"data": _encoded(password=password)}, "secret"))


def of_earlier_release(password: str = "") -> ScenarioStep:
    """Leave the cluster as a release did that had no user of replicas: their primaries have only `default`."""

    def act(stage: Stage) -> None:
        name, content = f"{NAME}-users", Passwords(password, exporter="reader").content()
        found = stage.user_client.get(SECRET, stage.namespace, name)
        data = dict.fromkeys(found["data"]) | _encoded(**content)
        stage.user_client.merge(SECRET, stage.namespace, name, {"data": data})
        redis: FakeRedis = stage.database
        for process in redis.running:
            process.users.clear()
            process.rules.clear()
            process.settings |= {"masteruser": "default", "masterauth": password}

    return unobserved(ScenarioStep("nodes have no user of replicas", act))


def _encoded(**texts: str) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


AUTH: Obj = {"auth": {"secretName": "secret"}}
ALONE: Obj = {"replicasPerMaster": 0}
NEW_PASSWORD: Obj = {"metadata": {"annotations": {ROTATE: "1"}}}
TLS: Obj = {"tls": {"mode": "secret", "secretName": "certificate"}}


@cache
def _certificate(authority: str) -> dict[str, str]:
    """Return the content of a Secret with a certificate of an authority; the same in every world, at any time."""
    begins, ends = NOW - timedelta(days=1), NOW + timedelta(days=89)
    root = fulfil(CertificateOrder(authority, (), begins, None, None, NOW + timedelta(days=1799))).authority
    hosts = (f"*.{NAME}.default.svc", f"{NAME}-client.default.svc", "localhost")
    issued_certificates = fulfil(CertificateOrder("server", hosts, begins, ends, root, None, client=True)).serving
    assert root
    assert issued_certificates
    return {"tls.crt": issued_certificates.certificate, "tls.key": issued_certificates.key, "ca.crt": root.certificate}


def certificate_given(authority: str = "first") -> ScenarioStep:
    return create(SECRET, "certificate", type="kubernetes.io/tls", data=_encoded(**_certificate(authority)))


def certificate_changed(authority: str) -> ScenarioStep:
    """Replace the certificate by one of another authority; the operator reads it at its next resync."""
    return unobserved(edit(SECRET, {"data": _encoded(**_certificate(authority))}, "certificate"))


def slots_assigned(slots: int) -> ScenarioStep:
    """Add a fourth primary that takes slots from the first one."""

    def act(stage: Stage) -> None:
        redis: FakeRedis = stage.database
        source = next(process.node.id for process in redis.running if process.node.me.slots)
        given = {"type": "AssignReceive", "assignStrategies": [{"slots": slots, "fromReplicas": source}]}
        cluster(8, updateStrategy=given).act(stage)

    return ScenarioStep(f"a fourth primary takes {slots} slots from the first", act)


SCENARIOS = (
    Scenario("create", (cluster(6),)),
    Scenario("create without volumes", (in_memory(7),)),
    Scenario("create without replicas", (cluster(3, replicasPerMaster=0),)),
    Scenario("create valkey", (cluster(6, "9.0.1", repository="valkey/valkey"),)),
    Scenario("scale out and in", (cluster(8), cluster(6)), given=(cluster(6),)),
    Scenario("scale out and in without volumes", (in_memory(8), in_memory(6)), given=(in_memory(6),)),
    Scenario(
        "scale out and in with valkey",
        (cluster(8, "9.0.1", repository="valkey/valkey"), cluster(6, "9.0.1", repository="valkey/valkey")),
        given=(cluster(6, "9.0.1", repository="valkey/valkey"),),
    ),
    Scenario("add and remove a replica", (cluster(7), cluster(6)), given=(cluster(6),)),
    Scenario("assign slots", (slots_assigned(20),), given=(cluster(6),)),
    Scenario(
        "scale again before the change completes",
        (limit_turns(cluster(8), 12), limit_turns(cluster(6), 4), cluster(7)),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario("scale-in reverted", (limit_turns(cluster(6), 3), cluster(8)), given=(cluster(8),), exact_counts=False),
    Scenario("upgrade", (cluster(6, NEW),), given=(cluster(6, OLD),)),
    Scenario("upgrade without volumes", (in_memory(6, NEW),), given=(in_memory(6, OLD),)),
    Scenario("upgrade refused", (cluster(6, "6.2.14"),), given=(cluster(6, OLD),), ends="VersionRefused"),
    Scenario(
        "refused upgrade reverted",
        (cluster(6, "6.2.14"), cluster(6, OLD)),
        given=(cluster(6, OLD),),
    ),
    Scenario(
        "unpullable image reverted",
        (unpullable("7.2.99"), cluster(6, "7.2.99"), cluster(6)),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario(
        "rolling update waits for a lagging replica",
        (lags(3), cluster(6, NEW), faults_end()),
        given=(cluster(6, OLD),),
        exact_counts=False,
    ),
    Scenario(
        "size, version and configuration in one change",
        (cluster(8, NEW, config={"maxmemory-policy": "allkeys-lru"}),),
        given=(cluster(6),),
    ),
    Scenario(
        "change settings at runtime", (cluster(6, config={"maxmemory-policy": "allkeys-lru"}),), given=(cluster(6),)
    ),
    Scenario("change settings that need a restart", (cluster(6, config={"databases": "4"}),), given=(cluster(6),)),
    Scenario(
        "delete two pods",
        at_once(delete_now(POD, node(0)), delete_now(POD, node(4))),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario("delete all pods", all_pods_deleted(), given=(cluster(6),), exact_counts=False),
    Scenario(
        "delete all pods while the operator is down",
        operator_down(*all_pods_deleted()),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario(
        "two clusters swap addresses",
        (addresses_swapped(),),
        given=(cluster(6), apply(OTHER, replicas=6, version=OLD, **DISKS)),
        exact_counts=False,
    ),
    Scenario("lose a primary", (primary_lost(),), given=(cluster(6),), exact_counts=False),
    Scenario("lose a primary without volumes", (primary_lost(),), given=(in_memory(6),), exact_counts=False),
    Scenario("lose a replica", lost(5), given=(cluster(6),), exact_counts=False),
    Scenario(
        "lose a replica while the operator is down", operator_down(*lost(5)), given=(cluster(6),), exact_counts=False
    ),
    Scenario("scale in while a pod is lost", (*lost(6), cluster(6)), given=(cluster(8),), exact_counts=False),
    Scenario(
        "lose slots", (primary_lost(with_replicas=True),), given=(cluster(6),), ends="SlotsLost", exact_counts=False
    ),
    Scenario(
        "lose slots and recover",
        (primary_lost(with_replicas=True), recovery_confirmed()),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario("a node hangs and recovers", (hangs(0), hangs(0, hung=False)), given=(cluster(6),), exact_counts=False),
    Scenario(
        "edits while paused",
        (
            cluster(6, pause=True),
            delete(SERVICE, NAME),
            delete_now(POD, node(4)),
            edit(STATEFUL_SET, {"spec": {"template": {"metadata": {"annotations": {"by": "hand"}}}}}, NAME),
            cluster(6),
        ),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario(
        "delete all pods while paused",
        (cluster(6, pause=True), *all_pods_deleted(), cluster(6)),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario(
        "delete owned objects",
        (
            delete(SERVICE, NAME),
            delete(SERVICE, f"{NAME}-client"),
            delete(CONFIG_MAP, f"{NAME}-config"),
            delete(DISRUPTION_BUDGET, NAME),
            delete(STATEFUL_SET, NAME),
        ),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario(
        "delete the StatefulSet and orphan its pods",
        (delete(STATEFUL_SET, NAME, propagationPolicy="Orphan"),),
        given=(cluster(6),),
    ),
    Scenario(
        "edit owned objects",
        (
            edit(STATEFUL_SET, {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}, NAME),
            edit(SERVICE, {"spec": {"selector": {"app.kubernetes.io/instance": "another"}}}, NAME),
            edit(STATEFUL_SET, {"metadata": {"ownerReferences": None}}, NAME),
            edit(POD, {"metadata": {"labels": {"redis.middleware.hc.cn/serves": None}}}, node(1)),
        ),
        given=(cluster(6),),
    ),
    Scenario(
        "other attributes of volumes",
        (
            cluster(3, **ALONE, storage=DISKS["storage"] | {"volumeAttributesClassName": "extreme"}),
            attributes_class("fast"),
            cluster(3, **ALONE, storage=DISKS["storage"] | {"volumeAttributesClassName": "fast"}),
        ),
        given=(attributes_class("extreme", is_feasible=False), cluster(3, **ALONE)),
    ),
    Scenario("hibernate", (cluster(6, hibernate=True),), given=(cluster(6),), ends="Hibernated", exact_counts=False),
    Scenario("wake up", (cluster(6),), given=(cluster(6), cluster(6, hibernate=True)), exact_counts=False),
    Scenario(
        "scale in while hibernating",
        (cluster(6, hibernate=True), cluster(6)),
        given=(cluster(8), cluster(8, hibernate=True)),
        exact_counts=False,
    ),
    Scenario(
        "scale out and hibernate in one change",
        (cluster(8, hibernate=True),),
        given=(cluster(6),),
        ends="Hibernated",
        exact_counts=False,
    ),
    Scenario(
        "hibernation withdrawn and requested again midway",
        (limit_turns(cluster(6, hibernate=True), 6), limit_turns(cluster(6), 6), cluster(6, hibernate=True)),
        given=(cluster(6),),
        ends="Hibernated",
        exact_counts=False,
    ),
    Scenario(
        "hibernate with valkey",
        (
            cluster(6, "9.0.1", repository="valkey/valkey", hibernate=True),
            cluster(6, "9.0.1", repository="valkey/valkey"),
        ),
        given=(cluster(6, "9.0.1", repository="valkey/valkey"),),
        exact_counts=False,
    ),
    Scenario("delete", (delete(),), given=(cluster(6),), ends=""),
    Scenario("delete and keep all objects", (delete(),), given=(cluster(6, finalizers=""),), ends=""),
    Scenario("delete with data", (delete(),), given=(cluster(6, storage={"size": "1Gi", "retain": False}),), ends=""),
    Scenario(
        "delete and recreate", (delete(), cluster(6)), given=(cluster(6),), ends="ForeignData", exact_counts=False
    ),
    Scenario("adopt volumes", (delete(), adopted()), given=(cluster(6),), exact_counts=False),
    Scenario(
        "adopt volumes with snapshots",
        (delete(), adopted(**SNAPSHOTS)),
        given=(cluster(6, **SNAPSHOTS),),
        exact_counts=False,
    ),
    Scenario(
        "adopt volumes with snapshots, and write a log",
        (delete(), adopted()),
        given=(cluster(6, **SNAPSHOTS),),
        exact_counts=False,
    ),
    Scenario("a log replaces snapshots", (cluster(6),), given=(cluster(6, **SNAPSHOTS),), exact_counts=False),
    Scenario("snapshots replace a log", (cluster(6, **SNAPSHOTS),), given=(cluster(6),), exact_counts=False),
    Scenario(
        "snapshots replace a log without replicas",
        (cluster(3, replicasPerMaster=0, **SNAPSHOTS),),
        given=(cluster(3, replicasPerMaster=0),),
        exact_counts=False,
    ),
    Scenario(
        "adopt volumes without that of a primary",
        (delete(), claim_deleted(0), adopted()),
        given=(cluster(6),),
        exact_counts=False,
        ends="SlotsLost",  # its replica has started since: nothing shows that it has all writes
    ),
    Scenario("adopt more volumes than replicas", (delete(), adopted()), given=(cluster(8),), exact_counts=False),
    Scenario(
        "changes while the operator is down",
        operator_down(cluster(8), delete(SERVICE, NAME), delete_now(POD, node(4))),
        given=(cluster(6),),
    ),
    Scenario(
        "operator cannot reach any node",
        (cut_off(), cluster(8), delete_now(POD, node(4)), cut_off(off=False)),
        given=(cluster(6),),
        exact_counts=False,
    ),
    Scenario("create with TLS", (cluster(6, tls={"mode": "self"}),)),
    Scenario(
        "change the certificate authority",
        (certificate_changed("second"),),
        given=(certificate_given(), cluster(6, **TLS)),
    ),
    Scenario("replicas get a user of their own", (of_earlier_release(),), given=(cluster(6),)),
    Scenario(
        "replicas get a user of their own, and the password changes",
        (password_changed("two"), of_earlier_release("one"), later(7200)),
        given=(password_given(), cluster(6, **AUTH)),
    ),
    Scenario("password Secret appears after creation", (cluster(6, **AUTH), unobserved(password_given()))),
    Scenario(
        "change the password", (password_changed("two"), later(7200)), given=(password_given(), cluster(6, **AUTH))
    ),
    Scenario(
        "users of applications change",
        (
            cluster(3, **ALONE, users=[{"name": "app", "rules": "+get"}, {"name": "other", "rules": "+ping"}]),
            later(7200),
            cluster(3, **ALONE, users=[{"name": "app", "rules": "+set", "enabled": False}]),
            edit(None, NEW_PASSWORD, NAME),
            later(7200),
        ),
    ),
    Scenario(
        "generated password: rotated, its Secret deleted",
        (
            cluster(3, **ALONE, auth={}),
            later(7200),
            edit(None, NEW_PASSWORD, NAME),
            later(7200),
            unobserved(delete(SECRET, f"{NAME}-auth")),
        ),
        given=(cluster(3, **ALONE),),
    ),
    Scenario(
        "set a password for the first time", (password_given(), cluster(6, **AUTH), later(7200)), given=(cluster(6),)
    ),
)
