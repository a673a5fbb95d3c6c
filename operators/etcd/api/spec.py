"""The spec of an EtcdCluster: its fields, their bounds, and what they must be to each other and to what they were."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from operators.etcd.api.rules import AUTO_COMPACTION_RULES, CLUSTER_RULES, TLS_RULES
from operators.etcd.api.snapshot_stores import S3, Destination, EtcdBackupSpec, RestoreSource, VolumeStore
from operators.etcd.api.versions import Version
from shared.api import schedule
from shared.api.image import Image
from shared.api.podspec import PodDisruptionBudget, PodSettings, Quantity
from shared.api.spec import INT32, INT64, InvalidSpec, Issuer, Name, Rule, SpecModel
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity

__all__ = ["S3", "Destination", "EtcdBackupSpec", "EtcdClusterSpec", "RestoreSource", "VolumeStore"]

DEFAULT_VERSION = "3.6.16"

MIB, GIB = 1 << 20, 1 << 30
MAX_ADVISED_QUOTA_BYTES = 8 * GIB
"""Beyond it a member takes minutes to start, and to be sent to a new one; etcd itself warns.

Source: https://etcd.io/docs/v3.6/dev-guide/limit/#storage-size-limit
"""

_LOG_BYTES = 512 * MIB
"""What is set aside of a volume for etcd's write-ahead log: five kept segments of 64 MiB and those in the making."""


def _is_schedule(text: str) -> str:
    if said := schedule.problem(text):
        raise ValueError(said)
    return text


Schedule = Annotated[
    str, AfterValidator(_is_schedule), Field(max_length=128, json_schema_extra={"pattern": r"^[^\s@]+( +[^\s]+){4}$"})
]


class Storage(SpecModel):
    """Where members keep their data."""

    size: Quantity = Field(
        "8Gi",
        description="Of each member's volume. It can grow where the storage class allows it, and never shrinks. With "
        "medium Memory: the most that a member may take of it.",
    )
    storage_class_name: Name | None = Field(
        None, description="The class of the volumes; if not given, the cluster's default. It stays as it was created."
    )
    medium: Literal["Volume", "Memory"] = Field(
        "Volume",
        description="Volume: a PersistentVolumeClaim a member. Memory: the node's memory; a member that loses its pod "
        "loses its data, and all of them lose all. It stays as it was created.",
    )
    retain: bool = Field(
        True, description="Whether volumes stay when the resource is deleted; false deletes the data with it."
    )


class AutoCompaction(SpecModel):
    """Forgets old revisions of keys by itself."""

    mode: Literal["periodic", "revision"] = Field("periodic", description="Whether retention is a time or a number.")
    retention: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,9}(h|m|s)?$")] = Field(
        "1h",
        description="History that is kept: a time such as 1h or 30m where mode is periodic, else a number of revisions "
        "such as 1000.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = AUTO_COMPACTION_RULES


class Defragmentation(SpecModel):
    """Gives back what compaction freed, one member at a time, the leader last."""

    schedule: Schedule = Field(description="When it may happen, in cron's five fields, in UTC, such as 30 2 * * *.")
    threshold: Annotated[int, Field(ge=1, le=99)] = Field(
        45,
        description="Percent of a member's file that must be free for it: a member does not answer meanwhile.",
        json_schema_extra=INT32,
    )


class PeerTls(SpecModel):
    """Encryption among members; every one shows a certificate."""

    secret_name: Name | None = Field(
        None,
        description="Where mode is secret: Secret with tls.crt, tls.key and ca.crt, for *.NAME.NAMESPACE.svc, with "
        "usages server auth and client auth.",
    )


class ClientTls(SpecModel):
    """Encryption between clients and members."""

    secret_name: Name | None = Field(
        None,
        description="Where mode is secret: Secret with tls.crt, tls.key and ca.crt, for *.NAME.NAMESPACE.svc and "
        "NAME-client.NAMESPACE.svc, with usages server auth and client auth: the operator and etcd's own gateway show "
        "it, too. With auth, and if clients must show one, it bears no common name.",
    )
    auth: Literal["none", "required"] = Field(
        "required", description="Whether clients must show a certificate that ca.crt vouches for."
    )


class Tls(SpecModel):
    """Encryption; how it comes about is settled when the cluster is created."""

    mode: Literal["none", "self", "secret", "certManager"] = Field(
        "none",
        description="Who makes the certificates. self: the operator, in Secrets NAME-ca, NAME-peer-tls, "
        "NAME-server-tls and NAME-client-tls (what clients show). secret: you. certManager: cert-manager, by issuer. "
        "It stays as it was created.",
    )
    issuer: Issuer | None = Field(None, description="Where mode is certManager: who signs.")
    peer: PeerTls = Field(default_factory=PeerTls, description="Among members.")
    client: ClientTls = Field(default_factory=ClientTls, description="Between clients and members.")

    RULES: ClassVar[tuple[Rule, ...]] = TLS_RULES


class Auth(SpecModel):
    """Users and passwords."""

    enabled: bool = Field(True, description="Whether everybody must authenticate.")
    root_secret_name: Name = Field(
        description="Secret with the key password: root's. To change it, put the former one into the key "
        "previousPassword beside it."
    )


class Backup(SpecModel):
    """Snapshots by the clock."""

    schedule: Schedule = Field(description="When one is taken, in cron's five fields, in UTC, such as 0 */6 * * *.")
    retention: Annotated[int, Field(ge=1, le=1000)] = Field(
        7, description="How many of these are kept; older ones are deleted.", json_schema_extra=INT32
    )
    destination: Destination = Field(description="Where they are kept.")


