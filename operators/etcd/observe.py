"""What there is of an EtcdCluster, as one frozen value, and what follows from it; observer.py gathers it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup.view import BackupView
from operators.etcd.client.server import CORRUPT, NOSPACE, Alarm, Endpoint, EndpointStatus, HashKV, Member, RaftProgress
from operators.etcd.objects import names
from operators.etcd.objects.bootstrap import REFUSED
from operators.etcd.objects.names import CONTAINER
from operators.etcd.security.secrets import Secrets
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod, container_status

MAX_LAG_ENTRIES = 5000
"""Entries of Raft's log that a healthy member may be behind: from there on etcd itself refuses requests as too many.

Source: maxGapBetweenApplyAndCommitIndex in server/etcdserver/v3_server.go.
"""


@dataclass(frozen=True)
class Instance:
    """One place in the cluster, by its number: a pod, its volume, and the member that lives there.

    Attributes:
        number: the StatefulSet's ordinal; pod and member are named CLUSTER-NUMBER.
        pod: None where there is none (those that have ended count as none).
        pod_obj: the same as the API server shows it; also one that has ended.
        volume: its PersistentVolumeClaim; None where there is none, and with storage.medium Memory.
        member: as the list has it, found by its peer URL; None where no member is of this place, or no list is known.
        status: what the member there said of itself; None where it did not answer.
        error: why it did not answer; empty if it did, or was not asked.
        progress: how far its data goes, by its metrics; asked only where it does not answer and no list is known.
        disk: UID of what holds the data now: the volume's, or with storage.medium Memory the pod's; empty if none.
        recorded: the disk that the resource's status names for this very member (by id), or, where no member is of this
            place, for the one before; empty if none.
        empty_data_dir: whether etcd's container ended because its disk is empty ("couldn't find local name").
    """

    number: int
    name: str
    pod: Pod | None = None
    pod_obj: Obj | None = None
    volume: Obj | None = None
    member: Member | None = None
    status: EndpointStatus | None = None
    error: str = ""
    progress: RaftProgress | None = None
    disk: str = ""
    recorded: str = ""
    empty_data_dir: bool = False

    @property
    def ready(self) -> bool:
        """The kubelet's word, which needs no way from the operator to the pod."""
        return self.pod is not None and self.pod.ready

    @property
    def runs(self) -> bool:
        """Whether etcd's process is there, as far as the kubelet last said; it may answer nobody all the same."""
        container = container_status(self.pod_obj, CONTAINER)
        return self.ready or "running" in (container.get("state") or {})

    @property
    def db_size(self) -> int:
        """Bytes of its database; 0 if it did not answer."""
        return self.status.db_size if self.status else 0

    @property
    def db_free(self) -> int:
        """Bytes of its database that are not in use."""
        return self.status.db_size - self.status.db_in_use if self.status else 0

    @property
    def volume_leaving(self) -> bool:
        """Whether its volume is being deleted, and waits for the pod."""
        return self.volume is not None and "deletionTimestamp" in self.volume["metadata"]

    @property
    def vacated(self) -> bool:
        """No member is of this place, yet its disk is the one that the former member wrote on."""
        return self.member is None and bool(self.disk) and self.disk == self.recorded


