"""The spec of a Memcached: fields, bounds, and rules that involve several fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from operators.memcached.api.catalogue import MEMCACHED
from operators.memcached.api.memory import (
    ENCRYPTS_CEL,
    EXTSTORE_MAX_ITEM_MB,
    MIN_WARM_RESTART_MB,
    NEEDED_CEL,
    overhead_mib,
)
from operators.memcached.api.reserved_flags import (
    ACCEPTED,
    BY_FIELD,
    EXTERNAL_STORAGE,
    REFUSED,
    REFUSED_WITH_AUTH,
    REFUSED_WITH_METRICS,
    REFUSED_WITH_TLS,
    REFUSED_WITH_WARM_RESTART,
    REWRITTEN,
)
from shared.api.extension_rules import Reserved, extension_rules
from shared.api.network import NETWORK, Network
from shared.api.pod_extensions import PodExtensions
from shared.api.podspec import PodSettings, number_cel, smaller
from shared.api.rules import TLS_RULES, image_rule
from shared.api.spec import CONNECTION, INT32, Changes, Issuer, Name, Rule, SpecModel, Transition
from shared.kubernetes.kinds import Obj

DEFAULT_VERSION = MEMCACHED.default_version

VERSION = r"^(1(\.[4-6](\.[0-9]{1,3})?)?(-[0-9A-Za-z_.-]+)?|latest|alpine[0-9.]*|bullseye|bookworm|trixie)$"
"""Tags of the official image: a version of a supported series, with a variant of the image, or a variant alone."""

_TOO_OLD = r"^(0|1\.[0-4]|1\.5\.([0-9]|1[0-7]))([^0-9].*)?$"
"""Versions before 1.5.18, the first one that supports TLS, users files and memory files."""

SIDECAR_PORTS = (9150, 9151)
"""Port of the sidecar without spec.metrics, and the one that it has if containerPort is the first."""

_ROLLS = " A change replaces the servers one by one, and the new servers start empty."
_COPIED = _ROLLS + " Another secretName alone replaces none that mount copies"
_UNLESS = ", unless clientAuth is required and ca.crt changes."

_MEMORY_LIMIT_CEL = "self.resources.limits['memory']"  # with .memory, the API server cannot bound the cost


class Auth(SpecModel):
    """Authentication of clients by user and password."""

    secret_name: Name | None = Field(
        None,
        description="Name of a Secret in the same namespace. Its key `users` holds one line `user:password` per user, "
        "at most 8 lines, each ending with a line break. Default: the operator generates it, in the Secret NAME-auth. "
        "Servers mount the copy NAME-users-mounted, which gets only valid users. "
        "They load changed users within about two minutes, without "
        "a restart and without losing items; `status.users` changes when all of them have loaded the file. Open "
        "connections stay authenticated. A sidecar makes the servers load the file; servers without it, from release "
        "0.1.0, are replaced once instead.",
    )


class Tls(SpecModel):
    """TLS between clients and servers."""

    mode: Literal["none", "self", "secret", "certManager"] = Field(
        "secret",
        description="Issuer of the certificates. none: no encryption. self: the operator, in Secrets NAME-ca, "
        "NAME-server-tls and NAME-client-tls (for clients); a new certificate or authority replaces no server. secret: "
        "you, in the Secret of secretName. certManager: cert-manager, with issuer, in the last two Secrets. Cannot "
        "change directly from self to certManager, nor from certManager or secret to self, because clients must trust "
        "an authority before servers use it." + _ROLLS + " One between secret and certManager replaces none that "
        "mount copies" + _UNLESS,
    )
    issuer: Issuer | None = Field(None, description="Issuer of cert-manager. Required with mode certManager.")
    secret_name: Name | None = Field(
        None,
        description="Name of a Secret of type kubernetes.io/tls in the same namespace, with tls.crt and tls.key, and "
        "with ca.crt if clientAuth is required. Required with mode secret. Servers load a renewed certificate without "
        "a restart and without losing items, at the latest a few minutes after the operator's next resync (flag "
        "--resync, 10 minutes by default). If clientAuth is required, a new ca.crt (with mode certManager too) "
        "replaces the servers one by one, and the new servers start empty.",
    )
    client_auth: Literal["none", "required"] = Field(
        "none",
        description="Whether clients must present a certificate that ca.crt verifies. If required, tls.crt must be "
        "such a certificate too (usages server auth and client auth), because the operator and the metrics exporter "
        "present it. With mode self it is, and memcached must be 1.5.19 or later." + _ROLLS,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        *TLS_RULES,
        # Servers of the former and the new mode run side by side, and clients trust the authority of the former.
        Transition(
            "self.mode != 'self' || oldSelf.mode in ['self', 'none']",
            lambda tls, before: tls.mode != "self" or before.mode in ("self", "none"),
            "cannot change from {} to self: clients do not trust the authority that the operator would create. Create "
            "another Memcached with mode self, and move the clients to it.",
            at="mode",
            value=("oldSelf.mode", lambda _, before: before.mode),
        ),
        Transition(
            "self.mode != 'certManager' || oldSelf.mode != 'self'",
            lambda tls, before: tls.mode != "certManager" or before.mode != "self",
            "cannot change from self to certManager directly: clients do not trust the authority of the issuer. Change "
            "to mode secret first, with both authorities in ca.crt; when the clients trust both, replace tls.crt and "
            "tls.key, and then set certManager.",
            at="mode",
        ),
    )


class Metrics(SpecModel):
    """Prometheus metrics of the servers, with the names that prometheus/memcached_exporter uses."""

    enabled: bool = Field(True, description="Whether each server gets a sidecar that serves metrics." + _ROLLS)
    port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        SIDECAR_PORTS[0],
        description="Port of the sidecar, which serves metrics at /metrics; must differ from containerPort." + _ROLLS,
        json_schema_extra=INT32,
    )
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None,
        description="Image of the sidecar. Default: that of the operator (chart value agentImage); running servers "
        "then adopt a new one when they are replaced for another reason, and an upgrade of the operator replaces "
        "none." + _ROLLS,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        image_rule(
            "image",
            "not a valid image; use a lower-case reference such as registry.example.com/operator:1.0.",
            lambda given: given.image,
        ),
    )


class Autoscaling(SpecModel):
    """Settings of a HorizontalPodAutoscaler that sets the number of servers."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Minimum number of servers.", json_schema_extra=INT32
    )
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = Field(
        description="Maximum number of servers.", json_schema_extra=INT32
    )
    target_cpu_utilization: Annotated[int, Field(ge=1, le=1000)] = Field(
        80,
        alias="targetCPUUtilization",
        description="Average CPU utilization that the autoscaler aims at, in percent of a server's CPU request "
        "(resources.requests.cpu).",
        json_schema_extra=INT32,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            lambda given: given.min_replicas <= given.max_replicas,
            "{} is greater than maxReplicas; lower it, or raise maxReplicas.",
            at="minReplicas",
            value=("self.minReplicas", lambda given: given.min_replicas),
        ),
    )