class Restore(SpecModel):
    """Data that the cluster begins with; of no effect once it has begun."""

    from_: RestoreSource = Field(alias="from", description="The snapshot.")


class Recovery(SpecModel):
    """What a person allows after a quorum was lost."""

    confirm: Annotated[str, Field(max_length=64)] = Field(
        description="status.recovery.token: the cluster goes on with what the member named there has; what only the "
        "lost ones had is lost."
    )


class Metrics(SpecModel):
    """etcd's own metrics for Prometheus."""

    enabled: bool = Field(True, description="Whether the Service names their port, for Prometheus to find.")


class EtcdClusterSpec(PodSettings):
    """What cluster is wanted."""

    size: Annotated[int, Field(ge=1, le=9)] = Field(
        description="How many members: 1, 3, 5 or 7. An even number survives no more failures than one less.",
        json_schema_extra=INT32,
    )
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None,
        description="The members' image; wins over version for what is pulled. A registry port and a digest may be in "
        "it.",
    )
    version: Annotated[str, Field(max_length=128)] | None = Field(
        None,
        description="etcd's version, such as 3.6.16: tag v3.6.16 in the operator's repository, where image is not "
        "given; where it is, this tells what its tag does not.",
    )
    storage: Storage = Field(
        default_factory=Storage, description="Where members keep their data.", json_schema_extra={"default": {}}
    )
    quota_backend_bytes: Annotated[int, Field(ge=16 * MIB, le=16 * GIB)] | None = Field(
        None,
        description="Size of the database above which only deletions are taken. If not given, half of what "
        "storage.size leaves beside 512Mi for etcd's log, and at most 8Gi: so that the volume holds a second copy, "
        "which a member makes when it is defragmented or sent the whole database.",
        json_schema_extra=INT64,
    )
    auto_compaction: AutoCompaction | None = Field(
        None, description="Forgets old revisions; if not given, none is forgotten but to make room."
    )
    defragmentation: Defragmentation | None = Field(
        None, description="Gives back free space by the clock; if not given, only when the quota is used up."
    )
    snapshot_count: Annotated[int, Field(ge=100, le=10000000)] | None = Field(
        None, description="Changes between two of Raft's snapshots; if not given, etcd's own.", json_schema_extra=INT32
    )
    heartbeat_interval: Annotated[int, Field(ge=10, le=10000)] = Field(
        100, description="Milliseconds between the leader's heartbeats.", json_schema_extra=INT32
    )
    election_timeout: Annotated[int, Field(ge=50, le=50000)] = Field(
        1000,
        description="Milliseconds without a heartbeat until another is elected; at least five heartbeats.",
        json_schema_extra=INT32,
    )
    extra_args: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=32)] = Field(
        default_factory=list,
        description="Further arguments of etcd, such as --max-txn-ops=256; not those that other fields set.",
    )
    tls: Tls = Field(default_factory=Tls, description="Encryption. If not given, there is none.")
    auth: Auth | None = Field(None, description="Users and passwords. If not given, nobody is asked.")
    backup: Backup | None = Field(None, description="Snapshots by the clock. If not given, none is taken.")
    restore: Restore | None = Field(None, description="Data that the cluster begins with. If not given, none.")
    recovery: Recovery | None = Field(None, description="What a person allows after a quorum was lost.")
    metrics: Metrics = Field(default_factory=Metrics, description="etcd's own metrics for Prometheus.")
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        None,
        description="How many members a drain of nodes may take at once. If not given, one, where there are three or "
        "more; fewer have no budget, for none of them can be missing.",
    )
    paused: bool = Field(False, description="If true, the operator reports, and touches nothing.")

    RULES: ClassVar[tuple[Rule, ...]] = (*PodSettings.RULES, *CLUSTER_RULES)

    @property
    def target(self) -> Version:
        """The version that members are to run, as version or else the image's tag tells it.

        Raises:
            InvalidSpec: neither does.
        """
        text = self.version if self.version is not None else self.tag
        try:
            return Version.parse(text)
        except ValueError as error:
            said = str(error) if text else "is missing, and no image tells it by its tag"
            raise InvalidSpec(f"spec.version: {said}; give it, such as 3.6.16.") from None

    @property
    def tag(self) -> str:
        """The image's tag; empty where it has none, or is none."""
        try:
            return Image.parse(self.image or "").tag
        except ValueError:
            return ""

    def image_reference(self, repository: str) -> str:
        """The image to run, from a repository where only a version is given, tagged as etcd's own are: v3.6.16."""
        return self.image or f"{repository}:v{(self.version or '').removeprefix('v')}"

    @property
    def quota(self) -> int:
        """Bytes of the database above which only deletions are taken."""
        if self.quota_backend_bytes is not None:
            return self.quota_backend_bytes
        size = int(parse_quantity(self.storage.size))
        # A small volume has room for fewer segments of the log: half of it is left to them and to the second copy.
        return max(16 * MIB, min(MAX_ADVISED_QUOTA_BYTES, max((size - _LOG_BYTES) // 2, size // 4)))

    @property
    def needed_storage(self) -> int:
        """Bytes with which no volume runs full before the quota is used up, and a second copy has room."""
        return 2 * self.quota + _LOG_BYTES

    def container_resources(self) -> Obj:
        """The container's resources: a little CPU and memory is set aside, nothing is limited; what is given wins."""
        limits, requests = self.resources.limits, self.resources.requests
        little = {name: value for name, value in {"cpu": "100m", "memory": "128Mi"}.items() if name not in limits}
        found: Obj = {"requests": little | requests, "limits": dict(limits)}
        return {name: amounts for name, amounts in found.items() if amounts}
