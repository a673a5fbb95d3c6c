"""Common settings of pods, which all kinds have directly in their specs.

Simple mistakes that Kubernetes would reject only when the pods are created are rejected here, so that the user learns
about them when applying the resource.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from shared.api.pod_isolation import reaches_other_namespaces, unconfined_annotation
from shared.api.spec import INT32, INT64, AtMost, Name, Rule, SpecModel, as_object
from shared.kubernetes import ownership
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity

_QUANTITY = r"^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$"
_MAX_QUANTITY_LENGTH = 32
_SHARE = r"^(100|[0-9]{1,2})%$"


def _quantity(value: int | str) -> int | str:
    if len(str(value)) > _MAX_QUANTITY_LENGTH:
        raise ValueError(f"a quantity has at most {_MAX_QUANTITY_LENGTH} characters")
    if parse_quantity(value) < 0:
        raise ValueError("a quantity here cannot be negative")
    if not re.fullmatch(_QUANTITY, str(value)):
        raise ValueError("a quantity here has no sign, and an exponent of at most two digits")
    return value


Quantity = Annotated[
    int | str,
    AfterValidator(_quantity),
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "pattern": _QUANTITY,
            "maxLength": _MAX_QUANTITY_LENGTH,
            "minimum": 0,
        }
    ),
]


def _count_or_share(value: int | str) -> int | str:
    if isinstance(value, int) and value < 0:
        raise ValueError("a number of pods cannot be negative")
    if isinstance(value, str) and not re.fullmatch(_SHARE, value):
        raise ValueError("write a number of pods without quotes, or a share from 0% to 100%")
    return value


CountOrShare = Annotated[
    int | str,
    AfterValidator(_count_or_share),
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": _SHARE, "maxLength": 4, "minimum": 0}),
]
OPAQUE: JsonDict = {"x-kubernetes-preserve-unknown-fields": True}
"""Schema of a part that Kubernetes defines and validates; it is passed on unchanged."""

LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


def number_cel(quantity: str) -> str:
    """Return a CEL expression for the number of a quantity, given an expression that yields an int-or-string."""
    return f"(type({quantity}) == int ? double({quantity}) : quantity({quantity}).asApproximateFloat())"


def smaller(quantity: str | int, than: str | int) -> bool:
    """Whether `quantity` is below `than`."""
    return parse_quantity(quantity) < parse_quantity(than)


def warnings_of_size(size: str | int, before: str | int) -> list[str]:
    """Return a warning about another size of volumes, also if a default replaces a size that was removed."""
    if smaller(before, size):
        return [f"spec.storage.size: volumes grow from {before} to {size}, and can never shrink."]
    if smaller(size, before):
        return [
            f"spec.storage.size: {size} is below the former {before}. If volumes have grown to that, the spec is not "
            "applied, because they cannot shrink (VolumesCannotShrink)."
        ]
    return []


_MAX_RESOURCES = 8
"""Kinds of resources of a container. Kubernetes before 1.34 estimates the cost of a CEL rule as if each quantity had
3 MiB, and rejects a CRD with a rule that reads more than 31 of them.
"""


class ResourceRequirements(SpecModel):
    """CPU and memory of a container."""

    limits: Annotated[dict[str, Quantity], AtMost(_MAX_RESOURCES)] = Field(
        default_factory=dict, description="Maximum that the container may use, such as memory: 256Mi."
    )
    requests: Annotated[dict[str, Quantity], AtMost(_MAX_RESOURCES)] = Field(
        default_factory=dict, description="Amount that the scheduler reserves for the container, such as cpu: 100m."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.limits) || !has(self.requests) || self.requests.all(name, !(name in self.limits) || "
            f"{number_cel('self.requests[name]')} <= {number_cel('self.limits[name]')})",
            lambda given: (
                not any(
                    name in given.limits and smaller(given.limits[name], requested)
                    for name, requested in given.requests.items()
                )
            ),
            "a request is above its limit; lower the request, or raise the limit.",
            at="requests",
        ),
    )


class ListedResources(ResourceRequirements):
    """CPU and memory of each of several containers, for which the CEL rule would read too many quantities."""

    RULES: ClassVar[tuple[Rule, ...]] = tuple(replace(rule, cel="") for rule in ResourceRequirements.RULES)


class Toleration(SpecModel):
    """A toleration, which lets pods run on nodes with a matching taint."""

    key: Annotated[str, Field(max_length=317)] | None = Field(
        None, description="Key of the taint; empty with operator Exists matches every taint."
    )
    operator: Literal["Exists", "Equal"] | None = Field(
        None, description="Comparison with the taint: Equal (default) compares the value, Exists ignores it."
    )
    value: Annotated[str, Field(max_length=63)] | None = Field(
        None, description="Value of the taint, for operator Equal."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Effect of the taint; empty matches every effect."
    )
    toleration_seconds: int | None = Field(
        None,
        description="Seconds that a pod stays on a node after a NoExecute taint appears.",
        json_schema_extra=INT64,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
            lambda given: not given.value or given.operator != "Exists",
            "operator Exists ignores the value; remove the value, or set operator to Equal.",
            at="value",
        ),
        Rule(
            "has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'",
            lambda given: bool(given.key) or given.operator == "Exists",
            "a toleration without a key requires operator Exists; set operator to Exists, or set a key.",
        ),
        Rule(
            "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
            lambda given: given.toleration_seconds is None or given.effect == "NoExecute",
            "tolerationSeconds requires effect NoExecute; set effect to NoExecute, or remove tolerationSeconds.",
            at="tolerationSeconds",
        ),
    )


class TopologySpread(SpecModel):
    """A constraint that spreads the pods of the resource over nodes or zones; the operator sets the selector."""

    topology_key: Annotated[str, Field(min_length=1, max_length=317)] = Field(
        description="Node label that defines the domains, such as topology.kubernetes.io/zone."
    )
    max_skew: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="Maximum difference in pods between two domains; 1 by default.", json_schema_extra=INT32
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None = Field(
        None,
        description="Handling of a pod that would violate the constraint: it stays pending (DoNotSchedule, the "
        "default) or is scheduled anyway (ScheduleAnyway).",
    )


def one_of(fields: Sequence[str], rest: str) -> Rule:
    """Return the rule that exactly one of these fields is set.

    Args:
        fields: names of the fields in a manifest.
        rest: end of the message.
    """
    return Rule(
        f"[{', '.join(f'has(self.{field})' for field in fields)}].filter(given, given).size() == 1",
        lambda given: len(as_object(given).keys() & set(fields)) == 1,
        f"set exactly one of {', '.join(fields)}; {rest}",
    )


class ValueSource(SpecModel):
    """The source of a variable's value, as in a pod. Kubernetes refuses a pod in which a source is empty."""

    secret_key_ref: dict[str, Any] | None = Field(
        None, description="A key of a Secret: name, key, optional.", json_schema_extra=OPAQUE
    )
    config_map_key_ref: dict[str, Any] | None = Field(
        None, description="A key of a ConfigMap: name, key, optional.", json_schema_extra=OPAQUE
    )
    field_ref: dict[str, Any] | None = Field(
        None, description="A field of the pod: fieldPath.", json_schema_extra=OPAQUE
    )
    resource_field_ref: dict[str, Any] | None = Field(
        None,
        description="A request or limit of a container: resource, containerName, divisor.",
        json_schema_extra=OPAQUE,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of(
            ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"),
            "other sources are not possible.",
        ),
    )


