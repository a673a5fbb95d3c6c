"""The whole local cluster: control plane, nodes, DNS and volumes on this one machine."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from e2e.cluster import images, node, teardown, volumes
from e2e.cluster.console import Steps
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import host, network, processes, snapshot
from e2e.cluster.machine.commands import run
from e2e.cluster.machine.network import NodeAddress
from e2e.cluster.node import Node
from e2e.cluster.paths import KUBECONFIG, STATE
from e2e.cluster.record import Record

MANIFESTS = Path(__file__).parent / "manifests"


class Cluster:
    """The cluster this machine runs now."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.kubeconfig = record.state / "kubeconfig"

    @classmethod
    def running(cls) -> "Cluster | None":
        """The cluster, if it came up whole and every process of it still runs."""
        record = Record.load()
        if record is None or not record.ready or not all(process.alive for process in record.processes):
            return None
        return cls(record)

    @property
    def nodes(self) -> list[Node]:
        """Its nodes, in the order of their numbers."""
        addresses = [NodeAddress(number) for number in range(1, self.record.nodes + 1)]
        return [Node(at, self.record.state / at.name, self.record.process(at.name)) for at in addresses]

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl on this cluster and return what it says."""
        return kubectl(*arguments, kubeconfig=self.kubeconfig, stdin=stdin, timeout=timeout)

    def load_images(self, archives: Sequence[Path]) -> None:
        """Bring images' archives to every node, to all nodes at once."""

        def load(each: Node) -> None:
            for archive in archives:
                each.load_image(archive)

        with ThreadPoolExecutor(len(self.nodes)) as nodes:
            list(nodes.map(load, self.nodes))


def kubectl(*arguments: str | Path, kubeconfig: Path | None, stdin: str | None = None, timeout: float = 120) -> str:
    """Run this environment's kubectl; without a kubeconfig, on the user's own current context."""
    config = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    return run(Path(sys.executable).parent / "kubectl", *config, *arguments, stdin=stdin, timeout=timeout)


def make_room(count: int, steps: Steps) -> None:
    """See that a cluster of so many nodes runs or can be started here.

    What an earlier cluster left on this machine (a crash, a clone that is gone) is removed.

    Raises:
        ClusterError: a requirement does not hold, or another cluster runs.
    """
    running = Cluster.running()
    if running:
        _same(running, count)
        return
    with steps.step("check the machine"):
        teardown.take_down()
        host.prepare()


def start(count: int, steps: Steps) -> Cluster:
    """Start a cluster where `make_room` has been, or take the running one.

    Raises:
        ClusterError: a part did not start.
    """
    running = Cluster.running()
    if running:
        return running
    record = Record(state=STATE, nodes=count, before=snapshot.take())
    record.save()
    host.lend(record)
    addresses = [NodeAddress(number) for number in range(1, count + 1)]
    with steps.step("start the control plane"):
        plane = _control_plane(addresses, record)
    with steps.step(f"start {count} node{'s' * (count > 1)}"):
        for at in addresses:
            others = [other for other in addresses if other != at]
            node.start(STATE / at.name, at, others, plane, record.add)
        cluster = Cluster(record)
        _wait_for_nodes(cluster)
    with steps.step("start DNS and volumes"):
        _add_ons(cluster)
    record.ready = True
    record.save()
    return cluster


def _same(running: Cluster, count: int) -> None:
    if running.record.state != STATE:
        raise ClusterError(
            f"this machine's cluster runs already, for the clone at {running.record.state.parent}",
            "use it from there, or take it down (make down, in either clone) and do this again",
        )
    if running.record.nodes != count:
        raise ClusterError(
            f"the cluster runs with {running.record.nodes} nodes, {count} were asked for", "make down, then again"
        )


def _control_plane(addresses: list[NodeAddress], record: Record) -> ControlPlane:
    network.make_bridge(addresses)
    plane = ControlPlane(STATE / "control-plane", network.HOST_ADDRESS, network.API_PORT, on_start=record.add)
    plane.start()
    record.add(volumes.start(plane, STATE / "volumes"))
    KUBECONFIG.write_bytes(plane.kubeconfig.read_bytes())
    KUBECONFIG.chmod(0o600)
    return plane


def _wait_for_nodes(cluster: Cluster) -> None:
    def ready() -> bool:
        found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
        conditions = [condition for each in found for condition in each["status"].get("conditions", [])]
        answers = [each for each in conditions if each["type"] == "Ready" and each["status"] == "True"]
        return len(answers) == cluster.record.nodes

    try:
        processes.wait_until(ready, "nodes that are Ready", needs=cluster.record.processes, timeout=90)
    except ClusterError as error:
        logs = cluster.nodes[0].directory / "logs"
        raise ClusterError(error.what, f"read kubelet.log and containerd.log in {logs}") from error


def _add_ons(cluster: Cluster) -> None:
    cluster.load_images([images.build(image) for image in images.cluster_images()])
    cluster.kubectl("apply", "--server-side", "--filename", MANIFESTS)
    cluster.kubectl("rollout", "status", "deployment/coredns", "--namespace=kube-system", "--timeout=60s")
