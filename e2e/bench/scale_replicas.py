"""Replicas of an operator as processes, with leader election, for the benchmark of scale."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from e2e.bench.measures import Buckets
from e2e.bench.scale_measures import Blocks
from e2e.bench.service_account import USER
from e2e.bench.timed_operator import BLOCKED, LONGEST_CPU, LONGEST_WALL
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.machine import processes
from tools.local.machine.network import free_ports

NAMESPACE = "default"
POLL_SECONDS = 0.05

_numbers = count(1)
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_BOUND = re.compile(r'le="([^"]+)"')


class Scrape:
    """The metrics of a replica at one time."""

    def __init__(self, text: str) -> None:
        self._samples = [(name, labels or "", float(value)) for name, labels, value in _SAMPLE.findall(text)]

    def total(self, name: str, labels: str = "") -> float:
        """Return the sum of a metric's series whose labels contain a text."""
        return sum(value for each, found, value in self._samples if each == name and labels in found)

    def count(self, name: str) -> int:
        """Return the number of a metric's series."""
        return sum(each == name for each, _, _ in self._samples)

    def histogram(self, name: str) -> Buckets:
        """Return a histogram, summed over its labels."""
        buckets: dict[float, float] = {}
        for each, labels, value in self._samples:
            if each == f"{name}_bucket" and (bound := _BOUND.search(labels)):
                buckets[float(bound[1])] = buckets.get(float(bound[1]), 0.0) + value
        return buckets


class Replica:
    """A running replica.

    Attributes:
        process: process of the replica.
    """

    def __init__(self, directory: Path, operator: str, kubeconfig: Path, shards: int) -> None:
        own, metrics, probes = free_ports(3)
        command = [
            *("env", "METRICS_SECURE=false"),
            *(sys.executable, "-m", "e2e.bench.timed_operator", str(own), operator),
            *("--leader-elect", f"--leader-elect-namespace={NAMESPACE}", f"--shards={shards}"),
            *(f"--kubeconfig={kubeconfig}", f"--metrics-bind-address=127.0.0.1:{metrics}"),
            *(f"--health-probe-bind-address=127.0.0.1:{probes}", "--agent-image=agent:bench"),
        ]
        self.began = time.monotonic()
        log = directory / f"operator-{next(_numbers)}.log"
        self.process = processes.start("the operator", command, log=log, dies_with_us=True)
        self._blocks: Blocks = (0.0, 0.0)
        self._own, self._metrics = f"http://127.0.0.1:{own}", f"http://127.0.0.1:{metrics}/metrics"
        self._ready = f"http://127.0.0.1:{probes}/readyz"

    @property
    def is_ready(self) -> bool:
        """Whether the cache is filled."""
        return _get(self._ready) == "ok"

    def scrape(self) -> Scrape:
        """Return the metrics that the benchmark needs."""
        scrape = Scrape(_get(self._own) or "")
        wall, cpu = self._blocks
        self._blocks = max(wall, scrape.total(LONGEST_WALL)), max(cpu, scrape.total(LONGEST_CPU))
        return scrape

    def blocks(self) -> Blocks:
        """Return the longest callbacks since the previous call."""
        self.scrape()
        taken, self._blocks = self._blocks, (0.0, 0.0)
        return taken

    def scrape_all(self) -> float:
        """Read /metrics as Prometheus does; return the seconds that took."""
        began = time.monotonic()
        if not _get(self._metrics):
            raise ClusterError("/metrics does not respond", f"check the log:\n{self.process.log_tail(20)}")
        return time.monotonic() - began

    def memory(self) -> int:
        """Return the resident memory, in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait(self, check: Callable[[], object], what: str, seconds: float = 300.0) -> float:
        """Wait for a condition; return the seconds since the replica was started.

        Raises:
            ClusterError: the condition did not become true in time, or the replica ended.
        """
        deadline = time.monotonic() + seconds
        while not check():
            if time.monotonic() > deadline or not self.process.alive:
                raise ClusterError(f"{what}: not within {seconds:g} s", f"check the log:\n{self.process.log_tail(20)}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - self.began

    def end(self, number: signal.Signals) -> None:
        if self.process.alive:
            self.process.signal(number)


@contextmanager
def replicas(plane: ControlPlane, directory: Path, operator: str) -> Iterator[Callable[..., Replica]]:
    """Yield a function that starts replicas, optionally with a number of shards; all end with the context."""
    kubeconfig = plane.client_kubeconfig("operator", USER, "system:masters")  # a path has no colons
    started: list[Replica] = []

    def start(shards: int = 1) -> Replica:
        started.append(Replica(directory, operator, kubeconfig, shards))
        return started[-1]

    try:
        yield start
    finally:
        processes.stop([replica.process for replica in started])
        for number, replica in enumerate(started):
            for line in replica.process.log.read_text().splitlines():
                if line.startswith(BLOCKED):
                    print(f"replica {number}: {line}")


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            text: str = response.read().decode()
            return text
    except OSError:
        return None
