"""The Memcached resource: its spec and status, from which its CRD is generated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from shared.crd import Column, Resource, Scale
from shared.kube import Kind, Obj
from shared.spec import PodSettings, Status, as_object, parse, rules, smaller

DEFAULT_VERSION = "1.6.38"

_INT32: JsonDict = {"format": "int32"}

_OURS = (
    r"^(-[vkLMrSFX]*[pmctIdulUPas]|--(port|memory-limit|conn-limit|threads|max-item-size|daemon|user|listen|udp-port|"
    r"pidfile|unix-socket|unix-mask)(=|$)).*"
)
_OURS_MESSAGE = (
    "extraArgs holds a flag that the operator sets from other fields (port, memory, connections, threads, item size), "
    "or one that does not fit a container (daemon, user, listen, UDP, pidfile, sockets); remove it."
)
_ITEM_MESSAGE = "maxItemSizeMB must be at most half of memoryMB, as memcached demands; lower it, or raise memoryMB."
_NAME = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
_NAME_MESSAGE = (
    "metadata.name names the Service too: at most 63 lower-case letters, digits and '-', starting with a letter and "
    "ending with a letter or digit."
)

# What memcached uses beyond -m: its hash table (1/9 of -m where items are tiny, measured on 1.6), a few KiB to 16 KiB a
# connection, its threads, and itself. Measured peaks for 64/1024/4: 76 MiB; for 256/1024/4: 285 MiB.
_OVERHEAD_CEL = "self.memoryMB / 8 + self.maxConnections / 256 + self.threads + 16"


def overhead_mib(memory_mb: int, max_connections: int, threads: int) -> int:
    """Memory that a server may need beyond its items, in MiB; the CEL rule above says the same."""
    return memory_mb // 8 + max_connections // 256 + threads + 16


_LIMIT = "self.resources.limits['memory']"
_LIMIT_RULE = (
    "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || "
    f"(type({_LIMIT}) == int ? double({_LIMIT}) : quantity({_LIMIT}).asApproximateFloat()) >= "
    f"double((self.memoryMB + {_OVERHEAD_CEL}) * 1048576)"
)
_LIMIT_MESSAGE = (
    "resources.limits.memory is below what memcached may use, in Mi: memoryMB + memoryMB/8 + maxConnections/256 + "
    "threads + 16. Raise it, lower memoryMB, or leave it out: it is then set right."
)


class MemcachedSpec(PodSettings):
    """What servers are wanted."""

    size: Annotated[int, Field(ge=0, le=1000)] = Field(
        description="How many servers run.", json_schema_extra=_INT32
    )  # fmt: skip
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        None, description="The servers' image; wins over version. A registry port and a digest may be in it."
    )
    version: Annotated[str, Field(pattern=r"^[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}$")] = Field(
        DEFAULT_VERSION, description="The tag of memcached's image, where image is not given."
    )
    memory_mb: Annotated[int, Field(ge=8, le=1048576)] = Field(
        64, alias="memoryMB", description="Memory for items, in MiB (-m).", json_schema_extra=_INT32
    )
    max_connections: Annotated[int, Field(ge=16, le=1000000)] = Field(
        1024, description="Connections that a server takes at once (-c).", json_schema_extra=_INT32
    )
    threads: Annotated[int, Field(ge=1, le=128)] = Field(
        4, description="Worker threads of a server (-t).", json_schema_extra=_INT32
    )
    max_item_size_mb: Annotated[int, Field(ge=1, le=1024)] = Field(
        1,
        alias="maxItemSizeMB",
        description="Size of the largest item, in MiB (-I); at most half of memoryMB.",
        json_schema_extra=_INT32,
    )
    extra_args: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=32)] = Field(
        default_factory=list,
        description="Further arguments of memcached, such as --disable-evictions; not those that other fields set.",
        json_schema_extra=rules((f"self.all(argument, !argument.matches('{_OURS}'))", _OURS_MESSAGE)),
    )
    container_port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        11211,
        description="Port that the servers listen on; one that needs no privilege.",
        json_schema_extra=_INT32,
    )
    paused: bool = Field(False, description="If true, the operator reports, and touches nothing.")

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.maxItemSizeMB * 2 <= self.memoryMB", _ITEM_MESSAGE), (_LIMIT_RULE, _LIMIT_MESSAGE)
        )
    )

    @property
    def memory_limit(self) -> str:
        """The least memory limit with which a server is never killed for what its own flags allow."""
        overhead = overhead_mib(self.memory_mb, self.max_connections, self.threads)
        return f"{self.memory_mb + overhead}Mi"

    def container_resources(self) -> Obj:
        """The container's resources: memory as the flags need it, a little CPU, and what is given over both."""
        given = self.resources
        limits = {"memory": self.memory_limit} | given.limits
        return {"limits": limits, "requests": {"cpu": "50m", "memory": limits["memory"]} | given.requests}

    def spread_constraints(self) -> list[Obj]:
        """TopologySpread as a pod takes it, without the selector."""
        return [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} | as_object(constraint)
            for constraint in self.topology_spread
        ]

    def image_reference(self, repository: str) -> str:
        """The image to run, from a repository where only a version is given."""
        return self.image or f"{repository}:{self.version}"


