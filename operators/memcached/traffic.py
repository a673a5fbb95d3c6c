"""Gets of running servers, from their statistics, for the pause of a rolling update (`pause`).

memcached counts gets since its start. How full a server is shows in the gets of the last seconds: the operator
remembers what it read earlier in the same update. After a restart of the operator, a server is first judged by all gets
since its start. Of a new server these include those that filled it: it counts as filled later than it is, not sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from operators.memcached.client.errors import MemcachedError
from operators.memcached.security.connection import Access

WINDOW_SECONDS = 30
"""Shortest time over which gets are counted: over less, a hit ratio is chance."""

INTERVAL_SECONDS = 5
"""Shortest time between two samples that are remembered."""

MAX_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Traffic:
    """Gets of a server in the last seconds.

    Attributes:
        seconds: time over which they were counted: `WINDOW_SECONDS` or more, unless the server started later.
        hits: gets that found the item.
        misses: gets that did not.
        error: why nothing is known; empty if the statistics were read.
    """

    seconds: int = 0
    hits: int = 0
    misses: int = 0
    error: str = ""

    @property
    def gets(self) -> int:
        return self.hits + self.misses


@dataclass(frozen=True, slots=True)
class Sample:
    """Statistics of a server: `uptime` in seconds, `get_hits` and `get_misses` since its start."""

    uptime: int = 0
    hits: int = 0
    misses: int = 0

    @classmethod
    def of(cls, stats: Mapping[str, str]) -> Sample:
        """Read the response to `stats`.

        Raises:
            ValueError: a statistic is missing, or no number.
        """
        found = [stats.get(name, "") for name in ("uptime", "get_hits", "get_misses")]
        if not all(value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS for value in found):
            raise ValueError("its statistics have no uptime, get_hits and get_misses.")
        return cls(*map(int, found))


class Meter:
    """Remembers samples of the servers whose update is in progress."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[str, list[Sample]]] = {}

    def forget(self, resource: str, *, but: Collection[str] = ()) -> None:
        """Forget the servers of a resource, except for those with the given UIDs."""
        kept = {uid: found for uid, found in self._samples.pop(resource, {}).items() if uid in but}
        if kept:
            self._samples[resource] = kept

    def add(self, resource: str, server: str, sample: Sample) -> Traffic:
        """Remember a sample, and return the gets of the server since an earlier one.

        Args:
            resource: UID of the resource.
            server: UID of the server's pod.
        """
        known = self._samples.setdefault(resource, {}).setdefault(server, [])
        if known and sample.uptime < known[-1].uptime:  # the server has restarted
            known.clear()
        if not known or sample.uptime - known[-1].uptime >= INTERVAL_SECONDS:
            known.append(sample)
        while len(known) > 1 and sample.uptime - known[1].uptime >= WINDOW_SECONDS:
            del known[0]
        base = known[0] if sample.uptime - known[0].uptime >= WINDOW_SECONDS else Sample()
        return Traffic(sample.uptime - base.uptime, sample.hits - base.hits, sample.misses - base.misses)


async def inspect_traffic(access: Access, address: str) -> Sample | str:
    """Return the statistics of a server, or why they are unknown.

    Args:
        address: IP address of the server's pod.
    """
    try:
        async with access.connected(address, access.secrets.credentials) as server:
            return Sample.of(await server.stats())
    except (MemcachedError, ValueError) as error:
        return str(error)
