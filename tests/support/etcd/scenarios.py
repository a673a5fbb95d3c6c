"""Scenarios of an EtcdCluster for the crash harness: in memory, and on an API server (`tests/platform/api/crash`)."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from functools import partial

from operators.etcd.api import backup as backup_api
from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT
from operators.etcd.objects.names import CLUSTER_UID
from operators.etcd.operator import clusters
from shared.cli.options import parse_options
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import (
    DISRUPTION_BUDGET,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
from shared.steps.passwords import ROTATE
from simulator.api_server.kinds import STORAGE_CLASS
from simulator.etcd.raft import MemberRecord, identity
from simulator.harness import NAMESPACE
from tests.etcd.simulation.database import FakeEtcd
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
from tests.support.attributes_class import attributes_class
from tests.support.issuing import certificate_secret, issued
from tests.support.pod_loss import delete_now, pods_and_volumes_lost

OPTIONS = parse_options("etcd-operator", "etcd", ["--agent-image", "example.com/etcd-operator:1"], {})

ETCD = Subject(
    "etcd",
    lambda etcd: dataclasses.replace(clusters(OPTIONS, etcd.connect), issue=issued),
    database=FakeEtcd,
    serves=(backup_api.API.kind,),
    patience=10.0,  # etcd adds a member only after the others have been connected for some seconds
    # The outcome may differ in the leader, and in templates with other bootstrap flags. The log indexes at which the
    # version was first observed, and at which a snapshot was written, depend on the time.
    unstable=(
        *("leader", "role", "updatedReplicas", "currentRevision", "updateRevision", "controller-revision-hash"),
        *("sinceIndex", "snapshottedAs"),
    ),
)

NAME = "cache"
OLD, MIDDLE, NEW = "3.5.26", "3.6.11", "3.7.0"
TLS: Obj = {"tls": {"mode": "self"}}
GIVEN_TLS: Obj = {
    "tls": {"mode": "secret", "peer": {"secretName": "peers"}, "client": {"secretName": "clients"}},
}
AUTH: Obj = {"auth": {"rootSecretName": "root"}}
NO_AUTH: Obj = {"auth": {"rootSecretName": "root", "enabled": False}}
NEW_PASSWORD: Obj = {"metadata": {"annotations": {ROTATE: "1"}}}
STORE: Obj = {"volume": {"claimName": "snapshots"}}
RESTORE: Obj = {"restore": {"from": {**STORE, "file": "a.db"}}}
BACKUP: Obj = {"backup": {"schedule": "0 * * * *", "retention": 1, "destination": STORE}}
MIB = 1 << 20
STUCK = "ImagePullBackOff"


def cluster(size: int, version: str = MIDDLE, **spec: object) -> ScenarioStep:
    return apply(NAME, size=size, version=version, **spec)


def member(number: int) -> str:
    return f"{NAME}-{number}"


def to_etcd(text: str, act: Callable[[FakeEtcd], object]) -> ScenarioStep:
    """Change etcd without an event for the operator, which observes it after its requeue interval."""
    return unobserved(ScenarioStep(text, lambda stage: act(stage.database)))


lost = partial(pods_and_volumes_lost, NAME)


DECIDED = to_etcd("the leader raises the version of the cluster", FakeEtcd.decide)
MUCH_WRITTEN = to_etcd("clients write many entries", lambda etcd: etcd.written(ENTRIES_PER_SNAPSHOT + 1))


def leader_lost() -> ScenarioStep:
    """Delete the leader's pod with its volume."""

    def act(stage: Stage) -> None:
        etcd: FakeEtcd = stage.database
        etcd_cluster = etcd.cluster()
        process = etcd.process_of(etcd_cluster, etcd_cluster.leader)
        if process is None:
            raise NotFound("there is no leader")
        stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{process.pod}")
        stage.user_client.delete(POD, stage.namespace, process.pod, gracePeriodSeconds=0)

    return ScenarioStep("the leader and its volume are lost", act)


