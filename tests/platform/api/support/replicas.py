"""Replicas of the memcached operator as separate processes, with their probes, metrics and logs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.platform.api.support.running import NAME
from tools.local.machine.network import free_ports
from tools.local.paths import REPOSITORY


@contextmanager
def ready(process: subprocess.Popen[Any], probes: str) -> Iterator[None]:
    """Wait until an operator's process is ready, and end it with the context.

    Args:
        probes: URL of its probes.
    """
    try:
        wait(lambda: answer(f"{probes}/readyz")[0] == 200)
        yield
    finally:
        process.kill()
        process.wait()


class Replica:
    """A process `python -m operators.memcached` with unprotected metrics.

    Attributes:
        process: operating system process.
        log: log lines.
        probes, metrics: URLs.
    """

    def __init__(self, kubeconfig: Path, *arguments: str) -> None:
        probes, metrics = free_ports(2)
        self.probes = f"http://127.0.0.1:{probes}"
        self.metrics = f"http://127.0.0.1:{metrics}/metrics"
        command = [
            *(sys.executable, "-m", "operators.memcached", "--log-format=text", "--no-metrics-secure"),
            *(f"--health-probe-bind-address=127.0.0.1:{probes}", f"--metrics-bind-address=127.0.0.1:{metrics}"),
            *(f"--kubeconfig={kubeconfig}", *arguments),
        ]
        self.log_lines: list[str] = []
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @classmethod
    @contextmanager
    def running(cls, kubeconfig: Path, *arguments: str) -> Iterator[Replica]:
        """Run a replica while the context is open, and wait until it is ready."""
        replica = cls(kubeconfig, *arguments)
        with ready(replica.process, replica.probes):
            yield replica

    @property
    def leads(self) -> bool:
        return self.metric(f'leader_election_master_status{{name="{NAME}"}}') == 1

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all labels that are not given; 0 if the metric is missing."""
        beginning, _, labels = name.partition("{")
        labels_text = labels.rstrip("}")
        lines = re.findall(rf"^{re.escape(beginning)}(?:{{(.*)}})? (\S+)$", answer(self.metrics)[1], re.MULTILINE)
        return sum(float(value) for given, value in lines if labels_text in given)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Wait until the process ends; return the exit code."""
        code = self.process.wait(20)
        self._reading.join(5)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log_lines.extend(self.process.stderr)


def answer(url: str) -> tuple[int, str]:
    """Return status and body of a response; status 0 without a response."""
    try:
        with urllib.request.urlopen(url, timeout=5) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, OSError):
        return 0, ""


def wait(check: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)
