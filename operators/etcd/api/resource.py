"""The EtcdCluster resource: its CRD, and its validation at admission and in the reconcile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from operators.etcd.api.spec import DEFAULT_VERSION, EtcdClusterSpec
from operators.etcd.api.versions import Version, upgrade_refusal
from operators.etcd.api.warnings import data_loss_of, notes_for, warnings_for, warnings_of_root
from shared.api.crd import READY_MESSAGE, READY_REASON, PrinterColumn, Resource, Scale
from shared.api.rules import NAMES_A_SET
from shared.api.spec import (
    BINDING,
    INT32,
    INT64,
    Admission,
    AdoptionStatus,
    Binding,
    CustomResource,
    Exposure,
    InvalidSpec,
    LossObserved,
    ObservedSecrets,
    PriorConfirm,
    ProgressList,
    Review,
    SecretsRecord,
    SpecModel,
    Status,
    Time,
    Transition,
    contradictions,
    parse,
)
from shared.kubernetes.kinds import Kind, Obj

ID = r"^[0-9a-f]{16}$"
"""Id in etcd, written as 16 hexadecimal digits."""

Id = Annotated[str, Field(pattern=ID)]

MAX_OUTSIDE_VOTERS = 16
"""Most voters without a pod that are recorded. So many are a majority without the pods, as more would be."""


class ProgressStatus(SpecModel):
    """Last progress of a learner, which copies the data of the leader."""

    index: int = Field(
        description="Index of the last entry of Raft's log that the learner applied; 0 while it receives a snapshot.",
        json_schema_extra=INT64,
    )
    since: Time = Field(
        description="Time at which the learner had this index. Without progress for too long, it is removed and joins "
        "again.",
    )


class FoundEmptyStatus(SpecModel):
    """Starts in a row at which etcd found the data directory of a member empty."""

    first: Time = Field(description="Time of the first one.")
    last: Time = Field(description="Time of the last one.")


class MemberStatus(SpecModel):
    """Last observed state of one member."""

    name: str = Field(description="Name of the member and of its pod.")
    id: Id | None = Field(None, description="Id of the member in etcd, in hexadecimal; not set before it has joined.")
    role: Literal["leader", "voter", "learner"] | None = Field(
        None, description="Role of the member. A learner does not vote until it has caught up with the leader."
    )
    version: str | None = Field(None, description="Version of etcd that the member runs.")
    snapshotted_as: str | None = Field(
        None,
        description="Series, such as 3.6, as which the cluster ran when the member wrote a snapshot of Raft's log. "
        "Since then, the member needs no log entries of earlier series. Recorded only if an earlier series may have "
        "written log entries that the next one cannot read (status.runsAs.after).",
    )
    db_size: int | None = Field(
        None,
        description="Approximate size of the database file, in bytes; updated when it changes by more than a tenth.",
        json_schema_extra=INT64,
    )
    db_in_use: int | None = Field(
        None,
        description="Bytes of the database file that are in use. Defragmentation frees the rest.",
        json_schema_extra=INT64,
    )
    healthy: bool | None = Field(
        None,
        description="Whether the member answers, has a leader and keeps up with it; false while a lost member is "
        "replaced.",
    )
    alarms: list[str] = Field(default_factory=list, description="Alarms that the member raised: NOSPACE or CORRUPT.")
    volume: str | None = Field(
        None,
        description="UID of the volume claim (with storage.medium Memory: of the pod) on which the member was last "
        "healthy. If the member has another volume, its data is lost.",
    )
    found_empty: FoundEmptyStatus | None = Field(
        None,
        description="Starts in a row at which etcd found its data directory empty; not set once the member answers. At "
        "first, this leaves it unknown whether the data is lost or a disk is not mounted. If the starts are 2 minutes "
        "apart, the data counts as lost.",
    )
    progress: ProgressStatus | None = Field(
        None, description="Last observed progress of a learner; not set for voters."
    )


class RecoveryStatus(SpecModel):
    """Recovery that is possible after a quorum was permanently lost."""

    token: str = Field(
        description="Token that confirms this recovery in spec.recovery.confirm. It begins with the time at which the "
        "loss was found, and is for this occurrence of the loss only: a later loss of the same members has another "
        "token."
    )
    survivor: str = Field(description="Name of the member from whose data the cluster is recovered.")
    revision: int | None = Field(None, description="Revision of the survivor's data.", json_schema_extra=INT64)
    lost: list[Id] = Field(default_factory=list, description="Ids of voters that lost their data, or are of no pod.")
    observed: LossObserved = None
    prior_confirm: PriorConfirm = None
    kept: list[str] = Field(
        default_factory=list,
        description="Names of other members whose volumes are kept until spec.recovery.release allows more: survivors, "
        "and lost members that started with an empty directory on their volume, which may not have been mounted.",
    )
    message: str = Field(
        "", description="Consequences of the recovery: the data that is kept, and the writes that are lost."
    )


class RestoreStatus(SpecModel):
    """Progress of restoring the initial data."""

    source: str = Field(description="Location of the snapshot: s3://BUCKET/KEY or volume://CLAIM/PATH.")
    phase: Literal["Pending", "Running", "Complete", "Failed"] = Field(description="Progress of the restore.")
    revision: int | None = Field(None, description="Revision of the restored data.", json_schema_extra=INT64)


class BackupStatus(SpecModel):
    """Scheduled snapshots."""

    last_time: Time | None = Field(
        None,
        description="Completion time of the last scheduled snapshot that was complete and current.",
    )
    last_name: str | None = Field(None, description="Name of the EtcdBackup of that snapshot.")
    next_time: Time | None = Field(None, description="Time at which the next scheduled snapshot is due.")


class RunsAsStatus(SpecModel):
    """Version that all members run together as, and since when: it determines what Raft's log contains."""

    cluster_id: Id = Field(alias="clusterID", description="Id of the cluster that the log belongs to.")
    series: str = Field(description="Major and minor version that all members run together as, such as 3.6.")
    since_index: int = Field(
        description="Index of a log entry from which on the series applies.", json_schema_extra=INT64
    )
    after: str | None = Field(
        None,
        description="Series of the same cluster before; not set if the cluster started with the current one, and "
        "'unknown' if that was not recorded.",
    )


