"""The Memcached resource: definition, defaults, and validation at admission and during a reconcile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from operators.memcached.api.catalogue import MEMCACHED, features_of, version_of
from operators.memcached.api.reserved_flags import DUMPS_DISABLED, FLUSH_DISABLED
from operators.memcached.api.spec import DEFAULT_VERSION, STOP_SECONDS, VERSION, MemcachedSpec
from shared.api.crd import READY_MESSAGE, READY_REASON, PrinterColumn, Resource, Scale
from shared.api.spec import (
    BINDING,
    INT32,
    Admission,
    Binding,
    CustomResource,
    Exposure,
    InvalidSpec,
    ObservedSecrets,
    ProgressList,
    Review,
    Rule,
    SecretsRecord,
    Status,
    as_object,
    contradictions,
    parse,
)
from shared.kubernetes.kinds import DEPLOYMENT, STATEFUL_SET, Kind, Obj

_NAME = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
_MAX_SET_NAME = 52
"""Maximum length: the label controller-revision-hash (63 characters) holds the name, a dash and a hash of 10."""

WORKLOADS: dict[str, Kind] = {"Deployment": DEPLOYMENT, "StatefulSet": STATEFUL_SET}
"""Workload kinds by the value of spec.workload."""


class MemcachedStatus(Status):
    """Observed state of the servers; the phase is Creating, Running, Scaling, Updating, Degraded, Paused or Failed."""

    nodes: list[str] = Field(default_factory=list, description="Names of the pods that run the servers.")
    servers: list[str] = Field(
        default_factory=list,
        description="Address (host:port) of each ready server, for the configuration of clients. With a StatefulSet "
        "the addresses are DNS names in the order of the pods' numbers, and a server that was ready once stays listed.",
    )
    replicas: int | None = Field(None, description="Number of servers, ready or not.", json_schema_extra=INT32)
    ready_replicas: int | None = Field(
        None, description="Number of servers that are ready for clients.", json_schema_extra=INT32
    )
    selector: str | None = Field(None, description="Label selector of the servers' pods, for autoscalers.")
    workload: Literal["Deployment", "StatefulSet"] | None = Field(
        None, description="Kind of the workload that runs the servers. They keep it if spec.workload is not set."
    )
    image: str | None = Field(None, description="Image of the servers, from spec.image or spec.version.")
    version: str | None = Field(None, description="Tag of the image, or its digest if it has no tag.")
    server_version: str | None = Field(
        None, description="Lowest version that a running server reports. Absent until one was queried."
    )
    server_images: Annotated[dict[str, str], Field(max_length=32)] = Field(
        default_factory=dict,
        description="Version that servers of each running image report, by the ID of the image. One server is queried "
        "for each new image, because a tag may name another version at any time.",
    )
    certificate: str | None = Field(
        None,
        description="SHA-256 fingerprint of the certificate that all servers served when they were last checked. "
        "Absent without spec.tls.",
    )
    users: str | None = Field(
        None,
        description="Digest of the users file that all servers had loaded when they were last checked. After a change "
        "of the Secret it changes when the new file is in effect on all servers, so that they accept its users and no "
        "others. Absent without spec.auth.",
    )
    observed_secrets: ObservedSecrets = Field(default_factory=list)
    progress: ProgressList = Field(default_factory=list)
    binding: Binding | None = Field(None, description=BINDING)
    secrets: SecretsRecord = Field(default_factory=dict)


API = Resource(
    kind=Kind("cache.example.com", "v1alpha1", "Memcached", "memcacheds"),
    spec=MemcachedSpec,
    status=MemcachedStatus,
    description="A set of memcached servers for clients that distribute their keys among them.",
    short_names=("mc",),
    categories=("platform",),
    columns=(
        PrinterColumn("Desired", ".spec.size", "integer", "Desired number of servers."),
        PrinterColumn("Ready", ".status.readyReplicas", "integer", "Number of servers that are ready for clients."),
        PrinterColumn("Phase", ".status.phase", "string", "Current phase, such as Running or Updating."),
        READY_REASON,
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since the resource was created."),
        PrinterColumn("Image", ".status.image", "string", "Image of the servers.", wide=True),
        READY_MESSAGE,
    ),
    scale=Scale(".spec.size", ".status.replicas", ".status.selector"),
    rules=(
        Rule(
            f"self.metadata.name.matches({json.dumps(_NAME)})",
            lambda resource: re.fullmatch(_NAME, resource.name) is not None,
            "metadata.name is also the name of the Service: use at most 63 lower-case letters, digits and '-', "
            "starting with a letter and ending with a letter or a digit.",
        ),
        Rule(
            f"!has(self.spec.workload) || self.spec.workload != 'StatefulSet' || "
            f"size(self.metadata.name) <= {_MAX_SET_NAME}",
            lambda resource: resource.spec.workload != "StatefulSet" or len(resource.name) <= _MAX_SET_NAME,
            f"metadata.name is also the name of the StatefulSet, which may have at most {_MAX_SET_NAME} characters. "
            "Use a shorter name, or set spec.workload to Deployment.",
        ),
    ),
)

MINIMAL: Obj = {"size": 1}
"""A valid spec with only the required fields."""


class Memcached(CustomResource[MemcachedSpec]):
    """A parsed Memcached resource."""

    @classmethod
    def parse(cls, obj: Obj) -> Memcached:
        """Return the resource as a model, with the defaults of `default`.

        Raises:
            InvalidSpec: a field is invalid; the message names the field and the values that it accepts.
        """
        obj = default(obj)
        return cls(obj, parse(MemcachedSpec, obj.get("spec") or {}, at="spec"))

    @property
    def chosen_workload(self) -> Kind | None:
        """Kind of the workload in the spec, else in `status.workload`; None if there is none in either."""
        return WORKLOADS.get(self.spec.workload or str(self.reported.get("workload")))

    @property
    def listed_servers(self) -> tuple[str, ...]:
        """Addresses in `status.servers`: the servers that clients were last given."""
        return tuple(self.reported.get("servers") or ())

    @property
    def server_images(self) -> dict[str, str]:
        """Versions in `status.serverImages`, by the ID of the image."""
        return dict(self.reported.get("serverImages") or {})

    @property
    def certificate(self) -> str:
        """Fingerprint in `status.certificate`: the certificate that all servers last served; empty if there is none."""
        return str(self.reported.get("certificate") or "")

    @property
    def users_digest(self) -> str:
        """Digest in `status.users`: the users file that all servers had loaded last; empty if there is none."""
        return str(self.reported.get("users") or "")


def workload_kind(resource: Memcached, existing: Iterable[Kind] = ()) -> Kind:
    """Return the kind of the workload: as in the spec, else as before; only a new resource gets a StatefulSet.

    Args:
        existing: kinds of the workloads that belong to the resource; empty if they are unknown.
    """
    if resource.chosen_workload is not None:
        return resource.chosen_workload
    # A status with a selector is of a whole reconcile: release 0.1.0 made Deployments, and recorded no kind.
    is_of_earlier_release = "selector" in resource.reported
    is_too_long = len(resource.name) > _MAX_SET_NAME
    return next(iter(existing), DEPLOYMENT if is_of_earlier_release or is_too_long else STATEFUL_SET)


def default(obj: Obj) -> Obj:
    """Return the resource with a version, and with a size within the bounds of autoscaling."""
    return _with_version(_within_bounds(obj))


def _with_version(obj: Obj) -> Obj:
    """Set the version if none is given: the running one, so that a new operator replaces no server, or the default."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("version") is not None or spec.get("image") is not None:
        return obj
    running = (obj.get("status") or {}).get("version") or ""
    version = running if re.fullmatch(VERSION, running) else DEFAULT_VERSION
    return {**obj, "spec": {**spec, "version": version}}


