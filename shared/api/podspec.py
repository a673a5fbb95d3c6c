"""The usual settings of pods, which all three kinds have directly in their specs.

What Kubernetes would refuse only when the pods are made is refused here as far as it is said in a few words: a person
hears of it when they apply the resource.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from shared.api.spec import INT32, INT64, Name, Rule, SpecModel, as_object
from shared.kubernetes import ownership
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity

_QUANTITY = r"^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"
_MAX_QUANTITY_LENGTH = 32
_SHARE = r"^(100|[0-9]{1,2})%$"


def _quantity(value: int | str) -> int | str:
    if len(str(value)) > _MAX_QUANTITY_LENGTH:
        raise ValueError(f"a quantity has at most {_MAX_QUANTITY_LENGTH} characters")
    if parse_quantity(value) < 0:
        raise ValueError("a quantity here cannot be negative")
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
"""A part that Kubernetes itself defines and checks: passed on as it is."""

LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


def number_cel(quantity: str) -> str:
    """A quantity's number, in CEL, for an expression that yields an int-or-string."""
    return f"(type({quantity}) == int ? double({quantity}) : quantity({quantity}).asApproximateFloat())"


def smaller(quantity: str | int, than: str | int) -> bool:
    """Whether one quantity is below another."""
    return parse_quantity(quantity) < parse_quantity(than)


class ResourceRequirements(SpecModel):
    """CPU and memory of a container."""

    limits: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(
        default_factory=dict, description="The most that the container may use, such as memory: 256Mi."
    )
    requests: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(
        default_factory=dict, description="What the scheduler sets aside for the container, such as cpu: 100m."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.limits) || !has(self.requests) || self.requests.all(name, !(name in self.limits) || "
            f"{number_cel('self.requests[name]')} <= {number_cel('self.limits[name]')})",
            lambda given: (
                not any(
                    name in given.limits and smaller(given.limits[name], asked)
                    for name, asked in given.requests.items()
                )
            ),
            "a request is above its limit; lower the request, or raise the limit.",
            at="requests",
        ),
    )


class Toleration(SpecModel):
    """Lets pods run on nodes with a matching taint."""

    key: Annotated[str, Field(max_length=317)] | None = Field(
        None, description="The taint's key; without one, and with operator Exists, every taint is meant."
    )
    operator: Literal["Exists", "Equal"] | None = Field(
        None, description="How the taint is compared: Equal (if not given) looks at the value, Exists does not."
    )
    value: Annotated[str, Field(max_length=63)] | None = Field(
        None, description="The taint's value, where operator is Equal."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; if not given, every effect."
    )
    toleration_seconds: int | None = Field(
        None, description="Seconds that a pod stays on a node after a NoExecute taint came.", json_schema_extra=INT64
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
            lambda given: not given.value or given.operator != "Exists",
            "operator Exists compares no value; remove the value, or make the operator Equal.",
            at="value",
        ),
        Rule(
            "has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'",
            lambda given: bool(given.key) or given.operator == "Exists",
            "a toleration without a key tolerates every taint: that needs operator Exists; give it, or a key.",
        ),
        Rule(
            "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
            lambda given: given.toleration_seconds is None or given.effect == "NoExecute",
            "only effect NoExecute ends after seconds; make the effect NoExecute, or remove tolerationSeconds.",
            at="tolerationSeconds",
        ),
    )


class TopologySpread(SpecModel):
    """Spreads the pods of the resource over nodes or zones; which pods is known, so there is no selector to give."""

    topology_key: Annotated[str, Field(min_length=1, max_length=317)] = Field(
        description="Label of nodes that tells domains apart, such as topology.kubernetes.io/zone."
    )
    max_skew: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="By how many pods two domains may differ; 1 if not given.", json_schema_extra=INT32
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None = Field(
        None,
        description="What becomes of a pod that would break the spread: it waits (DoNotSchedule, if not given), or "
        "runs all the same (ScheduleAnyway).",
    )


class EnvVar(SpecModel):
    """An environment variable of the main container."""

    name: Annotated[str, Field(max_length=256, pattern="^[ -<>-~]+$")] = Field(
        description="The variable's name: printable ASCII without '='."
    )
    value: Annotated[str, Field(max_length=32768)] | None = Field(None, description="Its value.")
    value_from: dict[str, Any] | None = Field(
        None,
        description="Where its value comes from, as in a pod: secretKeyRef, configMapKeyRef, fieldRef.",
        json_schema_extra=OPAQUE,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.value) || self.value == '' || !has(self.valueFrom)",
            lambda given: not given.value or given.value_from is None,
            "value and valueFrom exclude each other; remove one.",
        ),
    )


def distinct(variables: list[EnvVar]) -> list[EnvVar]:
    """The same, where no name stands twice.

    Raises:
        ValueError: one does.
    """
    names = [variable.name for variable in variables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} stands there more than once; keep one")
    return variables