def led_by(number: int) -> ScenarioStep:
    """Move the leadership to another member."""

    def act(etcd: FakeEtcd) -> None:
        etcd_cluster = etcd.cluster()
        etcd_cluster.leader, etcd_cluster.term = etcd.member(member(number)).member, etcd_cluster.term + 1

    return to_etcd(f"{member(number)} leads", act)


def failing(number: int, reason: str = STUCK) -> ScenarioStep:
    """Keep a pod from starting or restarting."""
    return ScenarioStep(
        f"{member(number)}: {reason}", lambda stage: stage.database.failing.update({member(number): reason})
    )


def unpullable(image: str) -> ScenarioStep:
    """Make an image unpullable, for all pods or for one."""
    return ScenarioStep(f"{image} cannot be pulled", lambda stage: stage.database.missing.add(image))


def pods_start() -> ScenarioStep:
    """Let all pods start again."""
    return ScenarioStep("pods start again", lambda stage: stage.database.failing.clear())


def hangs(number: int, *, hung: bool = True) -> ScenarioStep:
    return to_etcd(
        f"{member(number)} {'hangs' if hung else 'answers again'}", lambda etcd: etcd.hang(member(number), hangs=hung)
    )


def cut_off(*, off: bool = True) -> ScenarioStep:
    return to_etcd(
        f"the operator {'reaches no member' if off else 'reaches members'}", lambda etcd: setattr(etcd, "cut_off", off)
    )


EXPANDABLE = ScenarioStep(
    "volumes can be expanded",
    lambda stage: stage.user_client.create(STORAGE_CLASS, {"metadata": {"name": "fast"}, "allowVolumeExpansion": True}),
)


def volumes(size: str) -> Obj:
    return {"storage": {"size": size, "storageClassName": "fast"}, "quotaBackendBytes": 800 * MIB}


def sized(mebibytes: int) -> ScenarioStep:
    """Let the database of every member have a size."""

    def act(etcd: FakeEtcd) -> None:
        for disk in etcd.disks.values():
            disk.size = mebibytes * MIB
        etcd.cluster().in_use = mebibytes * MIB

    return to_etcd(f"databases have {mebibytes} MiB", act)


def recovery_confirmed() -> ScenarioStep:
    """Confirm the recovery that the status offers."""

    def act(stage: Stage) -> None:
        [found] = stage.find()
        recovery = found["status"].get("recovery") or {}
        token = recovery.get("token")
        if token is None:
            raise NotFound("no recovery is offered")
        stage.database.guard.agree(stage.database, recovery)
        stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": {"confirm": token}}})

    return ScenarioStep("the recovery is confirmed", act)


def recovery_withdrawn() -> ScenarioStep:
    """Remove the confirmation from the spec, as the user does."""

    def act(stage: Stage) -> None:
        stage.database.guard.agreed.clear()
        stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": None}})

    return ScenarioStep("the confirmation is withdrawn", act)


def unmounted(*numbers: int, mounts: bool = False) -> ScenarioStep:
    """Let members restart without their disks, or with them again."""

    def act(etcd: FakeEtcd) -> None:
        for number in numbers:
            etcd.unmount(member(number), mounts=mounts)

    names = ", ".join(map(member, numbers))
    return to_etcd(f"the disks of {names} are {'mounted' if mounts else 'not mounted'}", act)


def differs(number: int) -> ScenarioStep:
    """Change the keys of a member on its disk, as a disk or a crash may; nothing shows it before the next start."""

    def act(etcd: FakeEtcd) -> None:
        [disk] = [disk for disk in etcd.disks.values() if disk.name == f"data-{member(number)}"]
        disk.corrupt = True

    return to_etcd(f"the keys of {member(number)} differ", act)