def _within_bounds(obj: Obj) -> Obj:
    """Return the resource with `size` clamped to the bounds of autoscaling; within them the autoscaler sets it."""
    spec = obj.get("spec")
    bounds = spec.get("autoscaling") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(bounds, dict):
        return obj
    size, low, high = spec.get("size"), bounds.get("minReplicas", 1), bounds.get("maxReplicas")
    if not (type(size) is type(low) is type(high) is int and low <= high):
        return obj
    return {**obj, "spec": {**spec, "size": min(max(size, low), high)}}


def validate(resource: Memcached, before: Memcached | None = None) -> list[str]:
    """Apply the CEL rules again, for a resource that bypassed them (an older CRD, a restored backup)."""
    return contradictions(resource, API.rules, before)


def review(new: Obj, old: Obj | None) -> Review:
    """Return the errors that reject a resource, or the warnings about its configuration and about the change."""
    try:
        resource = Memcached.parse(new)
    except InvalidSpec as error:
        return Review(errors=(str(error),))
    try:
        before = Memcached.parse(old) if old else None
    except InvalidSpec:  # the old spec bypassed admission, and this change repairs it
        before = None
    if errors := validate(resource, before):
        return Review(errors=tuple(errors))
    warnings = _configuration_warnings(resource)
    if before is not None:
        warnings += [*_issuer_warnings(resource, before), *_data_loss_warnings(resource, before)]
    return Review(warnings=tuple(warnings), notes=tuple(_notes(resource)))


def _notes(resource: Memcached) -> list[str]:
    spec = resource.spec
    version = version_of(spec.image_reference("memcached"))
    allowed = {"-F": ("flush_all", FLUSH_DISABLED), "-X": ("key dumps", DUMPS_DISABLED)}
    missing = {
        flag: what
        for flag, (what, pattern) in allowed.items()
        if not any(re.match(pattern, argument) for argument in spec.extra_args)
    }
    notes = [f"clients may use {', '.join(missing.values())} (extraArgs {', '.join(missing)})"] if missing else []
    return notes + MEMCACHED.notes(version, features_of(as_object(spec)))