class UpdateStrategy(SpecModel):
    """How a change replaces the servers: one at a time, the next one when clients have filled the new one."""

    pause_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        300,
        description="Longest time, in seconds, for which the operator waits after each new server until clients have "
        "filled it, while the others still hold their items. The next server is replaced sooner if the new one has "
        "been ready for 30 seconds and its hit ratio is near that of the others (90%), or if no server gets requests. "
        "If the hit ratio is unknown, the whole time passes. A pause of at most 30 is fixed; 0 is none. The upgrade "
        "timeout is extended by the pauses. Applied without a restart.",
        json_schema_extra=INT32,
    )


def _forbid_arguments(
    pattern: str, advice: str, *, unless: str = "", applies: Callable[[MemcachedSpec], object] = lambda _: True
) -> Rule:
    """Return a rule that rejects extraArgs that match a pattern.

    Args:
        pattern: regular expression of the rejected arguments.
        advice: message, with `{}` for the rejected argument.
        unless: CEL prefix for specs that the rule does not apply to, ending in ` || `.
        applies: the opposite condition in Python: specs that the rule applies to.
    """
    matches, cel = re.compile(pattern).match, f"argument, argument.matches({json.dumps(pattern)})"
    return Rule(
        f"{unless}!has(self.extraArgs) || !self.extraArgs.exists({cel})",
        lambda spec: not applies(spec) or not any(map(matches, spec.extra_args)),
        advice,
        at="extraArgs",
        value=(f"self.extraArgs.filter({cel})[0]", lambda spec: next(filter(matches, spec.extra_args))),
    )


