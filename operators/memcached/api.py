"""The Memcached resource: its spec and status, from which its CRD is generated."""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Annotated, ClassVar

from pydantic import Field

from shared.crd import Column, Resource, Scale
from shared.kube import Kind, Obj
from shared.podspec import PodSettings, number_cel, smaller
from shared.spec import INT32, CustomResource, Rule, Status, broken, parse

DEFAULT_VERSION = "1.6.38"

_NAME = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
_TAG = r"^[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}$"
_IMAGE = (
    r"^((\[[0-9A-Fa-f:]+\]|[0-9A-Za-z.-]+)(:[0-9]+)?/)?"  # registry, maybe with a port
    r"[0-9a-z]+([._/-]+[0-9a-z]+)*"
    r"(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?(@[0-9a-z]+:[0-9a-f]{32,})?$"
)


def _any_beginning(flag: str) -> str:
    return reduce(lambda rest, letter: f"{letter}({rest})?" if rest else letter, reversed(flag), "")


# Flags that other fields set (-p -m -c -t -I), that keep clients or Kubernetes from a server, or that only print. Short
# ones may stand behind others that take no value (-vvm5); getopt takes any beginning of a long one (--mem=5).
_LONG = (
    "port", "memory-limit", "conn-limit", "threads", "max-item-size",
    "udp-port", "unix-socket", "unix-mask", "listen", "user", "pidfile", "daemon", "help", "license", "version",
)  # fmt: skip
_REFUSED = f"^(-[ACFLMSWXZkrv]*[pmctIUsaluPdhiV].*|--({'|'.join(map(_any_beginning, _LONG))})(=.*)?)$"

# Memory that a server takes beyond -m at worst: 16 bytes an item while its hash table doubles (an item takes 96 at
# least); 21 KiB a connection, of a request half read and answers not fetched; stacks and logs of its threads; and
# itself with a page of 1 MiB for each of its 39 slab classes, which every class gets even when -m is used up. Peaks
# measured with 1.6.18 and 1.6.38 (the larger one here), filled with the smallest items, then one of each size, then
# every connection busy like that:
#     -m  64 -c 1024 -t 4: 140 MiB      -m 600 -c 1024 -t 4: 746 MiB
#     -m  64 -c 8000 -t 4: 248 MiB      -m   8 -c   16 -t 1:  53 MiB
_PER_MIB = {"memoryMB": 6, "maxConnections": 48, "threads": 1}
_BASE_MIB = 48
_NEEDED_CEL = " + ".join(
    ["self.memoryMB", *(f"self.{field} / {per}" for field, per in _PER_MIB.items()), f"{_BASE_MIB}"]
)
_GIVEN_CEL = "self.resources.limits['memory']"  # written .memory, the server finds no bound for its cost


def overhead_mib(memory_mb: int, max_connections: int, threads: int) -> int:
    """Memory that a server may need beyond its items, in MiB."""
    given = {"memoryMB": memory_mb, "maxConnections": max_connections, "threads": threads}
    return _BASE_MIB + sum(given[field] // per for field, per in _PER_MIB.items())


class MemcachedSpec(PodSettings):
    """What servers are wanted."""

    size: Annotated[int, Field(ge=0, le=1000)] = Field(description="How many servers run.", json_schema_extra=INT32)
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="The servers' image; wins over version. A registry port and a digest may be in it."
    )
    version: Annotated[str, Field(max_length=128)] = Field(
        DEFAULT_VERSION, description="The tag of memcached's image, where image is not given."
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
    paused: bool = Field(False, description="If true, the operator reports, and touches nothing.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        *PodSettings.RULES,
        Rule(
            f"!has(self.image) || self.image.matches({json.dumps(_IMAGE)})",
            lambda spec: spec.image is None or re.fullmatch(_IMAGE, spec.image) is not None,
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
            "self.maxItemSizeMB * 2 <= self.memoryMB",
            lambda spec: spec.max_item_size_mb * 2 <= spec.memory_mb,
            "{} is more than half of memoryMB, the most that memcached takes; lower it, or raise memoryMB.",
            at="maxItemSizeMB",
            value=("self.maxItemSizeMB", lambda spec: spec.max_item_size_mb),
        ),
        Rule(
            f"!has(self.extraArgs) || !self.extraArgs.exists(argument, argument.matches({json.dumps(_REFUSED)}))",
            lambda spec: not any(map(re.compile(_REFUSED).match, spec.extra_args)),
            "'{}' is for another field to set (containerPort, memoryMB, maxConnections, threads, maxItemSizeMB), or "
            "keeps memcached from serving in a container; remove it.",
            at="extraArgs",
            value=(
                f"self.extraArgs.filter(argument, argument.matches({json.dumps(_REFUSED)}))[0]",
                lambda spec: next(filter(re.compile(_REFUSED).match, spec.extra_args)),
            ),
        ),
        Rule(
            "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || "
            f"{number_cel(_GIVEN_CEL)} >= double(({_NEEDED_CEL}) * 1048576)",
            lambda spec: not smaller(spec.resources.limits.get("memory", spec.memory_limit), spec.memory_limit),
            "memory is below what memoryMB, maxConnections and threads may need; give at least {}Mi, or leave it out: "
            "it then follows them.",
            at="resources.limits",
            value=(_NEEDED_CEL, lambda spec: spec.memory_mib),
        ),
    )

    @property
    def memory_mib(self) -> int:
        """Memory, in MiB, with which a server is never killed for what its own flags allow."""
        return self.memory_mb + overhead_mib(self.memory_mb, self.max_connections, self.threads)

    @property
    def memory_limit(self) -> str:
        """The same as a quantity."""
        return f"{self.memory_mib}Mi"

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


class MemcachedStatus(Status):
    """What servers there are; the phase is Creating, Running, Scaling, Updating, Degraded, Paused or Failed."""

    nodes: list[str] = Field(default_factory=list, description="Names of the servers' pods.")
    servers: list[str] = Field(
        default_factory=list, description="Address (host:port) of each ready server, for a client's configuration."
    )
    replicas: int | None = Field(None, description="Servers there are, ready or not.", json_schema_extra=INT32)
    ready_replicas: int | None = Field(None, description="Servers that clients may use.", json_schema_extra=INT32)
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
    rules=(
        Rule(
            f"self.metadata.name.matches({json.dumps(_NAME)})",
            lambda resource: re.fullmatch(_NAME, resource.name) is not None,
            "metadata.name names the Service too: at most 63 lower-case letters, digits and '-', starting with a "
            "letter and ending with a letter or digit. Rename it.",
        ),
    ),
)


class Memcached(CustomResource[MemcachedSpec]):
    """One Memcached, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> Memcached:
        """The resource as a model.

        Raises:
            InvalidSpec: a field is wrong; the message says which and what to give.
        """
        return cls(obj, parse(MemcachedSpec, obj.get("spec") or {}, at="spec"))


def validate(resource: Memcached) -> list[str]:
    """The CEL rules once more, for a resource that came past them (an older CRD, a restored backup)."""
    wrong = [rule.sentence(resource) for rule in API.rules if not rule.holds(resource)]
    return wrong + broken(resource.spec, at="spec")
