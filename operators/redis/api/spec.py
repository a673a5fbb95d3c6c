"""The spec of a RedisCluster: its fields, their bounds, and the rules between them."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from operators.redis.api.acl_user import Users
from operators.redis.api.catalogue import CATALOGUES
from operators.redis.api.engine_versions import Engine, EngineName, Version, engine_named
from operators.redis.api.memory import parse_memory
from operators.redis.api.pod_template import ImageName, PodTemplate, normalized_affinity
from operators.redis.api.rules import CLUSTER_RULES, METRICS_RULES, SHARED
from operators.redis.api.slot_assignment import UpdateStrategy
from shared.api.extension_rules import Reserved, extension_rules
from shared.api.image import Image
from shared.api.network import NETWORK, Network
from shared.api.pod_extensions import PodExtensions
from shared.api.podspec import PodDisruptionBudget, PodSettings, Quantity
from shared.api.rules import TLS_RULES
from shared.api.spec import (
    CONNECTION,
    DELETION_PROTECTION,
    HIBERNATE,
    INT32,
    Adopt,
    AtMost,
    Changes,
    InvalidSpec,
    Issuer,
    Name,
    Rule,
    SpecModel,
)
from shared.kubernetes.quantity import parse_quantity

DEFAULT_VERSIONS: dict[EngineName, str] = {name: catalogue.default_version for name, catalogue in CATALOGUES.items()}
MAX_REPLICAS = 500
DEFAULT_EXPORTER = "oliver006/redis_exporter:v1.69.0"

MAX_MEMORY = "MAXMEMORY"
"""Environment variable that sets maxmemory."""


class Storage(SpecModel):
    """Volumes of the nodes."""

    size: Quantity = Field(
        "8Gi",
        description="Size of each node's volume. Can be increased if the storage class allows expansion. Volumes grow "
        "without a restart if the driver supports it, and never shrink: a smaller size is applied only if no volume "
        "has grown.",
    )
    storage_class_name: Name | None = Field(
        None,
        description="Storage class of the volumes. Default: the default class of the Kubernetes cluster. Immutable.",
    )
    volume_attributes_class_name: Name | None = Field(
        None,
        description="Name of a VolumeAttributesClass with attributes of the volumes, such as IOPS, which the driver "
        "changes without a restart. Needs Kubernetes 1.34 and a driver that supports it. If it is removed, the volumes "
        "keep their class.",
    )
    retain: bool = Field(
        True, description="Whether volumes are kept when the resource is deleted. false deletes the data with it."
    )


class Tls(SpecModel):
    """Encryption of client connections and of connections between nodes."""

    mode: Literal["none", "self", "secret", "certManager"] = Field(
        "none",
        description="Issuer of the certificates. none: no encryption. self: the operator, in Secrets NAME-ca, "
        "NAME-server-tls and NAME-client-tls (for clients). secret: you, in the Secret of secretName. certManager: "
        "cert-manager, with issuer. Immutable.",
    )
    issuer: Issuer | None = Field(None, description="Issuer of cert-manager. Required with mode certManager.")
    secret_name: Name | None = Field(
        None,
        description="Secret with tls.crt, tls.key and ca.crt, valid for *.NAME.NAMESPACE.svc and "
        "NAME-client.NAMESPACE.svc, with usages server auth and client auth: nodes and the operator also use it as "
        "clients. Required with mode secret. A changed certificate is loaded without a restart.",
    )
    client_auth: Literal["none", "required"] = Field(
        "required",
        description="required: clients must present a certificate signed by ca.crt. none: they need not. No effect "
        "with mode none. A change restarts the pods one by one.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = TLS_RULES


class Auth(SpecModel):
    """Password authentication."""

    secret_name: Name | None = Field(
        None,
        description="Secret in the same namespace with the key password: the password of user default. Default: the "
        "operator generates the password in the Secret NAME-auth. It can be "
        "changed at any time without a restart: for ten minutes (--password-overlap) after all nodes accept the new "
        "password, the former one stays valid. The optional key previousPassword is a second valid password.",
    )


class Metrics(SpecModel):
    """Metrics for Prometheus, from oliver006/redis_exporter in each pod."""

    enabled: bool = Field(
        True, description="Whether the exporter runs in each pod. A change restarts the pods one by one."
    )
    image: ImageName | None = Field(
        None,
        description=f"Image of the exporter. Default: pod[0].monitorImage, else {DEFAULT_EXPORTER}. A change restarts "
        "the pods one by one.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = METRICS_RULES


class Recovery(SpecModel):
    """Confirmation of a data loss, after a primary was lost together with all replicas that had its newest keys."""

    confirm: Annotated[str, Field(max_length=64)] = Field(
        description="Value of status.recovery.token. Confirms that the keys of the slots in status.recovery are lost: "
        "nodes in status.recovery.older serve their slots again with older keys, and may lack any number of later "
        "writes; nodes without data serve all other slots, empty, or a primary if there is none. The consent ends with "
        "that loss; a value that stays here confirms no later one."
    )


ConfigValue = Annotated[str, Field(max_length=1024, pattern=r"^[^\r\n]*$")]

RESERVED = Reserved(
    containers=("redis", "exporter", "init"),
    volumes=("data", "config", "users", "tls"),
    paths=("/data", "/etc/redis"),
    ports=(("6379", lambda _: 6379), ("16379", lambda _: 16379), ("9121", lambda _: 9121)),
    port_names=("client", "bus", "metrics"),
)
"""Names, paths and ports of the pods of the nodes, with any spec."""

SHUTDOWN_GRACE_SECONDS = 300
"""Maximum time for a shutdown, in which a node waits for its replicas and writes its data."""


class RedisClusterSpec(PodSettings, PodExtensions):
    """The desired cluster."""

    replicas: Annotated[int, Field(ge=3, le=MAX_REPLICAS)] = Field(
        description="Total number of pods: primaries and their replicas. With replicasPerMaster 1, 6 pods are three "
        "primaries with one replica each; 7 add one more replica. A change moves slots or replicas while clients are "
        "served.",
        json_schema_extra=INT32,
    )
    replicas_per_master: Annotated[int, Field(ge=0, le=9)] = Field(
        1,
        description="Minimum number of replicas of each primary. The number of primaries is replicas / (1 + "
        "replicasPerMaster), rounded down. With 0, the loss of a primary's volume is a data loss.",
        json_schema_extra=INT32,
    )
    pause: bool = Field(
        False,
        description="If true, changes are paused: of the spec, of the objects and of the slots. The operator still "
        "reports the status and repairs the running cluster: addresses, membership, failover, passwords and "
        "certificates. The annotation platform.ydzs.io/pause-reconciliation stops these too.",
    )
    finalizers: Literal["foreground", ""] = Field(
        "foreground",
        description="foreground: deleting the resource deletes its pods, and its volumes unless storage.retain is "
        "true. Empty: all objects stay and the pods keep running, without an operator.",
    )
    repository: ImageName | None = Field(
        None,
        description="Image of the nodes without a tag, such as library/redis, valkey/valkey or "
        "registry.example.com:5000/redis. Default: the operator's image repository. A change restarts the pods one by "
        "one.",
    )
    version: Annotated[str, Field(max_length=128)] | None = Field(
        None,
        description="Version of the engine and tag of the image, such as 8.2.9: redis 6.2 to 8.x, valkey 7.2 to 9.x. "
        f"Default: the running version; for a new cluster that of the operator, usually redis "
        f"{DEFAULT_VERSIONS['redis']} or valkey {DEFAULT_VERSIONS['valkey']}. A change restarts the pods one by one.",
    )
    engine: EngineName | None = Field(
        None,
        description="Engine in the image. Default: valkey if the last part of the image's name contains valkey, else "
        "redis.",
    )
    command: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=16)] = Field(
        default_factory=list,
        description="Program that starts the server and receives the server's arguments; replaces the ENTRYPOINT of "
        "the image. Default: the ENTRYPOINT, which receives redis-server (valkey-server) and its arguments; that of "
        "official Redis 8 images also loads their bundled modules. Set [redis-server] for an image whose ENTRYPOINT "
        "is the server itself. A change restarts the pods one by one.",
    )
    update_strategy: UpdateStrategy = Field(
        default_factory=UpdateStrategy, description="Distribution of slots when primaries join."
    )
    pod: Annotated[list[PodTemplate], Field(max_length=1)] = Field(
        default_factory=list,
        description="Settings of all pods, as a list of one entry. A setting that spec also has must be set in only "
        "one of the two.",
    )
    config: Annotated[dict[str, ConfigValue], AtMost(128)] = Field(
        default_factory=dict,
        description="Directives of redis.conf, such as maxmemory-policy: allkeys-lru. Quote values such as "
        '"yes" and "100". Changes apply live where the engine allows it, else by restarting the pods one by one. '
        "Values that the version does not accept, and directives that other fields or the operator set, are rejected.",
    )
    storage: Storage | None = Field(
        None,
        description="Volumes of the nodes. If not set, a recreated pod starts empty, and if all pods are lost, so is "
        "all data. Cannot be added or removed later.",
    )
    auth: Auth | None = Field(None, description="Password authentication. If not set, clients need no password.")
    users: Users = Field(
        default_factory=list,
        description="ACL users of applications, on every node. They are applied without a restart. A removed user is "
        "deleted, and its connections are closed. Users that were made in another way are not changed, and are lost "
        "when a node restarts.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    tls: Tls = Field(default_factory=Tls, description="Encryption. If not set, connections are not encrypted.")
    metrics: Metrics | None = Field(
        None, description="Metrics for Prometheus. If not set, the exporter runs if pod[0].monitorImage is set."
    )
    recovery: Recovery | None = Field(
        None,
        description="Confirmation of a data loss: a primary was lost together with all replicas that had its newest "
        "keys. Its slots can be served again, either empty or with the older keys of a node in status.recovery.older.",
    )
    network: Network = Field(default_factory=Network, description=NETWORK)
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        None, description="PodDisruptionBudget of the pods. Default: maxUnavailable 1, or 0 for only copies in memory."
    )

    adopt: Adopt | None = Field(
        None,
        description="Volumes of a deleted RedisCluster of the same name, to start with their data. Default: none; "
        "volumes of a deleted RedisCluster are not used.",
    )
    connection_secret: bool = Field(True, description=CONNECTION)
    nodes_in_conditions: bool | None = Field(
        None,
        description="Whether status.conditions also has an entry for each node, as the first manifests of this API "
        "describe; status.nodes has them always. Default: true if the spec has pod or updateStrategy.type "
        "AssignReceive, or if an earlier build of the operator wrote such entries; else false.",
    )
    deletion_protection: bool = Field(False, description=DELETION_PROTECTION)
    hibernate: bool = Field(False, description=HIBERNATE)
    changes: Changes = "Automatic"

    RULES: ClassVar[tuple[Rule, ...]] = (*PodSettings.RULES, *extension_rules(RESERVED), *CLUSTER_RULES)

    @cached_property
    def template(self) -> PodTemplate:
        """Return pod[0]; an empty one if there is none."""
        return self.pod[0] if self.pod else PodTemplate()

    @cached_property
    def pods(self) -> PodSettings:
        """Return the pod settings, whether they are set here or in pod[0]."""
        given = {name: getattr(self, name) for name in PodSettings.model_fields}
        given |= {name: getattr(self.template, name) for name in SHARED if name in self.template.model_fields_set}
        return PodSettings.model_construct(**given | {"affinity": normalized_affinity(given["affinity"])})

    @property
    def has_first_fields(self) -> bool:
        """Return whether the spec has fields that only the first manifests of this API have a use for."""
        return bool(self.pod) or self.update_strategy.type == "AssignReceive"

    @property
    def primaries(self) -> int:
        """Return the number of primaries; the remaining pods are additional replicas."""
        return self.replicas // (1 + self.replicas_per_master)

    @property
    def image_name(self) -> str:
        """Return the image of the nodes as specified; empty for the operator's default."""
        return self.template.middleware_image or self.repository or ""

    @property
    def engine_name(self) -> EngineName:
        """Return the engine in the image."""
        return self.engine or engine_named(self.image_name)

    @property
    def tag(self) -> str:
        """Return the tag of pod[0].middlewareImage; empty if it has none or is invalid."""
        try:
            return Image.parse(self.template.middleware_image or "").tag
        except ValueError:
            return ""

    @property
    def version_text(self) -> str:
        """Return the text that contains the version: spec.version, or the image."""
        return self.version if self.version is not None else self.image_name

    @property
    def target(self) -> Engine:
        """Return the engine to run, from the version or else from the tag of the image.

        Raises:
            InvalidSpec: neither contains a version.
        """
        version_text = self.version if self.version is not None else self.tag
        try:
            return Engine(self.engine_name, Version.parse(version_text))
        except ValueError as error:
            problem = str(error) if version_text else "is missing, and pod[0].middlewareImage has no tag with a version"
            raise InvalidSpec(
                f"spec.version: {problem}; set it, for example to {DEFAULT_VERSIONS[self.engine_name]}."
            ) from None

    def image_reference(self, repository: str) -> str:
        """Return the image to run.

        Args:
            repository: repository if the spec names none.
        """
        given = self.template.middleware_image
        if given is not None and (Image.parse(given).tag or Image.parse(given).digest):
            return given
        return f"{given or self.repository or repository}:{self.version}"

    @property
    def exporter_image(self) -> str:
        """Return the image of the exporter; empty if it is disabled."""
        given = self.template.monitor_image
        if self.metrics is None:
            return given or ""
        return (self.metrics.image or given or DEFAULT_EXPORTER) if self.metrics.enabled else ""

    @property
    def default_exporter(self) -> bool:
        """Return whether the image of the exporter is the default of this release."""
        given = self.template.monitor_image
        return self.metrics is not None and not (self.metrics.image or given)

    @cached_property
    def max_memory(self) -> int | None:
        """Return maxmemory in bytes: as specified, or three quarters of the memory limit; None if neither is set.

        A specified value that is not an amount counts as not set; validation reports it.
        """
        named = next((variable.value for variable in self.pods.env if variable.name == MAX_MEMORY), None)
        given = named if named is not None else self.config.get("maxmemory")
        if given is not None:
            with suppress(ValueError):
                return parse_memory(given)
        limit = self.memory_limit
        return int(limit * 3 / 4) if limit is not None else None

    @property
    def memory_limit(self) -> int | None:
        """Return the memory limit of the nodes in bytes; None if there is none."""
        limit = self.pods.resources.limits.get("memory")
        return int(parse_quantity(limit)) if limit is not None else None

    @property
    def rolls(self) -> bool:
        """Return whether the operator replaces outdated pods; otherwise a user deletes them."""
        return self.template.update_strategy.type != "OnDelete"
