"""What a run with EtcdClusters came to, and the goals it is held against. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.bench.measures import MIB, Goal, median, percentile
from e2e.scenarios.etcd.linearizability import Operation

RATE = 20.0
"""MiB a second that snapshots and restores are to reach: with them, 8 GiB, the most that etcd advises, take 7 minutes.

It is no part of etcd's own rate: its gateway gives out JSON at a fifth of what gRPC does, and who reads it cannot help.
"""


@dataclass(frozen=True)
class Growth:
    """A cluster that came to be, or to have more members.

    Attributes:
        seconds: from the wish to Ready, as its status tells it.
        own: seconds of each pod that started for it, from its creation to its readiness.
    """

    seconds: float
    own: Sequence[float]

    @property
    def ratio(self) -> float:
        """All of it as a multiple of the pods' own time: members join one after the other."""
        return self.seconds / sum(self.own)


@dataclass(frozen=True)
class Upgrade:
    """A rolling upgrade beside clients that write and read.

    Attributes:
        seconds: from the wish to Ready.
        failed: operations that did not succeed, however often they were tried again.
        repeated: attempts that had to be tried again.
        writes: seconds of each write, its repetitions counted in.
        pause: the longest time in which no write of any client was answered.
    """

    seconds: float
    failed: int
    repeated: int
    writes: Sequence[float]
    pause: float

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 writes were answered."""
        return percentile(self.writes, 0.99)


@dataclass(frozen=True)
class Transfer:
    """The same data once by our program and once by etcd's own, in seconds; each with the start of its process.

    Attributes:
        size: bytes of the snapshot.
        ours, theirs: of a snapshot.
        restored, theirs_restored: of making data of it; ours verifies and seals, too.
    """

    size: int
    ours: float
    theirs: float
    restored: float
    theirs_restored: float

    def rate(self, seconds: float) -> float:
        """MiB a second."""
        return self.size / MIB / seconds

    @property
    def snapshot_ratio(self) -> float:
        """Our rate as a part of etcdctl's."""
        return self.theirs / self.ours

    @property
    def restore_ratio(self) -> float:
        """Our time as a multiple of etcdutl's alone."""
        return self.restored / self.theirs_restored


@dataclass(frozen=True)
class Figures:
    """All of a run; several of what is short."""

    created: Sequence[Growth]
    grown: Sequence[Growth]
    upgrade: Upgrade
    transfers: Sequence[Transfer]


def goals(found: Figures) -> list[Goal]:
    """The figures against what they should be (medians, where there are several)."""
    upgrade = found.upgrade
    return [
        Goal("apply to Ready of 3, of the pods' own starts", median(one.ratio for one in found.created), 1.5),
        Goal("1 to 3 members, of the new pods' own starts", median(one.ratio for one in found.grown), 1.5),
        Goal("upgrade under load: failed operations", upgrade.failed, 0),
        Goal("upgrade under load: p99 of a write, s", upgrade.p99, 1.0),
        Goal("upgrade under load: longest pause, s", upgrade.pause, 5.0),
        Goal("snapshot, MiB/s", median(one.rate(one.ours) for one in found.transfers), RATE, at_least=True),
        Goal("restore, MiB/s", median(one.rate(one.restored) for one in found.transfers), RATE, at_least=True),
    ]


def figures(found: Figures) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "created": [_growth(one) for one in found.created],
        "grown": [_growth(one) for one in found.grown],
        "upgrade": {
            "seconds": found.upgrade.seconds,
            "failed": found.upgrade.failed,
            "repeated": found.upgrade.repeated,
            "writes": len(found.upgrade.writes),
            "median": percentile(found.upgrade.writes, 0.5),
            "p99": found.upgrade.p99,
            "pause": found.upgrade.pause,
        },
        "transfers": [
            {
                "size": one.size,
                "snapshot": {"ours": one.ours, "etcdctl": one.theirs, "ratio": one.snapshot_ratio},
                "restore": {"ours": one.restored, "etcdutl": one.theirs_restored, "ratio": one.restore_ratio},
            }
            for one in found.transfers
        ],
    }


def _growth(one: Growth) -> dict[str, Any]:
    return {"seconds": one.seconds, "pods": list(one.own), "ratio": one.ratio}


def longest_pause(history: Iterable[Operation], began: float, ended: float) -> float:
    """The longest time in which no write was answered, of whichever client, between two moments."""
    answered = sorted(each.returned for each in history if each.write and each.returned is not None)
    moments = [began, *(moment for moment in answered if began < moment < ended), ended]
    return max(later - earlier for earlier, later in itertools.pairwise(moments))
