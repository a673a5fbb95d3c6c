"""Servers that do not respond, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from operators.memcached.client.errors import Unreachable
from operators.memcached.reasons import SERVER_NOT_RESPONDING
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import Obj
from shared.status.conditions import READY


class Outage(NamedTuple):
    """Why a server does not respond, and the seconds since it first did not."""

    error: Unreachable
    seconds: float = 0.0


class Outages:
    """Remembers since when servers do not respond, as this process of the operator observed it.

    Only what is reported counts: the operator then queries every few seconds, and once it queries rarely, a server may
    have responded in between.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._since = clock, dict[str, dict[str, float]]()

    def update(self, resource: Obj, found: Mapping[str, Unreachable]) -> Mapping[str, Outage]:
        """Return the outages of servers that do not respond now, by pod, and forget the others of the resource."""
        now, before = self._clock(), self._since.pop(resource["metadata"]["uid"], {})
        if condition(resource, READY).get("reason") != SERVER_NOT_RESPONDING:
            before = {}
        if found:
            self._since[resource["metadata"]["uid"]] = {name: before.get(name, now) for name in found}
        return {name: Outage(error, now - before.get(name, now)) for name, error in found.items()}