class MemcachedStatus(Status):
    """What servers there are; the phase is Creating, Running, Scaling, Updating, Degraded, Paused or Failed."""

    nodes: list[str] = Field(default_factory=list, description="Names of the servers' pods.")
    servers: list[str] = Field(
        default_factory=list, description="Address (host:port) of each ready server, for a client's configuration."
    )
    replicas: int | None = Field(None, description="Servers there are, ready or not.", json_schema_extra=_INT32)
    ready_replicas: int | None = Field(None, description="Servers that clients may use.", json_schema_extra=_INT32)
    selector: str | None = Field(None, description="Selector of the servers' pods, for autoscalers.")
    image: str | None = Field(None, description="The image that the spec asks for.")


API = Resource(
    kind=Kind("cache.example.com", "v1alpha1", "Memcached", "memcacheds"),
    spec=MemcachedSpec,
    status=MemcachedStatus,
    description="Memcached servers for a client that spreads its keys over them.",
    short_names=("mc",),
    categories=("platform",),
    columns=(
        Column("Desired", ".spec.size", "integer", "Servers wanted."),
        Column("Ready", ".status.readyReplicas", "integer", "Servers that clients may use."),
        Column("Phase", ".status.phase", "string", "What it is doing."),
        Column("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        Column("Image", ".status.image", "string", "The servers' image.", wide=True),
        Column("Message", ".status.conditions[?(@.type=='Ready')].message", "string", "Why it is as it is.", wide=True),
    ),
    scale=Scale(".spec.size", ".status.replicas", ".status.selector"),
    rules=((f"self.metadata.name.matches('{_NAME}')", _NAME_MESSAGE),),
)


@dataclass(frozen=True)
class Memcached:
    """One Memcached, parsed.

    Attributes:
        obj: the resource as the API server shows it.
        spec: its spec as a model.
    """

    obj: Obj
    spec: MemcachedSpec

    @classmethod
    def parse(cls, obj: Obj) -> Memcached:
        """The resource as a model.

        Raises:
            InvalidSpec: a field is wrong; the message says which and what to give.
        """
        return cls(obj, parse(MemcachedSpec, obj.get("spec") or {}, at="spec"))

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"]["namespace"])

    @property
    def phase(self) -> str:
        """What its status last said it is doing; empty for a new one."""
        return str((self.obj.get("status") or {}).get("phase") or "")

    @property
    def changed(self) -> bool:
        """Whether the spec changed since the status was written."""
        observed = (self.obj.get("status") or {}).get("observedGeneration")
        return bool(observed != self.obj["metadata"].get("generation"))


def validate(resource: Memcached) -> list[str]:
    """The CEL rules once more, for a resource that came past them (an older CRD, a restored backup)."""
    spec = resource.spec
    wrong = spec.wrong_labels()
    if not re.fullmatch(_NAME, resource.name):
        wrong.append(_NAME_MESSAGE)
    if spec.max_item_size_mb * 2 > spec.memory_mb:
        wrong.append(f"spec.maxItemSizeMB: {spec.max_item_size_mb}: {_ITEM_MESSAGE}")
    if any(re.match(_OURS, argument) for argument in spec.extra_args):
        wrong.append(f"spec.extraArgs: {_OURS_MESSAGE}")
    limit = spec.resources.limits.get("memory")
    if limit is not None and smaller(limit, spec.memory_limit):
        wrong.append(f"spec.resources.limits.memory: {limit} is below {spec.memory_limit}: {_LIMIT_MESSAGE}")
    return wrong
