"""Server of one member as the operator reaches it: answers and refusals of etcd."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING

from operators.etcd.api.versions import Version
from operators.etcd.client.errors import (
    Denied,
    NoLeader,
    NoSuchMember,
    NotInSync,
    Refused,
    Unauthenticated,
    Unhealthy,
    Unreachable,
)
from operators.etcd.client.server import Access, Alarm, Endpoint, EndpointStatus, HashKV, Member, Members, RaftProgress
from simulator.etcd.raft import ROOT, SMALL, Cluster, Disk, MemberRecord, User, identity, record_of

if TYPE_CHECKING:
    from simulator.etcd.database import Process, SimulatedEtcd

STATUS_IS_PROTECTED = Version(3, 5, 22)
"""First version that requires a password for its status; observed: 3.5.21 and 3.4.13 require none."""

MAX_LEARNERS = 1
SERIES_WITH_DOWNGRADE = (3, 6)
"""First series whose status reports the format of the data and a downgrade."""

PAGE = 512


class FakeServer:
    """`operators.etcd.client.server.Server` for a member of `SimulatedEtcd`."""

    def __init__(self, etcd: SimulatedEtcd, endpoint: Endpoint, access: Access) -> None:
        self._etcd = etcd
        self._endpoint = endpoint
        self._access = access

    async def status(self) -> EndpointStatus:
        process, disk, cluster = self._served(learner=True)
        leads = self._etcd.has_quorum(cluster) and process in self._etcd.members_of(cluster)
        leader = cluster.leader if leads else 0
        version, raft = str(process.command.version), (cluster.term, disk.index, disk.index)
        if cluster.auth and not leader:
            raise NoLeader(f"{self._endpoint.name} cannot authenticate users: tokens need a quorum")
        if process.command.version >= STATUS_IS_PROTECTED:
            self._authenticate(cluster)
        record = record_of(cluster.records_at(disk.index), disk.member)
        reports = process.command.version.series >= SERIES_WITH_DOWNGRADE
        return EndpointStatus(
            cluster.id,
            disk.member,
            leader,
            version,
            cluster.revision,
            *raft,
            db_size=disk.size,
            db_in_use=min(disk.size, cluster.in_use),
            learner=record is None or record.learner,
            errors=tuple(f"memberID:{member} alarm:{kind} " for member, kind in sorted(cluster.alarms)),
            storage_version=_dotted(disk.storage) if reports else "",
            downgrade_target=_dotted(cluster.downgrade) if reports else "",
        )

    async def members(self) -> Members:
        _, _, cluster = self._led()
        return Members(cluster.id, tuple(_member(cluster, record) for record in cluster.now))

    async def remembered_members(self) -> Members:
        _, disk, cluster = self._served()
        return Members(cluster.id, tuple(_member(cluster, record) for record in cluster.records_at(disk.index)))

    async def progress(self) -> RaftProgress:
        process, disk, cluster = self._reached()
        receiving = process.command.name in self._etcd.receiving
        return RaftProgress(disk.member, disk.index, cluster.revision, receiving=receiving)

    async def has_alarm(self) -> bool:
        _, _, cluster = self._reached()
        return bool(cluster.alarms)

    async def is_compacted(self, revision: int) -> bool:
        _, _, cluster = self._served()
        self._require_keys(cluster)
        return cluster.compacted >= revision

    async def alarms(self) -> tuple[Alarm, ...]:
        _, _, cluster = self._led()
        return tuple(Alarm(member, kind) for member, kind in sorted(cluster.alarms))

    async def cluster_version(self) -> str:
        _, _, cluster = self._served(learner=True)
        if cluster.version is None:
            return ""
        return f"{cluster.version[0]}.{cluster.version[1]}.0"

    async def add_learner(self, peer_url: str) -> Member:
        cluster = self._changing()
        if any(record.url == peer_url for record in cluster.now):
            raise Refused("etcdserver: Peer URLs already exists")
        if sum(record.learner for record in cluster.now) >= MAX_LEARNERS:
            raise Refused("etcdserver: too many learner members in cluster")
        if self._active(cluster) < len(_voters(cluster)):
            raise Unhealthy("etcdserver: unhealthy cluster")
        record = MemberRecord(identity(peer_url, cluster.id, cluster.index), peer_url, learner=True)
        self._done("learners added")
        self._etcd.change(cluster, (*cluster.now, record), f"the operator adds a learner at {peer_url}")
        return _member(cluster, record)

    async def promote(self, member_id: int) -> None:
        cluster = self._changing()
        record = record_of(cluster.now, member_id)
        if record is None:
            raise NoSuchMember("etcdserver: member not found")
        if not record.learner:
            raise Refused("etcdserver: can only promote a learner member")
        process = self._etcd.process_of(cluster, member_id)
        if process is None or self._etcd.disks[process.command.disk].index < 0.9 * cluster.index:
            raise NotInSync("etcdserver: can only promote a learner member which is in sync with leader")
        self._done("learners promoted")
        records = tuple(other._replace(learner=False) if other == record else other for other in cluster.now)
        self._etcd.change(cluster, records, f"the operator promotes {cluster.names.get(member_id)}")

    async def remove(self, member_id: int) -> None:
        cluster = self._changing()
        record = record_of(cluster.now, member_id)
        if record is None:
            raise NoSuchMember("etcdserver: member not found")
        if not record.learner:
            voters = _voters(cluster)
            others = [voter for voter in voters if voter.id != member_id]
            if sum(voter.id in cluster.names for voter in others) < len(others) // 2 + 1:
                raise Unhealthy("etcdserver: re-configuration failed due to not enough started members")
            runs = self._etcd.process_of(cluster, member_id) is not None
            if runs and self._active(cluster) - 1 < 1 + (len(voters) - 1) // 2:
                raise Unhealthy("etcdserver: unhealthy cluster")
            self._etcd.guard.may_remove(self._etcd, cluster, member_id)
        self._done("members removed")
        records = tuple(other for other in cluster.now if other != record)
        self._etcd.change(cluster, records, f"the operator removes {cluster.names.get(member_id, record.url)}")

    async def move_leader(self, to: int) -> None:
        _, disk, cluster = self._served()
        self._require_root(cluster)
        self._etcd.guard.may_change(cluster, self._endpoint.name)
        if disk.member != cluster.leader:
            raise Refused("etcdserver: not leader")
        record = record_of(cluster.now, to)
        if record is None or record.learner:
            raise Refused("etcdserver: bad leader transferee")
        if to not in self._etcd.voting(cluster):
            raise Unreachable(f"{self._endpoint.name} gave no answer: leader transfer took too long")
        if to != cluster.leader:
            cluster.leader, cluster.term = to, cluster.term + 1
        self._etcd.settle(f"the operator moves leadership to {cluster.names.get(to)}")

    async def enable_downgrade(self, series: str) -> None:
        cluster = self._changing()
        major, minor = map(int, series.split("."))
        if cluster.version is None or (major, minor) != (cluster.version[0], cluster.version[1] - 1):
            raise Refused("etcdserver: invalid downgrade target version")
        if cluster.downgrade is None:
            cluster.downgrade = (major, minor)
            self._done("downgrades enabled")
        self._etcd.settle(f"the operator enables the downgrade to {series}")

    async def cancel_downgrade(self) -> None:
        cluster = self._changing()
        cluster.downgrade = None
        self._etcd.settle("the operator cancels the downgrade")

    async def disarm(self, alarm: Alarm) -> None:
        _, _, cluster = self._led()
        self._etcd.guard.may_change(cluster, self._endpoint.name)
        cluster.alarms.discard((alarm.member_id, alarm.kind))
        self._etcd.settle(f"the operator disarms {alarm.kind}")

    async def compact(self, revision: int) -> None:
        _, _, cluster = self._served()
        if not self._etcd.has_quorum(cluster):
            raise NoLeader("context deadline exceeded")
        self._authenticate(cluster)
        self._etcd.guard.may_change(cluster, self._endpoint.name)
        if revision > cluster.revision:
            raise Refused("etcdserver: mvcc: required revision is a future revision")
        cluster.compacted = max(cluster.compacted, revision)
        cluster.in_use = SMALL

    async def defragment(self) -> None:
        _, disk, cluster = self._served()
        self._require_root(cluster)
        self._etcd.guard.may_change(cluster, self._endpoint.name)
        disk.size = max(SMALL, min(disk.size, cluster.in_use))

    async def hash_kv(self, revision: int = 0) -> HashKV:
        _, disk, cluster = self._served()
        self._require_root(cluster)
        at = revision or cluster.revision
        return HashKV(identity(cluster.id, at, disk.member if disk.corrupt else 0), at, cluster.compacted or -1)

    async def snapshot(self) -> AsyncGenerator[bytes, None]:
        _, disk, cluster = self._served()
        self._require_root(cluster)
        text = json.dumps({"cluster": cluster.id, "index": disk.index, "revision": cluster.revision}).encode()
        body = text.ljust(PAGE * 2)
        yield body[:PAGE]
        yield body[PAGE:] + hashlib.sha256(body).digest()

    async def auth_enabled(self) -> bool:
        _, _, cluster = self._served()
        return cluster.auth

    async def authenticate(self) -> None:
        _, _, cluster = self._led()
        self._authenticate(cluster)

    async def enable_auth(self, user: str, password: str) -> None:
        cluster = self._changing()
        if not cluster.auth:
            cluster.users[user] = User(password, (ROOT,))
            cluster.auth = True
            self._done("auth enabled")

    async def disable_auth(self) -> None:
        cluster = self._changing()
        cluster.auth = False

    async def change_password(self, user: str, password: str) -> None:
        cluster = self._changing()
        cluster.users[user] = replace(cluster.users[user], password=password)

    async def roles(self, user: str) -> tuple[str, ...] | None:
        cluster = self._changing()
        return cluster.users[user].roles if user in cluster.users else None

    async def replace_user(self, user: str, password: str, role: str) -> None:
        cluster = self._changing()
        cluster.roles.add(role)
        cluster.users[user] = User(password, (role,))
        self._done(f"user {user} set")

    async def aclose(self) -> None:
        pass

    # Checks that a request passes.

    def _reached(self) -> tuple[Process, Disk, Cluster]:
        """Return the process at the address.

        Raises:
            Unreachable: no process answers at the address.
        """
        etcd, endpoint = self._etcd, self._endpoint
        found = [process for process in etcd.running if process.address == endpoint.address]
        if not endpoint.address or not found or not etcd.reaches(found[0]):
            raise Unreachable(f"{endpoint.name} cannot be reached")
        process = found[0]
        disk = etcd.disks[process.command.disk]
        return process, disk, etcd.clusters[disk.cluster]

    def _served(self, *, learner: bool = False) -> tuple[Process, Disk, Cluster]:
        """Return the process at the address if it serves clients.

        Args:
            learner: whether learners serve this request.
        """
        process, disk, cluster = self._reached()
        if process.command.tls != (self._access.authority is not None):
            raise Unreachable(
                f"{self._endpoint.name}: the server {'requires' if process.command.tls else 'does not use'} TLS"
            )
        if process.tls is not None:
            process.tls.require_client(self._endpoint.name, self._access, self._etcd.clock())
        if not process.serves:
            raise Unreachable(f"{self._endpoint.name}: connection refused")
        self._etcd.settle_version(cluster)
        record = record_of(cluster.records_at(disk.index), disk.member)
        if not learner and (record is None or record.learner):
            raise Refused("etcdserver: rpc not supported for learner")
        return process, disk, cluster

    def _led(self) -> tuple[Process, Disk, Cluster]:
        process, disk, cluster = self._served()
        if not self._etcd.has_quorum(cluster) or process not in self._etcd.members_of(cluster):
            raise Unreachable(f"{self._endpoint.name} gave no answer: no quorum")
        return process, disk, cluster

    def _changing(self) -> Cluster:
        _, _, cluster = self._led()
        self._require_root(cluster)
        self._etcd.guard.may_change(cluster, self._endpoint.name)
        return cluster

    def _authenticate(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the roles of the user; root without authentication.

        Raises:
            Denied: the user does not exist, or has another password; etcd has one message for both.
        """
        if not cluster.auth:
            return (ROOT,)
        if not self._access.user:
            raise Unauthenticated("etcdserver: user name is empty")
        user = cluster.users.get(self._access.user)
        if user is None or self._access.password != user.password:
            raise Denied("etcdserver: authentication failed, invalid user ID or password")
        return user.roles

    def _require_root(self, cluster: Cluster) -> None:
        if ROOT not in self._authenticate(cluster):
            raise Denied("etcdserver: permission denied")

    def _require_keys(self, cluster: Cluster) -> None:
        if not {ROOT, *cluster.roles} & {*self._authenticate(cluster)}:
            raise Denied("etcdserver: permission denied")

    def _active(self, cluster: Cluster) -> int:
        return sum(self._etcd.process_of(cluster, voter.id) is not None for voter in _voters(cluster))

    def _done(self, kind: str) -> None:
        self._etcd.done[kind] += 1


def _dotted(series: tuple[int, int] | None) -> str:
    return f"{series[0]}.{series[1]}.0" if series else ""


def _voters(cluster: Cluster) -> list[MemberRecord]:
    return [record for record in cluster.now if not record.learner]


def _member(cluster: Cluster, record: MemberRecord) -> Member:
    return Member(record.id, cluster.names.get(record.id, ""), (record.url,), record.learner)
