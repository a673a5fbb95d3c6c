"""Measurements with EtcdClusters on the local cluster: creation, scale-up, upgrade, snapshot and restore."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.bench.etcd_measures import Growth, Transfer, Upgrade, longest_pause
from e2e.bench.measures import MIB
from e2e.bench.resources import Resources, Starts
from e2e.scenarios.etcd.clients import Access, Connection
from e2e.scenarios.etcd.cluster import SMALL, EtcdCluster
from e2e.scenarios.etcd.versions import NEWEST_36, NEWEST_37
from tools.local import binaries
from tools.local.paths import REPOSITORY

LEAD = 5.0
"""Seconds of load before and after the upgrade."""

VALUE = MIB - 64 * 1024
"""Size of a value in bytes; in base64 it fits into etcd's request limit of 1.5 MiB."""


class Bench:
    """EtcdClusters on the local cluster."""

    def __init__(self, clusters: Resources) -> None:
        self._clusters = clusters

    @classmethod
    @contextmanager
    def on_cluster(cls) -> Iterator[Bench]:
        """Use a new namespace, which is deleted at the end of the context.

        Raises:
            ClusterError: no cluster is running.
        """
        with Resources.on_cluster(EtcdCluster, "etcdclusters", component="member", ready="readyMembers") as clusters:
            yield cls(clusters)

    def creation(self, size: int) -> Growth:
        """Measure the creation of a cluster, from apply to Ready, and delete it."""
        name = f"c-{uuid.uuid4().hex[:6]}"
        with self._clusters.starts(name) as starts:
            began = time.monotonic()
            self._create(name, size, NEWEST_36)
            seconds = self._clusters.await_ready(name, size) - began
        self._clusters.delete(name)
        return _growth(seconds, starts, size)

    def growth(self, size: int) -> Growth:
        """Measure the scale-up of a cluster from one member, and delete it."""
        name = f"g-{uuid.uuid4().hex[:6]}"
        self._create(name, 1, NEWEST_36)
        self._clusters.await_ready(name, 1)
        with self._clusters.starts(name) as starts:
            began = time.monotonic()
            self._clusters.change(name, size=size)
            seconds = self._clusters.await_ready(name, size) - began
        self._clusters.delete(name)
        return _growth(seconds, starts, size)

    def upgrade(self, size: int) -> Upgrade:
        """Measure an upgrade to the next minor version under load, then verify what the clients read and wrote.

        Raises:
            AssertionError: an acknowledged write is lost.
        """
        name = f"u-{uuid.uuid4().hex[:6]}"
        self._create(name, size, NEWEST_36)
        self._clusters.await_ready(name, size)
        cluster = EtcdCluster(self._clusters.kubectl, name)
        with cluster.load() as load:
            time.sleep(LEAD)
            before, began = len(load.write_waits), time.monotonic()
            self._clusters.change(name, version=NEWEST_37)
            seconds = self._clusters.await_ready(name, size) - began
            time.sleep(LEAD)
            ended = time.monotonic()
        if not load.failures:
            load.check()
        versions = cluster.versions()
        assert versions == {NEWEST_37}, f"the members run {versions}"
        self._clusters.delete(name)
        return Upgrade(
            seconds,
            len(load.failures),
            load.repeated,
            load.write_waits[before:],
            longest_pause(load.history, began, ended),
        )

    def transfers(self, size: int, rounds: int) -> Iterator[Transfer]:
        """Measure snapshots of a single member, and their restore.

        Args:
            size: amount of data, in bytes.
            rounds: number of snapshots.
        """
        name = f"s-{uuid.uuid4().hex[:6]}"
        self._create(name, 1, NEWEST_36, storage={"size": "2Gi"}, quotaBackendBytes=1 << 30)
        self._clusters.await_ready(name, 1)
        cluster = EtcdCluster(self._clusters.kubectl, name)
        (address,) = cluster.addresses()
        _fill(address, size)
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="bench-etcd-") as directory:
                yield _transfer(address, name, Path(directory))
        self._clusters.delete(name)

    def _create(self, name: str, size: int, version: str, **spec: Any) -> None:
        given = {"resources": SMALL, "storage": {"size": "256Mi"}, "size": size, "version": version, **spec}
        self._clusters.create(name, **given)


def _growth(seconds: float, starts: Starts, size: int) -> Growth:
    assert 0 < len(starts.own) <= size, f"observed {len(starts.own)} pod starts, expected {size}"
    return Growth(seconds, starts.own)


def _fill(address: str, size: int) -> None:
    """Write `size` bytes of incompressible data."""
    connection = Connection(address, Access())
    for number in range(size // VALUE + 1):
        connection.put(f"large-{number}", secrets.token_hex(VALUE // 2))
    connection.close()


def _transfer(address: str, cluster: str, directory: Path) -> Transfer:
    """Measure a snapshot and a restore by the operator's program and by etcd's tools."""
    file, home = "demo/a.db", directory / "home"
    home.mkdir()
    tools = binaries.build(binaries.ETCD[NEWEST_36])
    endpoint, store = f"http://{address}:2379", directory / "store"
    operator = _seconds(
        *_program("snapshot", directory),
        f"--endpoint={endpoint}",
        f"--volume={store}",
        f"--file={file}",
        "--member=it",
        "--namespace=bench",
        f"--cluster={cluster}",
        "--cluster-uid=it",
        "--backup=it",
    )
    saved = directory / "etcdctl.db"
    etcdctl = _seconds(str(tools / "etcdctl"), f"--endpoints={endpoint}", "snapshot", "save", str(saved))
    minor = NEWEST_36.rpartition(".")[0]
    fetch = (
        *_program("fetch", directory),
        f"--volume={store}",
        f"--file={file}",
        f"--home={home}",
        f"--newest={minor}",
    )
    restore = (
        *(str(tools / "etcdutl"), "snapshot", "restore"),
        *("--name=m", "--initial-cluster=m=http://m:2380", "--initial-advertise-peer-urls=http://m:2380"),
    )
    seal = (*_program("seal", directory), f"--home={home}", "--token=t")
    scratch = home / "scratch"
    restored = (
        _seconds(*fetch)
        + _seconds(*restore, str(scratch / "snapshot.db"), f"--data-dir={scratch / 'data'}")
        + _seconds(*seal)
    )
    etcdutl_restored = _seconds(*restore, str(saved), f"--data-dir={directory / 'data'}")
    return Transfer((store / file).stat().st_size, operator, etcdctl, restored, etcdutl_restored)


def _program(work: str, directory: Path) -> Sequence[str]:
    """Return the command of the operator's backup program, as in its pods."""
    return (sys.executable, "-m", "operators.etcd", work, f"--termination-log={directory / 'termination-log'}")


def _seconds(*command: str) -> float:
    """Run a command and return its duration in seconds.

    Raises:
        AssertionError: the command failed.
    """
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    seconds = time.monotonic() - began
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stderr or done.stdout)[-1000:]}"
    return seconds
