"""Runs an operator, and exposes for how long its event loop was blocked: `python -m e2e.bench.timed_operator NAME …`.

While one callback runs, the event loop does nothing else: no renewal of a Lease, no probe, no other reconcile.
"""

from __future__ import annotations

import runpy
import sys
import time
from asyncio import events

from prometheus_client import Gauge

LONGEST_WALL, LONGEST_CPU = "bench_longest_block_seconds", "bench_longest_block_cpu_seconds"
"""Metrics: time and CPU time of the longest callback since the previous scrape."""


class Blocks:
    """The longest callback, by time and by CPU time. Other processes lengthen the first, but not the second."""

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0
        Gauge(LONGEST_WALL, "Longest callback since the previous scrape.").set_function(self._take_wall)
        Gauge(LONGEST_CPU, "CPU time of the costliest callback since the previous scrape.").set_function(self._take_cpu)

    def note(self, wall: float, cpu: float) -> None:
        self._wall, self._cpu = max(self._wall, wall), max(self._cpu, cpu)

    def _take_wall(self) -> float:
        taken, self._wall = self._wall, 0.0
        return taken

    def _take_cpu(self) -> float:
        taken, self._cpu = self._cpu, 0.0
        return taken


def time_callbacks(blocks: Blocks) -> None:
    """Time every callback of every event loop of this process."""
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        run(handle)
        blocks.note(time.perf_counter() - wall, time.thread_time() - cpu)

    events.Handle._run = timed  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    time_callbacks(Blocks())
    del sys.argv[0]
    runpy.run_module(f"operators.{sys.argv[0]}", run_name="__main__", alter_sys=False)