def _configuration_warnings(resource: Memcached) -> list[str]:
    spec, warnings = resource.spec, []
    budget = spec.pod_disruption_budget
    if budget is not None and budget.blocks_every_eviction(spec.size):
        warnings.append(
            f"spec.podDisruptionBudget: with size {spec.size} the budget allows no evictions, so nodes that run these "
            "servers cannot be drained. Raise size, or set maxUnavailable: 1."
        )
    if spec.autoscaling is not None and "cpu" not in spec.resources.requests:
        warnings.append(
            "spec.autoscaling: targetCPUUtilization is relative to the CPU request of a server, which defaults to "
            f"{spec.container_resources()['requests']['cpu']}. Set resources.requests.cpu."
        )
    if spec.tls_mode in ("self", "certManager") and workload_kind(resource) != STATEFUL_SET:
        warnings.append(
            "spec.tls: status.servers lists IP addresses, for which the certificate is not valid. Clients must verify "
            f"the name {resource.name}.{resource.namespace}.svc instead; or set spec.workload to StatefulSet."
        )
    if spec.tls and spec.tls.issuer and spec.needs_client_certificate and spec.auth is None:
        warnings += spec.tls.issuer.warnings("servers accept each of them from clients")
    if spec.tls is not None and not spec.encrypts and spec.tls.client_auth == "required":
        warnings.append(
            "spec.tls.clientAuth: has no effect with mode none: clients need neither TLS nor a certificate. Set "
            "tls.mode, or set clientAuth to none."
        )
    warnings += spec.network.without_effect(has_metrics=spec.metrics_port is not None)
    if spec.warm_restart:
        warnings += spec.short_stop(STOP_SECONDS, "its items are lost")
    version = version_of(spec.image_reference("memcached"))
    return [*warnings, *MEMCACHED.warnings(version, features_of(as_object(spec)))]


_FIELDS_WITHOUT_REPLACEMENT = frozenset(
    {
        "size", "changes", "paused", "autoscaling", "podDisruptionBudget", "updateStrategy", "network",
        "connectionSecret", "image", "version", "workload",
    }
)  # fmt: skip
"""Fields whose change replaces no server. Image and version are compared together, and workload separately."""


def _issuer_warnings(resource: Memcached, before: Memcached) -> list[str]:
    now, former = resource.spec.tls, before.spec.tls
    if now is None or former is None or now.issuer is None or former.issuer in (None, now.issuer):
        return []
    return [
        "spec.tls.issuer: clients must trust the authority of the new issuer before this change, or they reject the "
        "servers. If they do not, change to mode secret first, with both authorities in ca.crt."
    ]


def _mounted(spec: MemcachedSpec) -> tuple[object, ...]:
    """Return what servers that mount copies of Secrets get from these, apart from the content."""
    mode = "secret" if spec.tls_mode == "certManager" else spec.tls_mode
    return spec.auth and bool(spec.auth.secret_name), mode, spec.needs_client_certificate


def _data_loss_warnings(resource: Memcached, before: Memcached) -> list[str]:
    spec, former, kind = as_object(resource.spec), as_object(before.spec), workload_kind(resource)
    if kind != workload_kind(before):
        return [
            f"spec.workload: the servers of the {kind} start empty, and every key moves to another server when "
            "status.servers lists them."
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
    if changed == ["resources"]:
        return [
            "spec.resources: Kubernetes 1.33 and later resize the servers without a restart if only amounts of CPU and "
            "memory change. Otherwise the change replaces all servers, one by one, and the new servers start empty."
        ]
    names = ", ".join(f"spec.{name}" for name in sorted(changed))
    if {*changed} <= {"auth", "tls"} and _mounted(resource.spec) == _mounted(before.spec):
        others = ", or verify clients by another ca.crt," if resource.spec.needs_client_certificate else ""
        unable = ", except those that respond to no ASCII command, which keep the certificate until their pods end,"
        unable = unable if "tls" in changed and resource.spec.extra_args else ""
        return [
            f"{names}: servers that mount the Secret itself (SecretsNotCopied){others} are replaced, one by one, and "
            f"start empty. The others{unable} load the new content without a restart."
        ]
    pause = resource.spec.update_strategy.pause_seconds
    hint = "" if pause else " Set spec.updateStrategy.pauseSeconds to let clients fill each one before the next."
    return [f"{names}: the change replaces all servers, one by one, and the new servers start empty.{hint}"]


def exposure(resource: Memcached) -> Exposure:
    """Return how far a resource is open."""
    spec = resource.spec
    images = {"spec.image": spec.image, "spec.metrics.image": spec.metrics_image}
    return Exposure(
        tls=spec.encrypts,
        auth=spec.auth is not None,
        restricted=spec.network.restricts_clients,
        images={field: image for field, image in images.items() if image} | spec.extra_images,
    )


ADMISSION = Admission(API.kind, default, review, lambda obj: exposure(Memcached.parse(obj)))
