"""The constraints of a CRD's schema, and those that no rejected case violates."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shared.api.crd import Resource, to_dict
from shared.api.spec import CustomResource, InvalidSpec, SpecModel, Transition
from shared.kubernetes.kinds import Obj
from tests.support.cases import Case

Constraint = tuple[str, str]
"""Path in the schema, and the keyword or the CEL rule."""

TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
MEASURES: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda value, kind: type(value) is not TYPES[kind],
    "minimum": lambda value, least: type(value) is int and value < least,
    "maximum": lambda value, most: type(value) is int and value > most,
    "minLength": lambda value, least: len(value) < least,
    "maxLength": lambda value, most: isinstance(value, str) and len(value) > most,
    "maxItems": lambda value, most: len(value) > most,
    "maxProperties": lambda value, most: len(value) > most,
    "pattern": lambda value, pattern: isinstance(value, str) and not re.search(pattern, value),
    "enum": lambda value, known: value not in known,
}
WEIGHTLESS = {"description", "default", "format", "properties", "items", "additionalProperties", "required"}


def parts(schema: Obj, path: str) -> Iterator[tuple[Obj, str]]:
    """Yield a schema and all its nested schemas."""
    yield schema, path
    for name, inner in schema.get("properties", {}).items():
        yield from parts(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from parts(schema[name], f"{path}[]")


def constraints(schema: Obj) -> set[Constraint]:
    """Return the constraints of a schema. Types of strings and objects count only if a case violates one of them."""
    found = set()
    for part, path in parts(schema, "spec"):
        keywords = part.keys() - WEIGHTLESS - {"type"}
        found |= {(path, keyword) for keyword in keywords if not keyword.startswith("x-kubernetes-")}
        found |= {(path, f"required {name}") for name in part.get("required", ())}
        found |= {(path, rule["rule"]) for rule in part.get("x-kubernetes-validations", ())}
    return found


def broken_constraints(schema: Obj, value: Any, path: str) -> Iterator[Constraint]:
    """Yield the keywords of a schema that a value violates."""
    wrong = {keyword for keyword, breaks in MEASURES.items() if keyword in schema and breaks(value, schema[keyword])}
    yield from ((path, keyword) for keyword in wrong)
    if "type" in wrong:
        return
    if isinstance(value, list):
        for item in value:
            yield from broken_constraints(schema["items"], item, f"{path}[]")
    elif isinstance(value, dict):
        yield from ((path, f"required {name}") for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            known = schema.get("properties", {}).get(name)
            if known is not None or "additionalProperties" in schema:
                deeper = f"{path}.{name}" if known is not None else f"{path}[]"
                yield from broken_constraints(known or schema["additionalProperties"], inner, deeper)


def models(part: object) -> Iterator[SpecModel]:
    """Yield a model and all its nested models."""
    if isinstance(part, SpecModel):
        yield part
        for name in type(part).model_fields:
            yield from models(getattr(part, name))
    elif isinstance(part, list):
        for item in part:
            yield from models(item)


def broken_rules(resource: CustomResource[Any], kind: Resource) -> Iterator[str]:
    """Yield the CEL of each rule that a resource violates, except Transitions."""
    for model in models(resource.spec):
        yield from (rule.cel for rule in model.RULES if not isinstance(rule, Transition) and not rule.holds(model))
    yield from (rule.cel for rule in kind.rules if not isinstance(rule, Transition) and not rule.holds(resource))


def broken_transitions(new: CustomResource[Any], old: CustomResource[Any], kind: Resource) -> Iterator[str]:
    """Yield the CEL of each Transition, of the resource or of a model in its spec, that a change violates."""
    yield from (rule.cel for rule in kind.rules if isinstance(rule, Transition) and not rule.holds(new, old))
    yield from _broken_transitions(new.spec, old.spec)


def _broken_transitions(new: object, old: object) -> Iterator[str]:
    if isinstance(new, SpecModel) and isinstance(old, SpecModel):
        yield from (rule.cel for rule in new.RULES if isinstance(rule, Transition) and not rule.holds(new, old))
        for name in type(new).model_fields:
            yield from _broken_transitions(getattr(new, name), getattr(old, name))


def root_schema(kind: Resource) -> Obj:
    """Return the schema of the whole resource."""
    schema: Obj = to_dict(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def spec_schema(kind: Resource) -> Obj:
    schema: Obj = root_schema(kind)["properties"]["spec"]
    return schema


def uncovered(
    kind: Resource,
    parse: Callable[[Case], CustomResource[Any]],
    refused: Iterable[Case],
    changes: Iterable[tuple[CustomResource[Any], CustomResource[Any]]] = (),
) -> tuple[set[Constraint], set[Constraint]]:
    """Return all constraints of the schema, and those that no case violates.

    Args:
        parse: builds the resource of a case.
        changes: rejected changes, as (new, old).
    """
    schema = spec_schema(kind)
    whole = {("", rule["rule"]) for rule in root_schema(kind).get("x-kubernetes-validations", ())}
    found, rules = set(), {cel for new, old in changes for cel in broken_transitions(new, old, kind)}
    for case in refused:
        found |= set(broken_constraints(schema, case.whole_spec, "spec"))
        with contextlib.suppress(InvalidSpec):
            rules |= set(broken_rules(parse(case), kind))
    demanded = constraints(schema) | whole
    return demanded, {one for one in demanded - found if one[1] not in rules}


def leaves(schema: Obj, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields without nested fields."""
    inner = {f".{name}": part for name, part in schema.get("properties", {}).items()}
    if part := schema.get("items") or schema.get("additionalProperties"):
        inner["[]"] = part
    if not inner:
        yield path.removeprefix(".")
    for name, part in inner.items():
        yield from leaves(part, path + name)
