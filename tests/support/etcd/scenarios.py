"""What people do to an EtcdCluster, and what befalls it, for the crash harness: in memory (`tests/unit`) and on an API
server (`tests/api`).
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from functools import partial

from operators.etcd.api import backup as backup_api
from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT
from operators.etcd.operator import clusters
from shared.cli.options import parse_options
from shared.kubernetes.kinds import (
    DISRUPTION_BUDGET,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
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
from tests.unit.etcd.simulation.database import FakeEtcd

OPTIONS = parse_options("etcd-operator", "etcd", ["--agent-image", "example.com/etcd-operator:1"], {})

ETCD = Subject(
    "etcd",
    lambda etcd: dataclasses.replace(clusters(OPTIONS, etcd.connect), issue=issued),
    database=FakeEtcd,
    serves=(backup_api.API.kind,),
    patience=10.0,  # etcd wants members to be connected for some seconds before there is another
    # Who leads is nobody's business, nor which of the templates that differ in bootstrap flags alone a pod is from, nor
    # at which entry of the log the version was first seen.
    unstable=(
        *("leader", "role", "updatedReplicas", "currentRevision", "updateRevision", "controller-revision-hash"),
        "sinceIndex",
    ),
)

NAME = "cache"
OLD, MIDDLE, NEW = "3.5.26", "3.6.11", "3.7.0"
TLS: Obj = {"tls": {"mode": "self"}}
AUTH: Obj = {"auth": {"rootSecretName": "root"}}
NO_AUTH: Obj = {"auth": {"rootSecretName": "root", "enabled": False}}
STORE: Obj = {"volume": {"claimName": "snapshots"}}
RESTORE: Obj = {"restore": {"from": {**STORE, "file": "a.db"}}}
BACKUP: Obj = {"backup": {"schedule": "0 * * * *", "retention": 1, "destination": STORE}}
STUCK = "ImagePullBackOff"


def cluster(size: int, version: str = MIDDLE, **spec: object) -> ScenarioStep:
    return apply(NAME, size=size, version=version, **spec)


def member(number: int) -> str:
    return f"{NAME}-{number}"


def to_etcd(text: str, act: Callable[[FakeEtcd], object]) -> ScenarioStep:
    """Something happens to etcd, and nobody tells the operator: it looks again after a while."""
    return untold(ScenarioStep(text, lambda stage: act(stage.database)))


lost = partial(pods_and_volumes_lost, NAME)


MUCH_WRITTEN = to_etcd("clients write much", lambda etcd: etcd.written(ENTRIES_PER_SNAPSHOT + 1))


def leader_lost() -> ScenarioStep:
    """The leader's pod is gone with its volume."""

    def act(stage: Stage) -> None:
        etcd: FakeEtcd = stage.database
        led = etcd.cluster()
        process = etcd.process_of(led, led.leader)
        assert process is not None
        stage.person.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{process.pod}")
        stage.person.delete(POD, stage.namespace, process.pod, gracePeriodSeconds=0)

    return ScenarioStep("the leader and its volume are lost", act)


def led_by(number: int) -> ScenarioStep:
    """The lead moves to another member."""

    def act(etcd: FakeEtcd) -> None:
        led = etcd.cluster()
        led.leader, led.term = etcd.member(member(number)).member, led.term + 1

    return to_etcd(f"{member(number)} leads", act)


def failing(number: int, why: str = STUCK) -> ScenarioStep:
    """A pod does not start, or not again."""
    return ScenarioStep(f"{member(number)}: {why}", lambda stage: stage.database.failing.update({member(number): why}))


def unpullable(what: str) -> ScenarioStep:
    """An image cannot be pulled, or one pod alone cannot."""
    return ScenarioStep(f"{what} cannot be pulled", lambda stage: stage.database.missing.add(what))


def well() -> ScenarioStep:
    """Nothing keeps pods from starting any more."""
    return ScenarioStep("pods are well", lambda stage: stage.database.failing.clear())


def hangs(number: int, *, hung: bool = True) -> ScenarioStep:
    return to_etcd(
        f"{member(number)} {'hangs' if hung else 'is well'}", lambda etcd: etcd.hang(member(number), hangs=hung)
    )


def cut_off(*, off: bool = True) -> ScenarioStep:
    return to_etcd(
        f"the operator {'reaches no member' if off else 'reaches members'}", lambda etcd: setattr(etcd, "cut_off", off)
    )