def _require_accepted_arguments() -> Rule:
    """Return a rule that rejects extraArgs with which memcached would not start, except for those of other rules."""
    refused = f"{REFUSED}|{EXTERNAL_STORAGE}|{REWRITTEN}"
    joined = "(self.extraArgs.join('\\n') + '\\n')"
    others = f"self.extraArgs.exists(argument, argument.matches({json.dumps(refused)}))"
    return Rule(
        f"!has(self.extraArgs) || size(self.extraArgs) == 0 || {others} || {joined}.matches({json.dumps(ACCEPTED)})",
        lambda spec: (
            any(re.match(refused, argument) for argument in spec.extra_args)
            or re.fullmatch(ACCEPTED, "".join(f"{argument}\n" for argument in spec.extra_args)) is not None
        ),
        "'{}' has a flag, option or value that memcached would not accept, or that the operator does not know; correct "
        "it. See memcached --help.",
        at="extraArgs",
        value=("self.extraArgs.join(' ')", lambda spec: " ".join(spec.extra_args)),
    )


class Extstore(SpecModel):
    """External storage: values of large items that clients rarely use move from memory to a file of the server."""

    size_mb: Annotated[int, Field(ge=512, le=16777216)] = Field(
        alias="sizeMB",
        description="Size of the file of each server, in MiB; memcached uses multiples of 64." + _ROLLS,
        json_schema_extra=INT32,
    )
    storage_class_name: Name | None = Field(
        None,
        description="Storage class of a volume for the file, which is created and deleted with the pod. If not set, "
        "the file is on the disk of the node." + _ROLLS,
    )


STOP_SECONDS = 30
"""Seconds in which a terminating server ends; with warmRestart, it saves its items."""

RESERVED = Reserved(
    containers=("memcached", "exporter", "reloader"),
    volumes=("auth", "tls", "attestation", "items", "extstore"),
    paths=("/etc/memcached", "/var/cache/memcached", "/var/lib/memcached"),
    ports=(
        ("self.containerPort", lambda spec: spec.container_port),
        (
            "(has(self.metrics) ? self.metrics.port : "
            f"self.containerPort != {SIDECAR_PORTS[0]} ? {SIDECAR_PORTS[0]} : {SIDECAR_PORTS[1]})",
            lambda spec: spec.sidecar_port,
        ),
    ),
    port_names=("memcached", "metrics", "attestation"),
)
"""Names, paths and ports of the pods of the servers, with any spec."""


