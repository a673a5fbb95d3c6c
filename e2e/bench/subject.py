"""The operator under test, as a separate process."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

from e2e.bench.measures import Buckets
from e2e.bench.service_account import ServiceAccount
from tools.local import binaries
from tools.local.binaries import Program
from tools.local.controlplane import ControlPlane
from tools.local.machine import processes
from tools.local.machine.network import free_ports
from tools.local.machine.processes import Process

REFERENCE = Program("reference", ".", ("reference",), root=Path(__file__).parent / "go")
"""An operator for Memcached on controller-runtime that does the same job."""

QUEUE_WAIT = re.compile(r'^workqueue_queue_duration_seconds_bucket\{.*le="([^"]+)".*\} (\S+)$', re.MULTILINE)


class Subject:
    """A running operator.

    Attributes:
        process: process of the operator.
    """

    def __init__(self, process: Process, metrics: str = "") -> None:
        self.process = process
        self._metrics = metrics

    @classmethod
    @contextmanager
    def reference(cls, plane: ControlPlane, directory: Path, workers: int) -> Iterator[Subject]:
        """Start the reference operator, and wait until its caches are filled; stop it at the end of the context.

        Args:
            plane: control plane that the operator connects to.
            directory: directory for its log.
            workers: number of concurrent reconciles; 0 for the default of controller-runtime.
        """
        account = ServiceAccount.create(plane, directory)
        (port,) = free_ports(1)
        command = [
            *(str(binaries.build(REFERENCE) / REFERENCE.name), f"--workers={workers}"),
            f"--kubeconfig={account.kubeconfig()}",
            f"--health-probe-bind-address=127.0.0.1:{port}",
        ]
        with _ready("the reference operator", command, f"http://127.0.0.1:{port}/readyz", directory) as process:
            yield cls(process)

    @classmethod
    @contextmanager
    def running(cls, plane: ControlPlane, directory: Path, workers: int, *, of: str = "memcached") -> Iterator[Subject]:
        """Start the operator as in a pod, and wait until it is ready; stop it with SIGTERM at the end of the context.

        Args:
            plane: control plane that the operator connects to.
            directory: directory for its log.
            workers: number of workers; 0 for the default.
            of: name of the operator.
        """
        account = ServiceAccount.create(plane, directory)
        metrics, probes = (f"127.0.0.1:{port}" for port in free_ports(2))
        command = [
            *("env", "METRICS_SECURE=false", sys.executable, "-m", "e2e.bench.in_pod"),
            *(str(account.directory), *account.address, of),
            f"--metrics-bind-address={metrics}",
            f"--health-probe-bind-address={probes}",
            *([f"--workers={workers}"] if workers else []),
        ]
        with _ready("the operator", command, f"http://{probes}/readyz", directory) as process:
            yield cls(process, f"http://{metrics}/metrics")

    def memory(self) -> int:
        """Return the resident memory, in bytes."""
        return self._status("VmRSS")

    def peak_memory(self) -> int:
        """Return the peak resident memory, in bytes."""
        return self._status("VmHWM")

    def queue_wait(self) -> Buckets:
        """Return the histogram of the time that resources waited for a worker, in seconds."""
        return {float(bound): float(count) for bound, count in QUEUE_WAIT.findall(self._scrape())}

    def _scrape(self) -> str:
        text = _get(self._metrics)
        assert text is not None, "the operator does not serve metrics"
        return text

    def _status(self, field: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
        assert found, text
        return int(found[1]) * 1024


@contextmanager
def _ready(name: str, command: Sequence[str], ready: str, directory: Path) -> Iterator[Process]:
    """Start a process and wait until it is ready; stop it with SIGTERM at the end of the context."""
    process = processes.start(name, command, log=directory / "operator.log", dies_with_us=True)
    try:
        processes.wait_until(lambda: _get(ready) == "ok", ready, needs=[process])
        yield process
    finally:
        process.signal(SIGTERM)
        processes.stop([process], grace=15)


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            text: str = response.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return None
