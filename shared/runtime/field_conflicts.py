"""Objects of which another client keeps changing fields that the operator applies. In memory: nothing depends on it.

The operator restores its fields. A client that sets them again and again would cause a write, and an event, each time.
From the third change on, restorations of an object are therefore some seconds apart, and the status names the client.
A changed spec is applied at once nevertheless.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared.kubernetes.kinds import Key, Kind

IMMEDIATE_RESTORATIONS = 2
"""Number of restorations of an object without delay."""

FIRST_DELAY = timedelta(seconds=1)
MAX_DELAY = timedelta(seconds=10)
"""First and longest time between two restorations.

The longest one is below the interval of most controllers (15 seconds for a HorizontalPodAutoscaler), so that the
changes of those are still reverted at once: a wrong number of replicas must not remain.
"""

MEMORY = timedelta(minutes=15)
"""Time without a change by another client after which a conflict is over: GitOps tools apply every 3 to 10 minutes."""

MAX_LISTED_FIELDS, MAX_FIELD_CHARACTERS = 5, 200
"""Maximum number of fields, and of managers, in a message, and of characters of a field: other clients name them."""


@dataclass(slots=True)
class _Conflict:
    last: datetime
    count: int = 0
    managers: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)

    @property
    def is_reported(self) -> bool:
        return self.count > IMMEDIATE_RESTORATIONS

    @property
    def delay(self) -> timedelta:
        """Minimum time between the last restoration and the next one."""
        exponent = self.count - IMMEDIATE_RESTORATIONS
        return min(MAX_DELAY, FIRST_DELAY * 2 ** min(exponent, 10)) if exponent >= 0 else timedelta(0)


class FieldConflicts:
    """The conflicts of the resources of one controller, by owned object."""

    def __init__(self) -> None:
        self._of: dict[Key, dict[tuple[Kind, str], _Conflict]] = {}

    def delay(self, key: Key, kind: Kind, name: str, now: datetime) -> float:
        """Return the seconds until an object may be restored; 0 if it may be restored now.

        Args:
            key: the resource that owns the object.
        """
        conflict = self._of.get(key, {}).get((kind, name))
        return 0.0 if conflict is None else max((conflict.last + conflict.delay - now).total_seconds(), 0.0)

    def restored(
        self, key: Key, kind: Kind, name: str, managers: Collection[str], fields: Collection[str], now: datetime
    ) -> bool:
        """Record a restoration; return whether it is one of the first, which are reported by themselves."""
        self._expire(key, now)
        conflict = self._of.setdefault(key, {}).setdefault((kind, name), _Conflict(now))
        conflict.count, conflict.last = conflict.count + 1, now
        conflict.managers.update(sorted(managers)[:MAX_LISTED_FIELDS])
        conflict.fields.update(field[:MAX_FIELD_CHARACTERS] for field in sorted(fields)[:MAX_LISTED_FIELDS])
        return not conflict.is_reported

    def report(self, key: Key, now: datetime) -> tuple[str, float | None]:
        """Return a message about the present conflicts of a resource, and the seconds until something of them is due.

        That is a restoration, or the end of the report. The message is empty if no conflict is reported.
        """
        self._expire(key, now)
        conflicts = self._of.get(key, {})
        reported = {what: each for what, each in conflicts.items() if each.is_reported}
        due = [each.last + each.delay for each in conflicts.values()] + [e.last + MEMORY for e in reported.values()]
        seconds = min(((at - now).total_seconds() for at in due if at > now), default=None)
        return " ".join(_message(*what, each) for what, each in sorted(reported.items(), key=str)), seconds

    def forget(self, key: Key) -> None:
        """Drop a resource that was deleted."""
        self._of.pop(key, None)

    def clear(self) -> None:
        """Drop everything: another replica may have led in the meantime."""
        self._of.clear()

    def __len__(self) -> int:
        """Number of objects with a conflict that is reported."""
        return sum(each.is_reported for conflicts in list(self._of.values()) for each in list(conflicts.values()))

    def _expire(self, key: Key, now: datetime) -> None:
        conflicts = {what: each for what, each in self._of.get(key, {}).items() if now - each.last < MEMORY}
        if conflicts:
            self._of[key] = conflicts
        else:
            self._of.pop(key, None)


def _message(kind: Kind, name: str, conflict: _Conflict) -> str:
    managers, fields = sorted(conflict.managers), sorted(conflict.fields)
    client = f"The field manager {' and '.join(managers[:MAX_LISTED_FIELDS])}" if managers else "Another client"
    listed = ", ".join(fields[:MAX_LISTED_FIELDS]) + (", …" if len(fields) > MAX_LISTED_FIELDS else "")
    return (
        f"{client} keeps changing {listed} of {kind} {name}, and the operator restores it. Configure that client not "
        "to set these fields, or change them in the spec of this resource."
    )
