"""Sets of fields: the paths that server-side apply reckons with, in the words of `managedFields` (fieldsV1).

A path is a tuple of steps, each as fieldsV1 writes it: `f:<name>` into a map, `k:<keys as JSON>` to an item of a list
that is a map by keys, `v:<value as JSON>` to an item of a list that is a set. Lists that are neither are atomic: they
change owner whole. What is a map, a set or atomic is the schema's word; it is a table here.

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
    """An item of a list that is a map by keys lacks one."""


class DuplicateKey(ValueError):
    """Two items of a list that is a map by keys have the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """Where a kind's fields differ from the rule (maps granular, lists atomic).

    Fields go by their name, or by `parent.name` where one name means different things. Items of a list go by `name[]`.

    Attributes:
        keys: lists that are maps, and the keys of their items.
        sets: lists that are sets.
        atomic: maps that change owner whole.
        defaults: values of keys that an item may leave out.
    """

    keys: Mapping[str, tuple[str, ...]]
    sets: frozenset[str]
    atomic: frozenset[str]
    defaults: Mapping[str, str]

    def parts(self, path: Path, value: Any) -> dict[str, Any] | None:
        """The parts of a value by their steps; None if it has an owner as a whole.

        Raises:
            MissingKey: an item cannot be named.
            DuplicateKey: two items cannot be told apart.
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
            for key, held in found.items():
                if held is None:
                    raise MissingKey(f"{where}[{index}].{key}: Required value")
            step = f"k:{_json(found)}"
            if step in parts:
                raise DuplicateKey(f".{where}: duplicate entries for key {step.removeprefix('k:')}")
            parts[step] = item
        return parts


class _Rule(NamedTuple):
    """What a schema says of the value at a path: of a map the first, of a list the others."""

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
    """What differs between two states of an object."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def fields_of(schema: Schema, value: Any, path: Path = ()) -> Iterator[Path]:
    """The fields that applying a value would own: leaves, empty maps, and items of lists."""
    parts = schema.parts(path, value)
    if path and ((not parts and not isinstance(value, list)) or parts is None or path[-1][:2] in ("k:", "v:")):
        yield path
    for step, part in (parts or {}).items():
        yield from fields_of(schema, part, (*path, step))


def compare(schema: Schema, old: Any, new: Any) -> Change:
    """The fields that differ; whoever adds a map or an item of a list adds its path too, not only its leaves."""
    change: dict[str, set[Path]] = {"added": set(), "modified": set(), "removed": set()}

    def walk(path: Path, before: Any, after: Any) -> None:
        if before == after:  # most of an object, most of the time
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


def without(schema: Schema, value: Any, gone: FieldSet, path: Path = ()) -> Any:
    """The value with the fields `gone`, and all that is in them, taken out."""
    parts = schema.parts(path, value)
    if parts is None:
        return value
    kept = {s: without(schema, part, gone, (*path, s)) for s, part in parts.items() if (*path, s) not in gone}
    return list(kept.values()) if isinstance(value, list) else {step[2:]: part for step, part in kept.items()}


def with_maps(fields: Iterable[Path]) -> FieldSet:
    """The fields, and the maps by name that lead to them."""
    around = {path[:end] for path in fields for end in range(1, len(path)) if path[end - 1].startswith("f:")}
    return frozenset(around | set(fields))


@lru_cache(maxsize=1024)
def encode(fields: FieldSet) -> Obj:
    """A set as fieldsV1: a member with members below it is marked by `.`; not to be changed."""
    root: Obj = {}
    for path in sorted(fields, key=lambda path: (-len(path), path)):  # deepest first: what is below is there already
        node = root
        for step in path:
            node = node.setdefault(step, {})
        if node:
            node["."] = {}
    return root


def decode(fields_v1: Obj, path: Path = ()) -> Iterator[Path]:
    """The set that fieldsV1 says."""
    for step, below in fields_v1.items():
        if step == ".":
            yield path
        elif not below:
            yield (*path, step)
        else:
            yield from decode(below, (*path, step))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
