"""Redundant status writes: a message or reason that leaves and comes back while nothing else changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from shared.kubernetes.kinds import EVENT, LEASE, Kind, Obj

WORDS = frozenset({"message", "reason", "lastTransitionTime"})
"""Fields of a status that only describe the others, at any depth."""


def flaps(kind: Kind, history: Iterable[tuple[Kind, Obj]]) -> Iterator[str]:
    """Yield each return of a status to a former one, by writes that differ only in message or reason.

    Any other change justifies a write: of the resource, of another field of the status, or of another object, such as a
    pod that was deleted and exists again. A change of the database alone shows in a field of the status, if it lasts.

    Args:
        kind: kind of the resources.
        history: watch events, in order, each with the kind of its object.
    """
    runs: dict[str, list[Obj]] = {}
    for of, event in history:
        obj = event["object"]
        if of != kind:
            if of not in (EVENT, LEASE):
                runs.clear()
            continue
        run = runs.setdefault(obj["metadata"]["uid"], [])
        if run and _facts(obj) != _facts(run[-1]):
            run.clear()
        if any(_words(obj) == _words(former) for former in run[:-1]):
            yield f"{obj['metadata']['name']}: {' -> '.join(map(_summary, [*run, obj]))}"
        if not run or _words(obj) != _words(run[-1]):
            run.append(obj)


def _facts(obj: Obj) -> Any:
    metadata = {key: obj["metadata"].get(key) for key in ("generation", "labels", "annotations", "deletionTimestamp")}
    return metadata, _without(WORDS, obj.get("status"))


def _words(obj: Obj) -> Any:
    return _without(frozenset({"lastTransitionTime"}), obj.get("status"))


def _without(fields: frozenset[str], value: Any) -> Any:
    """Return a value without these fields, at any depth."""
    if isinstance(value, dict):
        return {key: _without(fields, each) for key, each in value.items() if key not in fields}
    return [_without(fields, each) for each in value] if isinstance(value, list) else value


def _summary(obj: Obj) -> str:
    first = ((obj.get("status") or {}).get("conditions") or [{}])[0]
    return f"{first.get('reason')} ({first.get('message')})"