class EnvVar(SpecModel):
    """An environment variable of the main container."""

    name: Annotated[str, Field(max_length=256, pattern="^[ -<>-~]+$")] = Field(
        description="Name of the variable: printable ASCII without '='."
    )
    value: Annotated[str, Field(max_length=32768)] | None = Field(None, description="Value of the variable.")
    value_from: ValueSource | None = Field(None, description="Source of the value, as in a pod.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.value) || self.value == '' || !has(self.valueFrom)",
            lambda given: not given.value or given.value_from is None,
            "value and valueFrom are mutually exclusive; remove one.",
        ),
    )


def distinct(field: str) -> AfterValidator:
    """Return a validator that refuses a list in which two items have the same value of a field."""

    def check(items: list[Any]) -> list[Any]:
        values = [getattr(item, field) for item in items]
        if twice := sorted({str(value) for value in values if values.count(value) > 1}):
            raise ValueError(f"{', '.join(twice)} is listed more than once; keep one")
        return items

    return AfterValidator(check)


OWN_LABELS = (
    ownership.NAME,
    ownership.INSTANCE,
    ownership.MANAGED_BY,
    ownership.PART_OF,
    ownership.COMPONENT,
)
"""Labels of pods that operators set and that selectors use."""

SAFE: Obj = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""securityContext of every container that operators create."""


def restricted(user: int) -> Obj:
    """Return the securityContext of a pod for this UID and GID, as the Pod Security level `restricted` requires."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


class PodDisruptionBudget(SpecModel):
    """Limit on the number of pods that node drains may evict at once."""

    min_available: CountOrShare | None = Field(
        None, description="Minimum number of available pods, or a share such as 50%."
    )
    max_unavailable: CountOrShare | None = Field(
        None, description="Maximum number of unavailable pods, or a share such as 50%; 1 if neither field is set."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minAvailable) || !has(self.maxUnavailable)",
            lambda given: given.min_available is None or given.max_unavailable is None,
            "minAvailable and maxUnavailable are mutually exclusive; remove one.",
        ),
    )

    def blocks_every_eviction(self, size: int) -> bool:
        """Whether no pod of `size` pods may ever be evicted."""
        if self.min_available is not None:
            return 0 < size <= _count(self.min_available, size)
        return self.max_unavailable is not None and _count(self.max_unavailable, size) == 0

    def evictable(self, size: int) -> int:
        """Return how many of `size` pods may be unavailable at once."""
        if self.min_available is not None:
            return max(0, size - _count(self.min_available, size))
        return min(size, 1 if self.max_unavailable is None else _count(self.max_unavailable, size))

    def disruption_budget(self, selector: Mapping[str, str]) -> Obj:
        """Return the spec of the PodDisruptionBudget for pods with these labels.

        Pods that are not ready may always be evicted: a pod that serves no client must not block the drain of a node.
        """
        allowed = as_object(self) or {"maxUnavailable": 1}
        matched = {"matchLabels": dict(selector)}
        return {**allowed, "selector": matched, "unhealthyPodEvictionPolicy": "AlwaysAllow"}


