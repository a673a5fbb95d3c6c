"""Base of all specs: models that generate the CRD, rules over fields, and errors that explain how to fix a value.

Unknown fields are ignored here: the API server has already pruned or rejected them, and an operator must work with a
CRD newer than itself. Everything else that the CRD rejects is rejected here again, because a resource may be older
than its CRD.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from shared.api.memo import Memo
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Kind, Obj

INT32: JsonDict = {"format": "int32"}
INT64: JsonDict = {"format": "int64"}
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A time in RFC 3339."""
LossObserved = Annotated[
    Time | None,
    Field(
        description="Time of the last observation of the loss, at most ten minutes old while the operator observes it. "
        "After an hour without one, the loss gets another token."
    ),
]
PriorConfirm = Annotated[
    Annotated[str, Field(max_length=64)] | None,
    Field(
        description="Value that spec.recovery.confirm had when the loss was found. It is of an earlier loss, and "
        "confirms nothing."
    ),
]
"""Fields of status.recovery, which `shared.steps.confirmed_recovery` writes."""
Name = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""A DNS subdomain, which is what Kubernetes accepts as the name of most objects."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """Maximum number of entries of a dictionary, checked before them: pydantic checks its max_length after them."""

    entries: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any) -> Any:
            if isinstance(value, dict) and len(value) > self.entries:
                context = {"field_type": "Dictionary", "max_length": self.entries, "actual_length": len(value)}
                raise PydanticKnownError("too_long", context)
            return value

        inner = cast("core_schema.DictSchema", handler(source))
        return core_schema.no_info_before_validator_function(check, {**inner, "max_length": self.entries})


MAX_ERRORS = 20
"""Maximum number of wrong values that a message lists."""

_MAX_KEY_CHARACTERS = 100
_MAX_VALUE_CHARACTERS = 80


class InvalidSpec(Exception):
    """The spec cannot be implemented; the message names the wrong values and how to fix them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint on fields, expressed twice: for the API server at admission, and for the reconcile.

    Attributes:
        cel: constraint in CEL over the model as `self` (https://kubernetes.io/docs/reference/using-api/cel/). Empty if
            CEL of the oldest supported Kubernetes cannot express it: then the webhook and the reconcile check it.
        holds: the same constraint in Python over the parsed model.
        message: how to fix a violation, printed after the path of the field; `{}` is replaced by `value`.
        at: path within the model of the field that violates the rule; empty for the model itself.
        value: value that the message shows, in CEL and in Python.
    """

    cel: str
    holds: Callable[..., bool]
    message: str
    at: str = ""
    value: tuple[str, Callable[..., object]] | None = None

    def schema(self) -> Obj:
        """Return the rule as an entry of x-kubernetes-validations."""
        found: Obj = {"rule": self.cel}
        if self.value is None:
            found["message"] = self.message
        else:
            # A single format call: the API server has no bound for the estimated cost of concatenated strings.
            template = json.dumps(self.message.replace("%", "%%").replace("{}", "%s"), ensure_ascii=False)
            found["messageExpression"] = f"{template}.format([{self.value[0]}])"
        return found | ({"fieldPath": f".{self.at}"} if self.at else {})

    def sentence(self, *models: object, at: str = "") -> str:
        """Return the error for a model that violates the rule; `at` is the path of the model in the resource."""
        where = ".".join(part for part in (at, self.at) if part)
        text = self.message if self.value is None else self.message.replace("{}", str(self.value[1](*models)))
        return f"{where}: {text}" if where else text


@dataclass(frozen=True, slots=True)
class Transition(Rule):
    """A constraint between the old and the new state of a model, checked only if the old state has the model.

    `cel` refers to the old model as `oldSelf`; `holds` and the second part of `value` take it as a second argument. The
    API server does not check transition rules within the items of a list.
    """


class SpecModel(BaseModel):
    """A part of a resource: frozen, camelCase in JSON, snake_case in Python.

    Attributes:
        RULES: constraints between fields; the CRD contains them, and `broken` checks them.
    """

    model_config = ConfigDict(frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")
    RULES: ClassVar[tuple[Rule, ...]] = ()

    @cached_property
    def violations(self) -> tuple[str, ...]:
        """One sentence for each rule that this spec violates, except each Transition."""
        return tuple(broken(self, at="spec"))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, without the cached properties of the original, which may not hold for it."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Obj:
        schema = handler(core)
        if rules := [rule.schema() for rule in cls.RULES if rule.cel]:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = rules
        return schema


Model = TypeVar("Model", bound=BaseModel)

MAX_PARSED_BYTES = 48 * 1024
"""Maximum size of the JSON of all remembered parts; their models take about 40 times as much."""

_JSON_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_parsed = Memo(MAX_PARSED_BYTES)


def _model_of(model: type[Model], obj: Mapping[str, Any]) -> Model:
    """Return the model of a part: passes of a reconcile, and equal specs, share it.

    A model is frozen, and depends on nothing but its content.

    Raises:
        ValidationError: the part is invalid.
    """
    try:
        content = orjson.dumps(obj, option=_JSON_ONLY)
    except TypeError:
        return model.model_validate(obj)
    if len(content) > MAX_PARSED_BYTES:
        return model.model_validate(obj)
    return _parsed.get((model, content), lambda: model.model_validate(obj), lambda _: len(content))


def parse(model: type[Model], obj: Mapping[str, Any], *, at: str) -> Model:
    """Parse a part of a resource.

    Args:
        model: model to parse into.
        obj: the part as returned by the API server.
        at: path of the part in the resource, such as `spec`, for messages.

    Raises:
        InvalidSpec: the message has one sentence for each wrong value, up to `MAX_ERRORS`.
    """
    try:
        return _model_of(model, obj)
    except ValidationError as error:
        raise InvalidSpec(_sentences(at, error)) from None
    except UnicodeEncodeError:  # the API server sends none, but other clients of the webhook may
        raise InvalidSpec(f"{at}: has a text that is not valid Unicode (a lone surrogate). Remove it.") from None


@dataclass(frozen=True, slots=True)
class Review:
    """Result of validating a resource.

    Attributes:
        errors: one sentence for each problem; any error rejects the resource.
        warnings: one sentence for each setting that works but is not recommended; kubectl shows them.
        notes: clauses about many plain resources, such as that a limit is not set, with the field in parentheses. They
            become one warning.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exposure:
    """How far a resource is open, for the platform policy and its warnings.

    Attributes:
        tls: whether connections of clients are encrypted.
        auth: whether clients need a password.
        restricted: whether a NetworkPolicy of the resource restricts clients.
        images: images that the resource runs and the administrator of the operator did not choose, by field.
        host_path: field that mounts a directory of the nodes; empty if none does.
    """

    tls: bool
    auth: bool
    restricted: bool
    images: Mapping[str, str]
    host_path: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """Defaulting and validation of a kind, pure: used by the webhooks and again by the reconcile.

    Attributes:
        kind: the kind.
        default: returns the whole resource with the defaults that a schema cannot express: those that depend on other
            fields. It keeps every value that is set, changes only the spec, is idempotent, and accepts any resource,
            even an invalid one: rejecting is up to `review`.
        review: validates a resource, given the previous state (None for a creation).
        exposure: returns how far a valid resource is open; None if the platform policy does not apply to the kind.
        restarts: returns whether a change of a valid spec replaces pods; None if the warnings of `review` report that,
            or if none does.
    """

    kind: Kind
    default: Callable[[Obj], Obj]
    review: Callable[[Obj, Obj | None], Review]
    exposure: Callable[[Obj], Exposure] | None = None
    restarts: Callable[[Obj, Obj], bool] | None = None


Spec = TypeVar("Spec", bound=SpecModel)


@dataclass(frozen=True)
class CustomResource(Generic[Spec]):
    """A resource with its spec parsed, as the steps of a plan use it.

    Attributes:
        obj: the resource as returned by the API server.
        spec: the parsed spec.
        invalid: why the spec of the resource cannot be parsed: `spec` is the last applied one then
            (`shared.api.applied_spec`); empty otherwise.
        awaits_approval: token of the change that waits for an approval: `spec` is the last applied one then, with what
            needs none (`applied_spec.NOT_APPLIED`); empty otherwise.
    """

    obj: Obj
    spec: Spec
    invalid: str = ""
    awaits_approval: str = ""

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
        """Status of the resource; empty for a new one, and if it is no object: webhooks get any JSON."""
        found = self.obj.get("status")
        return found if isinstance(found, dict) else {}

    def changed_to(self, update: Mapping[str, Any]) -> Self:
        """Return the resource with other values of some fields of its spec."""
        return replace(self, spec=self.spec.model_copy(update=update))

    @property
    def is_new(self) -> bool:
        """Whether no reconcile has ended: only one that was interrupted, for the same spec, can have made objects."""
        return not self.reported and self.obj["metadata"].get("generation") == 1

    @property
    def adopts_from(self) -> str:
        """UID of the deleted resource whose volumes the spec adopts; empty if it adopts none."""
        given: Adopt | None = getattr(self.spec, "adopt", None)
        return given.from_uid if given is not None else ""

    @property
    def adopted_from(self) -> str:
        """UID of the deleted resource whose volumes are being adopted, or were, as recorded; empty if there is none."""
        return str((self.reported.get("adoption") or {}).get("fromUID") or "")

    @property
    def phase(self) -> str:
        """Phase in the last reported status; empty for a new resource."""
        return str(self.reported.get("phase") or "")

    @property
    def changed(self) -> bool:
        """Whether the spec changed since the status was last written."""
        return not accessors.is_current(self.obj)


def broken(model: SpecModel, at: str, before: SpecModel | None = None) -> list[str]:
    """Return a sentence for each rule that a model, or a model within it, violates.

    Args:
        model: the parsed model.
        at: path of the model in the resource, such as `spec`.
        before: previous state of the model; without it, no Transition is checked.
    """
    errors = _broken(model.RULES, model, before, at)
    former = dict(_inner(before)) if before is not None else {}
    for path, inner in _inner(model):
        errors += broken(inner, f"{at}.{path}", former.get(path) if "[" not in path else None)
    return errors


def contradictions(
    resource: CustomResource[Spec], rules: Iterable[Rule], before: CustomResource[Spec] | None = None
) -> list[str]:
    """Return a sentence for each rule that a resource violates: rules over the whole resource, then those of the spec.

    Args:
        rules: rules over the whole resource, as in `crd.Resource`.
        before: previous state of the resource; without it, no Transition is checked.
    """
    wrong = _broken(rules, resource, before, "")
    if before is None:
        return [*wrong, *resource.spec.violations]
    return wrong + broken(resource.spec, at="spec", before=before.spec)


def _broken(rules: Iterable[Rule], model: object, before: object | None, at: str) -> list[str]:
    errors = []
    for rule in rules:
        models = (model, before) if isinstance(rule, Transition) else (model,)
        if None not in models and not rule.holds(*models):
            errors.append(rule.sentence(*models, at=at))
    return errors


def as_object(model: SpecModel) -> Obj:
    """Return a model as in a manifest, without fields that are not set."""
    return model.model_dump(by_alias=True, exclude_none=True)


def _inner(model: SpecModel) -> Iterator[tuple[str, SpecModel]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, SpecModel):
            yield field.alias or name, value
        elif isinstance(value, list):
            yield from ((f"{field.alias}[{at}]", item) for at, item in enumerate(value) if isinstance(item, SpecModel))


_ADVICE: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Advice for an invalid value, by pydantic's type of error; braces refer to the context of the error."""


def _sentences(at: str, error: ValidationError) -> str:
    """Describe the first errors, and return without a reference to them: they hold the frames of their validators."""
    found = error.errors(include_url=False)
    sentences = [_sentence(at, dict(each)) for each in found[:MAX_ERRORS]]
    if len(found) > MAX_ERRORS:
        sentences.append(f"{len(found) - MAX_ERRORS} more values are wrong.")
    return " ".join(sentences)


def _sentence(at: str, found: Mapping[str, Any]) -> str:
    where = at + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part[:_MAX_KEY_CHARACTERS]}" for part in found["loc"]
    )
    advice = _ADVICE.get(found["type"])
    advice_text = advice.format(**found.get("ctx", {})) if advice else f"is invalid: {found['msg']}."
    given = "" if found["type"] == "missing" else f" {_short(found['input'])}"
    return f"{where}:{given} {advice_text}"


