"""What the specs of all three kinds share: parsing with errors that teach, and the usual settings of pods.

The same models make the CRD (`shared.crd`). Unknown fields are ignored here, for the API server has already pruned or
refused them, and an operator must live with a CRD newer than itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from shared import ownership
from shared.kube import Obj
from shared.quantity import parse_quantity

OWN_LABELS = (
    ownership.NAME, ownership.INSTANCE, ownership.MANAGED_BY, ownership.PART_OF, ownership.COMPONENT
)  # fmt: skip
"""Labels of pods that operators set: selectors rest on them."""


class InvalidSpec(Exception):
    """The spec cannot be made real; the message says which values are wrong and what would mend them."""


class SpecModel(BaseModel):
    """A part of a resource: frozen, camelCase outside, snake_case inside."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


def rules(*pairs: tuple[str, str]) -> JsonDict:
    """CEL rules of a field or a model, as (rule, message), for `json_schema_extra`."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


_QUANTITY = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"


def _quantity(value: int | str) -> int | str:
    parse_quantity(value)
    return value


Quantity = Annotated[
    int | str,
    AfterValidator(_quantity),
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": _QUANTITY}),
]
OPAQUE: JsonDict = {"x-kubernetes-preserve-unknown-fields": True}
"""A part that Kubernetes itself defines and checks: passed on as it is."""

Label = Annotated[str, Field(max_length=63)]


class ResourceRequirements(SpecModel):
    """CPU and memory of a container."""

    limits: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(
        default_factory=dict, description="The most that the container may use, such as memory: 256Mi."
    )
    requests: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(
        default_factory=dict, description="What the scheduler sets aside for the container, such as cpu: 100m."
    )


class Toleration(SpecModel):
    """Lets pods run on nodes with a matching taint."""

    key: str | None = Field(None, description="The taint's key; empty with operator Exists matches every taint.")
    operator: Literal["Exists", "Equal"] | None = Field(None, description="How key and value are compared.")
    value: str | None = Field(None, description="The taint's value, where operator is Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; empty matches every effect."
    )
    toleration_seconds: int | None = Field(
        None, description="Seconds that a pod stays on a node after a NoExecute taint came.",
        json_schema_extra={"format": "int64"},
    )  # fmt: skip


class TopologySpread(SpecModel):
    """Spreads the pods of the resource over nodes or zones; which pods is known, so there is no selector to give."""

    topology_key: Annotated[str, Field(min_length=1, max_length=316)] = Field(
        description="Label of nodes that tells domains apart, such as topology.kubernetes.io/zone."
    )
    max_skew: Annotated[int, Field(ge=1, json_schema_extra={"format": "int32"})] | None = Field(
        None, description="By how many pods two domains may differ; 1 if not given."
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None = Field(
        None, description="Whether a pod that would break the spread waits, or runs all the same (ScheduleAnyway)."
    )


class EnvVar(SpecModel):
    """An environment variable of the main container."""

    name: Annotated[str, Field(min_length=1)] = Field(description="The variable's name.")
    value: str | None = Field(None, description="Its value.")
    value_from: dict[str, Any] | None = Field(
        None, description="Where its value comes from, as in a pod: secretKeyRef, configMapKeyRef, fieldRef …",
        json_schema_extra=OPAQUE,
    )  # fmt: skip


class PodSettings(SpecModel):
    """The usual settings of pods, directly in the spec."""

    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="CPU and memory of the main container."
    )
    node_selector: Annotated[dict[str, str], Field(max_length=32)] = Field(
        default_factory=dict, description="Labels that a node must have for the pods to run there."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(
        default_factory=list, description="Taints of nodes that the pods tolerate."
    )
    affinity: dict[str, Any] | None = Field(
        None, description="Rules of a pod's affinity, as in a pod: nodeAffinity, podAffinity, podAntiAffinity.",
        json_schema_extra=OPAQUE,
    )  # fmt: skip
    topology_spread: Annotated[list[TopologySpread], Field(max_length=16)] = Field(
        default_factory=list,
        description="How the pods spread over nodes and zones; if not given, as evenly over nodes as can be.",
    )
    priority_class_name: str | None = Field(None, description="PriorityClass of the pods.")
    labels: Annotated[dict[str, Label], Field(max_length=32)] = Field(
        default_factory=dict,
        description="Further labels of the pods; those that the operator sets itself cannot be given.",
        json_schema_extra=rules(
            (
                f"self.all(key, !(key in [{', '.join(repr(label) for label in OWN_LABELS)}]))",
                "labels holds a label that the operator sets itself (app.kubernetes.io/name, instance, managed-by, "
                "part-of or component); remove it.",
            )
        ),
    )
    annotations: Annotated[dict[str, str], Field(max_length=64)] = Field(
        default_factory=dict, description="Further annotations of the pods."
    )
    env: Annotated[list[EnvVar], Field(max_length=128)] = Field(
        default_factory=list,
        description="Environment variables of the main container.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
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

    def environment(self) -> list[Obj]:
        """The variables as a container takes them."""
        return [as_object(variable) for variable in self.env]

    def wrong_labels(self) -> list[str]:
        """What the CEL rule on labels says, for specs that came past it."""
        return [
            f"spec.labels: {label} is set by the operator itself; remove it."
            for label in OWN_LABELS
            if label in self.labels
        ]


class Condition(SpecModel):
    """One of the conditions that kstatus reads."""

    type: Annotated[str, Field(max_length=316)] = Field(description="Ready, Reconciling or Stalled.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Annotated[str, Field(max_length=1024)] = Field(description="Why, in one word for machines.")
    message: Annotated[str, Field(max_length=32768)] = Field(description="Why, in a sentence for people.")
    last_transition_time: str = Field(
        description="When status last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(
        description="The generation of the spec that it tells of.", json_schema_extra={"format": "int64"}
    )


class Status(SpecModel):
    """What every status has."""

    observed_generation: int | None = Field(
        None, description="The generation of the spec that this status tells of.", json_schema_extra={"format": "int64"}
    )
    phase: str | None = Field(None, description="What the resource is doing, in one word.")
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default_factory=list,
        description="Ready, Reconciling and Stalled, as kstatus reads them.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


def as_object(model: SpecModel) -> Obj:
    """A model as it stands in a manifest, without what was not given."""
    return model.model_dump(by_alias=True, exclude_none=True)


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], obj: Mapping[str, Any], *, at: str) -> Model:
    """A part of a resource as a model.

    Args:
        at: where the part stands in the resource, such as `spec`, for messages.

    Raises:
        InvalidSpec: with a sentence for each wrong value.
    """
    try:
        return model.model_validate(obj)
    except ValidationError as error:
        raise InvalidSpec(" ".join(_sentence(at, dict(found)) for found in error.errors())) from None


_ADVICE = {
    "missing": "is missing; give it.",
    "greater_than_equal": "is too small; give at least {ge}.",
    "less_than_equal": "is too large; give at most {le}.",
    "too_long": "has too many entries; give at most {max_length}.",
    "string_too_long": "is too long; give at most {max_length} characters.",
    "string_too_short": "is too short; give at least {min_length} characters.",
    "string_pattern_mismatch": "does not match {pattern}; write it so.",
    "value_error": "is wrong: {error}.",
    "literal_error": "is not known; give {expected}.",
}


def _sentence(at: str, found: dict[str, Any]) -> str:
    where = at + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
    advice = _ADVICE.get(found["type"])
    said = advice.format(**found.get("ctx", {})) if advice else f"is wrong: {found['msg']}."
    value = "" if found["type"] == "missing" else f" {found['input']!r}"
    return f"{where}:{value} {said}"


def smaller(given: str | int, needed: str) -> bool:
    """Whether one quantity is below another."""
    return parse_quantity(given) < parse_quantity(needed)
