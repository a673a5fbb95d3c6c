"""What is measured on the cluster: EtcdClusters that come to be, grow and are upgraded, and their snapshots."""

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
from e2e.cluster import binaries
from e2e.cluster.paths import REPOSITORY
from e2e.scenarios.etcd.clients import Access, Connection
from e2e.scenarios.etcd.cluster import SMALL, EtcdCluster
from e2e.scenarios.etcd.versions import NEWEST_36, NEWEST_37

LEAD = 5.0
"""Seconds of load before the upgrade begins, and after it is over."""

VALUE = MIB - 64 * 1024
"""Bytes of a value, in base64: etcd takes a request of 1.5 MiB."""


class Bench:
    """EtcdClusters on the local cluster."""

    def __init__(self, clusters: Resources) -> None:
        self._clusters = clusters

    @classmethod
    @contextmanager
    def on_cluster(cls) -> Iterator[Bench]:
        """In a namespace of its own, which goes afterwards.

        Raises:
            ClusterError: there is no cluster.
        """
        with Resources.on_cluster(EtcdCluster, "etcdclusters", component="member", ready="readyMembers") as clusters:
            yield cls(clusters)

    def creation(self, size: int) -> Growth:
        """A new cluster, from apply to Ready; it goes afterwards."""
        name = f"c-{uuid.uuid4().hex[:6]}"
        with self._clusters.starts(name) as starts:
            began = time.monotonic()
            self._create(name, size, NEWEST_36)
            seconds = self._clusters.await_ready(name, size) - began
        self._clusters.delete(name)
        return _growth(seconds, starts, size)

    def growth(self, size: int) -> Growth:
        """A cluster of one member gets more; it goes afterwards."""
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
        """A minor version up, beside clients; what they were told is checked afterwards.

        Raises:
            AssertionError: something that was acknowledged is lost.
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
        """Snapshots of one member with so much data, and restores of them.

        Args:
            size: bytes of the data.
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
    assert 0 < len(starts.own) <= size, f"{len(starts.own)} pods were seen to start, of {size}"
    return Growth(seconds, starts.own)


def _fill(address: str, size: int) -> None:
    """Write so many bytes of what does not compress."""
    connection = Connection(address, Access())
    for number in range(size // VALUE + 1):
        connection.put(f"large-{number}", secrets.token_hex(VALUE // 2))
    connection.close()


def _transfer(address: str, cluster: str, directory: Path) -> Transfer:
    """One snapshot each way, and one restore each way, in turn."""
    file, home = "demo/a.db", directory / "home"
    home.mkdir()
    tools = binaries.build(binaries.ETCD[NEWEST_36])
    endpoint, store = f"http://{address}:2379", directory / "store"
    ours = _seconds(
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
    theirs_at = directory / "theirs.db"
    theirs = _seconds(str(tools / "etcdctl"), f"--endpoints={endpoint}", "snapshot", "save", str(theirs_at))
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
    theirs_restored = _seconds(*restore, str(theirs_at), f"--data-dir={directory / 'data'}")
    return Transfer((store / file).stat().st_size, ours, theirs, restored, theirs_restored)


def _program(work: str, directory: Path) -> Sequence[str]:
    """Our program, as it runs in pods."""
    return (sys.executable, "-m", "operators.etcd", work, f"--termination-log={directory / 'said'}")


def _seconds(*command: str) -> float:
    """How long a command takes that goes well.

    Raises:
        AssertionError: it does not.
    """
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    seconds = time.monotonic() - began
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stderr or done.stdout)[-1000:]}"
    return seconds
