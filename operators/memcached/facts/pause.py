"""Pause of a rolling update after each server, by the evidence that clients have filled it. Pure.

A new server starts empty. Kubernetes replaces the next one when the new one has been ready for the `minReadySeconds`
of the workload. The operator sets only this time, so that no update stops because the operator does. It is
`updateStrategy.pauseSeconds` until the evidence is there. Then it is the time for which the newest server has been
ready: if the operator fails at this moment, the following servers still get as much time as this one needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from operators.memcached.traffic import WINDOW_SECONDS, Traffic

CHECK_INTERVAL_SECONDS = 10.0
"""Time between two reads of the statistics."""

NEAR = 0.9
"""Share of the others' hit ratio from which on a new server counts as filled."""

MIN_SHARE = 0.1
"""Share of the others' gets from which on clients count as using a new server; shares differ with the keys."""


@dataclass(frozen=True, slots=True)
class Filling:
    """A ready server, as far as the pause depends on it.

    Attributes:
        name: name of the pod.
        ready_seconds: time since it became ready.
        traffic: gets of the server; None if they were not inspected.
    """

    name: str
    ready_seconds: float
    traffic: Traffic | None = None

    @property
    def is_measured(self) -> bool:
        """Whether its gets are known for long enough."""
        return self.traffic is not None and not self.traffic.error and self.traffic.seconds >= WINDOW_SECONDS


@dataclass(frozen=True, slots=True)
class Pause:
    """The pause of a rolling update.

    Attributes:
        seconds: time for which a server must be ready before the next one is replaced.
        waits_for: evidence that is missing to replace the next one sooner, as a sentence without a period; or empty.
    """

    seconds: int
    waits_for: str = ""


def pause(limit: int, current: int, servers: Sequence[Filling]) -> Pause:
    """Return the pause of a rolling update in progress.

    Args:
        limit: longest pause, in seconds.
        current: present pause of the workload, which is kept if the evidence is there.
        servers: the ready servers.
    """
    new = sorted((server for server in servers if server.ready_seconds < limit), key=lambda each: each.ready_seconds)
    if not new or limit <= WINDOW_SECONDS:
        return Pause(limit)
    for server in new:
        if found := _missing(server, _others(server, servers, limit)):
            minutes = math.ceil((limit - server.ready_seconds) / 60)
            return Pause(limit, f"{found}: waiting at most {minutes} min more")
    youngest = int(new[0].ready_seconds)
    return Pause(current if WINDOW_SECONDS <= current <= youngest else youngest)


def _others(server: Filling, servers: Sequence[Filling], limit: int) -> list[Filling]:
    """Return the servers to compare with: those that are not new themselves, if there are any."""
    others = [other for other in servers if other is not server]
    return [other for other in others if other.ready_seconds >= limit] or others


def _missing(server: Filling, others: Sequence[Filling]) -> str:
    """Return what a server lacks to count as filled; empty if nothing."""
    own = server.traffic
    if own is not None and own.error:
        return f"The hit ratio of {server.name} is unknown: {own.error.rstrip('.')}"
    if own is None or server.ready_seconds < WINDOW_SECONDS or not server.is_measured:
        return f"{server.name} has been ready for less than {WINDOW_SECONDS} s"
    if not others:
        return ""
    known = [other.traffic for other in others if other.is_measured and other.traffic is not None]
    if not known:
        return f"The hit ratio of the other servers, with which that of {server.name} is compared, is unknown"
    rate, usual = own.gets / own.seconds, sum(other.gets / other.seconds for other in known) / len(known)
    if not usual:
        return ""  # no client uses the cache
    if rate < MIN_SHARE * usual:
        return f"{server.name} gets {rate:.1f} requests per second, the others {usual:.1f} on average"
    ratio, expected = own.hits / own.gets, sum(other.hits for other in known) / sum(other.gets for other in known)
    if ratio < NEAR * expected:
        return f"{server.name} has hit ratio {ratio:.2f}, the others {expected:.2f}"
    return ""
