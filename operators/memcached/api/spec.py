"""The spec of a Memcached: its fields, their bounds, and what they must be to each other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from operators.memcached.api.memory import MIN_WARM_RESTART_MB, NEEDED_CEL, overhead_mib
from operators.memcached.api.reserved_flags import (
    BY_FIELD,
    REFUSED,
    REFUSED_WITH_AUTH,
    REFUSED_WITH_TLS,
    REFUSED_WITH_WARM_RESTART,
)
from shared.api.image import FORM as IMAGE
from shared.api.podspec import PodSettings, number_cel, smaller
from shared.api.spec import INT32, Name, Rule, SpecModel
from shared.kubernetes.kinds import Obj

DEFAULT_VERSION = "1.6.38"

_TAG = r"^[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}$"
_TOO_OLD = r"^(0|1\.[0-4]|1\.5\.([0-9]|1[0-7]))([^0-9].*)?$"
"""Before 1.5.18, the first that knows TLS, users' files and memory files alike."""

_MEMORY_LIMIT_CEL = "self.resources.limits['memory']"  # written .memory, the server finds no bound for its cost


class Auth(SpecModel):
    """Who may use the servers."""

    secret_name: Name = Field(
        description="Secret in the same namespace whose key `users` names them, a line `user:password` each, 8 at "
        "most. A change of it replaces the servers one by one, at the latest after the operator's next resync."
    )


class Tls(SpecModel):
    """Encryption between clients and servers."""

    secret_name: Name = Field(
        description="Secret of type kubernetes.io/tls in the same namespace: tls.crt and tls.key, and ca.crt where "
        "clientAuth is required. A renewed certificate is taken up without a restart, at the latest a few minutes "
        "after the operator's next resync; a new ca.crt replaces the servers one by one."
    )
    client_auth: Literal["none", "required"] = Field(
        "none",
        description="Whether clients must show a certificate that ca.crt vouches for. Where it is required, tls.crt "
        "must be such a certificate too (usages server auth and client auth): the operator and the metrics use it.",
    )


class Metrics(SpecModel):
    """Metrics of the servers for Prometheus, under the names of prometheus/memcached_exporter."""

    enabled: bool = Field(True, description="Whether each server has a sidecar that serves them.")
    port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        9150, description="Port that they are served on, at /metrics.", json_schema_extra=INT32
    )


