"""What people do to a RedisCluster, and what befalls it, for the crash harness: in memory (`tests/unit`) and on an API
server (`tests/api`).
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial

from operators.redis.api.resource import API
from operators.redis.operator import clusters
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
from shared.testing.api_server.kinds import CUSTOM, Served
from shared.testing.harness.harness import NOW
from shared.testing.harness.scenario import (
    Scenario,
    ScenarioStep,
    Stage,
    Subject,
    apply,
    at_once,
    away,
    create,
    delete,
    edit,
    hurried,
    later,
    untold,
)
from tests.support.issuing import issued
from tests.support.pod_loss import gone, pods_and_volumes_lost
from tests.unit.redis.simulation.database import FakeRedis

OPTIONS = parse_options("redis-operator", "redis", [], {})

REDIS = Subject(
    "redis",
    lambda redis: dataclasses.replace(clusters(OPTIONS, redis.connect), issue=issued),
    database=FakeRedis,
    serves=(Served(API.kind, schema=dataclasses.replace(CUSTOM, keys={"metadata.ownerReferences": ("uid",)})),),
    patience=20.0,  # a failed master has a successor within that, and gossip has spread
    nodes=4,
    # Which of the pods are masters is nobody's business, nor which node follows which.
    unstable=("type", "masterNodeId", "copyOf", "slots", "shards", "nodeId", "hostname", "nodeName"),
)

NAME = "cache"
OTHER = "other"
OLD, NEW = "7.0.15", "7.2.5"
DISKS: Obj = {"storage": {"size": "1Gi"}}
STUCK = "ImagePullBackOff"


def cluster(replicas: int = 6, version: str = OLD, **spec: object) -> ScenarioStep:
    return apply(NAME, replicas=replicas, version=version, **{**DISKS, **spec})


def in_memory(replicas: int = 6, version: str = OLD, **spec: object) -> ScenarioStep:
    """The same without volumes."""
    return apply(NAME, replicas=replicas, version=version, **spec)


def node(number: int) -> str:
    return f"{NAME}-{number}"


def to_redis(text: str, act: Callable[[FakeRedis], object]) -> ScenarioStep:
    """Something happens to Redis, and nobody tells the operator: it looks again after a while."""
    return untold(ScenarioStep(text, lambda stage: act(stage.database)))


lost = partial(pods_and_volumes_lost, NAME)


def all_pods_gone(count: int = 6) -> tuple[ScenarioStep, ...]:
    """All at once: each comes back at another address, where nobody looks for it."""
    return at_once(*(gone(POD, node(number)) for number in range(count)))


def addresses_swapped() -> ScenarioStep:
    """All pods of two clusters are gone at once, and each comes back where one of the other cluster was."""

    def act(stage: Stage) -> None:
        pods = stage.find(POD)
        at = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
        here = [address for name, address in at.items() if name.startswith(NAME)]
        there = [address for name, address in at.items() if name.startswith(OTHER)]
        stage.workloads.give_again([*there, *here])
        for pod in pods:
            stage.person.delete(POD, stage.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)

    return ScenarioStep("two clusters swap their addresses", act)


def _shard(stage: Stage) -> tuple[str, list[str]]:
    """The first master that has replicas, and these: pods."""
    redis: FakeRedis = stage.database
    for process in redis.running:
        if not process.node.me.primary and (replicas := redis.replicas_of(process)):
            return process.pod, [replica.pod for replica in replicas]
    raise AssertionError("no master has a replica")


def master_lost(*, with_replicas: bool = False) -> ScenarioStep:
    """A master's pod is gone with its volume, if it has one."""

    def act(stage: Stage) -> None:
        primary, replicas = _shard(stage)
        claims = {claim["metadata"]["name"] for claim in stage.find(PERSISTENT_VOLUME_CLAIM)}
        for pod in (primary, *(replicas if with_replicas else ())):
            if f"data-{pod}" in claims:
                stage.person.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{pod}")
            stage.person.delete(POD, stage.namespace, pod, gracePeriodSeconds=0)

    return ScenarioStep(f"a master is lost{' with its replicas' if with_replicas else ''}", act)


def hangs(number: int, *, hung: bool = True) -> ScenarioStep:
    return to_redis(
        f"{node(number)} {'hangs' if hung else 'is well'}", lambda redis: redis.hang(node(number), hangs=hung)
    )


def lags(number: int) -> ScenarioStep:
    """A replica gets nothing from its master any more."""
    return to_redis(f"{node(number)} lags", lambda redis: redis.lagging.add(node(number)))


def cut_off(*, off: bool = True) -> ScenarioStep:
    return to_redis(
        f"the operator {'reaches no node' if off else 'reaches nodes'}", lambda redis: setattr(redis, "cut_off", off)
    )


