"""The EtcdCluster resource: what it is to Kubernetes, and what is said of one at the door and in the reconcile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from operators.etcd.api.spec import DEFAULT_VERSION, EtcdClusterSpec
from operators.etcd.api.versions import Version, upgrade_refusal
from operators.etcd.api.warnings import data_loss_of, warnings_for
from shared.api.crd import PrinterColumn, Resource, Scale
from shared.api.rules import NAMES_A_SET
from shared.api.spec import (
    INT32,
    INT64,
    Admission,
    CustomResource,
    InvalidSpec,
    Review,
    SpecModel,
    Status,
    Time,
    Transition,
    contradictions,
    parse,
)
from shared.kubernetes.kinds import Kind, Obj

ID = r"^[0-9a-f]{16}$"
"""An id of etcd as people write it: 16 hexadecimal digits."""

Id = Annotated[str, Field(pattern=ID)]


class MemberStatus(SpecModel):
    """One member, as it was last seen."""

    name: str = Field(description="Its name and its pod's.")
    id: Id | None = Field(None, description="Its id in etcd; none before it has joined.")
    role: Literal["leader", "voter", "learner"] | None = Field(
        None, description="What it is: a learner has no vote yet."
    )
    version: str | None = Field(None, description="The version of etcd that it runs.")
    db_size: int | None = Field(None, description="Bytes of its database file, about.", json_schema_extra=INT64)
    db_in_use: int | None = Field(
        None,
        description="Bytes of these that are in use; defragmentation gives back the rest.",
        json_schema_extra=INT64,
    )
    healthy: bool | None = Field(None, description="Whether it answers and knows a leader.")
    alarms: list[str] = Field(default_factory=list, description="Alarms that it raised: NOSPACE, CORRUPT.")
    volume: str | None = Field(
        None,
        description="UID of the volume claim (with storage.medium Memory: of the pod) on which it was last seen "
        "healthy. On another one, its data is lost.",
    )


class RecoveryStatus(SpecModel):
    """What can be done after a quorum was lost for good."""

    token: str = Field(description="What spec.recovery.confirm must say to allow it.")
    survivor: str = Field(description="The member whose data the cluster would go on with.")
    revision: int | None = Field(None, description="The revision of that data.", json_schema_extra=INT64)
    message: str = Field("", description="Which members are lost, and what would be lost with them.")


class RestoreStatus(SpecModel):
    """The data that the cluster began with."""

    source: str = Field(description="Where it came from.")
    phase: Literal["Pending", "Running", "Complete", "Failed"] = Field(description="How far it is.")
    revision: int | None = Field(None, description="The revision of the data.", json_schema_extra=INT64)


class BackupStatus(SpecModel):
    """Snapshots by the clock."""

    last_time: Time | None = Field(None, description="When the last one that is complete was taken.")
    last_name: str | None = Field(None, description="Its EtcdBackup.")
    next_time: Time | None = Field(None, description="When the next one is due.")


class RunsAsStatus(SpecModel):
    """As which version all members run together, and since when: Raft's log tells what each version wrote."""

    cluster_id: Id = Field(alias="clusterID", description="Whose log it is about.")
    series: str = Field(description="Major and minor version, such as 3.6.")
    since_index: int = Field(description="An entry of the log from which on it is so.", json_schema_extra=INT64)
    after: str | None = Field(None, description="As which the same cluster ran before; not set if it began so.")


class EtcdClusterStatus(Status):
    """What cluster there is.

    The phase is Creating, Running, Scaling, Updating, Degraded, Recovering, Restoring, Paused or Failed.
    """

    size: int | None = Field(None, description="Members there are.", json_schema_extra=INT32)
    ready_members: int | None = Field(None, description="Members that are healthy and vote.", json_schema_extra=INT32)
    cluster_id: Id | None = Field(
        None,
        alias="clusterID",
        description="The cluster's id in etcd. Once it stands here, no member ever begins a new cluster.",
    )
    leader: str | None = Field(None, description="Name of the member that leads.")
    version: str | None = Field(None, description="The lowest version of etcd that a member runs.")
    image: str | None = Field(None, description="The image that the spec asks for.")
    members: list[MemberStatus] = Field(default_factory=list, description="The members.")
    endpoints: list[str] = Field(default_factory=list, description="URLs for clients.")
    selector: str | None = Field(None, description="Selector of the members' pods.")
    runs_as: RunsAsStatus | None = Field(None, description="As which version all members run together.")
    recovery: RecoveryStatus | None = Field(None, description="After a quorum was lost for good: what can be done.")
    restore: RestoreStatus | None = Field(None, description="The data that the cluster began with.")
    backup: BackupStatus | None = Field(None, description="Snapshots by the clock.")
    last_defragmentation: Time | None = Field(
        None, description="Up to which moment spec.defragmentation.schedule was followed."
    )


