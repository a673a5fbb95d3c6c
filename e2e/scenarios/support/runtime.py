"""Containers from outside: what their node could do to them, and no pod or API can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.scenarios.support.commands import Kubectl


def signal(pod: dict[str, Any], container: str, number: str) -> None:
    """Send a signal to a container's first process, as the node's kernel or administrator would; nobody is told.

    Args:
        pod: as the API shows it.
        container: its name.
        number: such as SIGKILL.
    """
    node, identity = _found(pod, container)
    node.inside("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", number, identity)


@contextmanager
def cut_off(pods: Sequence[dict[str, Any]], addresses: Sequence[str]) -> Iterator[None]:
    """Nothing that these pods send to these addresses arrives within the block.

    Args:
        pods: as the API shows them.
    """
    cut = [(*_network(pod), address) for pod in pods for address in addresses]
    for node, process, address in cut:
        node.inside("nsenter", f"--net=/proc/{process}/ns/net", "ip", "route", "add", "blackhole", f"{address}/32")
    try:
        yield
    finally:
        for node, process, address in cut:
            node.inside("nsenter", f"--net=/proc/{process}/ns/net", "ip", "route", "del", "blackhole", f"{address}/32")


def hand_out_from(pods: Sequence[dict[str, Any]]) -> None:
    """The next pods on each of these pods' nodes are given the addresses that these have, as far as they are free.

    A node hands out addresses in order, and notes which was the last.
    """
    lowest: dict[str, IPv4Address] = {}
    for pod in pods:
        name, address = pod["spec"]["nodeName"], IPv4Address(pod["status"]["podIP"])
        lowest[name] = min(address, lowest.get(name, address))
    for node in _running().nodes:
        if node.at.name in lowest:
            last = lowest[node.at.name] - 1
            node.inside("sh", "-c", f"printf %s {last} > /run/cni/platform/last_reserved_ip.0")


def volume(kubectl: Kubectl, claim: str) -> Path:
    """The directory of this machine in which a claim's volume is."""
    name = kubectl.get("persistentvolumeclaim", claim)["spec"]["volumeName"]
    return Path(kubectl.get("persistentvolume", name)["spec"]["local"]["path"])


def flip(file: Path, found: bytes, replaced: bytes) -> int:
    """Change what stands in a file behind its program's back; returns in how many places.

    Raises:
        AssertionError: it does not stand there.
    """
    assert len(found) == len(replaced)
    content = file.read_bytes()
    places = content.count(found)
    assert places, f"{found!r} does not stand in {file}"
    file.write_bytes(content.replace(found, replaced))
    return places


def _running() -> Cluster:
    cluster = Cluster.running()
    if cluster is None:
        pytest.skip("another cluster's nodes are not ours to enter: make up CLUSTER=local")
    return cluster


def _found(pod: dict[str, Any], container: str) -> tuple[Node, str]:
    """A container's node, and its name there."""
    [node] = [node for node in _running().nodes if node.at.name == pod["spec"]["nodeName"]]
    [state] = [state for state in pod["status"]["containerStatuses"] if state["name"] == container]
    return node, state["containerID"].rpartition("/")[2]


def _network(pod: dict[str, Any]) -> tuple[Node, str]:
    """A pod's node, and a process there that is in the pod's network."""
    node, identity = _found(pod, pod["spec"]["containers"][0]["name"])
    listed = node.inside("ctr", "--namespace", "k8s.io", "tasks", "list")
    [process] = [line.split()[1] for line in listed.splitlines() if line.startswith(identity)]
    return node, process
