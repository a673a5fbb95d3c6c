"""etcd that is not there: members as processes in pods, disks on volumes, clusters that they make of them.

`FakeEtcd` is a database of the crash harness whose processes run where pods run (`shared.testing.kubelet.kubelet`),
read their flags as etcd does, and answer the operator (`connect`). A client writes whenever anything happens. What may
cost an acknowledged write is a violation (`tests.unit.etcd.simulation.guard`), and names the action that did it.

Source: server/etcdserver/bootstrap.go, server.go, api/membership/cluster.go and config/config.go of etcd 3.6.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.etcd.api.versions import Version
from operators.etcd.client.server import CORRUPT, NOSPACE, Access, Endpoint, Server
from shared.kubernetes.kinds import Obj
from shared.testing.api_server.requests import Aimed
from shared.testing.kubelet.kubelet import Fate
from tests.unit.etcd.simulation import helpers, server
from tests.unit.etcd.simulation.command_line import Command, command
from tests.unit.etcd.simulation.guard import Guard
from tests.unit.etcd.simulation.raft import Cluster, Disk, Seat, founding, quorum, seat_of, votes

REMOVED = "the member has been permanently removed from the cluster"


SERVES_ALONE = Version(3, 6, 16)
"""Such a member serves clients from its beginning, even if there is no leader; none of 3.4, 3.5 and 3.7 was seen to."""


class Ended(Exception):
    """etcd ends; the message is its last."""


@dataclass
class Process:
    """etcd in a pod.

    Attributes:
        uid: the pod's.
        pod: the pod's name.
        serves: whether it serves clients; before, only its metrics.
        said: its last message; empty while it runs.
        hangs: whether it answers nobody.
    """

    uid: str
    pod: str
    address: str
    command: Command
    serves: bool = False
    said: str = ""
    hangs: bool = False


@dataclass
class FakeEtcd:
    """Every etcd there is.

    Attributes:
        cut_off: whether the operator reaches no member.
        failing: why pods do not start, by their name (ImagePullBackOff, CrashLoopBackOff, Unschedulable, ...).
        lagging: members that never catch up, by name.
        missing: tags of images that cannot be pulled, or "POD TAG" of one that one pod alone cannot pull.
        idle: whether the client writes nothing.
        done: how often what was done.
        snapshots: revisions of snapshots, by their file.
    """

    cut_off: bool = False
    failing: dict[str, str] = field(default_factory=dict)
    lagging: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    idle: bool = False
    clusters: dict[int, Cluster] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    snapshots: dict[str, int] = field(default_factory=dict)
    guard: Guard = field(default_factory=Guard)

    # What the crash harness asks.

    @property
    def violations(self) -> list[str]:
        return self.guard.violations

    def state(self) -> Any:
        return [
            {
                "members": [
                    {
                        "name": cluster.names.get(seat.id, ""),
                        "url": seat.url,
                        "learner": seat.learner,
                        "runs": self.process_of(cluster, seat.id) is not None,
                    }
                    for seat in sorted(cluster.now, key=lambda seat: seat.url)
                ],
                "leads": cluster.leader != 0,
                "version": cluster.version and ".".join(map(str, cluster.version)),
                "alarms": sorted(kind for _, kind in cluster.alarms),
                "auth": cluster.auth,
                "restored": cluster.bumped,
            }
            for cluster in self.clusters.values()
            if not cluster.former and any(disk.cluster == cluster.id for disk in self.disks.values())
        ]

    def counts(self) -> Counter[str]:
        return self.done

    def witness(self, asked: Aimed, live: Obj | None) -> None:
        """The operator has written this to the API server."""
        self.guard.witness(self, asked, live)

    # What runs in pods.

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> Fate:
        """Start a pod's process, unless it runs, and tell how it fares."""
        asked = command(pod, claims)
        if asked is None:
            return helpers.run(self, pod, claims)
        metadata = pod["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        process = self.processes.get(uid)
        tag = asked.image.rpartition(":")[2]
        if name in self.failing or (process is None and self.missing & {tag, f"{name} {tag}"}):
            if process is not None and not process.said:
                self.stop(process, "killed")
            return Fate(self.failing.get(name, "ImagePullBackOff"))
        if process is None or process.said:
            process = self._begin(Process(uid, name, pod["status"]["podIP"], asked))
        if process.said:
            return Fate("CrashLoopBackOff", said=process.said)
        return Fate("" if self._is_ready(process) else "Unready")

    def end(self, uid: str) -> None:
        """A pod or a claim is gone."""
        process = self.processes.pop(uid, None)
        if process is not None:
            self.settle(f"pod {process.pod} ended")
        disk = self.disks.pop(uid, None)
        if disk is not None and disk.member:
            self.settle(f"the disk of {disk.place} is gone")

    def stop(self, process: Process, said: str) -> None:
        """A process ends by itself; its pod's container is started again."""
        process.said = said
        process.serves = False
        self.settle(f"etcd in {process.pod} ended: {said}")

    def hang(self, pod: str, *, hangs: bool = True) -> None:
        """A member answers nobody any more, or again."""
        for process in self.processes.values():
            if process.pod == pod:
                process.hangs = hangs
        self.settle(f"etcd in {pod} {'hangs' if hangs else 'is well'}")

    def _begin(self, process: Process) -> Process:
        disk = self.disks.setdefault(process.command.disk, Disk(process.command.place))
        try:
            if any(other.command.disk == process.command.disk for other in self.running):
                raise Ended("cannot access data directory: file locked by another process")
            self._start(process, disk)
        except Ended as ended:
            process.said = str(ended)
        self.processes[process.uid] = process
        if not process.said:
            disk.version = process.command.version
            process.serves = disk.version == SERVES_ALONE
            self.settle(f"etcd began in {process.pod}")
        return process

    def _start(self, process: Process, disk: Disk) -> None:
        """What etcd does before it serves; its flags count only where the disk is empty.

        Raises:
            Ended: it does not.
        """
        asked = process.command
        if disk.member:
            cluster = self.clusters[disk.cluster]
            self._require_version(cluster, asked.version, "invalid downgrade; server version is lower than determined")
            if disk.index and seat_of(cluster.seats_at(disk.index), disk.member) is None:
                raise Ended(REMOVED)
            return
        if asked.name not in asked.initial:
            raise Ended(f"couldn't find local name {asked.name!r} in the initial cluster configuration")
        if asked.state == "new":
            self._bootstrap(asked)
        else:
            self._join(asked, disk)

    def _bootstrap(self, asked: Command) -> None:
        urls = [url for listed in asked.initial.values() for url in listed]
        if list(asked.initial[asked.name]) != [asked.url]:
            raise Ended(f"--initial-cluster has {asked.initial} but missing from --initial-advertise-peer-urls")
        self.guard.require_first(self, asked)
        if len(urls) > 1:
            raise Ended("this etcd begins with one member")
        self.found(asked.url, asked.token, asked.disk)
        self.done["bootstraps"] += 1

    def found(self, url: str, token: str, home: str) -> Cluster:
        """A cluster of one member begins on a disk."""
        cluster_id, [member] = founding([url], token)
        cluster = Cluster(cluster_id, token, [(1, (Seat(member, url),))], homes={member: home})
        cluster.revision += cluster_id % 97  # no revision is the same everywhere
        self.clusters[cluster_id] = cluster
        disk = self.disks[home]
        disk.cluster, disk.member, disk.index = cluster_id, member, 1
        return cluster

    def _join(self, asked: Command, disk: Disk) -> None:
        listed = sorted(url for urls in asked.initial.values() for url in urls)
        others = [url for url in listed if url not in asked.initial[asked.name]]
        found = [peer for peer in self.running if not peer.hangs and self._url_of(peer) in others]
        if not found:
            raise Ended("cannot fetch cluster info from peer urls: could not retrieve cluster information from any")
        told = self.disks[found[0].command.disk]
        cluster = self.clusters[told.cluster]
        seats = cluster.seats_at(told.index)
        if len(seats) != len(asked.initial):
            raise Ended(f"error validating peerURLs {asked.initial}: member count is unequal")
        if sorted(seat.url for seat in seats) != listed:
            raise Ended(f"error validating peerURLs {asked.initial}: unmatched member while checking PeerURLs")
        self._require_version(cluster, asked.version, "incompatible with current running cluster")
        own = next(seat for seat in seats if seat.url in asked.initial[asked.name])
        self.guard.require_no_amnesia(cluster, own, asked)
        disk.cluster, disk.member, disk.index = cluster.id, own.id, 0

    def _require_version(self, cluster: Cluster, version: Version, message: str) -> None:
        if cluster.version is not None and version.series < cluster.version:
            raise Ended(f"{message} (cluster version {cluster.version}, server version {version})")
        self.guard.require_upgrade(self, cluster, version)

    # What members make of it.

    @property
    def running(self) -> list[Process]:
        """In order of the numbers of their pods."""
        found = [process for process in self.processes.values() if not process.said]
        return sorted(found, key=lambda process: (len(process.pod), process.pod))

    def members_of(self, cluster: Cluster) -> list[Process]:
        """Processes that take part."""
        return [p for p in self.running if not p.hangs and self.disks[p.command.disk].cluster == cluster.id]

    def process_of(self, cluster: Cluster, member: int) -> Process | None:
        """The process of a member, if it takes part."""
        return next((p for p in self.members_of(cluster) if self.disks[p.command.disk].member == member), None)

    def voting(self, cluster: Cluster) -> list[int]:
        """Voters that take part and hold the whole log."""
        there = {self.disks[p.command.disk].member: self.disks[p.command.disk] for p in self.members_of(cluster)}
        return [
            seat.id
            for seat in cluster.now
            if not seat.learner and seat.id in there and there[seat.id].index == cluster.index
        ]

    def has_quorum(self, cluster: Cluster) -> bool:
        return cluster.leader != 0 and len(self.voting(cluster)) >= quorum(cluster.now)

    def settle(self, action: str) -> None:
        """Let members find leaders and catch up, and the client write; then see whether all is safe."""
        for cluster in self.clusters.values():
            self._lead(cluster)
            if not self.idle and self.has_quorum(cluster):
                self._write(cluster)
        self.guard.inspect(self, action)

    def written(self, entries: int) -> None:
        """Clients have written so much: from so many entries on a member makes a Raft snapshot."""
        for cluster in self.clusters.values():
            for _ in range(entries if self.has_quorum(cluster) else 0):
                self._write(cluster)

    def change(self, cluster: Cluster, seats: tuple[Seat, ...], action: str) -> None:
        """Other members, as a quorum has agreed on them."""
        self._append(cluster, seats)
        gone = [p for p in self.members_of(cluster) if seat_of(seats, self.disks[p.command.disk].member) is None]
        for process in gone:
            process.said, process.serves = REMOVED, False
        self.settle(action)

    def _write(self, cluster: Cluster) -> None:
        for process in self.members_of(cluster):
            disk = self.disks[process.command.disk]
            if disk.size >= process.command.quota and seat_of(cluster.now, disk.member):
                cluster.alarms.add((disk.member, NOSPACE))
        if not cluster.alarms:
            cluster.revision += 1
            self._append(cluster)

    def _append(self, cluster: Cluster, seats: tuple[Seat, ...] | None = None) -> None:
        there = [self.disks[p.command.disk] for p in self.members_of(cluster)]
        current = [disk for disk in there if disk.index == cluster.index]
        cluster.append(seats)
        for disk in current:
            disk.index = cluster.index

    def _lead(self, cluster: Cluster) -> None:
        """Elect a leader where there is none; everybody who hears of it catches up with it."""
        members = self.members_of(cluster)
        disks = [self.disks[p.command.disk] for p in members]
        able = [disk for disk in disks if votes(cluster, disk, disks)]
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
            if seat_of(cluster.now, disk.member) is None:
                process.said, process.serves = REMOVED, False
            elif process.command.name not in self.lagging:
                disk.index, process.serves = cluster.index, True
                cluster.names[disk.member] = process.command.name
                cluster.homes.setdefault(disk.member, process.command.disk)
        self._settle_version(cluster)

    def _settle_version(self, cluster: Cluster) -> None:
        """The cluster's version rises once every member runs a newer one."""
        versions = []
        for seat in cluster.now:
            process = self.process_of(cluster, seat.id)
            if process is None:
                return
            versions.append(process.command.version.series)
        if cluster.version is None or min(versions) > cluster.version:
            cluster.version = min(versions)

    def _is_ready(self, process: Process) -> bool:
        """What /health?exclude=NOSPACE says."""
        disk = self.disks[process.command.disk]
        cluster = self.clusters[disk.cluster]
        corrupt = any(kind == CORRUPT for _, kind in cluster.alarms)
        current = disk.index == cluster.index and not process.hangs
        return self.has_quorum(cluster) and process.serves and current and not corrupt

    def _url_of(self, process: Process) -> str:
        disk = self.disks[process.command.disk]
        seat = seat_of(self.clusters[disk.cluster].seats_at(disk.index), disk.member)
        return seat.url if seat else ""

    # What others ask.

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        return server.FakeServer(self, endpoint, access)

    def cluster(self, name: str = "") -> Cluster:
        """The one cluster that members run, or the one that a pod's member is of."""
        ids = {self.disks[p.command.disk].cluster for p in self.running if name in ("", p.pod)}
        assert len(ids) == 1, f"there are {len(ids)} clusters"
        return self.clusters[ids.pop()]

    def member(self, pod: str) -> Disk:
        """The disk of a pod's member."""
        return next(self.disks[p.command.disk] for p in self.processes.values() if p.pod == pod)

    def fill(self) -> None:
        """Use the whole quota up."""
        for process in self.running:
            self.disks[process.command.disk].size = process.command.quota
        cluster = self.cluster()
        cluster.in_use = max(process.command.quota for process in self.running)
        self.settle("the quota is used up")

    def corrupt(self, pod: str) -> None:
        """A member's keys differ from others', and its own check finds out."""
        disk = self.member(pod)
        disk.corrupt = True
        self.clusters[disk.cluster].alarms.add((disk.member, CORRUPT))
        self.settle(f"{pod} is corrupt")
