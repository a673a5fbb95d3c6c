"""Edits of single fields of a spec, drawn from the schema of its CRD.

A leaf is the path of a field without nested fields, such as `tolerations[].key`. Parts that Kubernetes defines
(`affinity`, `secretKeyRef`) have no schema in the CRD; their leaves are those of an example.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from shared.kubernetes.kinds import Obj
from tests.support.extension_cases import FULL

Position = tuple[str | int, ...]
"""Keys and indices from a spec to a value."""

REMOVED = object()
"""The value of a field that an edit removes."""

STAYING = ("image", "version", "workload")
"""Leaves whose removal changes nothing: a resource that names no version or workload keeps the one that it has."""

QUANTITIES = ("96Mi", "1Gi", "3Gi", "250m", 2)
NAMES = ("first", "second")


def _term(key: str) -> Obj:
    return {
        "matchExpressions": [{"key": key, "operator": "In", "values": ["a", "b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
    }


def _pod_term(key: str) -> Obj:
    selector: Obj = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": key, "operator": "NotIn", "values": ["a", "b"]}],
    }
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": selector,
        "namespaces": ["one", "two"],
        "namespaceSelector": copy.deepcopy(selector),
        "matchLabelKeys": ["version"],
        "mismatchLabelKeys": ["tenant"],
    }


_POD_AFFINITY: Obj = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_pod_term("disk")],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": _pod_term("zone")}],
}
AFFINITY: Obj = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_term("disk")]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": _term("zone")}],
    },
    "podAffinity": _POD_AFFINITY,
    "podAntiAffinity": copy.deepcopy(_POD_AFFINITY),
}
SELECTOR: Obj = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "stage", "operator": "In", "values": ["live"]}],
}
SOURCES: tuple[Obj, ...] = (
    {"secretKeyRef": {"name": "users", "key": "a", "optional": True}},
    {"configMapKeyRef": {"name": "settings", "key": "a", "optional": True}},
    {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
    {"resourceFieldRef": {"containerName": "exporter", "resource": "limits.cpu", "divisor": "1m"}},
)
EXAMPLES: dict[str, tuple[Obj, ...]] = {
    "affinity": (AFFINITY,),
    **{name: (part,) for source in SOURCES for name, part in source.items()},
    "podSelector": (SELECTOR,),
    "namespaceSelector": (SELECTOR,),
    **{kind: (volume[kind],) for volume in FULL["extraVolumes"] for kind in ("projected", "csi") if kind in volume},
}
"""Examples of the parts that Kubernetes defines, by the name of the field."""


class Leaf(NamedTuple):
    """A field without nested fields.

    Attributes:
        path: path in the spec; `[]` is any item of a list, or any value of a map.
        schema: schema of the field in the CRD; empty inside a part that Kubernetes defines.
    """

    path: str
    schema: Obj

    def __str__(self) -> str:
        return self.path


def leaves_of(schema: Obj, path: str = "") -> Iterator[Leaf]:
    """Yield the leaves of a schema, and those of the examples for parts without a schema."""
    inner = {f".{name}": part for name, part in schema.get("properties", {}).items()}
    if part := schema.get("items") or schema.get("additionalProperties"):
        inner["[]"] = part
    if not inner:
        yield from _opaque(path) if schema.get("x-kubernetes-preserve-unknown-fields") else (_leaf(path, schema),)
    for name, part in inner.items():
        yield from leaves_of(part, path + name)


def _leaf(path: str, schema: Obj) -> Leaf:
    return Leaf(path.removeprefix("."), schema)


def _opaque(path: str) -> Iterator[Leaf]:
    examples = EXAMPLES[re.split(r"[.\[]", path)[-1]]
    found = {_pattern(position) for example in examples for position in scalars(example)}
    yield from (_leaf(path + inner, {}) for inner in sorted(found))


def scalars(value: Any, position: Position = ()) -> Iterator[Position]:
    """Yield the position of every value that is neither a list nor a map."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield position
        return
    for key, part in parts:
        yield from scalars(part, (*position, key))


def _pattern(position: Position) -> str:
    text = "".join("[]" if isinstance(key, int) else f".{key}" for key in position)
    return text.replace(".matchLabels.a", ".matchLabels[]")


def positions(value: Any, path: str, position: Position = ()) -> Iterator[Position]:
    """Yield the positions of a leaf in a spec."""
    if not path:
        yield position
        return
    matched = re.match(r"\.?([A-Za-z0-9]+|\[\])(.*)", path)
    assert matched is not None, path
    key, rest = matched.groups()
    if key == "[]":
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for each, part in parts:
            yield from positions(part, rest, (*position, each))
    elif isinstance(value, dict) and key in value:
        yield from positions(value[key], rest, (*position, key))


