"""The reference page of an operator's resources, in Markdown, from the same models as their CRDs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel

from shared.api import crd
from shared.api.crd import Resource
from shared.kubernetes.kinds import Obj

HEADER = "<!-- Generated from the operator's api/ by `make manifests`. Do not edit. -->\n"


class ReferenceField(NamedTuple):
    """A field of a schema, wherever it stands in it.

    Attributes:
        path: from the resource, such as `spec.tls.clientAuth`; `[]` is any item of a list, `{}` any value of a map.
        required: whether it must be given where what contains it is.
    """

    path: str
    schema: Obj
    required: bool


def to_markdown(*resources: Resource) -> str:
    """The page: of each kind every field with its type, bounds, default and meaning; the rules; what kubectl shows."""
    return "\n".join([HEADER, *map(_part, resources)])


def _part(resource: Resource) -> str:
    version = crd.to_dict(resource)["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    kind = resource.kind
    names = ", ".join(f"`{name}`" for name in (kind.plural, *resource.short_names))
    parts = [
        f"# {kind.name}\n",
        f"{resource.description}\n",
        f"`apiVersion: {kind.api_version}` · `kind: {kind.name}` · for kubectl: {names}\n",
        "## Spec\n",
        _table(_own_first(properties["spec"], resource.spec), "spec"),
        "A value outside these bounds is refused when the resource is applied, and so is what breaks one of these "
        "rules (`…` stands for the value):\n",
        _rules(version["schema"]["openAPIV3Schema"]),
        "## Status\n",
        _table(properties["status"], "status"),
        "## In `kubectl get`\n",
        _columns(resource),
    ]
    return "\n".join(parts)


def fields(schema: Obj, path: str) -> Iterator[ReferenceField]:
    """Everything below a schema, in its order: fields, and the items of lists and values of maps."""
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        yield ReferenceField(f"{path}.{name}".lstrip("."), inner, name in required)
        yield from fields(inner, f"{path}.{name}")
    for sign, inner in (("[]", schema.get("items")), ("{}", schema.get("additionalProperties"))):
        if isinstance(inner, dict):
            yield ReferenceField(path.lstrip(".") + sign, inner, required=False)
            yield from fields(inner, path + sign)


def _own_first(schema: Obj, model: type[BaseModel]) -> Obj:
    """What a kind has of its own before what all kinds share."""
    own = [model.model_fields[name].alias or name for name in model.__annotations__ if name in model.model_fields]
    found = schema["properties"]
    return {
        **schema,
        "properties": {name: found[name] for name in (*own, *(name for name in found if name not in own))},
    }


def _table(schema: Obj, path: str) -> str:
    rows = [
        f"| `{field.path}` | {_type(field.schema)} | {_default(field)} | {_cell(field.schema['description'])} |"
        for field in fields(schema, path)
        if not field.path.endswith(("[]", "{}"))
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def _type(schema: Obj) -> str:
    """The type with its bounds, such as `integer, 8 to 1048576`."""
    if schema.get("x-kubernetes-int-or-string"):
        name = "integer or string"
    elif "items" in schema:
        name = f"list of {_type(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), dict):
        name = f"map of {_type(schema['additionalProperties'])}"
    elif "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    else:
        name = str(schema.get("type", "any"))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{name}, {low} to {high}"
    if low is not None:
        return f"{name}, at least {low}"
    return f"{name}, at most {high}" if high is not None else name


def _default(field: ReferenceField) -> str:
    if "default" in field.schema:
        return f"`{json.dumps(field.schema['default'])}`"
    return "required" if field.required else ""


def _rules(schema: Obj) -> str:
    said = []
    for path, inner, _ in (ReferenceField("", schema, required=True), *fields(schema, "")):
        for rule in inner.get("x-kubernetes-validations", ()):
            where = (path + rule.get("fieldPath", "")).lstrip(".")
            said.append(f"- {f'`{where}`: ' if where else ''}{_message(rule)}")
    return "\n".join([*said, ""])


def _message(rule: Obj) -> str:
    """What a rule says, with `…` for what it fills in."""
    if "message" in rule:
        return str(rule["message"])
    template, _ = json.JSONDecoder().raw_decode(rule["messageExpression"])
    return str(template).replace("%s", "…").replace("%%", "%")


def _columns(resource: Resource) -> str:
    rows = [
        f"| {column.name} | {'`-o wide`' if column.wide else ''} | {_cell(column.description)} |"
        for column in resource.columns
    ]
    return "\n".join(["| column | shown by | what it says |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")