class EtcdClusterStatus(Status):
    """Observed state of an EtcdCluster.

    The phase is Creating, Running, Scaling, Updating, Degraded, Recovering, Restoring, Hibernating, Hibernated,
    WakingUp, Paused or Failed.
    """

    size: int | None = Field(None, description="Number of members, learners included.", json_schema_extra=INT32)
    ready_members: int | None = Field(None, description="Number of healthy voters.", json_schema_extra=INT32)
    cluster_id: Id | None = Field(
        None,
        alias="clusterID",
        description="Id of the cluster in etcd. Once it is set, no member ever bootstraps a new cluster.",
    )
    leader: str | None = Field(None, description="Name of the leader.")
    version: str | None = Field(None, description="Lowest version of etcd that a member runs.")
    image: str | None = Field(None, description="Image that the members run after any pending update.")
    members: list[MemberStatus] = Field(default_factory=list, description="State of each member.")
    endpoints: list[str] = Field(
        default_factory=list,
        description="Client URLs of the ready members. They stay while only the operator cannot reach the members.",
    )
    outside_voters: Annotated[list[Id], Field(max_length=MAX_OUTSIDE_VOTERS)] = Field(
        default_factory=list,
        description="Ids of voters that are of no pod of this cluster, as a quorum last listed them. They count for "
        "the quorum, and only a user knows whether they have lost their data.",
    )
    selector: str | None = Field(None, description="Label selector of the members' pods.")
    runs_as: RunsAsStatus | None = Field(None, description="Version that all members run together as.")
    recovery: RecoveryStatus | None = Field(
        None, description="Recovery that is possible after a quorum was permanently lost; not set otherwise."
    )
    observed_secrets: ObservedSecrets = Field(default_factory=list)
    progress: ProgressList = Field(default_factory=list)
    adoption: AdoptionStatus | None = Field(
        None, description="Adoption of the volumes of a deleted EtcdCluster of this name."
    )
    restore: RestoreStatus | None = Field(None, description="Restore of the initial data.")
    backup: BackupStatus | None = Field(None, description="Scheduled snapshots.")
    binding: Binding | None = Field(None, description=BINDING)
    connect_as: str | None = Field(
        None,
        description="User that the Secret NAME-connection gives to applications while authentication is enabled. It "
        "stays until spec.auth.connectAs names another one.",
    )
    secrets: SecretsRecord = Field(default_factory=dict)
    last_defragmentation: Time | None = Field(
        None, description="Time up to which spec.defragmentation.schedule was followed."
    )


