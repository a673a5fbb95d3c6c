"""Violations: actions of the operator that may lose an acknowledged write or the quorum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from operators.etcd.api.resource import API
from operators.etcd.api.versions import MIN_VERSION_BEFORE, Version
from operators.etcd.objects.names import SERVES
from operators.etcd.objects.pod import INCONSISTENT
from shared.kubernetes.accessors import label
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.secrets import content_of
from shared.steps import hibernation
from shared.steps.connection import USERNAME_KEY
from simulator.api_server.requests import TargetedRequest, value_at
from simulator.etcd.invariants import Invariants
from simulator.etcd.raft import ROOT, Cluster, Disk, MemberRecord, can_win_election, quorum, record_of
from tests.harness.scenario import Unsafe
from tests.support.hibernating import Hibernations, is_requested

if TYPE_CHECKING:
    from simulator.etcd.command_line import Command
    from simulator.etcd.database import Process, SimulatedEtcd


@dataclass
class Guard(Invariants):
    """Invariants of every simulated etcd.

    Attributes:
        violations: violations so far, in order.
        recorded: UIDs of resources whose status has recorded a cluster id.
        agreed: lost voters by the cluster for which the user confirmed a recovery. The consent ends with that loss:
            when a quorum returns, or the recovery is done.
        may_reject: whether members may reject each other's certificates.
        may_split: whether, in addition, those that have restarted and the others may be two groups without a quorum:
            the keys of the authority that running members trust are lost.
        released: tokens of the recoveries of which the user released the data that they did not use.
        hibernations: records of the hibernations that the operator has begun.
        may_give_root: whether the user requested root for applications.
    """

    violations: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    agreed: dict[int, frozenset[int]] = field(default_factory=dict)
    may_reject: bool = False
    may_split: bool = False
    released: set[str] = field(default_factory=set)
    hibernations: Hibernations = field(default_factory=Hibernations)
    may_give_root: bool = False

    def fail(self, violation: str) -> None:
        """Record a violation and raise Unsafe; the record remains if a caller catches the exception."""
        self.violations.append(violation)
        raise Unsafe(violation)

    # Actions of etcd.

    def require_first(self, etcd: SimulatedEtcd, command: Command) -> None:
        """Require that a cluster is bootstrapped once: none is recorded, and no data of one exists."""
        if command.token in self.recorded:
            self.fail(f"{command.name} bootstraps a cluster on an empty disk, but the status records one")
        for cluster in etcd.clusters.values():
            if cluster.token == command.token and any(disk.cluster == cluster.id for disk in etcd.disks.values()):
                self.fail(f"{command.name} bootstraps a second cluster while data of the first one exists")
        stem = command.name.rpartition("-")[0]
        for disk in etcd.disks.values():
            if disk.member and disk.name.rpartition("-")[0] == f"data-{stem}":
                self.fail(f"{command.name} bootstraps an empty cluster while {disk.name} has data of a former one")
        if len(command.initial) > 1:
            self.fail(f"{command.name} bootstraps a cluster with {len(command.initial)} members at once")

    def require_no_amnesia(self, cluster: Cluster, record: MemberRecord, command: Command) -> None:
        """Require that a member never starts on another disk: its votes and acknowledged entries would be missing."""
        if cluster.disk_by_member.get(record.id, command.disk) != command.disk:
            role = "learner" if record.learner else "voter"
            self.fail(f"{command.name} restarts as a {role} on an empty disk, without its acknowledged entries")

    def require_upgrade(self, etcd: SimulatedEtcd, cluster: Cluster, version: Version) -> None:
        """Require that no minor version is skipped, and that the other members run a compatible version."""
        if cluster.version is None:
            return
        if version.series > (cluster.version[0], cluster.version[1] + 1):
            self.fail(f"{version} starts in a cluster of version {cluster.version}: a minor version is skipped")
        least = MIN_VERSION_BEFORE.get(version.series)
        if least is None or version.series == cluster.version:
            return
        member_disks = {cluster.disk_by_member.get(record.id) for record in cluster.now}
        for disk_uid, disk in etcd.disks.items():
            if disk_uid in member_disks and disk.version is not None and disk.version < least:
                self.fail(f"{version} starts while {disk.name} runs {disk.version}; the minimum is {least}")

    def require_no_panic(self, disk: Disk, command: Command) -> None:
        """Require that no member starts on a log that it cannot read: it panics at every start."""
        self.violations.append(
            f"{command.name}: {command.version} starts on {disk.name}, whose log has entries that 3.5 wrote"
        )

    def require_complete(self, cluster: Cluster, leader: Disk) -> None:
        if leader.index < cluster.acknowledged:
            self.fail(f"{leader.name} leads without {cluster.acknowledged - leader.index} acknowledged writes")

    def inspect(self, etcd: SimulatedEtcd, action: str) -> None:
        """Require that every disk whose member can win an election has every acknowledged write."""
        for cluster in etcd.clusters.values():
            if cluster.former or etcd.has_quorum(cluster):
                self.agreed.pop(cluster.id, None)
            if cluster.former and etcd.has_quorum(cluster):
                self.require_unserved(etcd, cluster, action)
            disks = [disk for disk in etcd.disks.values() if disk.cluster == cluster.id]
            for disk in disks:
                if disk.index < cluster.acknowledged and can_win_election(cluster, disk, disks):
                    missing = cluster.acknowledged - disk.index
                    self.fail(f"{action}: {disk.name} can become leader without {missing} acknowledged writes")

    def require_unserved(self, etcd: SimulatedEtcd, cluster: Cluster, action: str) -> None:
        """Require that clients reach no member of a cluster that a recovery replaced: there would be two histories."""
        served = {pod["metadata"]["uid"] for _, pod in etcd.objects(POD) if label(pod, SERVES)}
        for process in etcd.members_of(cluster):
            if process.uid in served:
                self.fail(
                    f"{action}: clients reach {process.pod}, and the cluster that a recovery replaced has a quorum"
                )

    def rejected(self, one: str, other: str) -> None:
        """Require that every handshake between members would succeed, also while connections are established."""
        if not (self.may_reject or self.may_split):
            self.fail(f"{one} and {other} would reject each other's certificates")

    # Actions of the operator.

    def check_write(self, etcd: SimulatedEtcd, target: TargetedRequest, live: Obj | None) -> None:
        body, name = target.request.body or {}, target.name
        if target.subresource == "status" and value_at(body, "status.clusterID") and live is not None:
            self.recorded.add(live["metadata"]["uid"])
        if target.kind == SECRET and name.endswith("-connection"):
            kept = {key: text for key, text in (body.get("data") or {}).items() if text}  # null removes a key
            self.may_give(etcd, content_of({"data": kept}), f"the operator writes Secret {name}")
        elif target.stops_pod:
            self.may_stop(etcd, {name}, f"the operator stops pod {name}")
        elif target.verb == "DELETE" and target.kind == PERSISTENT_VOLUME_CLAIM and live is not None:
            self.may_destroy(etcd, live, f"the operator deletes the volume {name}")
        elif target.verb == "DELETE" and target.kind == STATEFUL_SET and live is not None:
            if body.get("propagationPolicy") != "Orphan":
                self.may_empty(etcd, name, 0, f"the operator deletes the StatefulSet {name}")
        elif target.kind == STATEFUL_SET and value_at(body, "spec.replicas") is not None:
            replicas, record = value_at(body, "spec.replicas"), hibernation.record(body)
            if record.get(hibernation.WAKES) == 0 and value_at(live, "spec.replicas"):
                self.may_begin_to_hibernate(etcd, name, record["size"], again=bool(hibernation.record(live)))
            if violation := self.hibernations.violation(name, record, live):
                self.fail(violation)
            self.may_empty(etcd, name, replicas, f"the operator gives the StatefulSet {name} {replicas} replicas")

    def may_give(self, etcd: SimulatedEtcd, content: Mapping[str, str], action: str) -> None:
        """Require that applications get no user with root's permissions, unless the spec requests that."""
        user = content.get(USERNAME_KEY)
        for cluster in etcd.clusters.values():
            found = cluster.users.get(user or "")
            if found is not None and ROOT in found.roles and not self.may_give_root:
                self.fail(f"{action}: user {user} of applications has the role {ROOT}")

    def may_stop(self, etcd: SimulatedEtcd, pods: set[str], action: str) -> None:
        """Require that stopping pods leaves a quorum, unless the cluster has one or two voters."""
        for cluster in etcd.clusters.values():
            stopped = [process for process in etcd.members_of(cluster) if process.pod in pods]
            hit = {_member(etcd, process) for process in stopped}
            voters = [record.id for record in cluster.now if not record.learner]
            if cluster.former or not hit & set(voters):
                continue
            up = etcd.voting(cluster)
            if self.may_split and not any(process.command.disk == process.uid for process in stopped):
                continue
            if not etcd.has_quorum(cluster):
                self.require_consent(etcd, cluster, f"{action}, which runs, while there is no quorum")
            elif len(voters) <= 2 and len(up) == len(voters):  # a restart always interrupts such a cluster
                continue
            elif len(set(up) - hit) < quorum(cluster.now):
                self.fail(f"{action}: {len(set(up) - hit)} of {len(voters)} voters are left, which is no quorum")

    def may_empty(self, etcd: SimulatedEtcd, name: str, replicas: int, action: str) -> None:
        """Require that pods are scaled down only after their members are removed."""
        for cluster in etcd.clusters.values():
            if cluster.former or self._consents(etcd, cluster):
                continue
            if replicas == 0 and is_requested(etcd.objects(API.kind), name):
                continue
            for process in etcd.members_of(cluster):
                stem, _, number = process.pod.rpartition("-")
                record = record_of(cluster.now, _member(etcd, process))
                if stem == name and int(number) >= replicas and record is not None:
                    self.fail(f"{action}: {process.pod} is still a member")

    def may_begin_to_hibernate(self, etcd: SimulatedEtcd, name: str, size: int, *, again: bool = False) -> None:
        """Require that all pods stop only if the user requests it, while every member is a voter that keeps up.

        Args:
            again: whether they return from a hibernation: then a quorum of those that are back is enough.
        """
        action = f"the operator stops the pods of {name}"
        if not is_requested(etcd.objects(API.kind), name):
            self.fail(f"{action}, which the user does not request")
        claims = (claim["metadata"] for _, claim in etcd.objects(PERSISTENT_VOLUME_CLAIM))
        if ending := [
            each["name"] for each in claims if each["name"].startswith(f"data-{name}-") and "deletionTimestamp" in each
        ]:
            self.fail(f"{action}, with which {', '.join(ending)} and the data are deleted")
        for cluster in etcd.clusters.values():
            if cluster.former or not any(_is_of(process, name) for process in etcd.members_of(cluster)):
                continue
            differing = [each.pod for each in etcd.processes.values() if INCONSISTENT in each.exit_message]
            if differing:
                self.fail(f"{action}, and the keys of {differing[0]} differ, which may find no peer to compare with")
            voting, members = len(etcd.voting(cluster)), len(cluster.now)
            is_enough = voting >= quorum(cluster.now) if again else voting == members
            if not etcd.has_quorum(cluster) or not is_enough or members != size:
                self.fail(f"{action} and records {size}: {voting} of {members} members keep up")

    def may_destroy(self, etcd: SimulatedEtcd, claim: Obj, action: str) -> None:
        """Require that the disk of a member is never deleted."""
        uid = claim["metadata"]["uid"]
        disk = etcd.disks.get(f"above {uid}") or etcd.disks.get(uid)
        if disk is None or not disk.member:
            return
        cluster = etcd.clusters[disk.cluster]
        if cluster.former and cluster.recovery not in self.released:
            self.fail(f"{action}, which survived the loss of the quorum, and no user released it")
        if (
            not cluster.former
            and record_of(cluster.now, disk.member) is not None
            and cluster.disk_by_member.get(disk.member) == uid
        ):
            self.fail(f"{action}, which has the data of a member")

    def may_remove(self, etcd: SimulatedEtcd, cluster: Cluster, member: int) -> None:
        """Require that the remaining members have a quorum."""
        records = tuple(record for record in cluster.now if record.id != member)
        up = [voter for voter in etcd.voting(cluster) if voter != member]
        if len(up) < quorum(records):
            name = cluster.names.get(member, f"{member:016x}")
            self.fail(
                f"the operator removes member {name}: {len(up)} of {len(records)} remaining members are up, no quorum"
            )

    def may_change(self, cluster: Cluster, name: str) -> None:
        """Require that the operator changes nothing in a cluster of another tenant."""
        if cluster.foreign:
            self.fail(f"the operator changes a foreign cluster, which answers at the address of {name}")

    def may_restore(self, disk: Disk, token: str) -> None:
        """Require that a snapshot is never restored into an existing cluster."""
        if token in self.recorded:
            self.fail(f"a snapshot is restored on {disk.name}, but the cluster already exists")

    def may_recover(self, etcd: SimulatedEtcd, disk: Disk) -> None:
        """Require consent, the disk with the most entries, and that no member of the former cluster runs."""
        cluster = etcd.clusters[disk.cluster]
        self.require_consent(etcd, cluster, f"a new cluster is made of {disk.name}")
        for process in etcd.members_of(cluster):
            self.fail(f"a new cluster is made of {disk.name} while {process.pod} of the former one runs")
        for other in etcd.disks.values():
            if other.cluster == cluster.id and other.index > disk.index and record_of(cluster.now, other.member):
                self.fail(f"a new cluster is made of {disk.name}, but {other.name} has more entries")

    def agree(self, etcd: SimulatedEtcd, recovery: Obj) -> None:
        """Let the user consent to the loss that status.recovery names; if it names none, to the present one.

        A status that was lost records only the recovery that had begun.
        """
        named = frozenset(int(each, 16) for each in recovery.get("lost") or ())
        for cluster in etcd.clusters.values():
            if not cluster.former and not etcd.has_quorum(cluster):
                self.agreed[cluster.id] = named or _lost(etcd, cluster)

    def require_consent(self, etcd: SimulatedEtcd, cluster: Cluster, action: str) -> None:
        if not self._consents(etcd, cluster):
            self.fail(f"{action}, without consent")

    def _consents(self, etcd: SimulatedEtcd, cluster: Cluster) -> bool:
        """Whether the user consented to the present loss, or to a larger one."""
        agreed = self.agreed.get(cluster.id)
        return agreed is not None and not etcd.has_quorum(cluster) and _lost(etcd, cluster) <= agreed


def _lost(etcd: SimulatedEtcd, cluster: Cluster) -> frozenset[int]:
    """Return the voters whose disk is deleted or not mounted."""
    kept = {uid for uid, disk in etcd.disks.items() if disk.member}
    return frozenset(
        record.id for record in cluster.now if not record.learner and cluster.disk_by_member.get(record.id) not in kept
    )


def _is_of(process: Process, name: str) -> bool:
    return process.pod.rpartition("-")[0] == name


def _member(etcd: SimulatedEtcd, process: Process) -> int:
    return etcd.disks[process.command.disk].member
