"""Fields of Kubernetes' built-in kinds in a given version, from the schema in client-go.

client-go has the schema for server-side apply of every built-in kind, with each field and its type. It is made from the
OpenAPI document of the API server of the same minor version. It has neither required fields nor allowed values.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Obj = dict[str, Any]

MODULE = "k8s.io/client-go"
SCHEMA = "applyconfigurations/internal/internal.go"
BEGIN, END = "typed.YAMLObject(`", "`)"

TIMEOUT_SECONDS = 300.0

SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "numeric": (int, float), "boolean": (bool,)}
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
"""Declared as a string; the API server also accepts numbers."""

PACKAGES = {"": "core", "rbac.authorization.k8s.io": "rbac"}
"""Packages of API groups whose name is not the first part of the group."""

FOREIGN = ("cert-manager.io", "monitoring.coreos.com", "apiextensions.k8s.io")
"""API groups that are not part of client-go's schema."""


class Unavailable(Exception):
    """The schema of a version cannot be downloaded; the message is that of `go`."""


@cache
def types_of(minor: int) -> dict[str, Obj]:
    """Return the types of Kubernetes 1.`minor` by name.

    Raises:
        Unavailable: the module is neither in the cache nor can it be downloaded.
    """
    command = ["go", "mod", "download", "-json", f"{MODULE}@v0.{minor}.0"]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from None
    if made.returncode:
        raise Unavailable(made.stdout.strip() or made.stderr.strip())
    source = (Path(json.loads(made.stdout)["Dir"]) / SCHEMA).read_text()
    text = source[source.index(BEGIN) + len(BEGIN) : source.rindex(END)]
    return {each["name"]: each for each in yaml.load(text, Loader=yaml.CSafeLoader)["types"]}


def problems(obj: Obj, types: dict[str, Obj]) -> list[str]:
    """Return the fields of an object that its version does not have, or that have another type.

    Args:
        types: result of `types_of`.
    """
    group, _, version = obj["apiVersion"].rpartition("/")
    if group in FOREIGN or f"{group}.".endswith((".example.com.", ".ydzs.io.", ".hc.cn.")):
        return []
    name = f"io.k8s.api.{PACKAGES.get(group, group.partition('.')[0])}.{version}.{obj['kind']}"
    if name not in types:
        return [f"{obj['apiVersion']} {obj['kind']}: this version of Kubernetes has no such kind"]
    at = f"{obj['kind']} {obj['metadata'].get('name', '')}"
    return list(_problems(obj, {"namedType": name}, types, at))


def _problems(value: Any, kind: Obj, types: dict[str, Obj], at: str) -> Iterator[str]:
    name = kind.get("namedType")
    if name == QUANTITY:
        kind = {"scalar": "untyped"}
    elif name is not None:
        kind = types[name]
    if kind.get("scalar") == "untyped" or value is None:
        return
    if isinstance(value, dict) and "map" in kind:
        yield from _map_problems(value, kind["map"], types, at)
    elif isinstance(value, list) and "list" in kind:
        for number, item in enumerate(value):
            yield from _problems(item, kind["list"]["elementType"], types, f"{at}[{number}]")
    elif not _is_scalar(value, kind.get("scalar")):
        yield f"{at}: {value!r} has another type: {', '.join(kind)} {kind.get('scalar', '')}".rstrip()


def _map_problems(value: Obj, kind: Obj, types: dict[str, Obj], at: str) -> Iterator[str]:
    fields = {field["name"]: field["type"] for field in kind.get("fields", ())}
    for key, item in value.items():
        of = fields.get(key, kind.get("elementType"))
        if of is None:
            yield f"{at}.{key}: this version of Kubernetes has no such field"
        else:
            yield from _problems(item, of, types, f"{at}.{key}")


def _is_scalar(value: Any, scalar: str | None) -> bool:
    if scalar is None or isinstance(value, bool) != (scalar == "boolean"):
        return False
    return isinstance(value, SCALARS[scalar])