@dataclass(frozen=True)
class Observed:
    """What there is of an EtcdCluster.

    Attributes:
        stateful_set: the StatefulSet; None if there is none.
        places: every place that has a pod, a volume or a member, or should have one, by number.
        members: the list as a quorum agrees on it; None where no quorum answered the operator.
        remembered: where no quorum answered: the list as the most advanced of those who did has it.
        cluster_id: as the list, or else any member, said; 0 if none did.
        alarms: those raised; empty where nobody could be asked.
        cluster_version: what all members run as together (3.6.0); empty where nobody said.
        hashes: where a member is suspected to be corrupt (`corruption.suspected`): each voter's answer, by id, all
            asked at the lowest revision that any of them is at.
        compacted: whether history before the leader's revision is gone; asked only while a NOSPACE alarm holds.
        disruption_budget: its PodDisruptionBudget.
        secrets: what the Secrets that count hold.
        auth_enabled: whether etcd asks for a password; None where nobody said.
        denied: what members said, if they let the operator in with no password that it has; empty if one did.
        former_password: whether root's password is still the former one; `secrets.access` then bears that.
        job_pods: pods that do something for the cluster without being a member (restore, recovery), by name.
        backup: its snapshots.
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
    secrets: Secrets = field(default_factory=Secrets)
    auth_enabled: bool | None = None
    denied: str = ""
    former_password: bool = False
    job_pods: Mapping[str, Obj] = field(default_factory=dict)
    backup: BackupView = field(default_factory=BackupView)

    @cached_property
    def voters(self) -> tuple[Member, ...]:
        """Members that count for the quorum."""
        return tuple(member for member in self.members or () if not member.learner)

    @property
    def quorum(self) -> int:
        """How many voters must agree."""
        return len(self.voters) // 2 + 1

    @cached_property
    def learner(self) -> Member | None:
        """The member without a vote; there is one at most."""
        return next((member for member in self.members or () if member.learner), None)

    @cached_property
    def leader(self) -> Instance | None:
        """Where the leader is: a voter that says so of itself, in the newest term that anybody knows."""
        said = [
            instance
            for instance in self.instances
            if instance.status and instance.status.leader == instance.status.member_id
        ]
        return max(said, key=lambda instance: instance.status.raft_term if instance.status else 0, default=None)

    @cached_property
    def leader_id(self) -> int:
        """Id of the leader as the newest term that anybody knows has it; it may itself not be reached. 0 if none."""
        said = [instance.status for instance in self.instances if instance.status]
        newest = max(said, key=lambda status: (status.raft_term, status.leader == status.member_id), default=None)
        return newest.leader if newest else 0

    @property
    def is_full(self) -> bool:
        """Whether etcd takes nothing but deletions, for some member's quota was used up."""
        return any(alarm.kind == NOSPACE for alarm in self.alarms)

    @property
    def is_corrupt(self) -> bool:
        """Whether etcd changes no key, for some member's data differs from the others'."""
        return any(alarm.kind == CORRUPT for alarm in self.alarms)

    @cached_property
    def unknown_members(self) -> tuple[Member, ...]:
        """Members that are of no place: somebody else added them, at an address of their own."""
        ours = {instance.member.id for instance in self.instances if instance.member}
        return tuple(member for member in self.members or () if member.id not in ours)

    @cached_property
    def healthy_voters(self) -> tuple[Instance, ...]:
        """Places of voters that take part, the leader's first, then by number."""
        found = [
            instance
            for instance in self.instances
            if instance.member and not instance.member.learner and self.healthy(instance)
        ]
        return tuple(sorted(found, key=lambda instance: (instance is not self.leader, instance.number)))

    @cached_property
    def down(self) -> tuple[Member, ...]:
        """Voters that do not take part, as far as the operator sees."""
        up = {instance.member.id for instance in self.healthy_voters if instance.member}
        return tuple(member for member in self.voters if member.id not in up)

    @cached_property
    def answering(self) -> tuple[Instance, ...]:
        """Places whose server said something of itself, healthy or not."""
        return tuple(instance for instance in self.instances if instance.status is not None)

    def instance_of(self, member: Member | int) -> Instance | None:
        """Where a member (or its id) lives; None for a stranger."""
        member_id = member if isinstance(member, int) else member.id
        return next(
            (instance for instance in self.instances if instance.member and instance.member.id == member_id), None
        )

    def instance(self, number: int) -> Instance | None:
        """The place with this number, if there is anything there."""
        return next((instance for instance in self.instances if instance.number == number), None)

    def instance_named(self, name: str) -> Instance | None:
        """The place whose pod and member bear this name, if there is anything there."""
        return next((instance for instance in self.instances if instance.name == name), None)

    def healthy(self, instance: Instance) -> bool:
        """Whether the member there, voter or learner, takes part: it answers as itself, knows a leader, keeps up.

        One whose pod is on its way out does not count any more.
        """
        member, said = instance.member, instance.status
        if instance.pod is None or instance.pod.leaving:
            return False
        if member is None or said is None or said.member_id != member.id or said.cluster_id != self.cluster_id:
            return False
        return said.leader != 0 and self._newest_index - said.raft_applied <= MAX_LAG_ENTRIES

    @cached_property
    def _newest_index(self) -> int:
        """The leader's; without it, the newest that anybody of this cluster knows."""
        said = [
            instance.status
            for instance in self.instances
            if instance.status and instance.status.cluster_id == self.cluster_id
        ]
        leading = self.leader.status if self.leader else None
        return leading.raft_index if leading else max((status.raft_index for status in said), default=0)

    def lost(self, instance: Instance) -> bool:
        """Whether what the member there had written is gone, by evidence.

        Its disk is another than the one that it was last seen on, or etcd itself found the disk empty. One that merely
        does not answer is not lost; one that takes part is not, wherever its data came from; and one that has yet to
        start for the first time has nothing to lose.
        """
        if instance.member is None or not instance.member.name or self.healthy(instance):
            return False
        return instance.empty_data_dir or bool(
            instance.recorded and instance.disk and instance.disk != instance.recorded
        )

    def others_healthy(self, member: Member | None) -> bool:
        """Whether every voter but this one takes part."""
        return all(member is not None and other.id == member.id for other in self.down)

    def quorum_without(self, member: Member) -> bool:
        """Whether, with this member removed, the healthy ones are a quorum of the voters that remain."""
        remaining = [voter for voter in self.voters if voter.id != member.id]
        up = [voter for voter in remaining if voter not in self.down]
        return bool(remaining) and len(up) >= len(remaining) // 2 + 1


def has_empty_data_dir(pod: Obj | None) -> bool:
    """Whether etcd's last word was that its disk is empty, and that this start does not let it begin there."""
    state, last = (container_status(pod, CONTAINER).get(key) or {} for key in ("state", "lastState"))
    if "running" in state:
        return False
    ended = state.get("terminated") or last.get("terminated") or {}
    return REFUSED in (ended.get("message") or "")


def endpoint(resource: EtcdCluster, instance: Instance) -> Endpoint:
    """Where the operator asks the member at a place; its pod has an address."""
    address = instance.pod.address if instance.pod else ""
    return Endpoint(instance.name, address, names.host(resource, instance.name), names.CLIENT_PORT)


def endpoints(resource: EtcdCluster, seen: Observed) -> tuple[Endpoint, ...]:
    """Where the cluster is asked for a change: its healthy voters, the leader first."""
    return tuple(endpoint(resource, instance) for instance in seen.healthy_voters)