class MemcachedSpec(PodSettings, PodExtensions):
    """Desired state of the servers."""

    size: Annotated[int, Field(ge=0, le=1000)] = Field(
        description="Number of servers. Clients choose a server by the key, so that a change moves keys to other "
        "servers: about 1/n of them with consistent hashing, otherwise most. 0 stops all servers. While autoscaling is "
        "set, the autoscaler changes this field.",
        json_schema_extra=INT32,
    )
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None,
        description="Image of the servers, with a tag or a digest, for example "
        "registry.example.com:5000/memcached:1.6.45. Takes precedence over version." + _ROLLS,
    )
    version: Annotated[str, Field(max_length=128)] | None = Field(
        None,
        description="Version of memcached (1.4 to 1.6), which is the tag of the image in the repository that the "
        "operator is configured with, such as 1.6.45 or 1.6.45-alpine. Ignored if image is set. Default: the running "
        "version; for new servers the default of the operator." + _ROLLS,
    )
    workload: Literal["Deployment", "StatefulSet"] | None = Field(
        None,
        description="Kind of the workload that runs the servers. A StatefulSet gives them stable DNS names "
        "(NAME-0.NAME.NAMESPACE.svc), so that keys stay on the same server when another server is replaced. After a "
        "change, the new servers start empty, and the old workload is deleted when all new servers are ready. Default: "
        "the present kind (status.workload), also that of servers of release 0.1.0, which is Deployment; for a new "
        "resource StatefulSet, or Deployment if its name has more than 52 characters.",
    )
    memory_mb: Annotated[int, Field(ge=8, le=1048576)] = Field(
        64,
        alias="memoryMB",
        description="Memory for the items of each server, in MiB (-m). The container's memory limit follows unless "
        "resources.limits.memory is set." + _ROLLS,
        json_schema_extra=INT32,
    )
    max_connections: Annotated[int, Field(ge=16, le=1000000)] = Field(
        1024,
        description="Maximum number of concurrent connections of a server (-c). memcached reserves about 7 of them per "
        "thread for itself." + _ROLLS,
        json_schema_extra=INT32,
    )
    threads: Annotated[int, Field(ge=1, le=128)] = Field(
        4, description="Number of worker threads of a server (-t)." + _ROLLS, json_schema_extra=INT32
    )
    max_item_size_mb: Annotated[int, Field(ge=1, le=1024)] = Field(
        1,
        alias="maxItemSizeMB",
        description="Maximum size of an item, in MiB (-I); at most half of memoryMB." + _ROLLS,
        json_schema_extra=INT32,
    )
    extra_args: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=32)] = Field(
        default_factory=list,
        description="Additional arguments of memcached, for example --disable-evictions. Flags that other fields set "
        "are rejected, and so are unknown ones. $(NAME) is rejected too." + _ROLLS,
    )
    container_port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        11211,
        description="Port that the servers listen on; at least 1024, because they run without privileges." + _ROLLS,
        json_schema_extra=INT32,
    )
    warm_restart: bool = Field(
        False,
        description="If true, items survive a restart of the container, in an in-memory volume of the pod (-e); a "
        "new pod still starts empty. Requires memoryMB of at least 64, and an image with /bin/sh, such as memcached's "
        "official images." + _ROLLS,
    )
    extstore: Extstore | None = Field(
        None,
        description="External storage for items that do not fit into memoryMB. They are lost when the container "
        "restarts. Conflicts with warmRestart. If not set, all items are in memory." + _ROLLS,
    )
    auth: Auth | None = Field(
        None,
        description="Authentication of clients by user and password. If not set, any client that can reach a server "
        "can use it. Each server gets a sidecar that makes it load changed users." + _COPIED + ".",
    )
    tls: Tls | None = Field(
        None, description=f"TLS between clients and servers (-Z). If not set, nothing is encrypted.{_COPIED}{_UNLESS}"
    )
    network: Network = Field(default_factory=Network, description=NETWORK)
    metrics: Metrics | None = Field(
        None, description="Prometheus metrics from a sidecar of each server. If not set, there is no sidecar." + _ROLLS
    )
    autoscaling: Autoscaling | None = Field(
        None,
        description="Autoscaling by CPU utilization. If not set, the number of servers is size. A change does not "
        "replace servers.",
    )
    update_strategy: UpdateStrategy = Field(
        default_factory=UpdateStrategy, description="How a change that replaces the servers proceeds."
    )
    connection_secret: bool = Field(True, description=CONNECTION)
    changes: Changes = "Automatic"
    paused: bool = Field(
        False,
        description="If true, the operator changes nothing until it is false again. It updates the status, and renews "
        "the certificates of running servers, which load them without a restart; the annotation "
        "platform.ydzs.io/pause-reconciliation stops that too.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        *PodSettings.RULES,
        *extension_rules(RESERVED),
        image_rule(
            "image",
            "not a valid image; use a lower-case reference such as memcached:1.6.45 or "
            "registry.example.com/memcached:1.6.45.",
            lambda spec: spec.image,
        ),
        Rule(
            f"has(self.image) || !has(self.version) || self.version.matches({json.dumps(VERSION)})",
            lambda spec: spec.image is not None or re.fullmatch(VERSION, spec.tag) is not None,
            "'{}' is not a version of memcached 1.4 to 1.6; use a tag of the official image such as 1.6.45 or "
            "1.6.45-alpine, or set spec.image to the whole image.",
            at="version",
            value=("self.version", lambda spec: spec.version),
        ),
        Rule(
            f"has(self.image) || !has(self.version) || !self.version.matches({json.dumps(_TOO_OLD)}) || "
            f"!({ENCRYPTS_CEL} || has(self.auth) || self.warmRestart)",
            lambda spec: (
                spec.image is not None
                or re.match(_TOO_OLD, spec.tag) is None
                or not (spec.encrypts or spec.auth or spec.warm_restart)
            ),
            "{} does not support tls, auth and warmRestart, which need memcached 1.5.18; use a newer version.",
            at="version",
            value=("self.version", lambda spec: spec.version),
        ),
        Rule(
            "self.maxConnections >= 5 * self.threads + 11",
            lambda spec: spec.max_connections >= 5 * spec.threads + 11,
            "too small: memcached reserves connections for its threads and would not start; use at least {}.",
            at="maxConnections",
            value=("5 * self.threads + 11", lambda spec: 5 * spec.threads + 11),
        ),
        Rule(
            "self.maxItemSizeMB * 2 <= self.memoryMB",
            lambda spec: spec.max_item_size_mb * 2 <= spec.memory_mb,
            "{} is more than half of memoryMB, the maximum that memcached accepts; lower it, or raise memoryMB.",
            at="maxItemSizeMB",
            value=("self.maxItemSizeMB", lambda spec: spec.max_item_size_mb),
        ),
        _forbid_arguments(
            REFUSED,
            f"'{{}}' is not allowed: it belongs to another field ({', '.join(flag.field for flag in BY_FIELD)}), or it "
            "prevents memcached from serving in a container; remove it.",
        ),
        _forbid_arguments(
            EXTERNAL_STORAGE,
            "'{}' sets up external storage, for which a server has no writable file; set spec.extstore instead.",
        ),
        Rule(  # its message cannot contain the argument: the API server drops messages with line breaks
            f"!has(self.extraArgs) || !self.extraArgs.exists(argument, argument.matches({json.dumps(REWRITTEN)}))",
            lambda spec: not any(re.match(REWRITTEN, argument) for argument in spec.extra_args),
            "an argument contains a line break, or $(NAME), which Kubernetes replaces by a variable; write the value "
            "itself.",
            at="extraArgs",
        ),
        _require_accepted_arguments(),
        Rule(
            "!has(self.extstore) || !self.warmRestart",
            lambda spec: spec.extstore is None or not spec.warm_restart,
            "conflicts with warmRestart: memcached does not restore items on external storage. Remove one of the two.",
            at="extstore",
        ),
        Rule(
            f"!has(self.extstore) || self.maxItemSizeMB <= {EXTSTORE_MAX_ITEM_MB}",
            lambda spec: spec.extstore is None or spec.max_item_size_mb <= EXTSTORE_MAX_ITEM_MB,
            f"{{}} is more than a write buffer of spec.extstore; use at most {EXTSTORE_MAX_ITEM_MB}.",
            at="maxItemSizeMB",
            value=("self.maxItemSizeMB", lambda spec: spec.max_item_size_mb),
        ),
        _forbid_arguments(
            REFUSED_WITH_TLS,
            "'{}' conflicts with spec.tls, which decides which clients may connect; remove one of the two.",
            unless=f"!{ENCRYPTS_CEL} || ",
            applies=lambda spec: spec.encrypts,
        ),
        _forbid_arguments(
            REFUSED_WITH_AUTH,
            "'{}' conflicts with spec.auth: memcached supports one authentication method, over the ASCII protocol; "
            "remove one of the two.",
            unless="!has(self.auth) || ",
            applies=lambda spec: spec.auth,
        ),
        _forbid_arguments(
            REFUSED_WITH_METRICS,
            "'{}' conflicts with spec.metrics: the exporter uses the ASCII protocol, without SASL, and a server that "
            "does not respond to it is not ready; remove one of the two.",
            unless="!has(self.metrics) || !self.metrics.enabled || ",
            applies=lambda spec: spec.metrics_port is not None,
        ),
        _forbid_arguments(
            REFUSED_WITH_WARM_RESTART,
            "'{}' conflicts with spec.warmRestart, which sets the memory file itself; remove one of the two.",
            unless="!self.warmRestart || ",
            applies=lambda spec: spec.warm_restart,
        ),
        Rule(
            f"!self.warmRestart || self.memoryMB >= {MIN_WARM_RESTART_MB}",
            lambda spec: not spec.warm_restart or spec.memory_mb >= MIN_WARM_RESTART_MB,
            f"{{}} is too small for warmRestart, which needs a page of 1 MiB for each slab class; use at least "
            f"{MIN_WARM_RESTART_MB}.",
            at="memoryMB",
            value=("self.memoryMB", lambda spec: spec.memory_mb),
        ),
        Rule(
            "!has(self.metrics) || self.metrics.port != self.containerPort",
            lambda spec: spec.metrics is None or spec.metrics.port != spec.container_port,
            "{} is also containerPort; use another port.",
            at="metrics.port",
            value=("self.metrics.port", lambda spec: spec.metrics.port),
        ),
        Rule(
            "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || "
            f"{number_cel(_MEMORY_LIMIT_CEL)} >= double(({NEEDED_CEL}) * 1048576)",
            lambda spec: not smaller(spec.resources.limits.get("memory", spec.memory_limit), spec.memory_limit),
            "memory is less than memoryMB, maxConnections and threads may need; use at least {}Mi, or omit it: the "
            "limit then follows those fields.",
            at="resources.limits",
            value=(NEEDED_CEL, lambda spec: spec.memory_mib),
        ),
    )

    @property
    def memory_mib(self) -> int:
        """Memory limit that a server never exceeds with its own flags, in MiB."""
        return self.memory_mb + overhead_mib(
            self.memory_mb,
            self.max_connections,
            self.threads,
            tls=self.encrypts,
            extstore=self.extstore is not None,
        )

    @property
    def memory_limit(self) -> str:
        """Memory limit that a server never exceeds with its own flags, as a quantity."""
        return f"{self.memory_mib}Mi"

    @property
    def tls_mode(self) -> str:
        """Issuer of the certificates: self, secret or certManager; none without TLS."""
        return "none" if self.tls is None else self.tls.mode

    @property
    def encrypts(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls_mode != "none"

    @property
    def needs_client_certificate(self) -> bool:
        """Whether clients must present a certificate."""
        return self.tls is not None and self.encrypts and self.tls.client_auth == "required"

    @property
    def metrics_port(self) -> int | None:
        """Port that the sidecar serves metrics on; None without a sidecar."""
        return self.metrics.port if self.metrics is not None and self.metrics.enabled else None

    @property
    def sidecar_port(self) -> int:
        """Port of the sidecar, if there is one: that of metrics, or the default of that field."""
        if self.metrics is not None:
            return self.metrics.port
        return SIDECAR_PORTS[0] if self.container_port != SIDECAR_PORTS[0] else SIDECAR_PORTS[1]

    @property
    def metrics_image(self) -> str:
        """Image of the sidecar that the spec sets; empty if it sets none."""
        return (self.metrics.image or "") if self.metrics is not None else ""

    def container_resources(self) -> Obj:
        """Return the container's resources: memory by the flags and 50m of CPU, overridden by `spec.resources`."""
        limits, requests = self.resources.limits, self.resources.requests
        memory, cpu = limits.get("memory", self.memory_limit), limits.get("cpu", "50m")
        if "memory" not in limits and smaller(memory, requests.get("memory", memory)):
            memory = requests["memory"]
        return {
            "limits": {"memory": memory} | limits,
            "requests": {"cpu": cpu if smaller(cpu, "50m") else "50m", "memory": memory} | requests,
        }

    @property
    def tag(self) -> str:
        """Tag of the image if only a version is set."""
        return self.version or DEFAULT_VERSION

    def image_reference(self, repository: str) -> str:
        """Return the image to run: `spec.image`, or `spec.version` in the given repository."""
        return self.image or f"{repository}:{self.tag}"