class Autoscaling(SpecModel):
    """Lets a HorizontalPodAutoscaler choose the number of servers."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Servers at least.", json_schema_extra=INT32
    )
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = Field(description="Servers at most.", json_schema_extra=INT32)
    target_cpu_utilization: Annotated[int, Field(ge=1, le=1000)] = Field(
        80,
        alias="targetCPUUtilization",
        description="Use of CPU that it aims at, in percent of what a server requests (resources.requests.cpu).",
        json_schema_extra=INT32,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            lambda given: given.min_replicas <= given.max_replicas,
            "{} is above maxReplicas; lower it, or raise maxReplicas.",
            at="minReplicas",
            value=("self.minReplicas", lambda given: given.min_replicas),
        ),
    )


def _forbid_arguments(
    pattern: str, advice: str, *, unless: str = "", applies: Callable[[MemcachedSpec], object] = lambda _: True
) -> Rule:
    """No argument is of a pattern.

    Args:
        unless: in CEL, when that does not matter.
        where: in Python, when it does.
    """
    matches, cel = re.compile(pattern).match, f"argument, argument.matches({json.dumps(pattern)})"
    return Rule(
        f"{unless}!has(self.extraArgs) || !self.extraArgs.exists({cel})",
        lambda spec: not applies(spec) or not any(map(matches, spec.extra_args)),
        advice,
        at="extraArgs",
        value=(f"self.extraArgs.filter({cel})[0]", lambda spec: next(filter(matches, spec.extra_args))),
    )


class MemcachedSpec(PodSettings):
    """What servers are wanted."""

    size: Annotated[int, Field(ge=0, le=1000)] = Field(
        description="How many servers run; where autoscaling is given, it chooses.", json_schema_extra=INT32
    )
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="The servers' image; wins over version. A registry port and a digest may be in it."
    )
    version: Annotated[str, Field(max_length=128)] = Field(
        DEFAULT_VERSION, description="The tag of memcached's image, where image is not given."
    )
    workload: Literal["Deployment", "StatefulSet"] = Field(
        "Deployment",
        description="What runs the servers. A StatefulSet gives them names that stay (NAME-0.NAME.NAMESPACE.svc), for "
        "clients whose choice of a server must not shift when one is replaced. After a change the new servers start "
        "empty, and the old ones go when all of the new are ready.",
    )
    memory_mb: Annotated[int, Field(ge=8, le=1048576)] = Field(
        64, alias="memoryMB", description="Memory for items, in MiB (-m).", json_schema_extra=INT32
    )
    max_connections: Annotated[int, Field(ge=16, le=1000000)] = Field(
        1024, description="Connections that a server takes at once (-c).", json_schema_extra=INT32
    )
    threads: Annotated[int, Field(ge=1, le=128)] = Field(
        4, description="Worker threads of a server (-t).", json_schema_extra=INT32
    )
    max_item_size_mb: Annotated[int, Field(ge=1, le=1024)] = Field(
        1,
        alias="maxItemSizeMB",
        description="Size of the largest item, in MiB (-I); at most half of memoryMB.",
        json_schema_extra=INT32,
    )
    extra_args: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=32)] = Field(
        default_factory=list,
        description="Further arguments of memcached, such as --disable-evictions; not those that other fields set.",
    )
    container_port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        11211, description="Port that the servers listen on; one that needs no privilege.", json_schema_extra=INT32
    )
    warm_restart: bool = Field(
        False,
        description="Items outlive a restart of a server's container, in a volume of memory (-e); a new pod starts "
        "empty all the same. The image needs a shell (/bin/sh), as memcached's own images have.",
    )
    auth: Auth | None = Field(None, description="Who may use the servers. If not given, everybody who reaches them.")
    tls: Tls | None = Field(None, description="Encryption (-Z). If not given, there is none.")
    metrics: Metrics | None = Field(None, description="Metrics for Prometheus. If not given, there is no sidecar.")
    autoscaling: Autoscaling | None = Field(
        None, description="Lets the number of servers follow the load. If not given, it is size."
    )
    paused: bool = Field(False, description="If true, the operator reports, and touches nothing.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        *PodSettings.RULES,
        Rule(
            f"!has(self.image) || self.image.matches({json.dumps(IMAGE)})",
            lambda spec: spec.image is None or re.fullmatch(IMAGE, spec.image) is not None,
            "'{}' is no image; write it as memcached:1.6.38, with lower-case letters, or with a registry before it.",
            at="image",
            value=("self.image", lambda spec: spec.image),
        ),
        Rule(
            f"self.version.matches({json.dumps(_TAG)})",
            lambda spec: re.fullmatch(_TAG, spec.version) is not None,
            "'{}' is no image tag; write one such as 1.6.38, or name the whole image in spec.image.",
            at="version",
            value=("self.version", lambda spec: spec.version),
        ),
        Rule(
            f"has(self.image) || !self.version.matches({json.dumps(_TOO_OLD)}) || "
            "!(has(self.tls) || has(self.auth) || self.warmRestart)",
            lambda spec: (
                spec.image is not None
                or re.match(_TOO_OLD, spec.version) is None
                or not (spec.tls or spec.auth or spec.warm_restart)
            ),
            "{} is too old for tls, auth and warmRestart, which memcached knows since 1.5.18; raise it.",
            at="version",
            value=("self.version", lambda spec: spec.version),
        ),
        Rule(
            "self.maxConnections >= 5 * self.threads + 11",
            lambda spec: spec.max_connections >= 5 * spec.threads + 11,
            "too few: threads take of them before any client does, and memcached would not start; give at least {}.",
            at="maxConnections",
            value=("5 * self.threads + 11", lambda spec: 5 * spec.threads + 11),
        ),
        Rule(
            "self.maxItemSizeMB * 2 <= self.memoryMB",
            lambda spec: spec.max_item_size_mb * 2 <= spec.memory_mb,
            "{} is more than half of memoryMB, the most that memcached takes; lower it, or raise memoryMB.",
            at="maxItemSizeMB",
            value=("self.maxItemSizeMB", lambda spec: spec.max_item_size_mb),
        ),
        _forbid_arguments(
            REFUSED,
            f"'{{}}' is for another field to set ({', '.join(flag.field for flag in BY_FIELD)}), or "
            "keeps memcached from serving in a container; remove it.",
        ),
        _forbid_arguments(
            REFUSED_WITH_TLS,
            "'{}' is for spec.tls to set: it decides who may connect; remove one of the two.",
            unless="!has(self.tls) || ",
            applies=lambda spec: spec.tls,
        ),
        _forbid_arguments(
            REFUSED_WITH_AUTH,
            "'{}' does not go with spec.auth: memcached has one way to authenticate, over its ASCII protocol; remove "
            "one of the two.",
            unless="!has(self.auth) || ",
            applies=lambda spec: spec.auth,
        ),
        _forbid_arguments(
            REFUSED_WITH_WARM_RESTART,
            "'{}' does not go with spec.warmRestart, which keeps items in a file of its own; remove one of the two.",
            unless="!self.warmRestart || ",
            applies=lambda spec: spec.warm_restart,
        ),
        Rule(
            f"!self.warmRestart || self.memoryMB >= {MIN_WARM_RESTART_MB}",
            lambda spec: not spec.warm_restart or spec.memory_mb >= MIN_WARM_RESTART_MB,
            f"{{}} is too small for warmRestart, which takes a page for each size of items; give at least "
            f"{MIN_WARM_RESTART_MB}.",
            at="memoryMB",
            value=("self.memoryMB", lambda spec: spec.memory_mb),
        ),
        Rule(
            "!has(self.metrics) || self.metrics.port != self.containerPort",
            lambda spec: spec.metrics is None or spec.metrics.port != spec.container_port,
            "{} is containerPort too; give another.",
            at="metrics.port",
            value=("self.metrics.port", lambda spec: spec.metrics.port),
        ),
        Rule(
            "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || "
            f"{number_cel(_MEMORY_LIMIT_CEL)} >= double(({NEEDED_CEL}) * 1048576)",
            lambda spec: not smaller(spec.resources.limits.get("memory", spec.memory_limit), spec.memory_limit),
            "memory is below what memoryMB, maxConnections and threads may need; give at least {}Mi, or leave it out: "
            "it then follows them.",
            at="resources.limits",
            value=(NEEDED_CEL, lambda spec: spec.memory_mib),
        ),
    )

    @property
    def memory_mib(self) -> int:
        """Memory, in MiB, with which a server is never killed for what its own flags allow."""
        return self.memory_mb + overhead_mib(
            self.memory_mb, self.max_connections, self.threads, tls=self.tls is not None
        )

    @property
    def memory_limit(self) -> str:
        """The same as a quantity."""
        return f"{self.memory_mib}Mi"

    @property
    def needs_client_certificate(self) -> bool:
        """Whether only clients with a certificate get in."""
        return self.tls is not None and self.tls.client_auth == "required"

    @property
    def metrics_port(self) -> int | None:
        """Where metrics are served; None if they are not."""
        return self.metrics.port if self.metrics is not None and self.metrics.enabled else None

    def container_resources(self) -> Obj:
        """The container's resources: memory as the flags need it, a little CPU, and what is given over both."""
        limits, requests = self.resources.limits, self.resources.requests
        memory, cpu = limits.get("memory", self.memory_limit), limits.get("cpu", "50m")
        if "memory" not in limits and smaller(memory, requests.get("memory", memory)):
            memory = requests["memory"]
        return {
            "limits": {"memory": memory} | limits,
            "requests": {"cpu": cpu if smaller(cpu, "50m") else "50m", "memory": memory} | requests,
        }

    def image_reference(self, repository: str) -> str:
        """The image to run, from a repository where only a version is given."""
        return self.image or f"{repository}:{self.version}"
