"""CustomResourceDefinitions from models: one source for schema, validation and documentation. Pure.

A structural schema may not have `$ref`, `title`, `null` types or unions; pydantic's JSON Schema has them all. What has
no structural form is a TypeError here, when the CRD is made, rather than a refusal when it is installed.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from shared.api.spec import Rule
from shared.kubernetes.kinds import CRD, Kind, Obj

HEADER = "# Generated from the operator's api.py by `make manifests`. Do not edit.\n"

_KEPT = frozenset(
    {
        "type", "description", "default", "format", "pattern", "enum", "minimum", "maximum", "minLength", "maxLength",
        "minItems", "maxItems", "minProperties", "maxProperties", "required", "multipleOf",
    }
)  # fmt: skip
_TURNED = frozenset(
    {"title", "$defs", "$ref", "anyOf", "allOf", "const", "properties", "items", "additionalProperties",
     "exclusiveMinimum", "exclusiveMaximum"}
)  # fmt: skip
"""Keywords that are dropped, or said in another way."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`.

    Attributes:
        name: its heading.
        path: JSONPath from the resource.
        type: integer, number, string, boolean or date.
        wide: shown by `-o wide` only.
        description: what it says.
    """

    name: str
    path: str
    type: str
    description: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale subresource: what `kubectl scale` and a HorizontalPodAutoscaler read and write."""

    spec_replicas: str
    status_replicas: str
    selector: str


@dataclass(frozen=True, slots=True)
class Resource:
    """A custom resource as its CRD describes it.

    Attributes:
        kind: its kind.
        spec: model of `.spec`.
        status: model of `.status`.
        description: what the resource is, for `kubectl explain`.
        rules: rules over the whole resource; in Python over what the operator parses it to.
    """

    kind: Kind
    spec: type[BaseModel]
    status: type[BaseModel]
    description: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: Scale | None = None
    rules: tuple[Rule, ...] = ()


def to_yaml(resource: Resource) -> str:
    """The CRD as YAML, the same for the same models."""
    return HEADER + yaml.safe_dump(to_dict(resource), sort_keys=False, width=120, allow_unicode=True)


def to_dict(resource: Resource) -> Obj:
    """The CRD as an object.

    Raises:
        TypeError: a field has no description, or a type that no structural schema can say.
    """
    kind = resource.kind
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.name,
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
                **({"categories": list(resource.categories)} if resource.categories else {}),
            },
            "scope": "Namespaced",
            "versions": [_version(resource)],
        },
    }


def _version(resource: Resource) -> Obj:
    subresources: Obj = {"status": {}}
    if resource.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": resource.scale.spec_replicas,
            "statusReplicasPath": resource.scale.status_replicas,
            "labelSelectorPath": resource.scale.selector,
        }
    return {
        "name": resource.kind.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in resource.columns],
        "subresources": subresources,
        "schema": {"openAPIV3Schema": _root(resource)},
    }


def _column(column: PrinterColumn) -> Obj:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.description}
    return shown | ({"priority": 1} if column.wide else {})


def _root(resource: Resource) -> Obj:
    root: Obj = {
        "description": resource.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": {"description": "What is wanted.", **structural(resource.spec)},
            "status": {"description": "What is, as the operator last saw it.", **structural(resource.status)},
        },
    }
    if resource.rules:
        root["x-kubernetes-validations"] = [rule.schema() for rule in resource.rules]
    return root


def structural(model: type[BaseModel]) -> Obj:
    """A model's structural schema.

    Raises:
        TypeError: as `to_dict`.
    """
    schema = model.model_json_schema(by_alias=True)
    return _node(schema, schema.get("$defs", {}), model.__name__)


def _node(schema: Mapping[str, Any], models: Mapping[str, Any], path: str) -> Obj:
    schema, models = _resolved(schema, models, path)
    node = _keywords(schema, path)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {**node, "type": "object"}
    if schema.get("x-kubernetes-int-or-string"):
        node.pop("type", None)
    elif "type" not in node:
        raise TypeError(f"{path}: no structural schema can say {dict(schema)}")
    node |= _fields(schema, models, path)
    if "items" in schema:
        node.setdefault("x-kubernetes-list-type", "atomic")
        node["items"] = _items(schema, models, path)
    return node


def _resolved(
    schema: Mapping[str, Any], models: Mapping[str, Any], path: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return a schema without references and alternatives, and the models that it may still refer to."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in models:
            raise TypeError(f"{path}: {name} holds itself, and a structural schema ends somewhere")
        others = {key: value for key, value in models.items() if key != name}
        return _resolved({**models[name], **_without(schema, "$ref")}, others, path)
    if len(schema.get("allOf", ())) == 1:
        return _resolved({**schema["allOf"][0], **_without(schema, "allOf")}, models, path)
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        return _resolved(_without_null(schema, path), models, path)
    return schema, models


def _without(schema: Mapping[str, Any], keyword: str) -> Obj:
    return {key: value for key, value in schema.items() if key != keyword}


def _fields(schema: Mapping[str, Any], models: Mapping[str, Any], path: str) -> Obj:
    """The fields of an object, or the values of a map; empty for any other type."""
    if "properties" in schema:
        fields = schema["properties"].items()
        return {"properties": {name: _property(field, models, f"{path}.{name}") for name, field in fields}}
    values = schema.get("additionalProperties")
    return {"additionalProperties": _node(values, models, f"{path}[*]")} if isinstance(values, dict) else {}


def _items(schema: Mapping[str, Any], models: Mapping[str, Any], path: str) -> Obj:
    items = _node(schema["items"], models, f"{path}[]")
    if _has_default(items):
        raise TypeError(f"{path}: a default inside a list's items keeps GitOps tools out of sync for ever")
    return items


def _keywords(schema: Mapping[str, Any], path: str) -> Obj:
    """The keywords of a node itself; one that Kubernetes does not know is an error, never a constraint lost."""
    unknown = [key for key in schema if key not in _KEPT | _TURNED and not key.startswith("x-kubernetes-")]
    if unknown:
        raise TypeError(f"{path}: no structural schema can say {', '.join(unknown)}")
    node = {key: value for key, value in schema.items() if key not in _TURNED}
    if node.get("default", ...) is None:
        del node["default"]
    if "const" in schema:
        node["enum"] = [schema["const"]]
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in schema:  # Kubernetes writes exclusive bounds as JSON Schema draft 4 did
            node |= {bound.lower(): schema[f"exclusive{bound}"], f"exclusive{bound}": True}
    return node


def _property(schema: Mapping[str, Any], models: Mapping[str, Any], path: str) -> Obj:
    node = _node(schema, models, path)
    if not node.get("description"):
        raise TypeError(f"{path} has no description")
    return node


def _without_null(schema: Mapping[str, Any], path: str) -> Obj:
    """Optional[T] as T: in Kubernetes a field that may be null is one that may be left out."""
    choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
    if len(choices) != 1:
        raise TypeError(f"{path}: a union of {len(choices)} types has no structural form")
    return {**choices[0], **_without(schema, "anyOf")}


def _has_default(node: Mapping[str, Any]) -> bool:
    inner = [*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")]
    return "default" in node or any(_has_default(child) for child in inner if child)