OWN_LABELS = (
    ownership.NAME,
    ownership.INSTANCE,
    ownership.MANAGED_BY,
    ownership.PART_OF,
    ownership.COMPONENT,
)
"""Labels of pods that operators set: selectors rest on them."""


SAFE: Obj = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""securityContext of every container of ours."""


def restricted(user: int) -> Obj:
    """SecurityContext of a pod that runs as this user and group, as Pod Security's level `restricted` asks for it."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


class PodDisruptionBudget(SpecModel):
    """How many pods a drain of nodes may take at once."""

    min_available: CountOrShare | None = Field(
        None, description="Pods that stay at least, as a number or as a share such as 50%."
    )
    max_unavailable: CountOrShare | None = Field(
        None, description="Pods that may be missing at most, as a number or as a share; 1 if nothing is given."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minAvailable) || !has(self.maxUnavailable)",
            lambda given: given.min_available is None or given.max_unavailable is None,
            "minAvailable and maxUnavailable exclude each other; remove one.",
        ),
    )

    def keeps_all(self, size: int) -> bool:
        """Whether no pod of so many may ever be evicted."""
        if self.min_available is not None:
            return 0 < size <= _count(self.min_available, size)
        return self.max_unavailable is not None and _count(self.max_unavailable, size) == 0

    def evictable(self, size: int) -> int:
        """How many of so many pods may be missing at once."""
        if self.min_available is not None:
            return max(0, size - _count(self.min_available, size))
        return min(size, 1 if self.max_unavailable is None else _count(self.max_unavailable, size))

    def disruption_budget(self, selector: Mapping[str, str]) -> Obj:
        """The spec of the PodDisruptionBudget over pods with these labels.

        Pods that are not ready may always be evicted: a node must not be held by a pod that serves nobody.
        """
        allowed = as_object(self) or {"maxUnavailable": 1}
        matched = {"matchLabels": dict(selector)}
        return {**allowed, "selector": matched, "unhealthyPodEvictionPolicy": "AlwaysAllow"}


def _count(given: int | str, size: int) -> int:
    """What is given as a number or a share, as Kubernetes counts it: shares are rounded up."""
    return given if isinstance(given, int) else math.ceil(int(given.removesuffix("%")) * size / 100)


class PodSettings(SpecModel):
    """The usual settings of pods, directly in the spec."""

    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="CPU and memory of the main container."
    )
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(
        default_factory=dict, description="Labels that a node must have for the pods to run there."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(
        default_factory=list, description="Taints of nodes that the pods tolerate."
    )
    affinity: dict[str, Any] | None = Field(
        None,
        description="Rules of affinity, as in a pod: nodeAffinity, podAffinity, podAntiAffinity.",
        json_schema_extra=OPAQUE,
    )
    topology_spread: Annotated[list[TopologySpread], Field(max_length=16)] = Field(
        default_factory=list,
        description="How the pods spread over nodes and zones; if not given, as evenly over nodes as can be.",
    )
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        None,
        description="How many pods a drain of nodes may take at once; {} means one. If not given, there is no budget.",
    )
    priority_class_name: Name | None = Field(None, description="PriorityClass of the pods.")
    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(
        default_factory=dict,
        description="Further labels of the pods; those that the operator sets itself cannot be given.",
    )
    annotations: Annotated[dict[str, str], Field(max_length=64)] = Field(
        default_factory=dict, description="Further annotations of the pods."
    )
    env: Annotated[list[EnvVar], AfterValidator(distinct), Field(max_length=128)] = Field(
        default_factory=list,
        description="Environment variables of the main container.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.labels) || !{json.dumps(OWN_LABELS)}.exists(label, label in self.labels)",
            lambda spec: not any(label in spec.labels for label in OWN_LABELS),
            "{} is a label that the operator sets itself; remove it.",
            at="labels",
            value=(
                f"{json.dumps(OWN_LABELS)}.filter(label, label in self.labels)[0]",
                lambda spec: next(label for label in OWN_LABELS if label in spec.labels),
            ),
        ),
    )

    def placement(self) -> Obj:
        """Where pods run, as fields of a pod's spec; only what is given."""
        given: Obj = {
            "nodeSelector": dict(self.node_selector),
            "tolerations": [as_object(toleration) for toleration in self.tolerations],
            "affinity": self.affinity,
            "priorityClassName": self.priority_class_name,
        }
        return {name: value for name, value in given.items() if value}

    def spread(self, selector: Mapping[str, str]) -> list[Obj]:
        """How pods with these labels spread, as a pod takes it.

        Where nothing is given: over the nodes as evenly as can be, but never at the price of a pod.
        """
        given = [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} | as_object(constraint)
            for constraint in self.topology_spread
        ]
        evenly = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        return [{**constraint, "labelSelector": {"matchLabels": dict(selector)}} for constraint in given or [evenly]]

    def environment(self) -> list[Obj]:
        """The variables as a container takes them."""
        return [as_object(variable) for variable in self.env]