def _short(value: object) -> str:
    """Return the beginning of a value as JSON; the rest is not encoded."""
    text = ""
    for part in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
        text += part
        if len(text) > _MAX_VALUE_CHARACTERS:
            return f"{text[: _MAX_VALUE_CHARACTERS - 3]}..."
    return text


class Issuer(SpecModel):
    """A reference to a cert-manager issuer."""

    name: Name = Field(description="Name of the issuer.")
    kind: Literal["Issuer", "ClusterIssuer"] = Field("Issuer", description="Kind of the issuer.")

    def warnings(self, trusting: str) -> list[str]:
        """Return a warning about an issuer of all namespaces, whose certificates are trusted.

        Args:
            trusting: clause that names the servers that accept each of them.
        """
        if self.kind != "ClusterIssuer":
            return []
        return [
            f"spec.tls.issuer: a ClusterIssuer issues certificates in all namespaces, and {trusting}. Use an Issuer of "
            "this namespace."
        ]


Uid = Annotated[str, Field(max_length=63, pattern=r"^[0-9A-Za-z]([-0-9A-Za-z_.]*[0-9A-Za-z])?$")]
"""UID of an object; it is also the value of a label."""


class Adopt(SpecModel):
    """Volumes of a deleted resource of the same name, to use with their data."""

    from_uid: Uid = Field(
        alias="fromUID",
        description="UID of the deleted resource: the label cluster-uid of the volume claims. Before any pod starts, "
        "the operator hands these claims over to this resource. It refuses if a resource with that UID still exists, "
        "if this resource already has data of its own, or if the claims belong to different clusters.",
    )


