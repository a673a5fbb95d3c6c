"""The outcome of a run, and the comparison of two outcomes.

The reference is one undisturbed run, executed in two worlds that differ in details on which nothing may depend (UIDs,
generated names, addresses, the time). Fields that differ between these two are masked, as the operator does not
determine them. Objects with generated names are identified by kind and owner, in any order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from shared.kubernetes.kinds import Kind, Obj

_MASKED = frozenset({"uid", "resourceVersion", "managedFields", "creationTimestamp"})
_ID = re.compile(r"[0-9a-f]{40}")
"""Id that a server generates."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
MAX_DIFFERENCES = 12
"""Maximum number of differences in a report."""

HISTORY = ("generation", "observedGeneration", "restartCount")
"""Fields that count earlier changes."""

Path = tuple[str, ...]


class ObjectName(NamedTuple):
    """The identity of an object in counts.

    Attributes:
        owner: kind and name of the object's controller, if any.
    """

    kind: str
    name: str
    owner: str = ""

    @classmethod
    def of(cls, kind: Kind, obj: Obj) -> ObjectName:
        references = obj["metadata"].get("ownerReferences") or ()
        owner = next((f"{ref['kind']} {ref['name']}" for ref in references if ref.get("controller")), "")
        return cls(kind.name, obj["metadata"]["name"], owner)