API = Resource(
    kind=Kind("etcd.ydzs.io", "v1alpha1", "EtcdCluster", "etcdclusters"),
    spec=EtcdClusterSpec,
    status=EtcdClusterStatus,
    description="An etcd cluster that grows, heals, upgrades, backs up and restores without losing a write.",
    short_names=("etcd",),
    categories=("platform",),
    columns=(
        PrinterColumn("Size", ".spec.size", "integer", "Members wanted."),
        PrinterColumn("Ready", ".status.readyMembers", "integer", "Members that are healthy and vote."),
        PrinterColumn("Phase", ".status.phase", "string", "What it is doing."),
        PrinterColumn("Version", ".status.version", "string", "The lowest version that a member runs."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        PrinterColumn("Leader", ".status.leader", "string", "The member that leads.", wide=True),
        PrinterColumn("Image", ".status.image", "string", "The members' image.", wide=True),
        PrinterColumn(
            "Message", ".status.conditions[?(@.type=='Ready')].message", "string", "Why it is as it is.", wide=True
        ),
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
            "only a new cluster begins with a snapshot, and this one has begun; leave it as it was, or restore into "
            "another EtcdCluster.",
            at="spec.restore",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RecordedMember:
    """A member as the status last told of it.

    Attributes:
        name: its pod's, too.
        id: in etcd; 0 if none is recorded.
        volume: UID of the volume claim, or with storage.medium Memory of the pod, on which it was last seen healthy;
            empty if it never was.
    """

    name: str
    id: int
    volume: str


class EtcdCluster(CustomResource[EtcdClusterSpec]):
    """One EtcdCluster, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> EtcdCluster:
        """The resource as a model, with what `default` fills in.

        Raises:
            InvalidSpec: a field is wrong, or nothing tells the version; the message says which and what to give.
        """
        resource = cls.read(obj)
        resource.spec.target  # noqa: B018 - refused now, rather than wherever it is asked first
        return resource

    @classmethod
    def read(cls, obj: Obj) -> EtcdCluster:
        """The same, of which nobody asks the version yet: `validate` has more to say than that it is missing.

        Raises:
            InvalidSpec: a field is wrong.
        """
        obj = default(obj)
        return cls(obj, parse(EtcdClusterSpec, obj.get("spec") or {}, at="spec"))

    @property
    def version(self) -> Version:
        """What members are to run."""
        return self.spec.target

    def image_reference(self, repository: str) -> str:
        """The members' image, from a repository where only a version is given."""
        return self.spec.image_reference(repository)

    @property
    def recorded_cluster_id(self) -> int:
        """The id of the cluster that it became; 0 if it never became one."""
        return int(self.reported.get("clusterID") or "0", 16)

    @property
    def is_restored(self) -> bool:
        """Whether the data of a snapshot was put where the seed finds it: an empty disk begins no cluster any more."""
        return bool((self.reported.get("restore") or {}).get("phase") == "Complete")

    @property
    def is_to_be_restored(self) -> bool:
        """Whether the cluster is yet to begin, and with a snapshot's data."""
        return self.spec.restore is not None and not self.recorded_cluster_id and not self.is_restored

    @property
    def has_begun(self) -> bool:
        """Whether there is data of this cluster: its own, or of the snapshot that it begins with."""
        return bool(self.recorded_cluster_id) or (self.reported.get("restore") or {}).get("phase") == "Complete"

    @property
    def recorded_members(self) -> tuple[RecordedMember, ...]:
        """Its members as the status last told of them."""
        return tuple(
            RecordedMember(member["name"], int(member.get("id") or "0", 16), member.get("volume") or "")
            for member in self.reported.get("members") or ()
        )

    @property
    def recorded_version(self) -> Version | None:
        """The lowest version that a member was last seen to run; None if none was."""
        version = self.reported.get("version")
        return Version.parse(version) if version else None


def default(obj: Obj) -> Obj:
    """A version where none is given: the one that runs, so that a newer operator upgrades nobody unasked; else ours."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("version") is not None or spec.get("image") is not None:
        return obj
    running = (obj.get("status") or {}).get("version")
    return {**obj, "spec": {**spec, "version": running or DEFAULT_VERSION}}


def validate(resource: EtcdCluster, before: EtcdCluster | None = None) -> list[str]:
    """What makes a resource impossible: the CEL rules once more, for one that came past them, and what CEL cannot say.

    Args:
        before: what it was; without it, nothing is said of the change.
    """
    wrong = contradictions(resource, API.rules, before)
    if wrong:
        return wrong
    return [*_mismatch(resource), *(_refused_change(resource, before) if before is not None else ())]


def review(new: Obj, old: Obj | None) -> Review:
    """What makes a resource, or the change to it, impossible, and what a person should know before."""
    try:
        resource = EtcdCluster.read(new)
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    try:
        before = EtcdCluster.parse(old) if old else None
    except InvalidSpec:  # it came past admission; now it is mended
        before = None
    if errors := validate(resource, before):
        return Review(errors=tuple(errors))
    data_loss = [] if before is None else data_loss_of(resource.spec, before.spec, before.recorded_version)
    return Review(warnings=(*warnings_for(resource.spec), *data_loss))


def _mismatch(resource: EtcdCluster) -> list[str]:
    """What pods run, and what their flags are for, must be the same version."""
    spec = resource.spec
    try:
        tagged = Version.parse(spec.tag)
    except ValueError:
        return []
    if tagged == resource.version:
        return []
    return [
        f"spec.version: says {resource.version}, and the image's tag {tagged}: flags would be those of another "
        "version. Make them the same, or remove version."
    ]


def _refused_change(resource: EtcdCluster, before: EtcdCluster) -> list[str]:
    """A version that members must not be changed to, judged by what the status last told; the reconcile asks etcd."""
    if resource.version == before.version:
        return []
    members = [
        Version.parse(found["version"]) for found in before.reported.get("members") or () if found.get("version")
    ]
    refusal = upgrade_refusal(members, before.recorded_version, resource.version)
    field = "image" if resource.spec.version is None else "version"
    return [f"spec.{field}: {refusal}"] if refusal else []


ADMISSION = Admission(API.kind, default, review)
