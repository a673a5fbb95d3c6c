"""What the specs of all three kinds share: models that make the CRD, rules over fields, and errors that teach.

Unknown fields are ignored here, for the API server has already pruned or refused them, and an operator must live with a
CRD newer than itself. Everything else that the CRD refuses is refused here again: a resource may be older than its CRD.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Kind, Obj

INT32: JsonDict = {"format": "int32"}
INT64: JsonDict = {"format": "int64"}
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A moment, in RFC 3339."""
Name = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""What Kubernetes takes as the name of most objects: a DNS subdomain."""


class InvalidSpec(Exception):
    """The spec cannot be made real; the message says which values are wrong and what would mend them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What fields must be to each other, twice: for the API server at admission, and for the reconcile.

    Attributes:
        cel: it holds, in CEL over the model as `self`; https://kubernetes.io/docs/reference/using-api/cel/ tells how.
        holds: the same, in Python over the parsed model.
        message: what to change, following the field's path; `{}` in it stands for `value`.
        at: the field that breaks it, as a path within the model; empty for the model itself.
        value: what the message shows, in CEL and in Python.
    """

    cel: str
    holds: Callable[..., bool]
    message: str
    at: str = ""
    value: tuple[str, Callable[..., object]] | None = None

    def schema(self) -> Obj:
        """The rule as an entry of x-kubernetes-validations."""
        found: Obj = {"rule": self.cel}
        if self.value is None:
            found["message"] = self.message
        else:
            # One call of format: the server's estimate of what joined strings cost has no bound.
            template = json.dumps(self.message.replace("%", "%%").replace("{}", "%s"), ensure_ascii=False)
            found["messageExpression"] = f"{template}.format([{self.value[0]}])"
        return found | ({"fieldPath": f".{self.at}"} if self.at else {})

    def sentence(self, *models: object, at: str = "") -> str:
        """What to say of a model that breaks the rule, and that stands at `at` in the resource."""
        where = ".".join(part for part in (at, self.at) if part)
        said = self.message if self.value is None else self.message.replace("{}", str(self.value[1](*models)))
        return f"{where}: {said}" if where else said


@dataclass(frozen=True, slots=True)
class Transition(Rule):
    """What a model must be to what it was, asked only where it was there before.

    `cel` knows the former model as `oldSelf`; `holds`, and the second part of `value`, take it as a second argument.
    The API server asks none of these within the items of a list.
    """


class SpecModel(BaseModel):
    """A part of a resource: frozen, camelCase outside, snake_case inside.

    Attributes:
        RULES: what its fields must be to each other; they go into the CRD, and `broken` checks them.
    """

    model_config = ConfigDict(frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")
    RULES: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Obj:
        schema = handler(core)
        if cls.RULES:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [rule.schema() for rule in cls.RULES]
        return schema


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], obj: Mapping[str, Any], *, at: str) -> Model:
    """A part of a resource as a model.

    Args:
        model: what it should be.
        obj: the part as the API server shows it.
        at: where the part stands in the resource, such as `spec`, for messages.

    Raises:
        InvalidSpec: with a sentence for each wrong value.
    """
    try:
        return model.model_validate(obj)
    except ValidationError as error:
        raise InvalidSpec(" ".join(_sentence(at, dict(found)) for found in error.errors())) from None


@dataclass(frozen=True, slots=True)
class Review:
    """What is to be said of a resource.

    Attributes:
        errors: a sentence for each thing that makes it impossible; any refuses it.
        warnings: a sentence for each thing that works and yet is unwise; kubectl shows them, nothing is refused.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """What an operator says of a resource at its door, pure: the webhooks ask it, and the reconcile asks it again.

    Attributes:
        kind: what it is asked about.
        default: the whole resource with what a schema cannot default, fields that depend on others; it leaves what is
            given, changes nothing but the spec, says the same of what it made itself, and takes any resource, even a
            wrong one: to refuse is the review's.
        review: of a resource and of what it was before (None where it is new).
    """

    kind: Kind
    default: Callable[[Obj], Obj]
    review: Callable[[Obj, Obj | None], Review]


Spec = TypeVar("Spec", bound=SpecModel)


@dataclass(frozen=True)
class CustomResource(Generic[Spec]):
    """A resource with its spec parsed: what steps of a plan ask.

    Attributes:
        obj: the resource as the API server shows it.
        spec: its spec as a model.
    """

    obj: Obj
    spec: Spec

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    @property
    def reported(self) -> Obj:
        """Its status; empty for a new one."""
        return self.obj.get("status") or {}

    @property
    def phase(self) -> str:
        """What its status last said it is doing; empty for a new one."""
        return str(self.reported.get("phase") or "")

    @property
    def changed(self) -> bool:
        """Whether the spec changed since the status was written."""
        return not accessors.is_current(self.obj)