HIBERNATE = (
    "If true, all pods stop once nothing else is in progress; volumes, Services, Secrets and the budget stay. If it is "
    "false again, the pods return with their volumes, and a changed size applies once all are back."
)

Changes = Annotated[
    Literal["Automatic", "Approved"],
    Field(
        description="When a change of this spec is applied: at once, or once a user approves exactly this change by an "
        "annotation. Until then, what runs is kept as last applied and repaired; the condition Ready has the command."
    ),
]

DELETION_PROTECTION = (
    "If true, the API server rejects the deletion of this resource until the field is false again; the operator need "
    "not run for that. It does not protect against the deletion of the namespace or of the CRD, nor the volume claims."
)
"""Description of spec.deletionProtection."""

CONNECTION = (
    "Whether the Secret NAME-connection exists, with what a client needs to connect: type, provider, host, port, uri, "
    "and where they apply username, password, ca.crt, tls.crt and tls.key. The operator keeps it up to date. If "
    "this is false, it writes none, and removes the content of the present one. status.binding names it, as the "
    "Service Binding specification requires. With the chart value rbac.writeSecrets false, there is none either. A "
    "change restarts nothing."
)
"""Description of spec.connectionSecret."""


class Binding(SpecModel):
    """Secret for clients, as the Service Binding specification defines it."""

    name: Name = Field(description="Name of the Secret with what a client needs to connect.")


