"""Runs an operator, and measures its event loop: `python -m e2e.bench.timed_operator PORT NAME …`.

While one callback runs, the event loop does nothing else: no renewal of a Lease, no probe, no other reconcile. A few
metrics are served on a port of their own: /metrics with thousands of resources takes seconds.
"""

from __future__ import annotations

import gc
import http.server
import runpy
import sys
import threading
import time
from asyncio import events

import kubernetes.aio.config  # noqa: F401  # before the event loop: only an operator outside a pod imports it
from prometheus_client import REGISTRY, Gauge, generate_latest

LONGEST_WALL, LONGEST_CPU = "bench_longest_block_seconds", "bench_longest_block_cpu_seconds"
"""Metrics: time and CPU time of the longest callback since the previous scrape."""

LOGGED_SECONDS, BLOCKED = 0.08, "event loop blocked:"
"""Callbacks that take longer are logged, with this beginning of the line."""

RECONCILES, LEADS = "controller_runtime_reconcile_total", "leader_election_master_status"
QUEUE_DEPTH, QUEUE_TIME = "workqueue_depth", "workqueue_queue_duration_seconds"
RECONCILE_TIME = "controller_runtime_reconcile_time_seconds"
WATCH_SYNCED, REQUESTS = "platform_watch_synced", "rest_client_requests_total"
SERVED = (
    RECONCILES,
    LEADS,
    QUEUE_DEPTH,
    f"{QUEUE_TIME}_bucket",
    f"{RECONCILE_TIME}_bucket",
    LONGEST_WALL,
    LONGEST_CPU,
    WATCH_SYNCED,
    REQUESTS,
)


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


class Collector:
    """Time of the garbage collector, of which a full collection of a large process is the longest part.

    Attributes:
        seconds: total time.
    """

    def __init__(self) -> None:
        self.seconds = self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


def time_callbacks(blocks: Blocks) -> None:
    """Time every callback of every event loop of this process."""
    run, collector = events.Handle._run, Collector()

    def timed(handle: events.Handle) -> None:
        wall, cpu, collecting = time.perf_counter(), time.thread_time(), collector.seconds
        run(handle)
        wall, cpu, collecting = time.perf_counter() - wall, time.thread_time() - cpu, collector.seconds - collecting
        blocks.note(wall, cpu)
        if wall > LOGGED_SECONDS:
            what = getattr(handle._callback, "__self__", handle)  # type: ignore[attr-defined]
            figures = f"{wall:.3f} s, {cpu:.3f} s of CPU, {collecting:.3f} s of garbage collection"
            print(f"{BLOCKED} {figures}: {what!r:.200}", file=sys.stderr, flush=True)

    events.Handle._run = timed  # type: ignore[method-assign,assignment]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = generate_latest(REGISTRY.restricted_registry(SERVED))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def serve(port: int) -> None:
    """Serve the metrics of `SERVED` in a thread."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    time_callbacks(Blocks())
    serve(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(f"operators.{sys.argv[0]}", run_name="__main__", alter_sys=False)
