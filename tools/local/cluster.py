"""The local cluster: control plane, nodes, DNS and volumes on this machine."""

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.local import binaries, host, node, stores, teardown, volumes
from tools.local.binaries import Program
from tools.local.console import Steps
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.machine import network, processes, snapshot
from tools.local.machine.commands import run
from tools.local.machine.network import NodeAddress
from tools.local.node import Node
from tools.local.paths import KUBECONFIG, STATE
from tools.local.record import Record

MANIFESTS = Path(__file__).parent / "manifests"


class Cluster:
    """The running cluster of this machine."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.kubeconfig = record.state / "kubeconfig"

    @classmethod
    def running(cls) -> "Cluster | None":
        """Return the cluster if its start was complete and all its processes are running."""
        record = Record.load()
        if record is None or not record.ready or not all(process.alive for process in record.processes):
            return None
        return cls(record)

    @property
    def nodes(self) -> list[Node]:
        """Nodes of the cluster, ordered by number."""
        addresses = [NodeAddress(number) for number in range(1, self.record.nodes + 1)]
        return [Node(at, self.record.state / at.name, self.record.process(at.name)) for at in addresses]

    @property
    def version(self) -> str:
        """Minor version of Kubernetes that the API server reports, such as 1.36."""
        reported = json.loads(self.kubectl("get", "--raw=/version"))
        return f"{reported['major']}.{reported['minor']}"

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl on this cluster and return its output."""
        return kubectl(*arguments, kubeconfig=self.kubeconfig, stdin=stdin, timeout=timeout)

    def await_dns(self) -> None:
        """Wait until pods can resolve names."""
        self.kubectl("rollout", "status", "deployment/coredns", "--namespace=kube-system", "--timeout=60s")

    def load_images(self, archives: Sequence[Path]) -> None:
        """Import image archives into every node that lacks them, all nodes in parallel."""

        def load(each: Node) -> None:
            for archive in archives:
                each.load_image(archive)

        with ThreadPoolExecutor(len(self.nodes)) as nodes:
            list(nodes.map(load, self.nodes))


def kubectl(*arguments: str | Path, kubeconfig: Path | None, stdin: str | None = None, timeout: float = 120) -> str:
    """Run kubectl of the Python environment; without a kubeconfig, on the user's current context."""
    config = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    return run(Path(sys.executable).parent / "kubectl", *config, *arguments, stdin=stdin, timeout=timeout)


def prepare(count: int, kubernetes: Program, steps: Steps) -> None:
    """Ensure that a cluster of `count` nodes with this build of Kubernetes is running or can be started.

    Removes what an earlier cluster left on this machine, for example after a crash or by a deleted clone.

    Raises:
        ClusterError: the machine does not meet a requirement, or a different cluster is running.
    """
    running = Cluster.running()
    if running:
        _same(running, count, kubernetes)
        return
    with steps.step("Check the machine (packages, kernel, disk, memory, network)"):
        teardown.take_down()
        host.prepare()


def start(
    count: int, kubernetes: Program, steps: Steps, archives: Callable[[], Sequence[Path]], background: Executor
) -> Cluster:
    """Start a cluster after `prepare`, or load the images into the running one.

    Args:
        count: number of nodes.
        kubernetes: build of Kubernetes.
        steps: display of the progress.
        archives: waits for the image archives that the nodes need.
        background: gives the images to the nodes, and DNS to the cluster, while the programs of both start.

    Returns:
        The cluster; its DNS may still be starting, which `await_dns` waits for.

    Raises:
        ClusterError: a part did not start.
    """
    running = Cluster.running()
    if running:
        needed = archives()
        with steps.step(f"Load missing images into {count} node{'s' * (count > 1)}"):
            running.load_images(needed)
        return running
    record = Record(state=STATE, nodes=count, before=snapshot.take())
    record.save()
    host.raise_kernel_settings(record)
    addresses = [NodeAddress(number) for number in range(1, count + 1)]
    version = binaries.version(kubernetes)
    images = background.submit(_provide_images, addresses, archives, steps)
    with steps.step(f"Start the control plane of Kubernetes {version} (etcd, API server, controllers, scheduler)"):
        plane = _control_plane(addresses, kubernetes, record)
    provided = images.result()
    with steps.step(f"Start {count} node{'s' * (count > 1)} with {len(provided)} images and wait until Ready"):
        cluster = Cluster(record)
        applied = background.submit(cluster.kubectl, "apply", "--server-side", "--filename", MANIFESTS)
        for at in addresses:
            others = [other for other in addresses if other != at]
            node.start(STATE / at.name, at, others, plane, record.add)
        applied.result()
        _wait_for_nodes(cluster)
    record.ready = True
    record.save()
    return cluster


def _provide_images(
    addresses: Sequence[NodeAddress], archives: Callable[[], Sequence[Path]], steps: Steps
) -> Sequence[Path]:
    """Give the images to nodes that are not started yet, and return their archives."""
    needed = archives()
    if not stores.path(needed).exists():
        with steps.step(f"Import {len(needed)} images into a store for the nodes"):
            stores.make(needed)
    for at in addresses:
        node.provide_images(STATE / at.name, needed)
    return needed


def _same(running: Cluster, count: int, kubernetes: Program) -> None:
    if running.record.state != STATE:
        raise ClusterError(
            f"this machine already runs the cluster of the clone at {running.record.state.parent}",
            "use that clone, or run make down (in either clone) and try again",
        )
    if running.record.nodes != count:
        raise ClusterError(
            f"the running cluster has {running.record.nodes} nodes, but NODES={count}",
            f"make up NODES={running.record.nodes}, or make down and try again",
        )
    requested = f"1.{binaries.minor_version(kubernetes)}"
    if (runs := running.version) != requested:
        raise ClusterError(
            f"the running cluster has Kubernetes {runs}, but {binaries.KUBERNETES_SETTING}={requested}",
            f"make up {binaries.KUBERNETES_SETTING}={runs}, or make down and try again",
        )


def _control_plane(addresses: list[NodeAddress], kubernetes: Program, record: Record) -> ControlPlane:
    network.make_bridge(addresses)
    plane = ControlPlane(
        STATE / "control-plane",
        network.HOST_ADDRESS,
        network.API_PORT,
        on_start=record.add,
        kubernetes=kubernetes,
    )
    plane.start()
    record.add(volumes.start(plane, STATE / "volumes"))
    KUBECONFIG.write_bytes(plane.kubeconfig.read_bytes())
    KUBECONFIG.chmod(0o600)
    return plane


def _wait_for_nodes(cluster: Cluster) -> None:
    def ready() -> bool:
        found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
        conditions = [condition for each in found for condition in each["status"].get("conditions", [])]
        ready_nodes = [each for each in conditions if each["type"] == "Ready" and each["status"] == "True"]
        return len(ready_nodes) == cluster.record.nodes

    try:
        processes.wait_until(ready, "Ready nodes", needs=cluster.record.processes, timeout=90)
    except ClusterError as error:
        logs = cluster.nodes[0].directory / "logs"
        raise ClusterError(error.what, f"read kubelet.log and containerd.log in {logs}") from error
