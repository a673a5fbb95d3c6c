"""Results of the etcd benchmark and their goals. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.bench.measures import MIB, Goal, median, percentile
from e2e.scenarios.etcd.linearizability import Operation

RATE = 20.0
"""Goal for snapshots and restores, in MiB/s: 8 GiB, the largest size that etcd recommends, then take 7 minutes.

The goal is not relative to etcdctl, because etcd's JSON gateway reaches only a fifth of the rate of gRPC.
"""


@dataclass(frozen=True)
class Growth:
    """Creation or scale-up of a cluster.

    Attributes:
        seconds: time from the change of the resource to Ready.
        own: time of each started pod from its creation to its readiness, in seconds.
    """

    seconds: float
    own: Sequence[float]

    @property
    def ratio(self) -> float:
        """Total time as a multiple of the sum of the pod starts: members join one after the other."""
        return self.seconds / sum(self.own)


@dataclass(frozen=True)
class Upgrade:
    """Rolling upgrade under load.

    Attributes:
        seconds: time from the change of the resource to Ready.
        failed: number of operations that failed despite retries.
        repeated: number of retried attempts.
        writes: seconds of each write, including its retries.
        pause: longest time without an acknowledged write of any client, in seconds.
    """

    seconds: float
    failed: int
    repeated: int
    writes: Sequence[float]
    pause: float

    @property
    def p99(self) -> float:
        """99th percentile of the write latency, in seconds."""
        return percentile(self.writes, 0.99)


@dataclass(frozen=True)
class Transfer:
    """Snapshot and restore by the operator's program and by etcd's tools; times include the start of the processes.

    Attributes:
        size: size of the snapshot, in bytes.
        operator: seconds of a snapshot by the operator's program.
        etcdctl: seconds of a snapshot by etcdctl.
        restored: seconds of a restore by the operator's program, which also verifies and seals the data.
        etcdutl_restored: seconds of a restore by etcdutl alone.
    """

    size: int
    operator: float
    etcdctl: float
    restored: float
    etcdutl_restored: float

    def rate(self, seconds: float) -> float:
        """Return the rate in MiB/s for a duration in seconds."""
        return self.size / MIB / seconds

    @property
    def snapshot_ratio(self) -> float:
        """Rate of the operator's program relative to etcdctl."""
        return self.etcdctl / self.operator

    @property
    def restore_ratio(self) -> float:
        """Time of the operator's program as a multiple of etcdutl's."""
        return self.restored / self.etcdutl_restored


@dataclass(frozen=True)
class Figures:
    """Results of a benchmark."""

    created: Sequence[Growth]
    grown: Sequence[Growth]
    upgrade: Upgrade
    transfers: Sequence[Transfer]


def goals(found: Figures) -> list[Goal]:
    """Return the goals with the measured values (medians of several rounds)."""
    upgrade = found.upgrade
    return [
        Goal("create 3 members, relative to the pod starts", median(one.ratio for one in found.created), 1.5),
        Goal("scale from 1 to 3 members, relative to the pod starts", median(one.ratio for one in found.grown), 1.5),
        Goal("upgrade under load: failed operations", upgrade.failed, 0),
        Goal("upgrade under load: p99 write latency, s", upgrade.p99, 1.0),
        Goal("upgrade under load: longest pause of writes, s", upgrade.pause, 5.0),
        Goal("snapshot, MiB/s", median(one.rate(one.operator) for one in found.transfers), RATE, at_least=True),
        Goal("restore, MiB/s", median(one.rate(one.restored) for one in found.transfers), RATE, at_least=True),
    ]


def figures(found: Figures) -> dict[str, Any]:
    """Return the results as JSON."""
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
                "snapshot": {"ours": one.operator, "etcdctl": one.etcdctl, "ratio": one.snapshot_ratio},
                "restore": {"ours": one.restored, "etcdutl": one.etcdutl_restored, "ratio": one.restore_ratio},
            }
            for one in found.transfers
        ],
    }


def _growth(one: Growth) -> dict[str, Any]:
    return {"seconds": one.seconds, "pods": list(one.own), "ratio": one.ratio}


def longest_pause(history: Iterable[Operation], began: float, ended: float) -> float:
    """Return the longest time between `began` and `ended` without an acknowledged write of any client."""
    acknowledged = sorted(each.returned for each in history if each.write and each.returned is not None)
    moments = [began, *(moment for moment in acknowledged if began < moment < ended), ended]
    return max(later - earlier for earlier, later in itertools.pairwise(moments))