def agreed() -> ScenarioStep:
    """A person allows the recovery that the status offers."""

    def act(stage: Stage) -> None:
        stage.database.guard.confirmed = True
        [found] = stage.find()
        token = found["status"]["recovery"]["token"]
        stage.person.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": {"confirm": token}}})

    return ScenarioStep("a person allows the recovery", act)


def kept(file: str) -> ScenarioStep:
    """A snapshot is in the store."""

    def act(stage: Stage) -> None:
        stage.database.snapshots[file] = 1000
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        made = {"metadata": {"name": "snapshots", "namespace": stage.namespace}, "spec": spec}
        stage.person.create(PERSISTENT_VOLUME_CLAIM, made)

    return ScenarioStep(f"{file} is kept", act)


def complete() -> ScenarioStep:
    """The snapshots that were asked for are taken."""

    def act(stage: Stage) -> None:
        for backup in stage.find(backup_api.API.kind):
            done = {"status": {"phase": "Complete", "completedAt": backup["metadata"]["creationTimestamp"]}}
            name = backup["metadata"]["name"]
            stage.person.merge(backup_api.API.kind, stage.namespace, name, done, subresource="status")

    return ScenarioStep("snapshots are complete", act)


def given_password(password: str = "one", former: str = "") -> ScenarioStep:
    texts = {"password": password} | ({"previousPassword": former} if former else {})
    return create(SECRET, "root", data={key: base64.b64encode(text.encode()).decode() for key, text in texts.items()})


