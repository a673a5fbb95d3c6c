"""The spec of an EtcdCluster: its fields, their bounds, and the rules between them and for changes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from operators.etcd.api.catalogue import ETCD
from operators.etcd.api.rules import AUTO_COMPACTION_RULES, CLUSTER_RULES, TLS_RULES
from operators.etcd.api.snapshot_stores import S3, Destination, EtcdBackupSpec, RestoreSource, VolumeStore
from operators.etcd.api.versions import DOWNGRADES, Version
from shared.api import schedule
from shared.api.catalogue import dotted
from shared.api.extension_rules import Reserved, extension_rules
from shared.api.image import Image
from shared.api.network import NETWORK, Network
from shared.api.pod_extensions import PodExtensions
from shared.api.podspec import PodDisruptionBudget, PodSettings, Quantity
from shared.api.spec import (
    CONNECTION,
    DELETION_PROTECTION,
    HIBERNATE,
    INT32,
    INT64,
    Adopt,
    Changes,
    InvalidSpec,
    Issuer,
    Name,
    Rule,
    SpecModel,
)
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity

__all__ = ["S3", "Destination", "EtcdBackupSpec", "EtcdClusterSpec", "RestoreSource", "VolumeStore"]

MAX_SIZE = 9
DEFAULT_VERSION = ETCD.default_version

_DOWNGRADES = ", ".join(f"{dotted(series)} to {dotted(below)}" for series, below in DOWNGRADES.items())

MIB, GIB = 1 << 20, 1 << 30
MAX_ADVISED_QUOTA_BYTES = 8 * GIB
"""Largest quota that etcd recommends.

Above it, a member takes minutes to start and to be sent to a new member; etcd itself logs a warning.

