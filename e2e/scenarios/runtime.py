"""Containers from outside: what their node could do to them, and no pod or API can."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.cluster import Cluster


def signal(pod: dict[str, Any], container: str, number: str) -> None:
    """Send a signal to a container's first process, as the node's kernel or administrator would; nobody is told.

    Args:
        pod: as the API shows it.
        container: its name.
        number: such as SIGKILL.
    """
    cluster = Cluster.running()
    if cluster is None:
        pytest.skip("another cluster's nodes are not ours to enter: make up CLUSTER=local")
    [node] = [node for node in cluster.nodes if node.at.name == pod["spec"]["nodeName"]]
    [state] = [state for state in pod["status"]["containerStatuses"] if state["name"] == container]
    identity = state["containerID"].rpartition("/")[2]
    node.inside("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", number, identity)