BINDING = "Secret with what a client needs to connect (servicebinding.io). Absent if there is none."
"""Description of status.binding."""


class AdoptionStatus(SpecModel):
    """Adoption of volumes; written before the first claim is handed over."""

    from_uid: Uid = Field(alias="fromUID", description="UID of the deleted resource that owned the volumes.")


class Condition(SpecModel):
    """A condition, as read by kstatus."""

    type: Annotated[str, Field(max_length=316)] = Field(
        description="Ready, Reconciling or Stalled (kstatus); Available (clients can read and write all their data), "
        "Degraded (served with less redundancy than requested) or Observed (the operator reaches the servers); "
        "Vulnerable (a published advisory applies) or ReconciliationPaused (a user paused the operator)."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Status of the condition.")
    reason: Annotated[str, Field(max_length=1024)] = Field(description="Machine-readable reason in CamelCase.")
    message: Annotated[str, Field(max_length=32768)] = Field(description="Human-readable explanation.")
    last_transition_time: Time = Field(description="Time at which the status last changed.")
    observed_generation: int = Field(
        description="Generation of the spec that the condition describes.", json_schema_extra=INT64
    )


class ObservedSecret(SpecModel):
    """A Secret whose content is in effect on every server."""

    name: Name = Field(description="Name of the Secret.")
    resource_version: Annotated[str, Field(max_length=63)] = Field(
        description="metadata.resourceVersion of the Secret whose content every server uses."
    )


ObservedSecrets = Annotated[
    list[ObservedSecret],
    Field(
        max_length=16,
        description="Secrets that users or cert-manager provide for the spec, each with the resourceVersion of the "
        "content in effect on every server. A rotation is complete when it is that of the Secret.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]

SecretsRecord = Annotated[
    dict[str, str],
    Field(
        max_length=32,
        description="UID of each Secret that the operator made, or that the annotation platform.ydzs.io/adopt-secrets "
        "adopted, by name. The operator uses the content of no other Secret with such a name.",
    ),
]


class ProgressStatus(SpecModel):
    """Progress of one kind of work."""

    what: Annotated[str, Field(max_length=64)] = Field(
        description="Servers, Members or Nodes that serve; Pods of the current template; or Slots that have moved."
    )
    done: int = Field(description="Number of those that are complete.", json_schema_extra=INT32)
    total: int = Field(description="Number of all.", json_schema_extra=INT32)
    remaining_seconds: int | None = Field(
        None,
        description="Estimated time until all are complete, in seconds, at the average rate so far; of Slots only.",
        json_schema_extra=INT64,
    )


ProgressList = Annotated[
    list[ProgressStatus],
    Field(
        max_length=8,
        description="Progress of unfinished work; empty if the resource matches its spec.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["what"]},
    ),
]


class Reported(SpecModel):
    """Fields that every status has."""

    observed_generation: int | None = Field(
        None, description="Generation of the spec that this status describes.", json_schema_extra=INT64
    )
    phase: str | None = Field(None, description="Current phase of the resource, in one word.")


class Status(Reported):
    """Fields of a status with kstatus conditions only."""

    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default_factory=list,
        description="Ready, Reconciling and Stalled, as read by kstatus; Available, Degraded and Observed; Vulnerable; "
        "ReconciliationPaused.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
