"""Sets of fields: the paths that server-side apply works with, in the notation of `managedFields` (fieldsV1).

A path is a tuple of steps, each as fieldsV1 writes it: `f:<name>` is a key of a map, `k:<keys as JSON>` an item of a
list of type map, `v:<value as JSON>` an item of a list of type set. Every other list is atomic and has one owner as a
whole. In a cluster the OpenAPI schema declares these types; here `Schema` does.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from shared.kubernetes.kinds import Obj

Path = tuple[str, ...]
FieldSet = frozenset[Path]

_MISSING: Any = object()


class MissingKey(ValueError):
    """An item of a list of type map lacks a key."""


class DuplicateKey(ValueError):
    """Two items of a list of type map have the same keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """The fields of a kind that differ from the default (maps granular, lists atomic).

    A field is identified by its name, or by `parent.name` if one name has several meanings. `name[]` means the items of
    a list.

    Attributes:
        keys: lists of type map, with the keys of their items.
        sets: lists of type set.
        atomic: maps that have one owner as a whole.
        defaults: values of keys that an item may omit.
    """

    keys: Mapping[str, tuple[str, ...]]
    sets: frozenset[str]
    atomic: frozenset[str]
    defaults: Mapping[str, str]

    def parts(self, path: Path, value: Any) -> dict[str, Any] | None:
        """Return the parts of a value by their steps; None for an atomic value.

        Raises:
            MissingKey: an item lacks a key.
            DuplicateKey: two items have the same keys.
        """
        if isinstance(value, dict):
            return None if _rule(self, path).atomic else {f"f:{key}": part for key, part in value.items()}
        if isinstance(value, list):
            rule = _rule(self, path)
            if rule.is_set:
                return {f"v:{_json(item)}": item for item in value}
            return None if rule.keys is None else self._items(".".join(_names(path)), rule.keys, value)
        return None

    def _items(self, where: str, keys: tuple[str, ...], items: list[Obj]) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for index, item in enumerate(items):
            found = {key: item.get(key, self.defaults.get(key)) for key in keys}
            for key, value_of_key in found.items():
                if value_of_key is None:
                    raise MissingKey(f"{where}[{index}].{key}: Required value")
            step = f"k:{_json(found)}"
            if step in parts:
                raise DuplicateKey(f".{where}: duplicate entries for key {step.removeprefix('k:')}")
            parts[step] = item
        return parts


class _Rule(NamedTuple):
    """The schema of the value at a path: `atomic` applies to maps, `is_set` and `keys` to lists."""

    atomic: bool
    is_set: bool
    keys: tuple[str, ...] | None


@cache
def _rule(schema: Schema, path: Path) -> _Rule:
    names = _names(path)
    candidates = (".".join(names[-2:]), names[-1] if names else "")
    suffix = "" if not path or path[-1].startswith("f:") else "[]"
    return _Rule(
        any(name + suffix in schema.atomic for name in candidates),
        any(name in schema.sets for name in candidates),
        next((schema.keys[name] for name in candidates if name in schema.keys), None),
    )


def _names(path: Path) -> list[str]:
    return [step[2:] for step in path if step.startswith("f:")]


class Change(NamedTuple):
    """The fields that differ between two states of an object."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def fields_of(schema: Schema, value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the fields that applying a value would own: leaves, empty maps and list items."""
    parts = schema.parts(path, value)
    if path and ((not parts and not isinstance(value, list)) or parts is None or path[-1][:2] in ("k:", "v:")):
        yield path
    for step, part in (parts or {}).items():
        yield from fields_of(schema, part, (*path, step))


def compare(schema: Schema, old: Any, new: Any) -> Change:
    """Return the fields that differ. An added map or list item counts as a field itself, in addition to its leaves."""
    change: dict[str, set[Path]] = {"added": set(), "modified": set(), "removed": set()}

    def walk(path: Path, before: Any, after: Any) -> None:
        if before == after:  # unchanged subtrees are skipped early, which makes most comparisons cheap
            return
        parts = [{} if side is _MISSING else schema.parts(path, side) or {} for side in (before, after)]
        for step in parts[0] | parts[1]:
            walk((*path, step), parts[0].get(step, _MISSING), parts[1].get(step, _MISSING))
        if before is _MISSING:
            change["added"].add(path)
        elif after is _MISSING:
            change["removed"].add(path)
        elif not any(parts) and before != after:
            change["modified"].add(path)

    walk((), old, new)
    return Change(*(frozenset(paths) for paths in change.values()))


def without(schema: Schema, value: Any, dropped: FieldSet, path: Path = ()) -> Any:
    """Return the value without the fields in `removed` and everything below them."""
    parts = schema.parts(path, value)
    if parts is None:
        return value
    kept = {s: without(schema, part, dropped, (*path, s)) for s, part in parts.items() if (*path, s) not in dropped}
    return list(kept.values()) if isinstance(value, list) else {step[2:]: part for step, part in kept.items()}


def with_maps(fields: Iterable[Path]) -> FieldSet:
    """Return the fields and all named maps above them."""
    around = {path[:end] for path in fields for end in range(1, len(path)) if path[end - 1].startswith("f:")}
    return frozenset(around | set(fields))


@lru_cache(maxsize=1024)
def encode(fields: FieldSet) -> Obj:
    """Encode a set as fieldsV1; `.` marks a member that has members below it (cached: not to be modified)."""
    root: Obj = {}
    for path in sorted(fields, key=lambda path: (-len(path), path)):  # nodes of shorter paths exist then
        node = root
        for step in path:
            node = node.setdefault(step, {})
        if node:
            node["."] = {}
    return root


def decode(fields_v1: Obj, path: Path = ()) -> Iterator[Path]:
    """Decode fieldsV1 into paths."""
    for step, below in fields_v1.items():
        if step == ".":
            yield path
        elif not below:
            yield (*path, step)
        else:
            yield from decode(below, (*path, step))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
