"""Benchmark of certificates: many EtcdClusters with TLS, created at once, for one operator without nodes.

Usage: python -m e2e.bench.certificates. The operator issues an authority and three certificates for each cluster. Its
peak memory must stay below the limit of the chart.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from e2e.bench.measures import MIB, Goal
from e2e.bench.output import goals_table, run
from e2e.bench.subject import Subject
from e2e.scenarios.etcd.versions import NEWEST_36
from operators.etcd.operator import OPERATOR
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.transport import HttpTransport
from shared.runtime.install import install_crds
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

RESULT = REPOSITORY / ".bench" / "certificates.json"

CLUSTERS = 500
CERTIFICATES_PER_CLUSTER = 3
"""NAME-peer-tls, NAME-server-tls and NAME-client-tls; NAME-ca has the authority."""

NAMESPACE = "default"
TIMEOUT_SECONDS = 300.0
POLL_SECONDS = 1.0

MEMORY_LIMIT_MIB = 256
"""Memory limit of the chart."""


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        clusters: number of EtcdClusters created at once.
        seconds: time from the first creation to the last certificate.
        idle: resident memory before, in bytes.
        peak: peak resident memory, in bytes.
        cpu: CPU seconds of the operator.
    """

    clusters: int
    seconds: float
    idle: int
    peak: int
    cpu: float


def measure(clusters: int) -> Measured:
    """Create clusters at once, and wait until all certificates are there.

    Raises:
        ClusterError: certificates are missing after the timeout.
    """
    with tempfile.TemporaryDirectory(prefix="platform-bench-") as name, ControlPlane.alone(Path(name)) as plane:
        return asyncio.run(_measure(plane, Path(name), clusters))


async def _measure(plane: ControlPlane, directory: Path, clusters: int) -> Measured:
    transport = HttpTransport(await load_configuration(str(plane.kubeconfig)))
    kube = Kube(transport, manager="bench")
    try:
        await install_crds(kube, OPERATOR.resources)
        with Subject.running(plane, directory, 0, of=OPERATOR.name) as subject:
            idle, cpu = subject.memory(), subject.process.cpu
            began = time.monotonic()
            await _create(kube, clusters)
            await _until_issued(kube, clusters * CERTIFICATES_PER_CLUSTER)
            seconds = time.monotonic() - began
            return Measured(clusters, seconds, idle, subject.peak_memory(), subject.process.cpu - cpu)
    finally:
        await transport.close()


async def _create(kube: Kube, clusters: int) -> None:
    kind = OPERATOR.main.kind
    await asyncio.gather(*(kube.create(kind, _cluster(f"c-{number:04}")) for number in range(clusters)))


def _cluster(name: str) -> Obj:
    kind = OPERATOR.main.kind
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"size": 3, "version": NEWEST_36, "tls": {"mode": "self"}},
    }


async def _until_issued(kube: Kube, expected: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        secrets = (await kube.list(SECRET, NAMESPACE))["items"]
        issued = sum("tls.crt" in secret.get("data", {}) for secret in secrets)
        if issued >= expected:
            return
        await asyncio.sleep(POLL_SECONDS)
    raise ClusterError(
        f"after {TIMEOUT_SECONDS:g} s there are {issued} certificates instead of {expected}",
        "read the log of the operator",
    )


def goals(found: Sequence[Measured]) -> list[Goal]:
    """Return the goals with the measured values."""
    return [Goal(f"{each.clusters} clusters: peak memory, MiB", each.peak / MIB, MEMORY_LIMIT_MIB) for each in found]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.certificates", description=__doc__)
    parser.add_argument("--clusters", type=int, default=CLUSTERS, help="number of EtcdClusters created at once")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file for the results")
    options = parser.parse_args(arguments)

    def measure_all(console: Console) -> list[Measured]:
        console.print(f"… Issuing certificates for {options.clusters} EtcdClusters")
        return [measure(options.clusters)]

    return run(
        measure_all,
        goals=goals,
        show=lambda console, found, results: console.print(*found, goals_table(results)),
        figures=lambda found: {"certificates": [asdict(each) for each in found]},
        output=options.output,
    )


if __name__ == "__main__":
    sys.exit(main())