Source: https://etcd.io/docs/v3.6/dev-guide/limit/#storage-size-limit
"""

HAND_OVER_SECONDS = 30
"""Seconds in which a terminating etcd finishes running requests; the leader hands over before."""

_LOG_BYTES = 512 * MIB
"""Space reserved on a volume for the write-ahead log: five retained segments of 64 MiB, and new ones."""


def _is_schedule(text: str) -> str:
    if problem := schedule.problem(text):
        raise ValueError(problem)
    return text


Schedule = Annotated[
    str, Field(max_length=128, json_schema_extra={"pattern": r"^[^\s@]+( +[^\s]+){4}$"}), AfterValidator(_is_schedule)
]


class Storage(SpecModel):
    """Storage of the members."""

    size: Quantity = Field(
        "8Gi",
        description="Size of each member's volume. An increase expands the volumes if the storage class allows it, and "
        "restarts the members one by one if the default of quotaBackendBytes changes with it; volumes never shrink: a "
        "smaller size is applied only if no volume has grown. With medium Memory: maximum size of the data in memory.",
    )
    storage_class_name: Name | None = Field(
        None,
        description="StorageClass of the volumes. Default: the default class of the Kubernetes cluster. Cannot be "
        "changed.",
    )
    volume_attributes_class_name: Name | None = Field(
        None,
        description="Name of a VolumeAttributesClass with attributes of the volumes, such as IOPS, which the driver "
        "changes without a restart. Needs Kubernetes 1.34 and a driver that supports it. If it is removed, the volumes "
        "keep their class. Not used with medium Memory.",
    )
    medium: Literal["Volume", "Memory"] = Field(
        "Volume",
        description="Volume: one PersistentVolumeClaim per member. Memory: a tmpfs in the node's memory. A member that "
        "loses its pod loses its data; if all members lose their pods, all data is lost. Cannot be changed.",
    )
    retain: bool = Field(
        True,
        description="Whether the volumes are kept when this resource is deleted. false deletes the volumes and all "
        "data.",
    )


class AutoCompaction(SpecModel):
    """Automatic deletion of old revisions of keys."""

    mode: Literal["periodic", "revision"] = Field(
        "periodic",
        description="Unit of retention: periodic for a duration, revision for a number of revisions. A change restarts "
        "the members one by one.",
    )
    retention: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,9}(h|m|s)?$")] = Field(
        "1h",
        description="History of keys that is kept: with mode periodic a duration such as 1h or 30m, with mode revision "
        "a number of revisions such as 1000. A change restarts the members one by one.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = AUTO_COMPACTION_RULES


class Defragmentation(SpecModel):
    """Scheduled defragmentation: frees the space of compacted revisions, one member at a time, the leader last."""

    schedule: Schedule = Field(
        description="Times at which members may be defragmented, as a cron expression with five fields, in UTC. "
        "Example: 30 2 * * *.",
    )
    threshold: Annotated[int, Field(ge=1, le=99)] = Field(
        45,
        description="Minimum share of unused space in a member's database file, in percent, to defragment it. A member "
        "does not answer while it is defragmented. Files below 100Mi are skipped.",
        json_schema_extra=INT32,
    )


class PeerTls(SpecModel):
    """TLS between members; every member presents a certificate."""

    secret_name: Name | None = Field(
        None,
        description="Name of a Secret with tls.crt, tls.key and ca.crt, required with mode secret. The certificate "
        "must be valid for *.NAME.NAMESPACE.svc, with the usages server auth and client auth.",
    )


class ClientTls(SpecModel):
    """TLS between clients and members."""

    secret_name: Name | None = Field(
        None,
        description="Name of a Secret with tls.crt, tls.key and ca.crt, required with mode secret. The certificate "
        "must be valid for *.NAME.NAMESPACE.svc and NAME-client.NAMESPACE.svc, with the usages server auth and client "
        "auth, because the operator and etcd's own gateway also present it. With spec.auth and client certificates "
        "required, it must not have a common name.",
    )
    auth: Literal["none", "required"] = Field(
        "required",
        description="Whether clients must present a certificate signed by ca.crt. No effect with mode none. A change "
        "restarts the members one by one.",
    )


class Tls(SpecModel):
    """TLS; the mode cannot be changed after creation."""

    mode: Literal["none", "self", "secret", "certManager"] = Field(
        "none",
        description="Source of the certificates. none: no TLS. self: the operator issues them in the Secrets NAME-ca, "
        "NAME-peer-tls, NAME-server-tls and NAME-client-tls (for clients). secret: Secrets that you provide. "
        "certManager: cert-manager, by issuer. With secret and certManager, members mount the copies NAME-peer-mounted "
        "and NAME-server-mounted, and clients can mount NAME-client-mounted (certManager): a new authority is trusted "
        "there before its certificates are used. Cannot be changed.",
    )
    issuer: Issuer | None = Field(
        None, description="Issuer of cert-manager that signs the certificates; required with mode certManager."
    )
    peer: PeerTls = Field(default_factory=PeerTls, description="TLS between members.")
    client: ClientTls = Field(default_factory=ClientTls, description="TLS between clients and members.")

    RULES: ClassVar[tuple[Rule, ...]] = TLS_RULES


class Auth(SpecModel):
    """Authentication with users and passwords."""

    enabled: bool = Field(True, description="Whether clients must authenticate. A change is applied without a restart.")
    root_secret_name: Name | None = Field(
        None,
        description="Name of a Secret with the password of the user root in the key password. Default: the operator "
        "generates the password in the Secret NAME-auth, which is kept with the volumes (storage.retain). A changed "
        "password is applied without a restart. The operator keeps the valid password in the Secret "
        "NAME-operator-auth. If root's password was changed in etcd, store it in the key previousPassword.",
    )
    connect_as: Literal["client", "root"] | None = Field(
        None,
        description="User that the Secret NAME-connection gives to applications. client: reads and writes all keys, "
        "with a password that the operator generates in the Secret NAME-client-password. root: has all permissions, "
        "also on users, members and snapshots; for applications that manage these. Default: client. Applications that "
        "already have root (status.connectAs) keep it until the field is set.",
    )


class Backup(SpecModel):
    """Scheduled snapshots."""

    schedule: Schedule = Field(
        description="Times at which snapshots are taken, as a cron expression with five fields, in UTC. Example: 0 */6 "
        "* * *.",
    )
    retention: Annotated[int, Field(ge=1, le=1000)] = Field(
        7,
        description="Scheduled snapshots to keep. Older ones are deleted with their files, unless their data is newer.",
        json_schema_extra=INT32,
    )
    destination: Destination = Field(
        description="Store for the scheduled snapshots. While its Secret or claim does not exist, the cluster is not "
        "Ready. Only a snapshot tests keys, bucket and endpoint: create an EtcdBackup with the same destination.",
    )


class Restore(SpecModel):
    """Initial data of the cluster; ignored once the cluster has started."""

    from_: RestoreSource = Field(alias="from", description="Snapshot to restore.")


class Recovery(SpecModel):
    """Confirmation of a recovery after a quorum was lost, and of the deletion of the data that it did not use.

    Each of the two is independent of the other: a user may remove the first once the recovery is complete.
    """

    confirm: Annotated[str, Field(max_length=64)] | None = Field(
        None,
        description="Value of status.recovery.token. It confirms the recovery that status.recovery describes: the "
        "cluster continues with the data of the survivor, and writes that only the lost members had are lost.",
    )
    release: Annotated[str, Field(max_length=64)] | None = Field(
        None,
        description="Token of a completed recovery. It allows the operator to delete the data that the recovery kept: "
        "the volumes of other survivors, and the former data directory of the survivor. Default: that data is kept, "
        "and the members on those volumes are not replaced.",
    )


class Metrics(SpecModel):
    """Metrics of etcd for Prometheus."""

    enabled: bool = Field(
        True,
        description="Whether the headless Service has a port for metrics, so that Prometheus can discover it. Applied "
        "without a restart.",
    )


RESERVED = Reserved(
    containers=("etcd",),
    volumes=("data", "client-tls", "peer-tls"),
    paths=("/var/lib/etcd", "/etc/etcd"),
    ports=(("2379", lambda _: 2379), ("2380", lambda _: 2380), ("2381", lambda _: 2381)),
    port_names=("client", "peer", "metrics"),
)
"""Names, paths and ports of the pods of the members, with any spec."""


class EtcdClusterSpec(PodSettings, PodExtensions):
    """Desired state of an EtcdCluster."""

    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = Field(
        description="Number of members: 1, 3, 5 or 7. An even number tolerates no more failures than one member less. "
        "A change adds or removes one member at a time.",
        json_schema_extra=INT32,
    )
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None,
        description="Image of the members, such as registry.example:5000/etcd:v3.6.16; may have a registry port and a "
        "digest. Takes precedence over version. A change restarts the members one by one.",
    )
    version: Annotated[str, Field(max_length=128)] | None = Field(
        None,
        description="Version of etcd, such as 3.6.16. Without image, the tag v3.6.16 of the operator's repository is "
        "run. With image, it is needed only if the tag of the image is not a version. A change restarts the "
        "members one by one; upgrades go one minor version at a time, and so do downgrades, as far as etcd "
        f"supports them ({_DOWNGRADES}). Default: the running version; for a new cluster, the default of the "
        "operator.",
    )
    storage: Storage = Field(
        default_factory=Storage, description="Storage of the members.", json_schema_extra={"default": {}}
    )
    quota_backend_bytes: Annotated[int, Field(ge=16 * MIB, le=16 * GIB)] | None = Field(
        None,
        description="Maximum size of the database in bytes; above it, etcd accepts only deletions. Default: half of "
        "storage.size minus 512Mi for the write-ahead log, at most 8Gi, so that the volume has space for a second copy "
        "during a defragmentation or a transfer to another member. A change restarts the members one by one.",
        json_schema_extra=INT64,
    )
    auto_compaction: AutoCompaction | None = Field(
        None,
        description="Automatic deletion of old revisions. Default: none; the history is compacted only when the quota "
        "is used up. A change restarts the members one by one.",
    )
    defragmentation: Defragmentation | None = Field(
        None,
        description="Scheduled defragmentation. Default: none; members are defragmented only when the quota is used "
        "up. Applied without a restart.",
    )
    snapshot_count: Annotated[int, Field(ge=100, le=10000000)] | None = Field(
        None,
        description="Number of committed changes after which a member writes a Raft snapshot. Default: that of etcd "
        "(10,000 in 3.6). A change restarts the members one by one.",
        json_schema_extra=INT32,
    )
    heartbeat_interval: Annotated[int, Field(ge=10, le=10000)] = Field(
        100,
        description="Interval of the leader's heartbeats, in milliseconds. A change restarts the members one by one.",
        json_schema_extra=INT32,
    )
    election_timeout: Annotated[int, Field(ge=50, le=50000)] = Field(
        1000,
        description="Time without a heartbeat after which a new leader is elected, in milliseconds; at least five "
        "times heartbeatInterval. A change restarts the members one by one.",
        json_schema_extra=INT32,
    )
    extra_args: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=32)] = Field(
        default_factory=list,
        description="Further flags of etcd with their values, one per entry, such as --max-txn-ops=256. Flags that "
        "other fields or the operator set are rejected, and so are unknown ones and values that etcd would not accept. "
        "A change restarts the members one by one.",
    )
    tls: Tls = Field(default_factory=Tls, description="TLS for clients and between members. Default: none.")
    auth: Auth | None = Field(
        None,
        description="Authentication with users and passwords. Default: the operator does not enable it. Removing the "
        "field disables authentication that the operator enabled, without a restart.",
    )
    backup: Backup | None = Field(None, description="Scheduled snapshots. Default: none.")
    restore: Restore | None = Field(
        None,
        description="Initial data of the cluster, from a snapshot. Ignored once the cluster has started. Default: an "
        "empty cluster.",
    )
    adopt: Adopt | None = Field(
        None,
        description="Volumes of a deleted EtcdCluster of the same name, to start with their data. No member then "
        "starts with an empty volume. Default: none; volumes of a deleted EtcdCluster are not used.",
    )
    recovery: Recovery | None = Field(None, description="Confirmation of a recovery after a quorum was lost.")
    metrics: Metrics = Field(default_factory=Metrics, description="Metrics of etcd for Prometheus.")
    network: Network = Field(default_factory=Network, description=NETWORK)
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        None,
        description="Number of members that may be evicted at once, for example by a drain of nodes. Default: one, "
        "with three or more members; with fewer there is no budget, because every eviction interrupts service.",
    )
    connection_secret: bool = Field(True, description=CONNECTION)
    deletion_protection: bool = Field(False, description=DELETION_PROTECTION)
    hibernate: bool = Field(False, description=HIBERNATE)
    changes: Changes = "Automatic"
    paused: bool = Field(
        False,
        description="If true, no change of the spec is applied. The operator still replaces lost members, renews "
        "certificates and takes scheduled snapshots; the annotation platform.ydzs.io/pause-reconciliation stops these "
        "too. Default: false.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (*PodSettings.RULES, *extension_rules(RESERVED), *CLUSTER_RULES)

    @property
    def target(self) -> Version:
        """Version that members must run: spec.version, or else the tag of the image.

        Raises:
            InvalidSpec: neither is a version.
        """
        text = self.version if self.version is not None else self.tag
        try:
            return Version.parse(text)
        except ValueError as error:
            problem = str(error) if text else "is missing, and the image has no tag that is a version"
            raise InvalidSpec(f"spec.version: {problem}. Set it, for example to 3.6.16.") from None

    @property
    def tag(self) -> str:
        """Tag of the image; empty without an image or a tag."""
        try:
            return Image.parse(self.image or "").tag
        except ValueError:
            return ""

    def image_reference(self, repository: str) -> str:
        """Return the image to run; if only a version is set, `repository` with a tag such as v3.6.16."""
        return self.image or f"{repository}:v{(self.version or '').removeprefix('v')}"

    @property
    def quota(self) -> int:
        """Size of the database, in bytes, above which etcd accepts only deletions."""
        if self.quota_backend_bytes is not None:
            return self.quota_backend_bytes
        size = int(parse_quantity(self.storage.size))
        # A small volume has fewer segments of the log: half of it is reserved for them and the second copy.
        return max(16 * MIB, min(MAX_ADVISED_QUOTA_BYTES, max((size - _LOG_BYTES) // 2, size // 4)))

    @property
    def needed_storage(self) -> int:
        """Volume size, in bytes, that has space for the quota, a second copy of the database, and the log."""
        return 2 * self.quota + _LOG_BYTES

    @property
    def stop_seconds(self) -> int:
        """Seconds for an orderly stop: etcd allows two election timeouts for the handover, then closes connections."""
        return HAND_OVER_SECONDS + 2 * self.election_timeout // 1000

    def container_resources(self) -> Obj:
        """Return the resources of the container: small default requests and no limits, unless the spec sets them."""
        limits, requests = self.resources.limits, self.resources.requests
        little = {name: value for name, value in {"cpu": "100m", "memory": "128Mi"}.items() if name not in limits}
        found: Obj = {"requests": little | requests, "limits": dict(limits)}
        return {name: amounts for name, amounts in found.items() if amounts}
