"""Faults injected from the node: signals to containers, broken networks, damaged files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from e2e.scenarios.support.commands import Kubectl
from tools.local.cluster import Cluster
from tools.local.machine import cgroups
from tools.local.node import Node

LIMIT_V1, LIMIT_V2 = "blkio.throttle.write_iops_device", "io.max"
"""Files of a container's cgroup that limit its writes per second."""

MEMORY_V1, MEMORY_V2 = "memory.usage_in_bytes", "memory.current"
"""Files of a container's cgroup with the memory that it uses."""


def signal(pod: dict[str, Any], container: str, number: str) -> None:
    """Send a signal to the first process of a container, without the knowledge of the kubelet or the API server.

    Args:
        pod: Pod object.
        container: name of the container.
        number: name of the signal, such as SIGKILL.
    """
    node, identity = _found(pod, container)
    node.inside("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", number, identity)


@contextmanager
def cut_off(pods: Sequence[dict[str, Any]], addresses: Sequence[str]) -> Iterator[None]:
    """Drop all packets from pods to addresses until the end of the context.

    Args:
        pods: Pod objects.
        addresses: destination addresses.
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
    """Make the next pods on the nodes of these pods get the addresses that these pods have, once these are free.

    The host-local IPAM plugin assigns addresses in order, and records the last one in a file.
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
    """Return the host directory of a claim's volume."""
    name = kubectl.get("persistentvolumeclaim", claim)["spec"]["volumeName"]
    return Path(kubectl.get("persistentvolume", name)["spec"]["local"]["path"])


@contextmanager
def small_volume(kubectl: Kubectl, claim: str, mebibytes: int) -> Iterator[Path]:
    """Move the files of a claim, which no pod uses now, to a file system of this size until the end of the context.

    Yields:
        The directory of the volume, as a node reaches it.
    """
    directory, scratch, nodes = volume(kubectl, claim), f"/run/{kubectl.namespace}-{claim}", _running().nodes
    for node in nodes:
        node.inside("mkdir", scratch)
        node.inside("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", scratch)
        node.inside("cp", "-a", f"{directory}/.", scratch)
        node.inside("mount", "--move", scratch, directory)
    try:
        yield directory
    finally:
        for node in nodes:
            # umount reads /proc/self, which the node's /proc has only for processes of its own PID namespace
            node.inside("nsenter", "--pid=/proc/1/ns/pid", "umount", "--lazy", directory)
            node.inside("rmdir", scratch)


def inside(pod: dict[str, Any], *command: str) -> str:
    """Run a command in the node of a pod."""
    [node] = [node for node in _running().nodes if node.at.name == pod["spec"]["nodeName"]]
    return node.inside(*command)


def working_set(pod: dict[str, Any], container: str) -> int:
    """Return the memory of a container that the kernel cannot reclaim, in bytes, as the kubelet reports it."""
    for group in _groups(*_found(pod, container)):
        for usage, reclaimable in ((MEMORY_V1, "total_inactive_file"), (MEMORY_V2, "inactive_file")):
            if (group / usage).exists():
                statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                return int((group / usage).read_text()) - int(statistics[reclaimable])
    raise AssertionError("a kubelet needs the cgroup controller memory")


@contextmanager
def slow_disk(kubectl: Kubectl, pod: dict[str, Any], container: str, claim: str) -> Iterator[None]:
    """Limit a container to one write per second on the disk of its volume until the end of the context."""
    node, identity = _found(pod, container)
    disk = volume(kubectl, claim).stat().st_dev
    groups = _groups(node, identity)
    limits = [(group / LIMIT_V1, "1", "0") for group in groups if (group / LIMIT_V1).exists()]
    limits += [(group / LIMIT_V2, "wiops=1", "wiops=max") for group in groups if (group / LIMIT_V2).exists()]
    if not limits:
        pytest.skip("needs the cgroup controller blkio (v1) or io (v2)")
    for file, slow, _ in limits:
        file.write_text(f"{os.major(disk)}:{os.minor(disk)} {slow}")
    try:
        yield
    finally:
        for file, _, free in limits:
            if file.exists():
                file.write_text(f"{os.major(disk)}:{os.minor(disk)} {free}")


def flip(file: Path, found: bytes, replaced: bytes) -> int:
    """Replace bytes in a file without the knowledge of the program that uses it; return the number of replacements.

    Raises:
        AssertionError: the file does not contain the bytes.
    """
    assert len(found) == len(replaced)
    content = file.read_bytes()
    count = content.count(found)
    assert count, f"{file} does not contain {found!r}"
    file.write_bytes(content.replace(found, replaced))
    return count


def _running() -> Cluster:
    cluster = Cluster.running()
    if cluster is None:
        pytest.skip("needs access to the nodes of a local cluster: make up CLUSTER=local")
    return cluster


def _found(pod: dict[str, Any], container: str) -> tuple[Node, str]:
    """Return the node of a container, and the container's ID."""
    [node] = [node for node in _running().nodes if node.at.name == pod["spec"]["nodeName"]]
    [state] = [state for state in pod["status"]["containerStatuses"] if state["name"] == container]
    return node, state["containerID"].rpartition("/")[2]


def _groups(node: Node, identity: str) -> list[Path]:
    """Return the cgroups of a container."""
    return [group for mount in cgroups.hierarchies() for group in (mount / node.at.name).rglob(identity)]


def _network(pod: dict[str, Any]) -> tuple[Node, str]:
    """Return the node of a pod, and the ID of a process in the pod's network namespace."""
    node, identity = _found(pod, pod["spec"]["containers"][0]["name"])
    listed = node.inside("ctr", "--namespace", "k8s.io", "tasks", "list")
    [process] = [line.split()[1] for line in listed.splitlines() if line.startswith(identity)]
    return node, process
