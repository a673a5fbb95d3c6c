"""The Memcached resource: what it is to Kubernetes, and what is said of one at the door and in the reconcile."""

from __future__ import annotations

import json
import re

from pydantic import Field

from operators.memcached.api.spec import MemcachedSpec
from shared.api.crd import PrinterColumn, Resource, Scale
from shared.api.spec import (
    INT32,
    Admission,
    CustomResource,
    InvalidSpec,
    Review,
    Rule,
    Status,
    as_object,
    contradictions,
    parse,
)
from shared.kubernetes.kinds import DEPLOYMENT, STATEFUL_SET, Kind, Obj

_NAME = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
_MAX_SET_NAME = 52
"""A StatefulSet's pods bear its name and a hash of 10 characters in one label, and a label has 63 at most."""


WORKLOADS: dict[str, Kind] = {"Deployment": DEPLOYMENT, "StatefulSet": STATEFUL_SET}
"""The kinds that spec.workload names."""


class MemcachedStatus(Status):
    """What servers there are; the phase is Creating, Running, Scaling, Updating, Degraded, Paused or Failed."""

    nodes: list[str] = Field(default_factory=list, description="Names of the servers' pods.")
    servers: list[str] = Field(
        default_factory=list,
        description="Address (host:port) of each ready server, for a client's configuration. With a StatefulSet these "
        "are names in the order of their numbers, and one that is not ready for a while stays among them.",
    )
    replicas: int | None = Field(None, description="Servers there are, ready or not.", json_schema_extra=INT32)
    ready_replicas: int | None = Field(None, description="Servers that clients may use.", json_schema_extra=INT32)
    selector: str | None = Field(None, description="Selector of the servers' pods, for autoscalers.")
    image: str | None = Field(None, description="The image that the spec asks for.")
    version: str | None = Field(None, description="That image's tag, or its digest where it has no tag.")
    certificate: str | None = Field(
        None, description="SHA-256 fingerprint of the certificate that every server was last seen to serve."
    )


API = Resource(
    kind=Kind("cache.example.com", "v1alpha1", "Memcached", "memcacheds"),
    spec=MemcachedSpec,
    status=MemcachedStatus,
    description="Memcached servers for a client that spreads its keys over them.",
    short_names=("mc",),
    categories=("platform",),
    columns=(
        PrinterColumn("Desired", ".spec.size", "integer", "Servers wanted."),
        PrinterColumn("Ready", ".status.readyReplicas", "integer", "Servers that clients may use."),
        PrinterColumn("Phase", ".status.phase", "string", "What it is doing."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        PrinterColumn("Image", ".status.image", "string", "The servers' image.", wide=True),
        PrinterColumn(
            "Message", ".status.conditions[?(@.type=='Ready')].message", "string", "Why it is as it is.", wide=True
        ),
    ),
    scale=Scale(".spec.size", ".status.replicas", ".status.selector"),
    rules=(
        Rule(
            f"self.metadata.name.matches({json.dumps(_NAME)})",
            lambda resource: re.fullmatch(_NAME, resource.name) is not None,
            "metadata.name names the Service too: at most 63 lower-case letters, digits and '-', starting with a "
            "letter and ending with a letter or digit. Rename it.",
        ),
        Rule(
            f"self.spec.workload != 'StatefulSet' || size(self.metadata.name) <= {_MAX_SET_NAME}",
            lambda resource: resource.spec.workload != "StatefulSet" or len(resource.name) <= _MAX_SET_NAME,
            f"metadata.name names the StatefulSet too, and may then have at most {_MAX_SET_NAME} characters. "
            "Rename it, or let spec.workload be Deployment.",
        ),
    ),
)


class Memcached(CustomResource[MemcachedSpec]):
    """One Memcached, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> Memcached:
        """The resource as a model, with what `default` fills in.

        Raises:
            InvalidSpec: a field is wrong; the message says which and what to give.
        """
        obj = default(obj)
        return cls(obj, parse(MemcachedSpec, obj.get("spec") or {}, at="spec"))

    @property
    def listed_servers(self) -> tuple[str, ...]:
        """The servers that its status last named to clients."""
        return tuple(self.reported.get("servers") or ())

    @property
    def certificate(self) -> str:
        """Fingerprint of the certificate that its status last said every server serves; empty if none."""
        return str(self.reported.get("certificate") or "")


def default(obj: Obj) -> Obj:
    """With autoscaling, size lies within its bounds; where it lies there, it is the autoscaler's."""
    spec = obj.get("spec")
    bounds = spec.get("autoscaling") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(bounds, dict):
        return obj
    size, low, high = spec.get("size"), bounds.get("minReplicas", 1), bounds.get("maxReplicas")
    if not (type(size) is type(low) is type(high) is int and low <= high):
        return obj
    return {**obj, "spec": {**spec, "size": min(max(size, low), high)}}


def validate(resource: Memcached) -> list[str]:
    """The CEL rules once more, for a resource that came past them (an older CRD, a restored backup)."""
    return contradictions(resource, API.rules)


def review(new: Obj, old: Obj | None) -> Review:
    """What makes a resource impossible, and what of it, or of the change to it, a person should know before."""
    try:
        resource = Memcached.parse(new)
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    if errors := validate(resource):
        return Review(errors=tuple(errors))
    try:
        before = Memcached.parse(old) if old else None
    except InvalidSpec:  # it came past admission; now it is mended
        before = None
    return Review(
        warnings=(*_configuration_warnings(resource), *(_data_loss_warnings(resource, before) if before else ()))
    )


def _configuration_warnings(resource: Memcached) -> list[str]:
    spec, warnings = resource.spec, []
    budget = spec.pod_disruption_budget
    if budget is not None and budget.keeps_all(spec.size):
        warnings.append(
            f"spec.podDisruptionBudget: with {spec.size} servers it lets none be evicted, so that no node of theirs "
            "can be drained. Raise size, or give maxUnavailable: 1."
        )
    if spec.autoscaling is not None and "cpu" not in spec.resources.requests:
        warnings.append(
            "spec.autoscaling: use of CPU is reckoned by what a server requests, which is "
            f"{spec.container_resources()['requests']['cpu']} where resources.requests.cpu is not given. Give it."
        )
    return warnings


_FIELDS_WITHOUT_REPLACEMENT = frozenset(
    {"size", "paused", "autoscaling", "podDisruptionBudget", "image", "version", "workload"}
)
"""Fields whose change replaces no server; image and version count as one, and workload by itself."""


def _data_loss_warnings(resource: Memcached, before: Memcached) -> list[str]:
    spec, former = as_object(resource.spec), as_object(before.spec)
    if resource.spec.workload != before.spec.workload:
        return [
            f"spec.workload: servers of the {resource.spec.workload} start empty, and clients find all of their keys "
            "on other servers once status.servers names the new ones."
        ]
    changed = [
        name
        for name in spec.keys() | former.keys()
        if name not in _FIELDS_WITHOUT_REPLACEMENT and spec.get(name) != former.get(name)
    ]
    if resource.spec.image_reference("") != before.spec.image_reference(""):
        changed.append("image" if spec.get("image") != former.get("image") else "version")
    if not changed or before.spec.size == 0:
        return []
    names = ", ".join(f"spec.{name}" for name in sorted(changed))
    return [f"{names}: every server is replaced, one by one, and the new ones start empty."]


ADMISSION = Admission(API.kind, default, review)
