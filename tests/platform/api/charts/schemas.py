"""JSON Schemas for kubeconform, from the OpenAPI document of an API server and its CRDs.

Nothing is downloaded, and the schemas have the version that the tests run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.charts import Obj
from tools.local import binaries
from tools.local.machine.commands import run

TEMPLATE = "{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json"
DRAFT = "http://json-schema.org/draft-04/schema#"
REFERENCE = "#/definitions/"

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
"""Declared as a string; the API server also accepts numbers."""


def write(openapi: Obj, directory: Path) -> None:
    """Write a schema for each kind.

    Args:
        openapi: response of the API server to /openapi/v2.
        directory: output directory.
    """
    definitions = {name: _closed(schema) for name, schema in openapi["definitions"].items()}
    definitions[QUANTITY] = {"type": ["string", "number"]}
    for name, schema in definitions.items():
        kinds = schema.get("x-kubernetes-group-version-kind", ())
        if len(kinds) != 1:
            continue  # not a kind, or a kind of every group, such as DeleteOptions
        (kind,) = kinds
        needed = {each: definitions[each] for each in _reached(name, definitions)}
        file = f"{kind['kind']}-{kind['group'] or kind['version']}-{kind['version']}.json".lower()
        whole = {"$schema": DRAFT, "$ref": REFERENCE + name, "definitions": needed}
        (directory / file).write_text(json.dumps(whole))


def validate(manifest: Path, schemas: Path) -> None:
    """Validate a manifest with kubeconform in strict mode; a kind without a schema is an error.

    Raises:
        ClusterError: the manifest is invalid; the message is kubeconform's output.
    """
    run(binaries.find("kubeconform"), "-strict", "-schema-location", f"{schemas}/{TEMPLATE}", manifest)


def _reached(name: str, definitions: Obj) -> set[str]:
    reached, waiting = set(), [name]
    while waiting:
        at = waiting.pop()
        if at not in reached:
            reached.add(at)
            waiting += _references(definitions[at])
    return reached


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _references(each)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REFERENCE)
        for each in node.values():
            yield from _references(each)


def _closed(node: Any) -> Any:
    """Reject unknown fields, and accept numbers for int-or-string fields."""
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    found = {
        key: {name: _closed(each) for name, each in part.items()} if key == "properties" else _closed(part)
        for key, part in node.items()
    }
    if "properties" in found and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found
