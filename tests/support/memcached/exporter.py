"""The exporter as a process, and its metrics as parsed by Prometheus's client library."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.support import paths

REPOSITORY = paths.REPOSITORY
EXPORTER = (sys.executable, "-m", "operators.memcached", "exporter")

Samples = dict[str, float]
"""Values by name and labels in PromQL notation: commands_total{command="get",status="hit"}."""


def samples(text: str) -> Samples:
    """Return the samples, parsed by Prometheus's client library, which rejects invalid exposition formats.

    The library appends _total to the name of every counter.
    """
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


@dataclass(frozen=True)
class Running:
    """An exporter process and its port."""

    process: subprocess.Popen[str]
    port: int

    def get(self, path: str = "/metrics") -> tuple[int, str]:
        """Return the status and body of a response."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()


@contextmanager
def running(*flags: str) -> Iterator[Running]:
    """Run an exporter on a free port until the context exits."""
    command = [*EXPORTER, "--listen=127.0.0.1:0", *flags]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            message = json.loads(process.stderr.readline())["message"]
            match = re.fullmatch(r"Serving metrics of \S+ on 127\.0\.0\.1:(\d+), /metrics\.", message)
            assert match, message
            yield Running(process, int(match[1]))
        finally:
            process.kill()