def joined_outside(count: int) -> ScenarioStep:
    """Let a user add voters that run elsewhere, and whose network breaks."""

    def act(etcd: FakeEtcd) -> None:
        found = etcd.cluster()
        for number in range(count):
            url = f"http://elsewhere-{number}:2380"
            records = (*found.now, MemberRecord(identity(url, found.id), url))
            etcd.change(found, records, f"a user adds a voter at {url}")

    return to_etcd(f"{count} voters run outside of the pods", act)


def adopted(size: int) -> ScenarioStep:
    """Recreate the resource, and let it adopt the volumes that the former one left."""

    def act(stage: Stage) -> None:
        claims = stage.find(PERSISTENT_VOLUME_CLAIM)
        former = {found["metadata"]["labels"][CLUSTER_UID] for found in claims}
        [uid] = former - {found["metadata"]["uid"] for found in stage.find()}
        cluster(size, adopt={"fromUID": uid}).act(stage)

    return ScenarioStep(f"recreated with {size} members, adopting the volumes", act)


def claim_deleted(number: int) -> ScenarioStep:
    return delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(number)}")


def snapshot_stored(file: str) -> ScenarioStep:
    """Put a snapshot into the store."""

    def act(stage: Stage) -> None:
        stage.database.snapshots[file] = 1000
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        made = {"metadata": {"name": "snapshots", "namespace": stage.namespace}, "spec": spec}
        stage.user_client.create(PERSISTENT_VOLUME_CLAIM, made)

    return ScenarioStep(f"{file} is stored", act)


def backups_complete() -> ScenarioStep:
    """Complete all requested backups."""

    def act(stage: Stage) -> None:
        for backup in stage.find(backup_api.API.kind):
            done = {"phase": "Complete", "completedAt": backup["metadata"]["creationTimestamp"], "current": True}
            name = backup["metadata"]["name"]
            stage.user_client.merge(backup_api.API.kind, stage.namespace, name, {"status": done}, subresource="status")

    return ScenarioStep("backups are complete", act)


def recovery_released() -> ScenarioStep:
    """Release the data that the recovery kept."""

    def act(stage: Stage) -> None:
        [found] = stage.find()
        token = found["spec"]["recovery"]["confirm"]
        stage.database.guard.released.add(token)
        stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": {"release": token}}})

    return ScenarioStep("the kept data is released", act)


def given_password(password: str = "one", previous: str = "") -> ScenarioStep:
    texts = {"password": password} | ({"previousPassword": previous} if previous else {})
    return create(SECRET, "root", data={key: base64.b64encode(text.encode()).decode() for key, text in texts.items()})


def certificates(by: str) -> dict[str, Obj]:
    """Return the content of the Secrets of `GIVEN_TLS`, by name."""
    domain = f"*.{NAME}.{NAMESPACE}.svc"
    hosts = {"peers": (domain,), "clients": (domain, f"{NAME}-client.{NAMESPACE}.svc")}
    return {name: certificate_secret(by, *each) for name, each in hosts.items()}


def given_certificates(by: str = "first") -> tuple[ScenarioStep, ...]:
    return tuple(create(SECRET, name, data=data) for name, data in certificates(by).items())


def replaced_certificates(by: str = "second") -> ScenarioStep:
    """Replace certificates and authority at once, as cert-manager does when the authority has a new key."""

    def act(stage: Stage) -> None:
        for name, data in certificates(by).items():
            stage.user_client.merge(SECRET, stage.namespace, name, {"data": data})

    return unobserved(ScenarioStep(f"certificates are replaced by those of the {by} authority", act))


STAGES = (later(301), later(301))
"""Time until the new certificate is used, and until the former authority is removed."""

