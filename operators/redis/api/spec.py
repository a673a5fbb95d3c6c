"""The spec of a RedisCluster: its fields, their bounds, and what they must be to each other and to what they were."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from operators.redis.api.engine_versions import Engine, EngineName, Version, engine_named
from operators.redis.api.memory import parse_memory
from operators.redis.api.pod_template import ImageName, PodTemplate, mended
from operators.redis.api.rules import CLUSTER_RULES, METRICS_RULES, SHARED, TLS_RULES
from operators.redis.api.slot_assignment import UpdateStrategy
from shared.api.image import Image
from shared.api.podspec import PodDisruptionBudget, PodSettings, Quantity
from shared.api.spec import INT32, InvalidSpec, Issuer, Name, Rule, SpecModel
from shared.kubernetes.quantity import parse_quantity

DEFAULT_VERSIONS: dict[EngineName, str] = {"redis": "8.0.2", "valkey": "8.1.1"}
DEFAULT_EXPORTER = "oliver006/redis_exporter:v1.69.0"

MAX_MEMORY = "MAXMEMORY"
"""The environment variable that says what maxmemory is."""


class Storage(SpecModel):
    """Volumes of the nodes."""

    size: Quantity = Field(
        "8Gi",
        description="Of each node's volume. It can grow where the storage class allows it, and never shrinks.",
    )
    storage_class_name: Name | None = Field(
        None, description="The class of the volumes; if not given, the cluster's default. It stays as it was created."
    )
    retain: bool = Field(
        True, description="Whether volumes stay when the resource is deleted; false deletes the data with it."
    )


class Tls(SpecModel):
    """Encryption, of clients' connections and of those among nodes; how it comes about is settled at creation."""

    mode: Literal["none", "self", "secret", "certManager"] = Field(
        "none",
        description="Who makes the certificates. self: the operator, in Secrets NAME-ca, NAME-server-tls and "
        "NAME-client-tls (what clients show). secret: you. certManager: cert-manager, by issuer. It stays as it was "
        "created.",
    )
    issuer: Issuer | None = Field(None, description="Where mode is certManager: who signs.")
    secret_name: Name | None = Field(
        None,
        description="Where mode is secret: Secret with tls.crt, tls.key and ca.crt, for *.NAME.NAMESPACE.svc and "
        "NAME-client.NAMESPACE.svc, with usages server auth and client auth: nodes and the operator show it, too.",
    )
    client_auth: Literal["none", "required"] = Field(
        "required", description="Whether clients must show a certificate that ca.crt vouches for."
    )

    RULES: ClassVar[tuple[Rule, ...]] = TLS_RULES


class Auth(SpecModel):
    """The password that clients give."""

    secret_name: Name = Field(
        description="Secret in the same namespace with the key password: that of the user default. When it changes, "
        "nodes take the former one, too, for ten minutes (--password-overlap) after all have learned the new one; none "
        "restarts. A second one that is good stands in the key previousPassword, if at all."
    )


class Metrics(SpecModel):
    """Metrics for Prometheus, by oliver006's exporter beside each node."""

    enabled: bool = Field(True, description="Whether the exporter runs.")
    image: ImageName | None = Field(
        None, description=f"The exporter's image. If not given, pod[0].monitorImage, and else {DEFAULT_EXPORTER}."
    )

    RULES: ClassVar[tuple[Rule, ...]] = METRICS_RULES


class Recovery(SpecModel):
    """What a person allows after a master was lost together with all of its replicas."""

    confirm: Annotated[str, Field(max_length=64)] = Field(
        description="status.recovery.token: other masters take the slots named there, empty; the keys that were in "
        "them are lost."
    )


ConfigValue = Annotated[str, Field(max_length=1024, pattern=r"^[^\r\n]*$")]