def edited(spec: Obj, position: Position, value: Any) -> Obj:
    """Return the spec with another value at a position, or without it."""
    result = copy.deepcopy(spec)
    *outer, last = position
    parent: Any = result
    for key in outer:
        parent = parent[key]
    if value is REMOVED:
        del parent[last]
    else:
        parent[last] = value
    return result


def at(spec: Any, position: Position) -> Any:
    for key in position:
        spec = spec[key]
    return spec


def values(leaf: Leaf, before: Any) -> st.SearchStrategy[Any]:
    """Return other values for a leaf: those of its type that its schema admits."""
    schema = leaf.schema
    if "enum" in schema:
        found: st.SearchStrategy[Any] = st.sampled_from(schema["enum"])
    elif schema.get("x-kubernetes-int-or-string"):
        is_share = "%" in schema.get("pattern", "")
        found = st.sampled_from([1, 2, "50%", "25%"]) if is_share else st.sampled_from(QUANTITIES)
    elif isinstance(before, bool) or schema.get("type") == "boolean":
        found = st.booleans()
    elif schema.get("type") == "integer" or isinstance(before, int):
        least, most = schema.get("minimum", 1), schema.get("maximum", 50)
        found = st.integers(least, min(most, max(least, 2 * before if isinstance(before, int) else least) + 8))
    else:
        found = _texts(schema, before)
    return found.filter(lambda value: value != before)


def versions(before: str) -> st.SearchStrategy[str]:
    """Return versions of the series of the present one: a change to another series may not be reversible.

    Args:
        before: the present version; without a series (such as `latest`), that of the default is used.
    """
    series = re.match(r"v?[0-9]+[.][0-9]+", before)
    return st.integers(0, 99).map(lambda patch: f"{series[0] if series else '1.6'}.{patch}")


def _texts(schema: Obj, before: Any) -> st.SearchStrategy[str]:
    """Return texts that resemble the present one, and any that the pattern admits."""
    numbered = [f"{before}-{number}" for number in (1, 2)] + [f"{before}{number}" for number in (1, 2)]
    named = st.sampled_from([*numbered, *NAMES])
    pattern, most = schema.get("pattern"), schema.get("maxLength", 20)
    if pattern is None:
        return named
    admitted = named.filter(lambda text: len(text) <= most and re.search(pattern, text) is not None)
    printable = st.characters(codec="ascii", categories=("L", "N", "P"))
    return admitted | st.from_regex(pattern.rstrip("$") + r"\Z", alphabet=printable).filter(
        lambda text: schema.get("minLength", 0) <= len(text) <= min(most, 63)
    )


def invalid(leaf: Leaf) -> Any:
    """Return a value of another type than the leaf's, which the API server refuses."""
    return {"not": "this"} if leaf.schema.get("type") in ("string", "integer", "boolean") else [[]]


def contexts(leaf: Leaf, specs: Sequence[Obj], base: Obj) -> list[Obj]:
    """Return specs that have the leaf: its part of an accepted case over the base, or else the whole case."""
    found = []
    if ".affinity." in f".{leaf}":
        found.append(_with(base, leaf, AFFINITY, "affinity"))
    if ".valueFrom." in f".{leaf}":
        found += [_with(base, leaf, source, "valueFrom") for source in SOURCES]
    top = re.split(r"[.\[]", leaf.path)[0]
    for spec in specs:
        if any(positions(spec, leaf.path)):
            found += [base | {top: spec[top]}, base | spec]
    working = [_without_pause(spec, leaf) for spec in found if not _is_disabled(spec, leaf)]
    unique = [spec for number, spec in enumerate(working) if spec not in working[:number]]
    return [spec for spec in unique if any(positions(spec, leaf.path))]


def _without_pause(spec: Obj, leaf: Leaf) -> Obj:
    """Return the spec of a resource that is not paused: a pause applies nothing."""
    others = {name: value for name, value in spec.items() if name not in ("pause", "paused")}
    return others | ({leaf.path: False} if leaf.path in ("pause", "paused") else {})


def _is_disabled(spec: Obj, leaf: Leaf) -> bool:
    """Whether the leaf is in a part that `enabled: false` turns off."""
    part = spec.get(re.split(r"[.\[]", leaf.path)[0])
    return isinstance(part, dict) and part.get("enabled") is False and not leaf.path.endswith(".enabled")


def _with(base: Obj, leaf: Leaf, example: Obj, part: str) -> Obj:
    value: Any = example if part == "affinity" else [{"name": "A", "valueFrom": example}]
    field = part if part == "affinity" else "env"
    top = re.split(r"[.\[]", leaf.path)[0]
    if top == "pod":
        return base | {"pod": [{field: value}]}
    if top in ("extraContainers", "extraInitContainers"):
        return base | {top: [{"name": "a", "image": "a:1", field: value}]}
    return base | {field: value}