SCENARIOS = (
    Scenario("create", (cluster(3),)),
    Scenario("create one member", (cluster(1),)),
    Scenario("create in memory", (cluster(3, storage={"medium": "Memory"}),)),
    Scenario("scale up and down", (cluster(3), cluster(5), cluster(3), cluster(1)), given=(cluster(1),)),
    Scenario(
        "scale up and down during scaling",
        (limit_turns(cluster(5), 12), limit_turns(cluster(3), 8), cluster(1)),
        given=(cluster(3),),
        exact_counts=False,
    ),
    Scenario("the seed lost with its volume", lost(0), given=(cluster(3),)),
    Scenario("a later member lost with its volume", lost(2), given=(cluster(3),)),
    Scenario("a member lost without an operator", operator_down(*lost(2)), given=(cluster(3),)),
    Scenario("the leader lost with its volume", (leader_lost(),), given=(cluster(3), led_by(1))),
    Scenario("scale down while a member is lost", (*lost(1), cluster(1)), given=(cluster(3),), exact_counts=False),
    Scenario("upgrade", (cluster(3, MIDDLE), DECIDED), given=(cluster(3, OLD),)),
    Scenario(
        "second upgrade",
        (cluster(3, NEW), DECIDED),
        given=(cluster(3, OLD), cluster(3, MIDDLE), DECIDED, MUCH_WRITTEN),
    ),
    Scenario(
        "second upgrade before a Raft snapshot",
        (cluster(3, NEW), MUCH_WRITTEN, DECIDED),
        given=(cluster(3, OLD), cluster(3, MIDDLE), DECIDED),
    ),
    Scenario(
        "second upgrade blocked by log entries",
        (cluster(3, NEW),),
        given=(cluster(3, OLD), cluster(3, MIDDLE), DECIDED),
        ends="UpgradeBlocked",
    ),
    Scenario(
        "second upgrade requested while the operator is cut off",
        (cut_off(), cluster(3, NEW), delete_now(POD, member(1)), cut_off(off=False), MUCH_WRITTEN, DECIDED),
        given=(cluster(3, OLD), cluster(3, MIDDLE), DECIDED),
    ),
    Scenario(
        "second upgrade requested while all members are down",
        (
            *(failing(number) for number in range(3)),
            *(delete_now(POD, member(number)) for number in range(3)),
            cluster(3, NEW),
            unobserved(pods_start()),
            MUCH_WRITTEN,
            DECIDED,
        ),
        given=(cluster(3, OLD), cluster(3, MIDDLE), DECIDED),
        exact_counts=False,
    ),
    Scenario("upgrade while member 1 leads", (cluster(3, NEW), DECIDED), given=(cluster(3), led_by(1))),
    Scenario(
        "refused upgrade reverted",
        (cluster(3, NEW), cluster(3, OLD)),
        given=(cluster(3, OLD),),
    ),
    Scenario("refused upgrade", (cluster(3, NEW),), given=(cluster(3, OLD),), ends="UpgradeRefused"),
    Scenario("downgrade", (cluster(3, OLD),), given=(cluster(3, MIDDLE),)),
    Scenario("downgrade from 3.7", (cluster(3, MIDDLE),), given=(cluster(3, NEW),)),
    Scenario(
        "downgrade and upgrade again",
        (cluster(3, OLD), cluster(3, MIDDLE), DECIDED, MUCH_WRITTEN, cluster(3, NEW), DECIDED),
        given=(cluster(3, MIDDLE),),
    ),
    Scenario(
        "downgrade reverted midway",
        (unpullable(f"{member(2)} v{OLD}"), cluster(3, OLD), cluster(3, MIDDLE)),
        given=(cluster(3, MIDDLE),),
        exact_counts=False,
    ),
    Scenario(
        "a member lost during a downgrade",
        (limit_turns(cluster(3, OLD), 8), *lost(1)),
        given=(cluster(3, MIDDLE),),
        exact_counts=False,
    ),
    Scenario(
        "downgrade while a member hangs",
        (hangs(1), cluster(3, OLD), hangs(1, hung=False)),
        given=(cluster(3, MIDDLE),),
    ),
    Scenario(
        "unpullable image reverted",
        (
            unpullable("v3.6.99"),
            cluster(3, "3.6.99"),
            cluster(3),
        ),
        given=(cluster(3),),
        exact_counts=False,
    ),
    Scenario(
        "upgrade reverted midway",
        (unpullable(f"{member(2)} v{MIDDLE}"), cluster(3, MIDDLE), cluster(3, OLD)),
        given=(cluster(3, OLD),),
        exact_counts=False,
    ),
    Scenario(
        "a learner that never starts",
        (failing(3), cluster(4), later(700), unobserved(pods_start()), cluster(3)),
        given=(cluster(3),),
        exact_counts=False,
    ),
    Scenario("two pods deleted", at_once(delete_now(POD, member(0)), delete_now(POD, member(2))), given=(cluster(3),)),
    Scenario(
        "all pods deleted", at_once(*(delete_now(POD, member(number)) for number in range(3))), given=(cluster(3),)
    ),
    Scenario(
        "a stale volume appears",
        (
            cluster(1),
            create(
                PERSISTENT_VOLUME_CLAIM,
                f"data-{member(1)}",
                spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            ),
            cluster(3),
            delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(1)}"),
        ),
        given=(cluster(3),),
    ),
    Scenario(
        "scale down and up again at once",
        (limit_turns(cluster(1), 6), cluster(3)),
        given=(cluster(3),),
        exact_counts=False,
    ),
    Scenario(
        "edits while paused",
        (
            cluster(3, paused=True),
            delete(SERVICE, NAME),
            delete_now(POD, member(1)),
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
    Scenario("hibernation", (cluster(3, hibernate=True),), given=(cluster(3),), ends="Hibernated"),
    Scenario("wake-up", (cluster(3),), given=(cluster(3), cluster(3, hibernate=True))),
    Scenario(
        "scale down while hibernating",
        (cluster(1, hibernate=True), cluster(1)),
        given=(cluster(3), cluster(3, hibernate=True)),
        exact_counts=False,
    ),
    Scenario(
        "scale up and hibernate in one change", (cluster(3, hibernate=True),), given=(cluster(1),), ends="Hibernated"
    ),
    Scenario(
        "hibernation withdrawn and requested again midway",
        (limit_turns(cluster(3, hibernate=True), 4), limit_turns(cluster(3), 3), cluster(3, hibernate=True)),
        given=(cluster(3),),
        ends="Hibernated",
        exact_counts=False,
    ),
    Scenario(
        "upgrade while hibernating",
        (cluster(3, MIDDLE, hibernate=True), cluster(3, MIDDLE)),
        given=(cluster(3, OLD), cluster(3, OLD, hibernate=True)),
        exact_counts=False,
    ),
    Scenario("deleted while hibernating", (delete(),), given=(cluster(3), cluster(3, hibernate=True)), ends=""),
    Scenario("deleted", (delete(),), given=(cluster(3),), ends=""),
    Scenario("deleted with its data", (delete(),), given=(cluster(1, storage={"retain": False}),), ends=""),
    Scenario(
        "deleted and recreated", (delete(), cluster(1)), given=(cluster(1),), ends="VolumeInTheWay", exact_counts=False
    ),
    Scenario(
        "recreated, then the old data is deleted",
        (delete(), cluster(1), delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(0)}")),
        given=(cluster(1),),
        exact_counts=False,
    ),
    Scenario("volumes adopted", (delete(), adopted(3)), given=(cluster(3),)),
    Scenario("volume of a single member adopted", (delete(), adopted(1)), given=(cluster(1),)),
    Scenario("volumes adopted after a refusal", (delete(), cluster(3), adopted(3)), given=(cluster(3),)),
    Scenario(
        "volumes adopted without that of the seed",
        (delete(), claim_deleted(0), adopted(3), later(700)),
        given=(cluster(3),),
    ),
    Scenario(
        "volumes adopted without a majority",
        (delete(), claim_deleted(0), claim_deleted(2), adopted(3), later(700)),
        given=(cluster(3),),
        ends="QuorumLost",
    ),
    Scenario("volumes adopted by a smaller cluster", (delete(), adopted(1)), given=(cluster(3),), exact_counts=False),
    Scenario(
        "changes without an operator",
        operator_down(cluster(3, NEW), delete(SERVICE, NAME), delete_now(POD, member(1)), *lost(2)),
        given=(cluster(3),),
    ),
    Scenario(
        "the operator reaches no member",
        (cut_off(), cluster(5), delete_now(POD, member(1)), cut_off(off=False)),
        given=(cluster(3),),
    ),
    Scenario("a member hangs and recovers", (hangs(1), cluster(1), hangs(1, hung=False)), given=(cluster(3),)),
    Scenario("exhausted quota", (to_etcd("the quota is exhausted", FakeEtcd.fill),), given=(cluster(3),)),
    Scenario(
        "a corrupt member",
        (to_etcd("member 1 is corrupt", lambda etcd: etcd.corrupt(member(1))),),
        given=(cluster(3),),
    ),
    Scenario("create with TLS", (cluster(3, **TLS),)),
    Scenario(
        "certificates of another authority",
        (replaced_certificates(), *STAGES, later(301)),
        given=(*given_certificates(), cluster(3, **GIVEN_TLS)),
    ),
    Scenario(
        "another authority while a member is lost",
        (*lost(2), replaced_certificates(), *STAGES, later(301)),
        given=(*given_certificates(), cluster(3, **GIVEN_TLS)),
        exact_counts=False,
    ),
    Scenario(
        "authentication enabled before its Secret exists", (cluster(3, **AUTH), given_password()), given=(cluster(3),)
    ),
    Scenario("authentication disabled", (cluster(3, **NO_AUTH),), given=(given_password(), cluster(3, **AUTH))),
    Scenario("authentication removed", (cluster(3),), given=(given_password(), cluster(3, **AUTH))),
    Scenario(
        "the Secret of root deleted, and another created",
        (unobserved(delete(SECRET, "root")), unobserved(given_password("two"))),
        given=(given_password(), cluster(3, **AUTH)),
    ),
    Scenario(
        "generated password: rotated, its Secret deleted",
        (cluster(1, auth={}), edit(None, NEW_PASSWORD, NAME), unobserved(delete(SECRET, f"{NAME}-auth"))),
        given=(cluster(1),),
    ),
    Scenario("restore", (cluster(3, **RESTORE),), given=(snapshot_stored("a.db"),)),
    Scenario(
        "restore of a snapshot that appears later",
        (cluster(1, **RESTORE), snapshot_stored("a.db"), later(60)),
        exact_counts=False,
    ),
    Scenario("restored seed lost with its volume", lost(0), given=(snapshot_stored("a.db"), cluster(3, **RESTORE))),
    Scenario(
        "scheduled backups",
        (later(3600), backups_complete(), later(3600)),
        given=(snapshot_stored("a.db"), cluster(1, **BACKUP)),
    ),
    Scenario(
        "other attributes of volumes",
        (
            cluster(1, storage={"volumeAttributesClassName": "extreme"}),
            attributes_class("fast"),
            cluster(2, storage={"volumeAttributesClassName": "fast"}),
        ),
        given=(attributes_class("extreme", is_feasible=False), cluster(1)),
    ),
    Scenario("lost quorum", lost(0, 2), given=(cluster(3),), ends="QuorumLost"),
    Scenario(
        "lost quorum and recovery on a volume that is too small",
        (*lost(0, 2), recovery_confirmed(), cluster(3, **volumes("4Gi")), later(60)),
        given=(EXPANDABLE, cluster(3, **volumes("1Gi")), sized(600)),
        exact_counts=False,  # the pod is tried again
    ),
    Scenario(
        "recovery with two survivors",
        (*lost(0, 2, 4), recovery_confirmed()),
        given=(cluster(5),),
        ends="FormerDataKept",
    ),
    Scenario(
        "data of a recovery released", (recovery_released(),), given=(cluster(5), *lost(0, 2, 4), recovery_confirmed())
    ),
    Scenario("lost quorum and recovery", (*lost(0, 2), recovery_confirmed()), given=(cluster(3),)),
)