MINIMAL: Obj = {"size": 1}
"""A valid spec with only the required fields."""

API = Resource(
    kind=Kind("etcd.ydzs.io", "v1alpha1", "EtcdCluster", "etcdclusters"),
    spec=EtcdClusterSpec,
    status=EtcdClusterStatus,
    description="An etcd cluster that scales, replaces failed members, upgrades, backs up and restores without losing "
    "an acknowledged write.",
    short_names=("etcd",),
    categories=("platform",),
    columns=(
        PrinterColumn("Size", ".spec.size", "integer", "Desired number of members."),
        PrinterColumn("Ready", ".status.readyMembers", "integer", "Number of healthy voters."),
        PrinterColumn("Phase", ".status.phase", "string", "Current phase of the cluster."),
        READY_REASON,
        PrinterColumn("Version", ".status.version", "string", "Lowest version that a member runs."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        PrinterColumn("Leader", ".status.leader", "string", "Name of the leader.", wide=True),
        PrinterColumn("Image", ".status.image", "string", "Image of the members.", wide=True),
        READY_MESSAGE,
    ),
    scale=Scale(".spec.size", ".status.size", ".status.selector"),
    rules=(
        NAMES_A_SET,
        Transition(
            "!has(self.spec.restore) || has(oldSelf.spec.restore) && self.spec.restore == oldSelf.spec.restore || "
            "!has(oldSelf.status) || !has(oldSelf.status.clusterID) && "
            "(!has(oldSelf.status.restore) || oldSelf.status.restore.phase != 'Complete')",
            lambda resource, before: (
                resource.spec.restore is None or resource.spec.restore == before.spec.restore or not before.has_begun
            ),
            "only a new cluster can start from a snapshot, and this one already has data. Revert the change, or "
            "restore into another EtcdCluster.",
            at="spec.restore",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RecordedMember:
    """A member as recorded in the status.

    Attributes:
        name: name of the member and of its pod.
        id: id in etcd; 0 if none is recorded.
        volume: UID of the volume claim, or with storage.medium Memory of the pod, on which the member was last healthy;
            empty if it never was.
        stays: whether it is a member or is being replaced; false if only its volume is left.
        found_empty: status.members[].foundEmpty; None if it is not set.
    """

    name: str
    id: int
    volume: str
    stays: bool = True
    found_empty: Obj | None = None


class EtcdCluster(CustomResource[EtcdClusterSpec]):
    """An EtcdCluster, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> EtcdCluster:
        """Parse a resource, with the values that `default` adds.

        Raises:
            InvalidSpec: a field is invalid, or the version is unknown; the message names the field and valid values.
        """
        resource = cls.read(obj)
        resource.spec.target  # noqa: B018 - raises InvalidSpec here instead of at the first use
        return resource

    @classmethod
    def read(cls, obj: Obj) -> EtcdCluster:
        """Parse a resource without checking its version, which `validate` reports with more context.

        Raises:
            InvalidSpec: a field is invalid.
        """
        obj = default(obj)
        return cls(obj, parse(EtcdClusterSpec, obj.get("spec") or {}, at="spec"))

    @property
    def version(self) -> Version:
        """Version that members must run."""
        return self.spec.target

    def image_reference(self, repository: str) -> str:
        """Return the image of the members; from `repository` if only a version is set."""
        return self.spec.image_reference(repository)

    @property
    def recorded_cluster_id(self) -> int:
        """Id of the cluster in etcd, as recorded; 0 before it is created."""
        return int(self.reported.get("clusterID") or "0", 16)

    @property
    def is_restored(self) -> bool:
        """Whether a snapshot's data is on the seed's volume: an empty volume must not bootstrap a cluster any more."""
        return bool((self.reported.get("restore") or {}).get("phase") == "Complete")

    @property
    def is_to_be_restored(self) -> bool:
        """Whether the cluster has yet to start, with the data of a snapshot."""
        return self.spec.restore is not None and not self.recorded_cluster_id and not self.is_restored

    @property
    def has_begun(self) -> bool:
        """Whether data of this cluster exists: its own, or that of the restored snapshot."""
        return bool(self.recorded_cluster_id) or (self.reported.get("restore") or {}).get("phase") == "Complete"

    @cached_property
    def recorded_members(self) -> tuple[RecordedMember, ...]:
        """Members as recorded in the status."""
        return tuple(
            RecordedMember(
                member["name"],
                int(member.get("id") or "0", 16),
                member.get("volume") or "",
                stays="id" in member or "healthy" in member,
                found_empty=member.get("foundEmpty"),
            )
            for member in self.reported.get("members") or ()
        )

    @property
    def released_recovery(self) -> str:
        """Token of the recovery whose kept data may be deleted; empty if there is none."""
        return (self.spec.recovery.release or "") if self.spec.recovery is not None else ""

    @property
    def offers_user(self) -> bool:
        """Whether applications get a user by the Secret NAME-connection."""
        auth = self.spec.auth
        return auth is not None and auth.enabled and self.spec.connection_secret

    @property
    def connect_as(self) -> str:
        """User for applications: that of the spec, or else the recorded one; empty if there is none."""
        requested = self.spec.auth.connect_as if self.spec.auth is not None else None
        return requested or self.reported.get("connectAs") or ""

    @property
    def recorded_version(self) -> Version | None:
        """Lowest version that a member was last observed to run; None if there is none."""
        version = self.reported.get("version")
        return Version.parse(version) if version else None


def default(obj: Obj) -> Obj:
    """Set the version if none is given: the running one, to avoid an unrequested upgrade, or else the default."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("version") is not None or spec.get("image") is not None:
        return obj
    running = (obj.get("status") or {}).get("version")
    return {**obj, "spec": {**spec, "version": running or DEFAULT_VERSION}}


def validate(resource: EtcdCluster, before: EtcdCluster | None = None) -> list[str]:
    """Return the reasons to reject a resource: the CEL rules, and what CEL cannot express.

    Args:
        before: former resource; without it, the change is not checked.
    """
    wrong = contradictions(resource, API.rules, before)
    if wrong:
        return wrong
    return [*_mismatch(resource), *(_refused_change(resource, before) if before is not None else ())]


def review(new: Obj, old: Obj | None) -> Review:
    """Return the reasons to reject a resource or a change, and warnings."""
    try:
        resource = EtcdCluster.read(new)
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    try:
        before = EtcdCluster.parse(old) if old else None
    except InvalidSpec:  # the former resource bypassed admission, and is now fixed
        before = None
    if errors := validate(resource, before):
        return Review(errors=tuple(errors))
    data_loss = [] if before is None else data_loss_of(resource.spec, before.spec, before.recorded_version)
    warnings = (*warnings_for(resource.spec), *warnings_of_root(resource.spec, resource.connect_as), *data_loss)
    return Review(warnings=warnings, notes=tuple(notes_for(resource.spec)))


def _mismatch(resource: EtcdCluster) -> list[str]:
    """Check that the version of the image's tag equals spec.version, which selects the flags."""
    spec = resource.spec
    try:
        tagged = Version.parse(spec.tag)
    except ValueError:
        return []
    if tagged == resource.version:
        return []
    return [
        f"spec.version: is {resource.version}, but the image's tag is {tagged}: etcd would get flags of another "
        "version. Make them equal, or remove version."
    ]


def _refused_change(resource: EtcdCluster, before: EtcdCluster) -> list[str]:
    """Check a version change against the versions in the status; the reconcile checks it against etcd."""
    if resource.version == before.version:
        return []
    members = [
        Version.parse(found["version"]) for found in before.reported.get("members") or () if found.get("version")
    ]
    refusal = upgrade_refusal(members, before.recorded_version, resource.version)
    field = "image" if resource.spec.version is None else "version"
    return [f"spec.{field}: {refusal}"] if refusal else []


def exposure(resource: EtcdCluster) -> Exposure:
    """Return how far a resource is open."""
    spec = resource.spec
    return Exposure(
        tls=spec.tls.mode != "none",
        auth=spec.auth is not None and spec.auth.enabled,
        restricted=spec.network.restricts_clients,
        images=({"spec.image": spec.image} if spec.image else {}) | spec.extra_images,
    )


ADMISSION = Admission(API.kind, default, review, lambda obj: exposure(EtcdCluster.read(obj)))