def failing(number: int, why: str = STUCK) -> ScenarioStep:
    """A pod does not start, or not again."""
    return ScenarioStep(f"{node(number)}: {why}", lambda stage: stage.database.failing.update({node(number): why}))


def unpullable(tag: str) -> ScenarioStep:
    return ScenarioStep(f"{tag} cannot be pulled", lambda stage: stage.database.missing.add(tag))


def well() -> ScenarioStep:
    """Nothing keeps pods from starting, and nodes from following, any more."""

    def act(redis: FakeRedis) -> None:
        redis.failing.clear()
        redis.missing.clear()
        redis.lagging.clear()

    return to_redis("all is well", act)


def agreed() -> ScenarioStep:
    """A person allows the recovery that the status offers."""

    def act(stage: Stage) -> None:
        stage.database.guard.confirmed = True
        [found] = stage.find()
        token = found["status"]["recovery"]["token"]
        stage.person.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": {"confirm": token}}})

    return ScenarioStep("a person allows the recovery", act)


def given_password(password: str = "one") -> ScenarioStep:
    return create(SECRET, "secret", data=_encoded(password=password))


def other_password(password: str) -> ScenarioStep:
    """The Secret has another password, and the operator looks again."""
    return untold(edit(SECRET, {"data": _encoded(password=password)}, "secret"))


def _encoded(**texts: str) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


AUTH: Obj = {"auth": {"secretName": "secret"}}
TLS: Obj = {"tls": {"mode": "secret", "secretName": "certificate"}}