def _count(given: int | str, size: int) -> int:
    """Convert a number or a share to a number of pods; like Kubernetes, round shares up."""
    return given if isinstance(given, int) else math.ceil(int(given.removesuffix("%")) * size / 100)


_APART = {"kubernetes.io/hostname": 100, "topology.kubernetes.io/zone": 50}
"""Weight of each topology in the default affinity: a second pod on a node is worse than one in the same zone."""


class PodSettings(SpecModel):
    """Common settings of pods, directly in the spec."""

    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="CPU and memory of the main container."
    )
    node_selector: Annotated[dict[str, LabelValue], AtMost(32)] = Field(
        default_factory=dict, description="Labels that a node must have to run the pods."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(
        default_factory=list, description="Node taints that the pods tolerate."
    )
    affinity: dict[str, Any] | None = Field(
        None,
        description="Affinity rules, as in a pod: nodeAffinity, podAffinity, podAntiAffinity.",
        json_schema_extra=OPAQUE,
    )
    topology_spread: Annotated[list[TopologySpread], Field(max_length=16)] = Field(
        default_factory=list,
        description="Spreading of the pods over nodes and zones; by default evenly over nodes and "
        "zones, best effort (unless affinity is set).",
    )
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        None,
        description="PodDisruptionBudget of the pods; {} allows one unavailable pod. Without this field there is none.",
    )
    priority_class_name: Name | None = Field(None, description="PriorityClass of the pods.")
    labels: Annotated[dict[str, LabelValue], AtMost(32)] = Field(
        default_factory=dict,
        description="Additional labels of the pods; labels that the operator sets cannot be used.",
    )
    annotations: Annotated[dict[str, str], AtMost(64)] = Field(
        default_factory=dict, description="Additional annotations of the pods."
    )
    env: Annotated[list[EnvVar], Field(max_length=128), distinct("name")] = Field(
        default_factory=list,
        description="Environment variables of the main container.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.labels) || !{json.dumps(OWN_LABELS)}.exists(label, label in self.labels)",
            lambda spec: not any(label in spec.labels for label in OWN_LABELS),
            "{} is a label that the operator sets; remove it.",
            at="labels",
            value=(
                f"{json.dumps(OWN_LABELS)}.filter(label, label in self.labels)[0]",
                lambda spec: next(label for label in OWN_LABELS if label in spec.labels),
            ),
        ),
        Rule(
            "",
            lambda spec: not unconfined_annotation(spec.annotations),
            "{} must keep a profile, such as runtime/default; remove it: containers are never unconfined.",
            at="annotations",
            value=("", lambda spec: unconfined_annotation(spec.annotations)),
        ),
        Rule(
            "",
            lambda spec: not reaches_other_namespaces(spec.affinity),
            "a term with namespaces or namespaceSelector selects pods of other namespaces; remove these fields.",
            at="affinity",
        ),
    )

    def placement(self) -> Obj:
        """Return the fields of a pod's spec that decide where pods run; only fields that are set."""
        given: Obj = {
            "nodeSelector": dict(self.node_selector),
            "tolerations": [as_object(toleration) for toleration in self.tolerations],
            "affinity": self.affinity,
            "priorityClassName": self.priority_class_name,
        }
        return {name: value for name, value in given.items() if value}

    def spread(self, selector: Mapping[str, str]) -> list[Obj]:
        """Return the topologySpreadConstraints of pods with these labels.

        By default pods spread evenly over nodes, best effort: no pod stays pending for it.
        """
        given = [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} | as_object(constraint)
            for constraint in self.topology_spread
        ]
        evenly = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        return [{**constraint, "labelSelector": {"matchLabels": dict(selector)}} for constraint in given or [evenly]]

    def apart(self, selector: Mapping[str, str]) -> Obj:
        """Return the default affinity of pods with these labels, which prefers free nodes first, and then free zones.

        A topology spread constraint over zones would cancel that over nodes where nodes have no zones: the scheduler
        scores only nodes that have the keys of all constraints. Nothing is returned if the spec decides itself.
        """
        if self.affinity is not None or self.topology_spread:
            return {}
        labels = {"labelSelector": {"matchLabels": dict(selector)}}
        terms = [{"weight": weight, "podAffinityTerm": labels | {"topologyKey": key}} for key, weight in _APART.items()]
        return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}

    def environment(self) -> list[Obj]:
        """Return the variables as fields of a container."""
        return [as_object(variable) for variable in self.env]
