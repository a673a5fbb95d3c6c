"""What a run comes to, and how two runs differ where they should not.

The reference is one undisturbed run, made twice in worlds that differ in what nobody should rest on (UIDs, generated
names, addresses, the time). What differs between the two is masked: it is not for the operator to decide. Objects whose
names differ are known by their kind and owner, in any order.
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
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SHOWN = 12
"""Differences told at most."""

HISTORY = ("generation", "observedGeneration", "restartCount")
"""Fields that count what happened on the way."""

Path = tuple[str, ...]


class Named(NamedTuple):
    """An object as a count knows it.

    Attributes:
        owner: kind and name of its controller, if it has one.
    """

    kind: str
    name: str
    owner: str = ""

    @classmethod
    def of(cls, kind: Kind, obj: Obj) -> Named:
        references = obj["metadata"].get("ownerReferences") or ()
        owner = next((f"{ref['kind']} {ref['name']}" for ref in references if ref.get("controller")), "")
        return cls(kind.name, obj["metadata"]["name"], owner)


class Done(NamedTuple):
    """Something that a run should not do more often than another.

    Attributes:
        verb: created, deleted, or done where the database counts itself.
        own: whether the operator did it; if not, it is told of the object, whoever did it.
    """

    verb: str
    named: Named
    own: bool


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        objects: everything there is in the end, events aside.
        counts: how often what was done during the steps.
        database: the database's state.
    """

    objects: tuple[tuple[Kind, Obj], ...]
    counts: Counter[Done]
    database: Any = None

    @cached_property
    def names(self) -> frozenset[tuple[str, str]]:
        """Kind and name of every object there is or was."""
        there = (Named.of(kind, obj) for kind, obj in self.objects)
        return frozenset((named.kind, named.name) for named in (*there, *(done.named for done in self.counts)))


class Reference:
    """How a scenario ends if nothing goes wrong.

    Args:
        one: an undisturbed run.
        other: the same in a world that differs where nobody should care.

    Raises:
        AssertionError: the two have different objects.
    """

    def __init__(self, one: Outcome, other: Outcome) -> None:
        self.outcome = one
        self._fixed = one.names & other.names
        self._masks: frozenset[tuple[str, Path]] = frozenset()
        ours, theirs = self._leaves(one), self._leaves(other)
        odd = ours.keys() ^ theirs.keys()
        if odd:
            raise AssertionError(
                "two undisturbed runs end with different objects, so nothing can be compared with them: "
                + ", ".join(f"{name} is in one only" for name in sorted(odd))
            )
        self._masks = frozenset(
            (_group(name), _general(path))
            for name in ours
            for path in ours[name].keys() | theirs[name].keys()
            if ours[name].get(path) != theirs[name].get(path)
        )
        self._expected = self._leaves(one)

    def differences(self, outcome: Outcome, *, unstable: Collection[str] = ()) -> list[str]:
        """Where an end is not the one expected, a line each.

        Args:
            unstable: fields that need not be equal, as keys at any depth.
        """
        found = self._leaves(outcome)
        lines = [f"{name}: is missing" for name in sorted(self._expected.keys() - found.keys())]
        lines += [f"{name}: should not be there" for name in sorted(found.keys() - self._expected.keys())]
        for name in sorted(self._expected.keys() & found.keys()):
            want, have = self._expected[name], found[name]
            for path in sorted(want.keys() | have.keys()):
                if want.get(path) != have.get(path) and not {*unstable} & {*path}:
                    what = f"{have.get(path, 'nothing')!r}, not {want.get(path, 'nothing')!r}"
                    lines.append(f"{name}: {'.'.join(path)}: {what}")
        return _short(lines)

    def miscounts(self, outcome: Outcome, *, at_most: bool = False) -> list[str]:
        """What was done another number of times than expected.

        Args:
            at_most: whether only the operator's own deeds count, and only what it did more often.
        """
        want, have = (self._counted(run, own=at_most) for run in (self.outcome, outcome))
        return _short(
            [
                f"{name}: {verb} {have[name, verb]} times, not {want[name, verb]}"
                for name, verb in sorted(want | have)
                if have[name, verb] > want[name, verb] or (have[name, verb] < want[name, verb] and not at_most)
            ]
        )

    def _counted(self, outcome: Outcome, *, own: bool) -> Counter[tuple[str, str]]:
        counted: Counter[tuple[str, str]] = Counter()
        for done, count in outcome.counts.items():
            if done.own or not own:
                counted[self._identity(done.named), f"{done.verb}{' by the operator' * done.own}"] += count
        return counted

    def _identity(self, named: Named) -> str:
        if (named.kind, named.name) in self._fixed:
            return f"{named.kind} {named.name}"
        return f"{named.kind} of {named.owner or 'nobody'}"

    def _leaves(self, outcome: Outcome) -> dict[str, dict[Path, Any]]:
        """The unmasked fields of every object; those whose names are made up are numbered in order of content."""
        found: dict[str, dict[Path, Any]] = {}
        generated: dict[str, list[dict[Path, Any]]] = {}
        for kind, obj in outcome.objects:
            named = Named.of(kind, obj)
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
        return {path: leaf for path, leaf in _walk(value, ()) if (name, _general(path)) not in self._masks}


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The leaves of JSON with their paths: items of lists by their type or name, where they have one."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            if key not in _MASKED:
                yield from _walk(value[key], (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, "length"), len(value)
        names = [str(item.get("type") or item.get("name")) if isinstance(item, dict) else "None" for item in value]
        numbered = "None" in names or len({*names}) < len(names)
        for number, item in enumerate(value):
            yield from _walk(item, (*path, f"[{number if numbered else names[number]}]"))
    elif isinstance(value, str) and _TIME.fullmatch(value):
        yield path, "a time"
    else:
        yield path, value


@cache
def _general(path: Path) -> Path:
    """A path that stands for every item of a list that has no names."""
    return tuple("[]" if step[:1] == "[" and step[1:-1].isdigit() else step for step in path)


def _group(name: str) -> str:
    return name.partition(" #")[0]


def _short(lines: list[str]) -> list[str]:
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"and {rest} more"]