@cache
def _certificate(authority: str) -> dict[str, str]:
    """What a Secret holds that an authority of this name vouches for; the same in every world, whatever its time."""
    begins, ends = NOW - timedelta(days=1), NOW + timedelta(days=89)
    root = fulfil(CertificateOrder(authority, (), begins, None, None, NOW + timedelta(days=1799))).authority
    hosts = (f"*.{NAME}.default.svc", f"{NAME}-client.default.svc", "localhost")
    made = fulfil(CertificateOrder("server", hosts, begins, ends, root, None, client=True)).serving
    assert root
    assert made
    return {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": root.certificate}


def given_certificate(authority: str = "first") -> ScenarioStep:
    return create(SECRET, "certificate", type="kubernetes.io/tls", data=_encoded(**_certificate(authority)))


def other_certificate(authority: str) -> ScenarioStep:
    """Another authority vouches for the nodes, and the operator looks again."""
    return untold(edit(SECRET, {"data": _encoded(**_certificate(authority))}, "certificate"))


def assigned(slots: int) -> ScenarioStep:
    """A fourth master takes so many slots from the first one."""

    def act(stage: Stage) -> None:
        redis: FakeRedis = stage.database
        giver = next(process.node.id for process in redis.running if process.node.me.slots)
        given = {"type": "AssignReceive", "assignStrategies": [{"slots": slots, "fromReplicas": giver}]}
        cluster(8, updateStrategy=given).act(stage)

    return ScenarioStep(f"a fourth master takes {slots} slots from the first", act)


SCENARIOS = (
    Scenario("create", (cluster(6),)),
    Scenario("create in memory", (in_memory(7),)),
    Scenario("create without replicas", (cluster(3, replicasPerMaster=0),)),
    Scenario("create valkey", (cluster(6, "9.0.1", repository="valkey/valkey"),)),
    Scenario("there and back", (cluster(8), cluster(6)), given=(cluster(6),)),
    Scenario("there and back in memory", (in_memory(8), in_memory(6)), given=(in_memory(6),)),
    Scenario(
        "there and back with valkey",
        (cluster(8, "9.0.1", repository="valkey/valkey"), cluster(6, "9.0.1", repository="valkey/valkey")),
        given=(cluster(6, "9.0.1", repository="valkey/valkey"),),
    ),
    Scenario("another replica", (cluster(7), cluster(6)), given=(cluster(6),)),
    Scenario("slots assigned", (assigned(20),), given=(cluster(6),)),
    Scenario(
        "there and back, hurried",
        (hurried(cluster(8), 12), hurried(cluster(6), 4), cluster(7)),
        given=(cluster(6),),
        counted=False,
    ),
    Scenario("a scale-in taken back", (hurried(cluster(6), 3), cluster(8)), given=(cluster(8),), counted=False),
    Scenario("upgraded", (cluster(6, NEW),), given=(cluster(6, OLD),)),
    Scenario("upgraded in memory", (in_memory(6, NEW),), given=(in_memory(6, OLD),)),
    Scenario("an upgrade refused", (cluster(6, "6.2.14"),), given=(cluster(6, OLD),), ends="VersionRefused"),
    Scenario(
        "an upgrade refused, and taken back",
        (cluster(6, "6.2.14"), cluster(6, OLD)),
        given=(cluster(6, OLD),),
    ),
    Scenario(
        "an image that cannot be pulled, taken back",
        (unpullable("7.2.99"), cluster(6, "7.2.99"), cluster(6)),
        given=(cluster(6),),
        counted=False,
    ),
    Scenario(
        "a roll held by a replica that lags, and let go",
        (lags(3), cluster(6, NEW), well()),
        given=(cluster(6, OLD),),
        counted=False,
    ),
    Scenario("all in one patch", (cluster(8, NEW, config={"maxmemory-policy": "allkeys-lru"}),), given=(cluster(6),)),
    Scenario("settings changed live", (cluster(6, config={"maxmemory-policy": "allkeys-lru"}),), given=(cluster(6),)),
    Scenario("settings that need a restart", (cluster(6, config={"databases": "4"}),), given=(cluster(6),)),
    Scenario("two pods deleted", at_once(gone(POD, node(0)), gone(POD, node(4))), given=(cluster(6),), counted=False),
    Scenario("all pods gone", all_pods_gone(), given=(cluster(6),), counted=False),
    Scenario("all pods gone while nobody watches", away(*all_pods_gone()), given=(cluster(6),), counted=False),
    Scenario(
        "two clusters swap addresses",
        (addresses_swapped(),),
        given=(cluster(6), apply(OTHER, replicas=6, version=OLD, **DISKS)),
        counted=False,
    ),
    Scenario("a master lost", (master_lost(),), given=(cluster(6),), counted=False),
    Scenario("a master lost in memory", (master_lost(),), given=(in_memory(6),), counted=False),
    Scenario("a replica lost", lost(5), given=(cluster(6),), counted=False),
    Scenario("a replica lost while nobody watches", away(*lost(5)), given=(cluster(6),), counted=False),
    Scenario("shrinks while one is lost", (*lost(6), cluster(6)), given=(cluster(8),), counted=False),
    Scenario("slots lost", (master_lost(with_replicas=True),), given=(cluster(6),), ends="SlotsLost", counted=False),
    Scenario(
        "slots lost and recovered", (master_lost(with_replicas=True), agreed()), given=(cluster(6),), counted=False
    ),
    Scenario("a node hangs, and is well again", (hangs(0), hangs(0, hung=False)), given=(cluster(6),), counted=False),
    Scenario(
        "paused, with edits meanwhile",
        (
            cluster(6, pause=True),
            delete(SERVICE, NAME),
            gone(POD, node(4)),
            edit(STATEFUL_SET, {"spec": {"template": {"metadata": {"annotations": {"by": "hand"}}}}}, NAME),
            cluster(6),
        ),
        given=(cluster(6),),
        counted=False,
    ),
    Scenario(
        "owned objects deleted",
        (
            delete(SERVICE, NAME),
            delete(SERVICE, f"{NAME}-client"),
            delete(CONFIG_MAP, f"{NAME}-config"),
            delete(DISRUPTION_BUDGET, NAME),
            delete(STATEFUL_SET, NAME),
        ),
        given=(cluster(6),),
        counted=False,
    ),
    Scenario(
        "the StatefulSet orphans its pods",
        (delete(STATEFUL_SET, NAME, propagationPolicy="Orphan"),),
        given=(cluster(6),),
    ),
    Scenario(
        "owned objects edited",
        (
            edit(STATEFUL_SET, {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}, NAME),
            edit(SERVICE, {"spec": {"selector": {"app.kubernetes.io/instance": "another"}}}, NAME),
            edit(STATEFUL_SET, {"metadata": {"ownerReferences": None}}, NAME),
            edit(POD, {"metadata": {"labels": {"redis.middleware.hc.cn/serves": None}}}, node(1)),
        ),
        given=(cluster(6),),
    ),
    Scenario("deleted", (delete(),), given=(cluster(6),), ends=""),
    Scenario("deleted, and all is left", (delete(),), given=(cluster(6, finalizers=""),), ends=""),
    Scenario(
        "deleted with its data", (delete(),), given=(cluster(6, storage={"size": "1Gi", "retain": False}),), ends=""
    ),
    Scenario("no operator meanwhile", away(cluster(8), delete(SERVICE, NAME), gone(POD, node(4))), given=(cluster(6),)),
    Scenario(
        "the operator is cut off",
        (cut_off(), cluster(8), gone(POD, node(4)), cut_off(off=False)),
        given=(cluster(6),),
        counted=False,
    ),
    Scenario("encrypted", (cluster(6, tls={"mode": "self"}),)),
    Scenario("another authority", (other_certificate("second"),), given=(given_certificate(), cluster(6, **TLS))),
    Scenario("with a password, and its Secret appears", (cluster(6, **AUTH), untold(given_password()))),
    Scenario("another password", (other_password("two"), later(7200)), given=(given_password(), cluster(6, **AUTH))),
    Scenario("a password for the first time", (given_password(), cluster(6, **AUTH), later(7200)), given=(cluster(6),)),
)
