"""What is measured on the cluster: EtcdClusters that come to be, grow and are upgraded, and their snapshots."""

from __future__ import annotations

import os
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

from kubernetes import client, config

from e2e.bench.etcd_measures import Growth, Starts, Transfer, Upgrade, longest_pause
from e2e.bench.measures import MIB
from e2e.cluster import binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import KUBECONFIG, REPOSITORY
from e2e.scenarios.commands import Kubectl
from e2e.scenarios.etcd.clients import Access, Connection
from e2e.scenarios.etcd.cluster import SMALL, EtcdCluster
from e2e.scenarios.etcd.versions import NEWEST_36, NEWEST_37
from e2e.scenarios.load import watched
from e2e.scenarios.resource import conditions

GROUP, VERSION, PLURAL = "etcd.ydzs.io", "v1alpha1", "etcdclusters"

LOOK = 0.02
"""Seconds between two looks at a status."""

PATIENCE = 300.0
"""Seconds after which what does not come is a failure."""

LEAD = 5.0
"""Seconds of load before the upgrade begins, and after it is over."""

VALUE = MIB - 64 * 1024
"""Bytes of a value, in base64: etcd takes a request of 1.5 MiB."""


class Bench:
    """A namespace of the local cluster.

    Args:
        environment: with KUBECONFIG.
    """

    def __init__(self, kubectl: Kubectl, environment: dict[str, str]) -> None:
        self.kubectl = kubectl
        connection: Any = config.new_client_from_config(environment["KUBECONFIG"])  # type: ignore[no-untyped-call]
        self._resources: Any = client.CustomObjectsApi(connection)
        self._core: Any = client.CoreV1Api(connection)

    @classmethod
    @contextmanager
    def on_cluster(cls) -> Iterator[Bench]:
        """In a namespace of its own, which goes afterwards.

        Raises:
            ClusterError: there is no cluster.
        """
        kubeconfig = os.environ.get("KUBECONFIG") or str(KUBECONFIG)
        if not Path(kubeconfig).exists():
            raise ClusterError(f"there is no cluster: {kubeconfig} does not exist", "make up")
        environment = {**os.environ, "KUBECONFIG": kubeconfig}
        kubectl = Kubectl(f"bench-{uuid.uuid4().hex[:8]}", environment)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": kubectl.namespace, "labels": labels}
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            yield cls(kubectl, environment)
        finally:
            kubectl("delete", "namespace", kubectl.namespace, "--wait=false", "--ignore-not-found")

    def creation(self, size: int) -> Growth:
        """A new cluster, from apply to Ready; it goes afterwards."""
        name = f"c-{uuid.uuid4().hex[:6]}"
        with self._starts(name) as starts:
            began = time.monotonic()
            self._create(name, size, NEWEST_36)
            seconds = self._await_ready(name, size) - began
        self._delete(name)
        return _growth(seconds, starts, size)

    def growth(self, size: int) -> Growth:
        """A cluster of one member gets more; it goes afterwards."""
        name = f"g-{uuid.uuid4().hex[:6]}"
        self._create(name, 1, NEWEST_36)
        self._await_ready(name, 1)
        with self._starts(name) as starts:
            began = time.monotonic()
            self._change(name, size=size)
            seconds = self._await_ready(name, size) - began
        self._delete(name)
        return _growth(seconds, starts, size)

    def upgrade(self, size: int) -> Upgrade:
        """A minor version up, beside clients; what they were told is checked afterwards.

        Raises:
            AssertionError: something that was acknowledged is lost.
        """
        name = f"u-{uuid.uuid4().hex[:6]}"
        self._create(name, size, NEWEST_36)
        self._await_ready(name, size)
        cluster = EtcdCluster(self.kubectl, name)
        with cluster.load() as load:
            time.sleep(LEAD)
            before, began = len(load.write_waits), time.monotonic()
            self._change(name, version=NEWEST_37)
            seconds = self._await_ready(name, size) - began
            time.sleep(LEAD)
            ended = time.monotonic()
        if not load.failures:
            load.check()
        versions = cluster.versions()
        assert versions == {NEWEST_37}, f"the members run {versions}"
        self._delete(name)
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
        self._await_ready(name, 1)
        cluster = EtcdCluster(self.kubectl, name)
        (address,) = cluster.addresses()
        _fill(address, size)
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="bench-etcd-") as directory:
                yield _transfer(address, name, Path(directory))
        self._delete(name)

    def _create(self, name: str, size: int, version: str, **spec: Any) -> None:
        given = {"resources": SMALL, "storage": {"size": "256Mi"}, "size": size, "version": version, **spec}
        body = EtcdCluster.manifest(name, **given)
        self._resources.create_namespaced_custom_object(GROUP, VERSION, self.kubectl.namespace, PLURAL, body)

    def _change(self, name: str, **spec: Any) -> None:
        body = {"spec": spec}
        self._resources.patch_namespaced_custom_object(GROUP, VERSION, self.kubectl.namespace, PLURAL, name, body)

    def _delete(self, name: str) -> None:
        self._resources.delete_namespaced_custom_object(GROUP, VERSION, self.kubectl.namespace, PLURAL, name)

    def _await_ready(self, name: str, size: int) -> float:
        """The moment at which it says that its current spec is reality.

        Raises:
            AssertionError: it did not come.
        """
        deadline = time.monotonic() + PATIENCE
        found: dict[str, Any] = {}
        while time.monotonic() < deadline:
            found = self._resources.get_namespaced_custom_object(GROUP, VERSION, self.kubectl.namespace, PLURAL, name)
            now, status = time.monotonic(), found.get("status", {})
            is_current = status.get("observedGeneration") == found["metadata"]["generation"]
            if is_current and conditions(found).get("Ready") == "True" and status.get("readyMembers") == size:
                return now
            time.sleep(LOOK)
        raise AssertionError(f"{name}: not Ready with {size} members within {PATIENCE:g} s: {found.get('status')}")

    @contextmanager
    def _starts(self, name: str) -> Iterator[Starts]:
        """When the pods of a cluster start within the block; those that are there already do not count."""
        starts, begun = Starts(), time.monotonic()
        labels = f"app.kubernetes.io/instance={name},app.kubernetes.io/component=member"
        listed = self._core.list_namespaced_pod(self.kubectl.namespace, label_selector=labels)
        before = {pod.metadata.uid for pod in listed.items}
        version = listed.metadata.resource_version

        def see(_: str, pod: Any) -> None:
            if pod.metadata.uid not in before:
                found = {condition.type: condition.status for condition in pod.status.conditions or ()}
                starts.see(pod.metadata.uid, found, time.monotonic() - begun)

        listing = self._core.list_namespaced_pod
        with watched(listing, see, self.kubectl.namespace, label_selector=labels, resource_version=version):
            yield starts
            time.sleep(0.5)  # what is on its way


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
