"""What may cost an acknowledged write, or the quorum, though nobody but the operator did it: each is a violation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from operators.etcd.api.versions import MIN_VERSION_BEFORE, Version
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.testing.api_server.requests import Aimed, value_at
from shared.testing.harness.scenario import Unsafe
from tests.unit.etcd.simulation.raft import Cluster, Disk, Seat, quorum, seat_of, votes

if TYPE_CHECKING:
    from tests.unit.etcd.simulation.command_line import Command
    from tests.unit.etcd.simulation.database import FakeEtcd, Process


@dataclass
class Guard:
    """Watches over every etcd.

    Attributes:
        violations: what happened that must not, in order.
        recorded: UIDs of resources whose status has told a cluster id.
        confirmed: whether a person allowed to go on without what a lost quorum held.
    """

    violations: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    confirmed: bool = False

    def fail(self, what: str) -> None:
        """Raises Unsafe, and remembers it for those who swallow that."""
        self.violations.append(what)
        raise Unsafe(what)

    # What etcd does.

    def require_first(self, etcd: FakeEtcd, asked: Command) -> None:
        """A cluster begins once: not where one is recorded, nor where another's data is still there."""
        if asked.token in self.recorded:
            self.fail(f"{asked.name} begins a cluster on an empty disk, though the status records one")
        for cluster in etcd.clusters.values():
            if cluster.token == asked.token and any(disk.cluster == cluster.id for disk in etcd.disks.values()):
                self.fail(f"{asked.name} begins a second cluster; the first one's data is still there")
        if len(asked.initial) > 1:
            self.fail(f"{asked.name} begins a cluster with {len(asked.initial)} members at once")

    def require_no_amnesia(self, cluster: Cluster, seat: Seat, asked: Command) -> None:
        """A member that has written on one disk never starts on another: it would have forgotten its votes."""
        if cluster.homes.get(seat.id, asked.disk) != asked.disk:
            what = "learner" if seat.learner else "voter"
            self.fail(f"{asked.name} comes back as a {what} on an empty disk, and has forgotten what it had written")

    def require_upgrade(self, etcd: FakeEtcd, cluster: Cluster, version: Version) -> None:
        """No minor version is skipped, and none begins beside one that must not be there."""
        if cluster.version is None:
            return
        if version.series > (cluster.version[0], cluster.version[1] + 1):
            self.fail(f"{version} begins in a cluster of version {cluster.version}: a minor version is skipped")
        least = MIN_VERSION_BEFORE.get(version.series)
        if least is None or version.series == cluster.version:
            return
        homes = {cluster.homes.get(seat.id) for seat in cluster.now}
        for home, disk in etcd.disks.items():
            if home in homes and disk.version is not None and disk.version < least:
                self.fail(f"{version} begins beside {disk.place}, which runs {disk.version}; {least} is the least")

    def require_complete(self, cluster: Cluster, leader: Disk) -> None:
        if leader.index < cluster.acknowledged:
            self.fail(f"{leader.place} leads without {cluster.acknowledged - leader.index} acknowledged writes")

    def inspect(self, etcd: FakeEtcd, action: str) -> None:
        """Whoever may lead, now or once others have started, holds every acknowledged write."""
        for cluster in etcd.clusters.values():
            disks = [disk for disk in etcd.disks.values() if disk.cluster == cluster.id]
            for disk in disks:
                if disk.index < cluster.acknowledged and votes(cluster, disk, disks):
                    missing = cluster.acknowledged - disk.index
                    self.fail(f"{action}: {disk.place} may lead from now on without {missing} acknowledged writes")

    # What the operator does.

    def witness(self, etcd: FakeEtcd, asked: Aimed, live: Obj | None) -> None:
        body, name = asked.request.body or {}, asked.name
        if asked.subresource == "status" and value_at(body, "status.clusterID") and live is not None:
            self.recorded.add(live["metadata"]["uid"])
        if asked.verb == "DELETE" and asked.kind == POD:
            self.may_stop(etcd, {name}, f"the operator deletes pod {name}")
        elif asked.verb == "DELETE" and asked.kind == PERSISTENT_VOLUME_CLAIM and live is not None:
            self.may_destroy(etcd, live, f"the operator deletes the volume {name}")
        elif asked.verb == "DELETE" and asked.kind == STATEFUL_SET and live is not None:
            if body.get("propagationPolicy") != "Orphan":
                self.may_empty(etcd, name, 0, f"the operator deletes the StatefulSet {name}")
        elif asked.kind == STATEFUL_SET and value_at(body, "spec.replicas") is not None:
            replicas = value_at(body, "spec.replicas")
            self.may_empty(etcd, name, replicas, f"the operator gives the StatefulSet {name} {replicas} replicas")

    def may_stop(self, etcd: FakeEtcd, pods: set[str], action: str) -> None:
        """Pods that stop for a while leave a quorum, unless there is none, or none can be left."""
        for cluster in etcd.clusters.values():
            stopped = [process for process in etcd.members_of(cluster) if process.pod in pods]
            hit = {_member(etcd, process) for process in stopped}
            voters = [seat.id for seat in cluster.now if not seat.learner]
            if not hit & set(voters):
                continue
            up = etcd.voting(cluster)
            if not etcd.has_quorum(cluster):
                self.require_consent(f"{action}, which runs, while there is no quorum")
            elif len(voters) <= 2 and len(up) == len(voters):  # it cannot be done without a pause
                continue
            elif len(set(up) - hit) < quorum(cluster.now):
                self.fail(f"{action}: {len(set(up) - hit)} of {len(voters)} voters are left, which is no quorum")

    def may_empty(self, etcd: FakeEtcd, name: str, replicas: int, action: str) -> None:
        """Pods of members go only after the members."""
        for cluster in etcd.clusters.values():
            if self.confirmed and not etcd.has_quorum(cluster):
                continue
            for process in etcd.members_of(cluster):
                stem, _, number = process.pod.rpartition("-")
                seat = seat_of(cluster.now, _member(etcd, process))
                if stem == name and int(number) >= replicas and seat is not None:
                    self.fail(f"{action}: {process.pod} is still a member")

    def may_destroy(self, etcd: FakeEtcd, claim: Obj, action: str) -> None:
        """The disk of a member is never given away."""
        disk = etcd.disks.get(claim["metadata"]["uid"])
        if disk is None or not disk.member:
            return
        cluster = etcd.clusters[disk.cluster]
        if (
            not cluster.former
            and seat_of(cluster.now, disk.member) is not None
            and cluster.homes.get(disk.member) == claim["metadata"]["uid"]
        ):
            self.fail(f"{action}, which holds the data of a member")

    def may_remove(self, etcd: FakeEtcd, cluster: Cluster, member: int) -> None:
        """Those who remain are a quorum of themselves."""
        seats = tuple(seat for seat in cluster.now if seat.id != member)
        up = [voter for voter in etcd.voting(cluster) if voter != member]
        if len(up) < quorum(seats):
            name = cluster.names.get(member, f"{member:016x}")
            self.fail(f"the operator removes member {name}: {len(up)} of {len(seats)} that remain are up, no quorum")

    def may_restore(self, disk: Disk, token: str) -> None:
        """Nothing is restored into a cluster that began."""
        if token in self.recorded:
            self.fail(f"a snapshot is restored on {disk.place}, though the cluster began long ago")

    def may_recover(self, etcd: FakeEtcd, disk: Disk) -> None:
        """Only with a person's leave, from whoever has most, and while nobody else of the cluster runs."""
        self.require_consent(f"a new cluster is made of {disk.place}")
        cluster = etcd.clusters[disk.cluster]
        for process in etcd.members_of(cluster):
            self.fail(f"a new cluster is made of {disk.place}, while {process.pod} of the former one runs")
        for other in etcd.disks.values():
            if other.cluster == cluster.id and other.index > disk.index and seat_of(cluster.now, other.member):
                self.fail(f"a new cluster is made of {disk.place}, though {other.place} has more")

    def require_consent(self, action: str) -> None:
        if not self.confirmed:
            self.fail(f"{action}, and nobody allowed it")


def _member(etcd: FakeEtcd, process: Process) -> int:
    return etcd.disks[process.command.disk].member