class Operation(NamedTuple):
    """An operation that a run must not repeat more often than another.

    Attributes:
        verb: created or deleted; done for operations that the database counts.
        own: whether this is an operation of the operator. Otherwise it was observed through watches, from any client.
    """

    verb: str
    named: ObjectName
    own: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        objects: all objects at the end, except events.
        counts: number of operations during the steps.
        database: state of the database.
    """

    objects: tuple[tuple[Kind, Obj], ...]
    counts: Counter[Operation]
    database: Any = None

    @cached_property
    def names(self) -> frozenset[tuple[str, str]]:
        """Kind and name of every object that exists or existed."""
        existing = (ObjectName.of(kind, obj) for kind, obj in self.objects)
        return frozenset((named.kind, named.name) for named in (*existing, *(done.named for done in self.counts)))


class Reference:
    """The expected end of a scenario.

    Args:
        one: outcome of an undisturbed run.
        other: outcome of the same run in a different world.

    Raises:
        AssertionError: the two runs end with different objects.
    """

    def __init__(self, one: Outcome, other: Outcome) -> None:
        self.outcome = one
        self._fixed = one.names & other.names
        self._masks: frozenset[tuple[str, Path]] = frozenset()
        one_leaves, other_leaves = self._leaves(one), self._leaves(other)
        unmatched = one_leaves.keys() ^ other_leaves.keys()
        if unmatched:
            raise AssertionError(
                "two undisturbed runs end with different objects, so the scenario has no stable reference: "
                + ", ".join(f"{name} exists in only one run" for name in sorted(unmatched))
            )
        self._masks = frozenset(
            (_group(name), _general(path))
            for name in one_leaves
            for path in one_leaves[name].keys() | other_leaves[name].keys()
            if one_leaves[name].get(path) != other_leaves[name].get(path)
        )
        self._expected = self._leaves(one)

    def differences(self, outcome: Outcome, *, unstable: Collection[str] = ()) -> list[str]:
        """Return the differences from the expected end, one per line.

        Args:
            unstable: fields that may differ, as keys at any depth; `KIND KEY` for objects of one kind.
        """
        found = self._leaves(outcome)
        lines = [f"{name}: missing" for name in sorted(self._expected.keys() - found.keys())]
        lines += [f"{name}: unexpected" for name in sorted(found.keys() - self._expected.keys())]
        for name in sorted(self._expected.keys() & found.keys()):
            expected, found_fields = self._expected[name], found[name]
            ignored = {field.removeprefix(f"{name.partition(' ')[0]} ") for field in unstable}
            for path in sorted(expected.keys() | found_fields.keys()):
                if expected.get(path) != found_fields.get(path) and not ignored & {*path}:
                    what = f"{found_fields.get(path, '(none)')!r}, expected {expected.get(path, '(none)')!r}"
                    lines.append(f"{name}: {'.'.join(path)}: {what}")
        return _short(lines)

    def miscounts(self, outcome: Outcome, *, inexact: Collection[str] = (), at_most: bool = False) -> list[str]:
        """Return the operations whose number differs from the reference run.

        Args:
            inexact: kind and name of each object whose operations may differ in number.
            at_most: whether to report only operations of the operator, and only those that are more frequent.
        """
        expected, found_fields = (self._counted(run, own=at_most) for run in (self.outcome, outcome))
        return _short(
            [
                f"{name}: {verb} {found_fields[name, verb]} times, expected {expected[name, verb]}"
                for name, verb in sorted(expected | found_fields)
                if name not in inexact
                and (
                    found_fields[name, verb] > expected[name, verb]
                    or (found_fields[name, verb] < expected[name, verb] and not at_most)
                )
            ]
        )

    def _counted(self, outcome: Outcome, *, own: bool) -> Counter[tuple[str, str]]:
        exact_counts: Counter[tuple[str, str]] = Counter()
        for done, count in outcome.counts.items():
            if done.own or not own:
                exact_counts[self._identity(done.named), f"{done.verb}{' by the operator' * done.own}"] += count
        return exact_counts

    def _identity(self, named: ObjectName) -> str:
        if (named.kind, named.name) in self._fixed:
            return f"{named.kind} {named.name}"
        return f"{named.kind} of {named.owner or 'no owner'}"

    def _leaves(self, outcome: Outcome) -> dict[str, dict[Path, Any]]:
        """Return the unmasked fields of every object; objects with generated names are numbered in order of content."""
        found: dict[str, dict[Path, Any]] = {}
        generated: dict[str, list[dict[Path, Any]]] = {}
        for kind, obj in outcome.objects:
            named = ObjectName.of(kind, obj)
            name = self._identity(named)
            fixed = (named.kind, named.name) in self._fixed
            fields = self._unmasked(name, obj if fixed else obj | {"metadata": obj["metadata"] | {"name": ""}})
            if fixed:
                found[name] = fields
            else:
                generated.setdefault(name, []).append(fields)
        for name, group in generated.items():
            for number, fields in enumerate(sorted(group, key=str)):
                found[f"{name} #{number}"] = fields
        found["database"] = self._unmasked("database", outcome.database)
        return found

    def _unmasked(self, name: str, value: Any) -> dict[Path, Any]:
        return {path: leaf for path, leaf in _leaves_of(value, ()) if (name, _general(path)) not in self._masks}


def _leaves_of(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a JSON value with their paths.

    List items are identified by type or name, if they have one that is not generated.
    """
    if isinstance(value, dict) and value:
        for key in sorted(value):
            if key not in _MASKED:
                yield from _leaves_of(value[key], (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, "length"), len(value)
        names = [str(item.get("type") or item.get("name")) if isinstance(item, dict) else "None" for item in value]
        numbered = "None" in names or len({*names}) < len(names) or any(map(_ID.fullmatch, names))
        for number, item in enumerate(value):
            yield from _leaves_of(item, (*path, f"[{number if numbered else names[number]}]"))
    elif isinstance(value, str) and _TIME.fullmatch(value):
        yield path, "a time"
    else:
        yield path, value


@cache
def _general(path: Path) -> Path:
    """Return the path with numeric list indexes removed, so that it covers every item."""
    return tuple("[]" if step[:1] == "[" and step[1:-1].isdigit() else step for step in path)


def _group(name: str) -> str:
    return name.partition(" #")[0]


def _short(lines: list[str]) -> list[str]:
    rest = len(lines) - MAX_DIFFERENCES
    return lines if rest <= 0 else [*lines[:MAX_DIFFERENCES], f"and {rest} more"]
