"""Simulated etcd: members as processes in pods, data directories on volumes, and the clusters that they form.

The processes of `SimulatedEtcd` run in the pods of `simulator.kubelet.kubelet`, read their flags as etcd does, and
answer the operator (`connect`). A client writes after every event, unless it is idle.

Source: server/etcdserver/bootstrap.go, server.go, api/membership/cluster.go and config/config.go of etcd 3.6.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from operators.etcd.api.versions import Version
from operators.etcd.backup.snapshot import Record
from operators.etcd.client.server import CORRUPT, NOSPACE, Access, Endpoint, Server
from operators.etcd.objects.pod import INCONSISTENT
from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.requests import TargetedRequest
from simulator.clock import Clock
from simulator.etcd import helpers, server, tls
from simulator.etcd.command_line import Command, command
from simulator.etcd.invariants import Invariants
from simulator.etcd.raft import (
    Cluster,
    Disk,
    MemberRecord,
    Users,
    can_win_election,
    founding,
    quorum,
    record_of,
)
from simulator.harness import NOW
from simulator.kubelet.kubelet import ProcessStatus

REMOVED = "the member has been permanently removed from the cluster"


UNREADABLE = "unmarshal should never fail"
"""Panic of 3.7 about a log entry that 3.5 or earlier wrote."""

SERIES_WITHOUT_OLD_ENTRIES, SERIES_WITH_NEW_ENTRIES = (3, 7), (3, 6)
"""First series that cannot read entries in the former format, and first series that does not write them."""

MONITORED = timedelta(seconds=4)
"""Interval in which a leader compares the versions of the members with that of the cluster (monitorVersionInterval)."""

SERVES_ALONE = Version(3, 6, 16)
"""Only this version serves clients from the start, even without a leader; 3.4, 3.5 and 3.7 do not."""


class Ended(Exception):
    """Exit of an etcd process, with its last message."""


@dataclass
class Process:
    """etcd in a pod.

    Attributes:
        uid: UID of the pod.
        pod: name of the pod.
        serves: whether etcd serves clients; before that, it serves only metrics.
        exit_message: last message of a process that has exited; empty while it runs.
        hangs: whether etcd answers no request.
        tls: certificates; None without TLS.
    """

    uid: str
    pod: str
    address: str
    command: Command
    serves: bool = False
    exit_message: str = ""
    hangs: bool = False
    tls: tls.Tls | None = None


@dataclass
class SimulatedEtcd:
    """All etcd processes, data directories and clusters.

    Attributes:
        cut_off: whether the operator reaches no member.
        unreachable: numbers of the pods that the operator does not reach; they serve clients and peers.
        halted: whether all processes hang.
        failing: reasons why pods do not start, by pod name (ImagePullBackOff, CrashLoopBackOff, Unschedulable, ...).
        lagging: names of members that never catch up, except by `advance`.
        receiving: names of members that receive a snapshot: they serve metrics only, and apply nothing yet.
        missing: tags of images that cannot be pulled, or "POD TAG" if only one pod cannot pull the image.
        idle: whether the client stops writing.
        done: number of changes by kind.
        snapshots: revisions of snapshots, by file name.
        records: records next to snapshots, by file name.
        stale_snapshots: files of snapshots of members without a leader.
        snapshot_users: users in snapshots, by file name.
        links: pairs of connected processes, by UID of their pods.
        due: whether the next change of the version of a cluster follows at once.
        clock: current time; the world sets its own.
        objects: returns the objects of a kind; the world sets it.
    """

    cut_off: bool = False
    unreachable: set[int] = field(default_factory=set)
    halted: bool = False
    failing: dict[str, str] = field(default_factory=dict)
    lagging: set[str] = field(default_factory=set)
    receiving: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    idle: bool = False
    clusters: dict[int, Cluster] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    snapshots: dict[str, int] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    stale_snapshots: set[str] = field(default_factory=set)
    snapshot_users: dict[str, Users] = field(default_factory=dict)
    guard: Invariants = field(default_factory=Invariants)
    links: set[frozenset[str]] = field(default_factory=set)
    reads_files: bool = True
    due: bool = False
    clock: Any = field(default_factory=lambda: Clock(NOW))
    objects: Callable[[Kind], list[tuple[Kind, Obj]]] = field(default_factory=lambda: lambda _: [])

    # Interface to the crash harness.

    @property
    def violations(self) -> list[str]:
        return self.guard.violations

    def state(self) -> Any:
        return [
            {
                "members": [
                    {
                        "name": cluster.names.get(record.id, ""),
                        "url": record.url,
                        "learner": record.learner,
                        "runs": self.process_of(cluster, record.id) is not None,
                    }
                    for record in sorted(cluster.now, key=lambda record: record.url)
                ],
                "leads": cluster.leader != 0,
                "version": cluster.version and ".".join(map(str, cluster.version)),
                "alarms": sorted(kind for _, kind in cluster.alarms),
                "auth": cluster.auth,
                "users": {name: user.roles for name, user in sorted(cluster.users.items())},
                "restored": cluster.bumped,
            }
            for cluster in self.clusters.values()
            if not (cluster.former or cluster.foreign)
            and any(disk.cluster == cluster.id for disk in self.disks.values())
        ]

    def counts(self) -> Counter[str]:
        return self.done

    def check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        """Check a write of the operator to the API server."""
        self.guard.check_write(self, target, live)

    # Processes in pods.

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        """Start a pod's process, unless it runs, and return its state."""
        flags = command(pod, claims)
        if flags is None:
            return helpers.run(self, pod, claims)
        metadata = pod["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        process = self.processes.get(uid)
        tag = flags.image.rpartition(":")[2]
        if name in self.failing or (process is None and self.missing & {tag, f"{name} {tag}"}):
            if process is not None and not process.exit_message:
                self.stop(process, "killed")
            return ProcessStatus(self.failing.get(name, "ImagePullBackOff"))
        files = tls.files_of(pod, claims)
        if process is None or process.exit_message:
            if files is None:
                return ProcessStatus("ContainerCreating")
            certificates = tls.Tls.started(flags, files) if flags.tls else None
            process = self._begin(Process(uid, name, pod["status"]["podIP"], flags, tls=certificates))
        elif process.tls is not None and files is not None and process.tls.files != files:
            process.tls.files = files
            self.settle(f"the kubelet updates the files of {name}")
        if process.exit_message:
            return ProcessStatus("CrashLoopBackOff", termination_message=process.exit_message)
        return ProcessStatus("" if self._is_ready(process) else "Unready")

    def end(self, uid: str) -> None:
        """End the process of a deleted pod, or remove the data of a deleted pod or claim.

        The leader may change the version of the cluster just before: a pod takes seconds to end.
        """
        process = self.processes.get(uid)
        if process is not None:
            if cluster := self.clusters.get(self.disks[process.command.disk].cluster):
                self.settle_version(cluster, at_once=True)
            del self.processes[uid]
            self.settle(f"pod {process.pod} ended")
        for disk in (self.disks.pop(uid, None), self.disks.pop(f"above {uid}", None)):
            if disk is not None and disk.member:
                self.settle(f"the disk {disk.name} was deleted")

    def stop(self, process: Process, message: str) -> None:
        """Let a process exit; the kubelet restarts its container."""
        process.exit_message = message
        process.serves = False
        self.settle(f"etcd in {process.pod} exited: {message}")

    def hang(self, pod: str, *, hangs: bool = True) -> None:
        """Make a member hang, or answer again."""
        for process in self.processes.values():
            if process.pod == pod:
                process.hangs = hangs
        self.settle(f"etcd in {pod} {'hangs' if hangs else 'answers again'}")

    def unmount(self, pod: str, *, mounts: bool = False) -> None:
        """Let a member restart on the directory below its mount point, or on its volume again (`mounts`)."""
        process = next((each for each in self.processes.values() if each.pod == pod), None)
        hidden = (uid for uid, disk in self.disks.items() if uid.startswith("above ") and disk.name == f"data-{pod}")
        above = next(hidden, "")
        if bool(above) != mounts or (process is None and not mounts):
            return
        if process is not None and not process.exit_message:
            self.stop(process, "killed")
        if above:  # also while there is no pod: its next one gets the disk
            self.disks[above.removeprefix("above ")] = self.disks.pop(above)
        elif process is not None:
            uid = process.command.disk
            disk = self.disks.pop(uid)
            self.disks |= {f"above {uid}": disk, uid: Disk(disk.name)}
        self.settle(f"the disk of {pod} is {'mounted' if mounts else 'not mounted'}")

    def squat(self, pod: str) -> None:
        """End a member's process, and start one of a foreign cluster at its address: the pod still reports it.

        As after the loss of a Kubernetes node, whose addresses are assigned again.
        """
        process = next((found for found in self.running if found.pod == pod), None)
        if process is None or process.command.tls:  # with TLS, the operator does not trust another server
            return
        self.failing[pod] = "NodeLost"
        self.stop(process, "killed")
        uid = f"foreign {process.uid}"
        self.disks[uid] = Disk("data-foreign-0", version=process.command.version)
        self.found("http://foreign-0:2380", uid, uid).foreign = True
        flags = replace(process.command, name="foreign-0", disk=uid, disk_name="data-foreign-0", token=uid)
        self.processes[uid] = Process(uid, "foreign-0", process.address, flags, serves=True)
        self.settle(f"a foreign member starts at the address of {pod}")

    def end_squatting(self) -> None:
        """End the foreign clusters."""
        for cluster in [cluster for cluster in self.clusters.values() if cluster.foreign]:
            uids = [uid for uid, disk in self.disks.items() if disk.cluster == cluster.id]
            for uid in uids:
                del self.disks[uid], self.processes[uid]
            del self.clusters[cluster.id]

    def _begin(self, process: Process) -> Process:
        disk = self.disks.setdefault(process.command.disk, Disk(process.command.disk_name))
        try:
            if any(other.command.disk == process.command.disk for other in self.running):
                raise Ended("cannot access data directory: file locked by another process")
            self._start(process, disk)
        except Ended as ended:
            process.exit_message = str(ended)
        self.processes[process.uid] = process
        if not process.exit_message:
            disk.version = process.command.version
            process.serves = disk.version == SERVES_ALONE
            self.settle(f"etcd started in {process.pod}")
        return process

    def _start(self, process: Process, disk: Disk) -> None:
        """Run the checks and the bootstrap of etcd's start; bootstrap flags apply only to an empty disk.

        Raises:
            Ended: etcd exits instead of starting.
        """
        flags = process.command
        if flags.refusal:
            raise Ended(flags.refusal)
        if disk.member:
            cluster = self.clusters[disk.cluster]
            self._require_converted(cluster, disk, flags)
            self._require_version(cluster, flags.version, "invalid downgrade; server version is lower than determined")
            self._require_readable(cluster, disk, flags)
            if disk.index and record_of(cluster.records_at(disk.index), disk.member) is None:
                raise Ended(REMOVED)
            self._require_same_keys(cluster, disk, flags)
            return
        if flags.name not in flags.initial:
            raise Ended(f"couldn't find local name {flags.name!r} in the initial cluster configuration")
        if flags.state == "new":
            self._bootstrap(flags)
        else:
            self._join(process, disk)

    def _bootstrap(self, flags: Command) -> None:
        urls = [url for listed in flags.initial.values() for url in listed]
        if list(flags.initial[flags.name]) != [flags.url]:
            raise Ended(f"--initial-cluster has {flags.initial} but missing from --initial-advertise-peer-urls")
        self.guard.require_first(self, flags)
        if len(urls) > 1:
            raise Ended("this etcd bootstraps with one member only")
        self.found(flags.url, flags.token, flags.disk)
        self.done["bootstraps"] += 1

    def found(self, url: str, token: str, disk_uid: str) -> Cluster:
        """Bootstrap a cluster of one member on a disk."""
        cluster_id, [member] = founding([url], token)
        cluster = Cluster(cluster_id, token, [(1, (MemberRecord(member, url),))], disk_by_member={member: disk_uid})
        cluster.revision += cluster_id % 97  # revisions differ between clusters
        self.clusters[cluster_id] = cluster
        disk = self.disks[disk_uid]
        disk.cluster, disk.member, disk.index = cluster_id, member, 1
        return cluster

    def _join(self, process: Process, disk: Disk) -> None:
        flags = process.command
        listed = sorted(url for urls in flags.initial.values() for url in urls)
        others = [url for url in listed if url not in flags.initial[flags.name]]
        found = [peer for peer in self.running if not self.hangs(peer) and self._url_of(peer) in others]
        found = [peer for peer in found if tls.trusting(peer, process, self.clock())]
        if not found:
            raise Ended("cannot fetch cluster info from peer urls: could not retrieve cluster information from any")
        peer_disk = self.disks[found[0].command.disk]
        cluster = self.clusters[peer_disk.cluster]
        records = cluster.records_at(peer_disk.index)
        if len(records) != len(flags.initial):
            raise Ended(f"error validating peerURLs {flags.initial}: member count is unequal")
        if sorted(record.url for record in records) != listed:
            raise Ended(f"error validating peerURLs {flags.initial}: unmatched member while checking PeerURLs")
        if cluster.downgrade is not None:  # allowedVersionRange in cluster_util.go
            raise Ended("incompatible with current running cluster")
        self._require_version(cluster, flags.version, "incompatible with current running cluster")
        own = next(record for record in records if record.url in flags.initial[flags.name])
        self.guard.require_no_amnesia(cluster, own, flags)
        disk.cluster, disk.member, disk.index, disk.snapshot = cluster.id, own.id, 0, 0

    def _require_version(self, cluster: Cluster, version: Version, message: str) -> None:
        if cluster.version is not None and version.series < cluster.version:
            raise Ended(f"{message} (cluster version {cluster.version}, server version {version})")
        self.guard.require_upgrade(self, cluster, version)

    def _require_converted(self, cluster: Cluster, disk: Disk, flags: Command) -> None:
        """Let a member exit whose data has the format of a later series: a downgrade converts it first."""
        if disk.storage is not None and flags.version.series < disk.storage:
            self.guard.violations.append(
                f"{flags.name}: {flags.version} starts on {disk.name}, which has data in the format of "
                f"{disk.storage[0]}.{disk.storage[1]}"
            )
            raise Ended(f"invalid downgrade; the data has the format of {disk.storage}, cluster {cluster.version}")

    def _require_readable(self, cluster: Cluster, disk: Disk, flags: Command) -> None:
        """Let 3.7 panic on a log that has entries of 3.5 or earlier after its last Raft snapshot.

        Source: Apply in server/etcdserver/apply/apply.go of 3.7 (MustUnmarshalMessage), measured with 3.7.3. Until 3.5,
        a member writes its attributes (`publish`) and the cluster version as `pb.Request`, and 3.6 reads both formats.
        """
        if flags.version.series >= SERIES_WITHOUT_OLD_ENTRIES and disk.snapshot < cluster.old_entry:
            self.guard.require_no_panic(disk, flags)
            raise Ended(UNREADABLE)

    def _require_same_keys(self, cluster: Cluster, disk: Disk, flags: Command) -> None:
        """Let a member exit whose keys differ from those of a peer; one that does not answer shows no difference.

        Source: InitialCheck in server/etcdserver/corrupt.go.
        """
        peers = (self.disks[peer.command.disk] for peer in self.members_of(cluster))
        if flags.compares and any(peer.corrupt != disk.corrupt for peer in peers):
            raise Ended(f'{{"level":"fatal","error":"{disk.member:x} {INCONSISTENT}"}}')

    # State of the clusters.

    def hangs(self, process: Process) -> bool:
        return process.hangs or self.halted

    def reaches(self, process: Process) -> bool:
        """Whether the operator reaches a process."""
        number = process.pod.rpartition("-")[2]
        return not (self.cut_off or self.hangs(process) or number in map(str, self.unreachable))

    @property
    def running(self) -> list[Process]:
        """Running processes by the ordinal of their pods."""
        found = [process for process in self.processes.values() if not process.exit_message]
        return sorted(found, key=lambda process: (len(process.pod), process.pod))

    def members_of(self, cluster: Cluster) -> list[Process]:
        """Return the processes that take part in a cluster."""
        running = [p for p in self.running if not self.hangs(p) and self.disks[p.command.disk].cluster == cluster.id]
        return tls.connected(self, running)

    def process_of(self, cluster: Cluster, member: int) -> Process | None:
        """Return the process of a member, if it takes part."""
        return next((p for p in self.members_of(cluster) if self.disks[p.command.disk].member == member), None)

    def voting(self, cluster: Cluster) -> list[int]:
        """Return the ids of voters that take part and have the whole log."""
        there = {self.disks[p.command.disk].member: self.disks[p.command.disk] for p in self.members_of(cluster)}
        return [
            record.id
            for record in cluster.now
            if not record.learner and record.id in there and there[record.id].index == cluster.index
        ]

    def has_quorum(self, cluster: Cluster) -> bool:
        return cluster.leader != 0 and len(self.voting(cluster)) >= quorum(cluster.now)

    def settle(self, action: str) -> None:
        """Let members elect leaders and catch up, and the client write; then check all invariants."""
        tls.reconnect(self)
        for cluster in self.clusters.values():
            self._lead(cluster)
            if not self.idle and self.has_quorum(cluster):
                self._write(cluster)
        self.guard.inspect(self, action)

    def written(self, entries: int) -> None:
        """Write `entries` entries, for example enough for members to take a Raft snapshot."""
        for cluster in self.clusters.values():
            if self.has_quorum(cluster):
                self._write(cluster, entries)

    def change(self, cluster: Cluster, records: tuple[MemberRecord, ...], action: str) -> None:
        """Change the members of a cluster."""
        self._append(cluster, records)
        removed = [p for p in self.members_of(cluster) if record_of(records, self.disks[p.command.disk].member) is None]
        for process in removed:
            process.exit_message, process.serves = REMOVED, False
        self.settle(action)

    def _write(self, cluster: Cluster, entries: int = 1) -> None:
        for process in self.members_of(cluster):
            disk = self.disks[process.command.disk]
            if disk.size >= process.command.quota and record_of(cluster.now, disk.member):
                cluster.alarms.add((disk.member, NOSPACE))
        if not cluster.alarms:
            cluster.revision += entries
            self._append(cluster, entries=entries)

    def _append(self, cluster: Cluster, records: tuple[MemberRecord, ...] | None = None, *, entries: int = 1) -> None:
        there = [(process, self.disks[process.command.disk]) for process in self.members_of(cluster)]
        current = [(process, disk) for process, disk in there if disk.index == cluster.index]
        cluster.append(records, entries=entries)
        for process, disk in current:
            disk.index = cluster.index
            self._snapshot(process, disk)

    def _lead(self, cluster: Cluster) -> None:
        """Elect a leader if there is none; reachable members catch up with it."""
        members = self.members_of(cluster)
        disks = [self.disks[p.command.disk] for p in members]
        able = [disk for disk in disks if can_win_election(cluster, disk, disks)]
        if not able:
            cluster.leader = 0
            return
        most = max(disk.index for disk in able)
        leader = next((disk for disk in able if disk.member == cluster.leader and disk.index == most), None)
        if leader is None:
            leader = next(disk for disk in able if disk.index == most)
            cluster.leader, cluster.term = leader.member, cluster.term + 1
        self.guard.require_complete(cluster, leader)
        cluster.index = leader.index
        for process, disk in zip(members, disks, strict=True):
            if record_of(cluster.now, disk.member) is None:
                process.exit_message, process.serves = REMOVED, False
            elif process.command.name in self.receiving:
                cluster.names[disk.member] = process.command.name
            elif process.command.name not in self.lagging:
                self._catch_up(cluster, process, disk)
                cluster.names[disk.member] = process.command.name
                cluster.disk_by_member.setdefault(disk.member, process.command.disk)
        self.settle_version(cluster)

    def _catch_up(self, cluster: Cluster, process: Process, disk: Disk) -> None:
        """Bring a member up to date: a new one by a snapshot, as measured with 3.6.16, any other by entries."""
        if disk.index == 0:
            disk.snapshot = cluster.index
        disk.index = cluster.index
        if not process.serves and process.command.version.series < SERIES_WITH_NEW_ENTRIES:
            cluster.old_entry = cluster.index  # it publishes its attributes
        process.serves = True
        self._snapshot(process, disk)

    def _snapshot(self, process: Process, disk: Disk) -> None:
        """Write a Raft snapshot if it is due (shouldSnapshotToDisk in server/etcdserver/server.go)."""
        if disk.index - disk.snapshot > process.command.snapshot_count:
            disk.snapshot = disk.index

    def decide(self) -> None:
        """Let a leader change the version of its cluster as soon as all members answer."""
        self.due = True
        for cluster in self.clusters.values():
            self.settle_version(cluster)

    def settle_version(self, cluster: Cluster, *, at_once: bool = False) -> None:
        """Let the leader change the version of the cluster, some seconds after all members run what that needs.

        Each member then converts its data to the format of that version.

        Args:
            at_once: whether it does so now.

        Source: monitorVersions and monitorDowngrade in server/etcdserver/server.go.
        """
        there = {self.disks[p.command.disk].member: p for p in reversed(self.members_of(cluster))}
        running = [there[record.id] for record in cluster.now if record.id in there]
        if not cluster.leader or len(running) < len(cluster.now):
            cluster.decides = None
            return
        decided = _decided(cluster, {process.command.version.series for process in running})
        if decided == (cluster.version, cluster.downgrade):
            cluster.decides = None
        elif cluster.decides is None or cluster.decides[0] != decided:
            cluster.decides = decided, self.clock()
        at_once = at_once or self.due or cluster.version is None
        if cluster.decides and (at_once or self.clock() - cluster.decides[1] >= MONITORED):
            is_new = decided[0] != cluster.version
            (cluster.version, cluster.downgrade), cluster.decides, self.due = decided, None, False
            if is_new and decided[0] < SERIES_WITH_NEW_ENTRIES:
                cluster.old_entry = cluster.index
        for process in running:
            series = process.command.version.series
            self.disks[process.command.disk].storage = min(cluster.version or series, series)

    def _is_ready(self, process: Process) -> bool:
        """Result of /health?exclude=NOSPACE."""
        disk = self.disks[process.command.disk]
        cluster = self.clusters[disk.cluster]
        if not process.serves or disk.index != cluster.index or any(kind == CORRUPT for _, kind in cluster.alarms):
            return False
        return self.has_quorum(cluster) and process in self.members_of(cluster)

    def _url_of(self, process: Process) -> str:
        disk = self.disks[process.command.disk]
        record = record_of(self.clusters[disk.cluster].records_at(disk.index), disk.member)
        return record.url if record else ""

    # Access for the operator and the tests.

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        return server.FakeServer(self, endpoint, access)

    def cluster(self, name: str = "") -> Cluster:
        """Return the only running cluster, or the cluster of a pod's member."""
        ids = {self.disks[p.command.disk].cluster for p in self.running if name in ("", p.pod)}
        ids = {each for each in ids if not self.clusters[each].foreign}
        assert len(ids) == 1, f"there are {len(ids)} clusters"
        return self.clusters[ids.pop()]

    def member(self, pod: str) -> Disk:
        """Return the disk of a pod's member."""
        return next(self.disks[p.command.disk] for p in self.processes.values() if p.pod == pod)

    def fill(self) -> None:
        """Exhaust the quota by writes; etcd accepts none while an alarm is raised."""
        cluster = self.cluster()
        if cluster.alarms:
            return
        for process in self.running:
            self.disks[process.command.disk].size = process.command.quota
        cluster.in_use = max(process.command.quota for process in self.running)
        self.settle("the quota is exhausted")

    def advance(self, pod: str, entries: int) -> None:
        """Let a lagging member apply some entries of the log."""
        disk = self.member(pod)
        disk.index = min(disk.index + entries, self.clusters[disk.cluster].index)

    def corrupt(self, pod: str) -> None:
        """Corrupt the keys of a member and raise the CORRUPT alarm."""
        disk = self.member(pod)
        disk.corrupt = True
        self.clusters[disk.cluster].alarms.add((disk.member, CORRUPT))
        self.settle(f"{pod} is corrupt")


def _decided(cluster: Cluster, series: set[tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """Return the version of the cluster next, and the target of the downgrade.

    It is the lowest version of a member. It falls only for a downgrade, which ends when all members run its target.

    Source: decideClusterVersion and CancelDowngradeIfNeeded in server/etcdserver/version/monitor.go.
    """
    target = cluster.downgrade
    if target is None:
        return max(cluster.version or min(series), min(series)), None
    return target, None if cluster.version == target and series == {target} else target
