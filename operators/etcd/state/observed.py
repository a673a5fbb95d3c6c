"""Observed state of an EtcdCluster as one frozen value, and what follows from it; observe.py collects it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from operators.etcd.api.catalogue import Hazard, bug_of
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import Version
from operators.etcd.backup.view import BackupView
from operators.etcd.client.server import CORRUPT, NOSPACE, Alarm, Endpoint, EndpointStatus, HashKV, Member, RaftProgress
from operators.etcd.objects import names
from operators.etcd.objects.names import CONTAINER, KEPT
from operators.etcd.security.secrets import Secrets
from operators.etcd.state import recovery_marks
from operators.etcd.state.empty_directory import EmptyStarts
from shared.api.catalogue import Bug
from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.kinds import Obj
from shared.steps.connection import ConnectionSecret
from shared.steps.instance import Instance as PodInstance

MAX_LAG_ENTRIES = 5000
"""Entries of Raft's log that a healthy member may lag behind: above it, etcd itself rejects requests.

Source: maxGapBetweenApplyAndCommitIndex in server/etcdserver/v3_server.go.
"""


@dataclass(frozen=True)
class Instance(PodInstance):
    """A number of the StatefulSet: a pod, its volume, and the member that runs there, which has the name of the pod.

    Attributes:
        member: member in etcd's list (`number_of_member`); None without a member or a list.
        status: status that the member reported; None if it did not answer.
        progress: progress of its data, from its metrics; read only if it does not answer, and either it is a learner or
            no list of members is known.
        recorded: volume that the status records for this member (by id), or without a member, for the former one; empty
            if none.
        empty: the last starts in a row, if etcd exited because its data directory was empty ("couldn't find local
            name"); None otherwise.
    """

    container = CONTAINER

    member: Member | None = None
    status: EndpointStatus | None = None
    progress: RaftProgress | None = None
    recorded: str = ""
    empty: EmptyStarts | None = None

    @property
    def proves_loss(self) -> bool:
        """Whether etcd found the data directory empty so often that the data counts as lost."""
        return self.empty is not None and self.empty.prove_loss

    @property
    def is_out_of_reach(self) -> bool:
        """Whether only the operator cannot reach the member, as far as the kubelet reports."""
        return self.ready and self.status is None

    def bug(self, hazard: Hazard) -> Bug | None:
        """Return the bug that makes a step unsafe with the version that the member reports; None without one."""
        return bug_of(Version.parse(self.status.version), hazard) if self.status else None

    @property
    def db_size(self) -> int:
        """Size of the database in bytes; 0 if unknown."""
        return self.status.db_size if self.status else 0

    @property
    def db_free(self) -> int:
        """Unused bytes of the database."""
        return self.status.db_size - self.status.db_in_use if self.status else 0

    @property
    def volume_leaving(self) -> bool:
        """Whether the volume is being deleted, and waits for the pod."""
        return is_terminating(self.volume)

    @property
    def kept_by(self) -> str:
        """Token of the recovery that keeps the volume of this former member; empty without one."""
        return next(iter(recovery_marks.tokens(self.volume, KEPT)), "")

    @property
    def vacated(self) -> bool:
        """Whether there is no member, but the volume is that of the former member."""
        return self.member is None and bool(self.disk) and self.disk == self.recorded


@dataclass(frozen=True, slots=True)
class ClientUser:
    """etcd's user for applications.

    Attributes:
        accepted: whether it reads keys with the password of its Secret.
        roles: roles of the user, if it was not accepted; None if it does not exist.
        is_own: whether the operator may replace it: it does not exist, or the operator created it.
    """

    accepted: bool
    roles: tuple[str, ...] | None = None
    is_own: bool = True


@dataclass(frozen=True)
class Observed:
    """Observed state of an EtcdCluster.

    Attributes:
        stateful_set: the StatefulSet; None without one.
        instances: every number that has a pod, a volume or a member, or should have one, in order.
        members: list that a quorum agrees on; None if no quorum answered the operator.
        remembered: without a quorum, the local list of the most advanced member that answered.
        cluster_id: id from the list, or else from a member (`observe`); 0 if unknown.
        alarms: raised alarms; empty if no member answered.
        cluster_version: version that all members run together as (3.6.0); empty if unknown.
        hashes: if a member may be corrupt (`corruption.suspected`), the hash of each voter by id, all at the lowest
            revision of any voter.
        compacted: whether history before the leader's revision is deleted; read only during a NOSPACE alarm.
        disruption_budget: the PodDisruptionBudget; None without one.
        network_policy: the NetworkPolicy; None without one.
        secrets: content of the Secrets.
        auth_enabled: whether authentication is enabled; None if unknown.
        denied: error of the members if they reject all passwords of the operator; empty otherwise.
        former_password: whether root's password is not that of the user's Secret; `secrets.access` has the valid one.
        client: the user for applications; None if it is unknown, or not offered.
        job_pods: pods that work for the cluster without being a member (restore, recovery), by name.
        stray_pods: other pods with the cluster's labels, by name: without this controller, their results prove nothing.
        backup: snapshots of the cluster.
        former_resource: NAMESPACE/NAME of an EtcdCluster with the UID whose volumes are to be adopted; empty if none
            exists.
        connection: the Secret for clients; None if it was not read.
    """

    stateful_set: Obj | None = None
    instances: tuple[Instance, ...] = ()
    members: tuple[Member, ...] | None = None
    remembered: tuple[Member, ...] = ()
    cluster_id: int = 0
    alarms: tuple[Alarm, ...] = ()
    cluster_version: str = ""
    hashes: Mapping[int, HashKV] = field(default_factory=dict)
    compacted: bool = False
    disruption_budget: Obj | None = None
    network_policy: Obj | None = None
    secrets: Secrets = field(default_factory=Secrets)
    auth_enabled: bool | None = None
    denied: str = ""
    former_password: bool = False
    client: ClientUser | None = None
    job_pods: Mapping[str, Obj] = field(default_factory=dict)
    stray_pods: Mapping[str, Obj] = field(default_factory=dict)
    backup: BackupView = field(default_factory=BackupView)
    former_resource: str = ""
    connection: ConnectionSecret | None = None

    @cached_property
    def voters(self) -> tuple[Member, ...]:
        """Members that count for the quorum."""
        return tuple(member for member in self.members or () if not member.learner)

    @property
    def quorum(self) -> int:
        """Number of voters that must agree."""
        return len(self.voters) // 2 + 1

    @cached_property
    def learner(self) -> Member | None:
        """The learner; etcd allows at most one."""
        return next((member for member in self.members or () if member.learner), None)

    @cached_property
    def leader(self) -> Instance | None:
        """Instance of the leader: a voter that reports itself as leader in the newest known term."""
        own = [(each, each.status) for each in self.instances if self._is_of_cluster(each) and each.status]
        claiming = [(each, status.raft_term) for each, status in own if status.leader == status.member_id]
        return max(claiming, key=lambda claim: claim[1], default=(None, 0))[0]

    @cached_property
    def leader_id(self) -> int:
        """Id of the leader in the newest known term; the leader may be unreachable. 0 if there is none."""
        statuses = [instance.status for instance in self.instances if self._is_of_cluster(instance) and instance.status]
        newest = max(statuses, key=lambda status: (status.raft_term, status.leader == status.member_id), default=None)
        return newest.leader if newest else 0

    @cached_property
    def downgrade_target(self) -> str:
        """Version to which the cluster is being downgraded, by the most advanced member that can report it."""
        statuses = [each.status for each in self.instances if self._is_of_cluster(each) and each.status]
        reporting = (status for status in statuses if status.storage_version)
        newest = max(reporting, key=lambda status: status.raft_applied, default=None)
        return newest.downgrade_target if newest else ""

    def _is_of_cluster(self, instance: Instance) -> bool:
        """Whether a server reports this cluster; one on the kept volume of a former cluster has terms of its own."""
        return instance.status is not None and instance.status.cluster_id == self.cluster_id

    @property
    def is_full(self) -> bool:
        """Whether etcd accepts only deletions, because the quota of a member was used up."""
        return any(alarm.kind == NOSPACE for alarm in self.alarms)

    @property
    def is_corrupt(self) -> bool:
        """Whether etcd rejects changes of keys, because the data of a member differs from the others'."""
        return any(alarm.kind == CORRUPT for alarm in self.alarms)

    @cached_property
    def unknown_members(self) -> tuple[Member, ...]:
        """Members without an instance: a user added them with other addresses, or changed their addresses."""
        known = {instance.member.id for instance in self.instances if instance.member}
        return tuple(member for member in self.members or () if member.id not in known)

    @cached_property
    def healthy_voters(self) -> tuple[Instance, ...]:
        """Instances of healthy voters: the leader first, then by number."""
        found = [each for each in self.instances if each.member and not each.member.learner and self.healthy(each)]
        return tuple(sorted(found, key=lambda instance: (instance is not self.leader, instance.number)))

    @cached_property
    def down(self) -> tuple[Member, ...]:
        """Voters that are not healthy, as far as the operator can observe."""
        up = {instance.member.id for instance in self.healthy_voters if instance.member}
        return tuple(member for member in self.voters if member.id not in up)

    @cached_property
    def answering(self) -> tuple[Instance, ...]:
        """Instances whose server reported its status, healthy or not."""
        return tuple(instance for instance in self.instances if instance.status is not None)

    def instance_of(self, member: Member | int) -> Instance | None:
        """Return the instance of a member or of its id; None for an unknown member."""
        member_id = member if isinstance(member, int) else member.id
        return next((each for each in self.instances if each.member and each.member.id == member_id), None)

    def instance(self, number: int) -> Instance | None:
        """Return the instance with a number; None if there is none."""
        return next((instance for instance in self.instances if instance.number == number), None)

    def instance_named(self, name: str) -> Instance | None:
        """Return the instance whose pod and member have a name; None if there is none."""
        return next((instance for instance in self.instances if instance.name == name), None)

    def healthy(self, instance: Instance) -> bool:
        """Whether the member, voter or learner, answers with its own id, has a leader, and keeps up.

        A member whose pod is terminating does not count as healthy.
        """
        member, status = instance.member, instance.status
        if instance.pod is None or instance.pod.leaving:
            return False
        if member is None or status is None or status.member_id != member.id or status.cluster_id != self.cluster_id:
            return False
        return status.leader != 0 and self._newest_index - status.raft_applied <= MAX_LAG_ENTRIES

    @cached_property
    def _newest_index(self) -> int:
        """Index of the leader; without a leader, the newest index that a member of this cluster reports."""
        statuses = [each.status for each in self.instances if each.status and self._is_of_cluster(each)]
        leading = self.leader.status if self.leader else None
        return leading.raft_index if leading else max((status.raft_index for status in statuses), default=0)

    def lost(self, instance: Instance) -> bool:
        """Whether the member's data is lost, by evidence.

        The evidence is that its volume differs from the one on which it was last healthy, or that etcd itself found the
        data directory empty, at two starts (`empty_directory`). A member that is only unreachable is not lost. Neither
        is a healthy one, wherever its data came from, nor one that has yet to start for the first time.
        """
        if instance.member is None or not instance.member.name or self.healthy(instance):
            return False
        return instance.proves_loss or bool(instance.recorded and instance.disk and instance.disk != instance.recorded)

    def others_healthy(self, member: Member | None) -> bool:
        """Whether every other voter is healthy."""
        return all(member is not None and other.id == member.id for other in self.down)


def number_of_member(resource: EtcdCluster, member: Member) -> int | None:
    """Return the number of a member by its peer URL; None if that is of no pod, or of another one than its name.

    A user may change the URL. The name is that of the pod with the member's data, and empty before it started.
    """
    numbers = (names.number_of(resource, url) for url in member.peer_urls)
    found = (number for number in numbers if number is not None)
    return next((number for number in found if member.name in ("", names.member_name(resource, number))), None)


def endpoint(resource: EtcdCluster, instance: Instance) -> Endpoint:
    """Return the endpoint of an instance, whose pod has an address."""
    address = instance.pod.address if instance.pod else ""
    return Endpoint(instance.name, address, names.host(resource, instance.name), names.CLIENT_PORT)


def endpoints(resource: EtcdCluster, seen: Observed) -> tuple[Endpoint, ...]:
    """Return the endpoints for changes of the cluster: its healthy voters, the leader first."""
    return tuple(endpoint(resource, instance) for instance in seen.healthy_voters)