SCENARIOS = (
    Scenario("create", (cluster(3),)),
    Scenario("create one", (cluster(1),)),
    Scenario("create in memory", (cluster(3, storage={"medium": "Memory"}),)),
    Scenario("there and back", (cluster(3), cluster(5), cluster(3), cluster(1)), given=(cluster(1),)),
    Scenario(
        "there and back, hurried",
        (hurried(cluster(5), 12), hurried(cluster(3), 8), cluster(1)),
        given=(cluster(3),),
        counted=False,
    ),
    Scenario("the seed lost with its volume", lost(0), given=(cluster(3),)),
    Scenario("another lost with its volume", lost(2), given=(cluster(3),)),
    Scenario("one lost while nobody watches", away(*lost(2)), given=(cluster(3),)),
    Scenario("the leader lost with its volume", (leader_lost(),), given=(cluster(3), led_by(1))),
    Scenario("shrinks while one is lost", (*lost(1), cluster(1)), given=(cluster(3),), counted=False),
    Scenario("upgraded", (cluster(3, MIDDLE),), given=(cluster(3, OLD),)),
    Scenario("upgraded again", (cluster(3, NEW),), given=(cluster(3, OLD), cluster(3, MIDDLE), MUCH_WRITTEN)),
    Scenario(
        "upgraded again too early",
        (cluster(3, NEW), MUCH_WRITTEN),
        given=(cluster(3, OLD), cluster(3, MIDDLE)),
    ),
    Scenario(
        "an upgrade held for what the log holds",
        (cluster(3, NEW),),
        given=(cluster(3, OLD), cluster(3, MIDDLE)),
        ends="UpgradeHeld",
    ),
    Scenario("upgraded while the second leads", (cluster(3, NEW),), given=(cluster(3), led_by(1))),
    Scenario(
        "an upgrade refused, and taken back",
        (cluster(3, NEW), cluster(3, OLD)),
        given=(cluster(3, OLD),),
    ),
    Scenario("an upgrade refused", (cluster(3, NEW),), given=(cluster(3, OLD),), ends="UpgradeRefused"),
    Scenario(
        "an image that cannot be pulled, taken back",
        (
            unpullable("v3.6.99"),
            cluster(3, "3.6.99"),
            cluster(3),
        ),
        given=(cluster(3),),
        counted=False,
    ),
    Scenario(
        "an upgrade taken back half-way",
        (unpullable(f"{member(2)} v{MIDDLE}"), cluster(3, MIDDLE), cluster(3, OLD)),
        given=(cluster(3, OLD),),
        counted=False,
    ),
    Scenario(
        "a learner that never starts",
        (failing(3), cluster(4), later(700), untold(well()), cluster(3)),
        given=(cluster(3),),
        counted=False,
    ),
    Scenario("two pods deleted", at_once(gone(POD, member(0)), gone(POD, member(2))), given=(cluster(3),)),
    Scenario("all pods deleted", at_once(*(gone(POD, member(number)) for number in range(3))), given=(cluster(3),)),
    Scenario(
        "a stale volume comes back",
        (
            cluster(1),
            create(
                PERSISTENT_VOLUME_CLAIM,
                f"data-{member(1)}",
                spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            ),
            cluster(3),
            gone(PERSISTENT_VOLUME_CLAIM, f"data-{member(1)}"),
        ),
        given=(cluster(3),),
    ),
    Scenario("scaled down and up at once", (hurried(cluster(1), 6), cluster(3)), given=(cluster(3),), counted=False),
    Scenario(
        "paused, with edits meanwhile",
        (
            cluster(3, paused=True),
            delete(SERVICE, NAME),
            gone(POD, member(1)),
            edit(STATEFUL_SET, {"spec": {"template": {"metadata": {"annotations": {"by": "hand"}}}}}, NAME),
            cluster(3),
        ),
        given=(cluster(3),),
    ),
    Scenario(
        "owned objects deleted",
        (
            delete(SERVICE, NAME),
            delete(SERVICE, f"{NAME}-client"),
            delete(DISRUPTION_BUDGET, NAME),
            delete(STATEFUL_SET, NAME),
        ),
        given=(cluster(3),),
    ),
    Scenario(
        "the StatefulSet orphans its pods",
        (delete(STATEFUL_SET, NAME, propagationPolicy="Orphan"),),
        given=(cluster(3),),
    ),
    Scenario(
        "owned objects edited",
        (
            edit(STATEFUL_SET, {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}, NAME),
            edit(SERVICE, {"spec": {"selector": {"app.kubernetes.io/instance": "another"}}}, NAME),
            edit(STATEFUL_SET, {"metadata": {"ownerReferences": None}}, NAME),
            edit(POD, {"metadata": {"labels": {"etcd.ydzs.io/serves": None}}}, member(1)),
        ),
        given=(cluster(3),),
    ),
    Scenario("deleted", (delete(),), given=(cluster(3),), ends=""),
    Scenario("deleted with its data", (delete(),), given=(cluster(1, storage={"retain": False}),), ends=""),
    Scenario(
        "deleted and made again", (delete(), cluster(1)), given=(cluster(1),), ends="VolumeInTheWay", counted=False
    ),
    Scenario(
        "made again, and the old data is taken away",
        (delete(), cluster(1), gone(PERSISTENT_VOLUME_CLAIM, f"data-{member(0)}")),
        given=(cluster(1),),
        counted=False,
    ),
    Scenario(
        "no operator meanwhile",
        away(cluster(3, NEW), delete(SERVICE, NAME), gone(POD, member(1)), *lost(2)),
        given=(cluster(3),),
    ),
    Scenario(
        "the operator is cut off",
        (cut_off(), cluster(5), gone(POD, member(1)), cut_off(off=False)),
        given=(cluster(3),),
    ),
    Scenario("a member hangs, and is well again", (hangs(1), cluster(1), hangs(1, hung=False)), given=(cluster(3),)),
    Scenario("a full quota", (to_etcd("the quota is used up", FakeEtcd.fill),), given=(cluster(3),)),
    Scenario(
        "a corrupt member",
        (to_etcd("the second is corrupt", lambda etcd: etcd.corrupt(member(1))),),
        given=(cluster(3),),
    ),
    Scenario("encrypted", (cluster(3, **TLS),)),
    Scenario("with users, and their Secret appears", (cluster(3, **AUTH), given_password()), given=(cluster(3),)),
    Scenario("users no more", (cluster(3, **NO_AUTH),), given=(given_password(), cluster(3, **AUTH))),
    Scenario("restored", (cluster(3, **RESTORE),), given=(kept("a.db"),)),
    Scenario("restored once there is what to restore", (cluster(1, **RESTORE), kept("a.db"), later(60)), counted=False),
    Scenario("restored, and then lost", lost(0), given=(kept("a.db"), cluster(3, **RESTORE))),
    Scenario("backups by the clock", (later(3600), complete(), later(3600)), given=(cluster(1, **BACKUP),)),
    Scenario("a quorum lost", lost(0, 2), given=(cluster(3),), ends="QuorumLost"),
    Scenario("a quorum lost and recovered", (*lost(0, 2), agreed()), given=(cluster(3),)),
)