class RedisClusterSpec(PodSettings):
    """What cluster is wanted."""

    replicas: Annotated[int, Field(ge=3, le=500)] = Field(
        description="Pods in all: masters and their replicas. 6 are three masters with a replica each, 7 the same and "
        "one more replica.",
        json_schema_extra=INT32,
    )
    replicas_per_master: Annotated[int, Field(ge=0, le=9)] = Field(
        1,
        description="Replicas of each master, at least: so many pods make replicas / (1 + replicasPerMaster) masters, "
        "rounded down. With 0, the data of a master that is lost is lost.",
        json_schema_extra=INT32,
    )
    pause: bool = Field(False, description="If true, the operator reports, and touches nothing.")
    finalizers: Literal["foreground", ""] = Field(
        "foreground",
        description="foreground: deleting the resource deletes its pods, and its volumes as storage.retain says. "
        "Empty: all that was made stays and runs on, without an operator.",
    )
    repository: ImageName | None = Field(
        None,
        description="The nodes' image without a tag, such as library/redis or valkey/valkey; if not given, the "
        "operator's. A registry with a port may be in it.",
    )
    version: Annotated[str, Field(max_length=128)] | None = Field(
        None,
        description="The engine's version and the image's tag, such as 8.0.2. redis 6.2 or newer, valkey 7.2 or newer. "
        "If not given, what runs; for a new cluster redis 8.0.2 or valkey 8.1.1.",
    )
    engine: EngineName | None = Field(
        None, description="What the image holds. If not given: valkey where the image's name says so, else redis."
    )
    update_strategy: UpdateStrategy = Field(
        default_factory=UpdateStrategy, description="How slots come to masters that join."
    )
    pod: Annotated[list[PodTemplate], Field(max_length=1)] = Field(
        default_factory=list,
        description="What pods are like: one entry, for all of them. What spec has, too, stands in one of the two.",
    )
    config: Annotated[dict[str, ConfigValue], Field(max_length=128)] = Field(
        default_factory=dict,
        description="Directives of redis.conf and their values, such as maxmemory-policy: allkeys-lru (in quotes: "
        '"yes", "100"). They are changed without a restart where the engine allows it, else by a roll. Not those that '
        "other fields and the operator set.",
    )
    storage: Storage | None = Field(
        None,
        description="Volumes of the nodes. If not given, a node that loses its pod comes back empty, and with all "
        "pods all data is gone. It stays given or not, as it was created.",
    )
    auth: Auth | None = Field(None, description="The password that clients give. If not given, nobody is asked.")
    tls: Tls = Field(default_factory=Tls, description="Encryption. If not given, there is none.")
    metrics: Metrics | None = Field(
        None, description="Metrics for Prometheus. If not given, there is an exporter where pod[0].monitorImage is."
    )
    recovery: Recovery | None = Field(
        None, description="What a person allows after a master was lost together with all of its replicas."
    )
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        None, description="How many pods a drain of nodes may take at once. If not given, one."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (*PodSettings.RULES, *CLUSTER_RULES)

    @property
    def template(self) -> PodTemplate:
        """pod[0]; an empty one where none is given."""
        return self.pod[0] if self.pod else PodTemplate()

    @property
    def pods(self) -> PodSettings:
        """The usual settings of pods, wherever they are given: here or in pod[0]."""
        given = {name: getattr(self, name) for name in PodSettings.model_fields}
        given |= {name: getattr(self.template, name) for name in SHARED if name in self.template.model_fields_set}
        return PodSettings.model_construct(**given | {"affinity": mended(given["affinity"])})

    @property
    def primaries(self) -> int:
        """How many masters so many pods make; what is left over are further replicas."""
        return self.replicas // (1 + self.replicas_per_master)

    @property
    def image_name(self) -> str:
        """The nodes' image as it is given; empty where it is the operator's."""
        return self.template.middleware_image or self.repository or ""

    @property
    def engine_name(self) -> EngineName:
        """Whose program the image holds."""
        return self.engine or engine_named(self.image_name)

    @property
    def tag(self) -> str:
        """The tag of pod[0].middlewareImage; empty where there is none, or it is no image."""
        try:
            return Image.parse(self.template.middleware_image or "").tag
        except ValueError:
            return ""

    @property
    def version_text(self) -> str:
        """What tells the version: itself, or the image."""
        return self.version if self.version is not None else self.image_name

    @property
    def target(self) -> Engine:
        """What nodes are to run, as version or else the image's tag tells it.

        Raises:
            InvalidSpec: neither does.
        """
        version_text = self.version if self.version is not None else self.tag
        try:
            return Engine(self.engine_name, Version.parse(version_text))
        except ValueError as error:
            problem = (
                str(error) if version_text else "is missing, and pod[0].middlewareImage does not tell it by its tag"
            )
            raise InvalidSpec(
                f"spec.version: {problem}; give it, such as {DEFAULT_VERSIONS[self.engine_name]}."
            ) from None

    def image_reference(self, repository: str) -> str:
        """The image to run, from a repository where the spec names none."""
        given = self.template.middleware_image
        if given is not None and (Image.parse(given).tag or Image.parse(given).digest):
            return given
        return f"{given or self.repository or repository}:{self.version}"

    @property
    def exporter_image(self) -> str:
        """The image of the exporter beside each node; empty where there is to be none."""
        given = self.template.monitor_image
        if self.metrics is None:
            return given or ""
        return (self.metrics.image or given or DEFAULT_EXPORTER) if self.metrics.enabled else ""

    @property
    def max_memory(self) -> int | None:
        """Bytes of data that a node takes (maxmemory), as given, or three quarters of what it may use at all.

        None where nothing tells it: then there is no bound.

        Raises:
            InvalidSpec: what is given is no amount.
        """
        named = next((variable.value for variable in self.pods.env if variable.name == MAX_MEMORY), None)
        given, at = (named, MAX_MEMORY) if named is not None else (self.config.get("maxmemory"), "config.maxmemory")
        if given is not None:
            try:
                return parse_memory(given)
            except ValueError as error:
                raise InvalidSpec(f"spec.{at}: {error}.") from None
        limit = self.pods.resources.limits.get("memory")
        return int(parse_quantity(limit) * 3 / 4) if limit is not None else None

    @property
    def rolls(self) -> bool:
        """Whether the operator replaces pods that are not as the spec says; else a person deletes them."""
        return self.template.update_strategy.type != "OnDelete"
