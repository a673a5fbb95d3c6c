"""Environment of tests, benchmarks and tools: they find no cluster that the user did not give them."""

from __future__ import annotations

import os
from pathlib import Path

from tools.local.paths import KUBECONFIG


def forget_clusters() -> None:
    """Let this process, and those that it starts, connect only to clusters that a file or an address names to them.

    A user's KUBECONFIG, or ~/.kube/config, may be of any cluster; `make` sets KUBECONFIG while a local one is running.
    An empty kubeconfig is one without a cluster, for kubectl, Helm and the operators.
    """
    os.environ["KUBECONFIG"] = os.devnull
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_MASTER"):
        os.environ.pop(name, None)


def given_kubeconfig() -> str:
    """Return the path of the cluster for scenarios: that of `make up`; with CLUSTER=current, the user's own."""
    if os.environ.get("CLUSTER") == "current":
        return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return str(KUBECONFIG)