def broken(model: SpecModel, at: str, before: SpecModel | None = None) -> list[str]:
    """A sentence for each rule that a model, or a model within it, breaks.

    Args:
        model: a parsed model.
        at: where it stands in the resource, such as `spec`.
        before: what it was; without it, no Transition is asked.
    """
    said = _broken(model.RULES, model, before, at)
    former = dict(_inner(before)) if before is not None else {}
    for path, inner in _inner(model):
        said += broken(inner, f"{at}.{path}", former.get(path) if "[" not in path else None)
    return said


def contradictions(
    resource: CustomResource[Spec], rules: Iterable[Rule], before: CustomResource[Spec] | None = None
) -> list[str]:
    """A sentence for each rule that a resource breaks: its kind's own, about the whole resource, and its spec's.

    Args:
        rules: about the whole resource, as `crd.Resource` has them.
        before: what the resource was; without it, no Transition is asked.
    """
    wrong = _broken(rules, resource, before, "")
    return wrong + broken(resource.spec, at="spec", before=before.spec if before is not None else None)


def _broken(rules: Iterable[Rule], model: object, before: object | None, at: str) -> list[str]:
    said = []
    for rule in rules:
        models = (model, before) if isinstance(rule, Transition) else (model,)
        if None not in models and not rule.holds(*models):
            said.append(rule.sentence(*models, at=at))
    return said


def as_object(model: SpecModel) -> Obj:
    """A model as it stands in a manifest, without what was not given."""
    return model.model_dump(by_alias=True, exclude_none=True)


def _inner(model: SpecModel) -> Iterator[tuple[str, SpecModel]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, SpecModel):
            yield field.alias or name, value
        elif isinstance(value, list):
            yield from ((f"{field.alias}[{at}]", item) for at, item in enumerate(value) if isinstance(item, SpecModel))


_ADVICE = {
    "missing": "is missing; give it.",
    "int_type": "is not a whole number; give one, without quotes.",
    "string_type": "is not a string; put it into quotes.",
    "bool_type": "is not a boolean; give true or false, without quotes.",
    "list_type": "is not a list; give one.",
    "dict_type": "is not an object; give fields.",
    "model_type": "is not an object; give fields.",
    "greater_than_equal": "is too small; give at least {ge}.",
    "less_than_equal": "is too large; give at most {le}.",
    "too_long": "has too many entries; give at most {max_length}.",
    "string_too_long": "is too long; give at most {max_length} characters.",
    "string_too_short": "is too short; give at least {min_length} characters.",
    "string_pattern_mismatch": "does not match {pattern}; write it so.",
    "literal_error": "is not known; give {expected}.",
    "value_error": "is wrong: {error}.",
}
"""What would mend a value, by pydantic's type of error; the braces name the error's context."""


def _sentence(at: str, found: Mapping[str, Any]) -> str:
    where = at + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
    advice = _ADVICE.get(found["type"])
    said = advice.format(**found.get("ctx", {})) if advice else f"is wrong: {found['msg']}."
    given = "" if found["type"] == "missing" else f" {_short(found['input'])}"
    return f"{where}:{given} {said}"


def _short(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Issuer(SpecModel):
    """An issuer of cert-manager."""

    name: Name = Field(description="Its name.")
    kind: Literal["Issuer", "ClusterIssuer"] = Field("Issuer", description="Its kind.")


class Condition(SpecModel):
    """One of the conditions that kstatus reads."""

    type: Annotated[str, Field(max_length=316)] = Field(description="Ready, Reconciling or Stalled.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Annotated[str, Field(max_length=1024)] = Field(description="Why, in one word for machines.")
    message: Annotated[str, Field(max_length=32768)] = Field(description="Why, in a sentence for people.")
    last_transition_time: Time = Field(description="When status last changed.")
    observed_generation: int = Field(
        description="The generation of the spec that it tells of.", json_schema_extra=INT64
    )


class Reported(SpecModel):
    """What every status has, whatever else its conditions tell of."""

    observed_generation: int | None = Field(
        None, description="The generation of the spec that this status tells of.", json_schema_extra=INT64
    )
    phase: str | None = Field(None, description="What the resource is doing, in one word.")


class Status(Reported):
    """What every status has whose conditions are those that kstatus reads."""

    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default_factory=list,
        description="Ready, Reconciling and Stalled, as kstatus reads them.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
