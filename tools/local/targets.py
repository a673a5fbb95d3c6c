"""Cluster that `make up` uses: the local one, a kind cluster, or the current context of the user's kubeconfig."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.local import images
from tools.local.errors import ClusterError
from tools.local.machine.commands import run, succeeds
from tools.local.paths import KUBECONFIG, STATE

KIND_CLUSTER = "platform"
CHOICES = ("auto", "local", "kind", "current")
_PROBE_IMAGE = "busybox:stable"  # small; if it can be pulled, so can kind's node image


@dataclass(frozen=True)
class Target:
    """A cluster to install into.

    Attributes:
        name: ``local``, ``kind`` or ``current``.
        kubeconfig: kubeconfig of the cluster; None for the user's own.
        load: builds an operator's image and loads it into the nodes; None if they already have it or pull it.
    """

    name: str
    kubeconfig: Path | None
    load: Callable[[images.Image], None] | None = None


def choose(choice: str, *, local_runs: bool, kind_can_pull: Callable[[], bool]) -> str:
    """Return the kind of cluster to use.

    Args:
        choice: one of `CHOICES`.
        local_runs: whether a local cluster is running; ``auto`` then uses it.
        kind_can_pull: returns whether docker and kind are installed and can pull images; called only if it matters.

    Returns:
        ``local``, ``kind`` or ``current``.

    Raises:
        ClusterError: `choice` is not one of `CHOICES`.
    """
    if choice not in CHOICES:
        raise ClusterError(f"CLUSTER={choice} is unknown", f"use one of {', '.join(CHOICES)}")
    if choice != "auto":
        return choice
    return "kind" if not local_runs and kind_can_pull() else "local"


def kind_can_pull() -> bool:
    """Return whether kind is installed, Docker is running, and images can be pulled from a registry."""
    return (
        shutil.which("kind") is not None
        and succeeds("docker", "info")
        and (succeeds("docker", "image", "inspect", _PROBE_IMAGE) or succeeds("docker", "pull", _PROBE_IMAGE))
    )


def kind_config(nodes: int) -> str:
    """Return the configuration of a kind cluster: one control plane and `nodes` workers."""
    roles = ["control-plane", *["worker"] * nodes]
    return json.dumps(
        {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [{"role": role} for role in roles]}
    )


def start_kind(nodes: int) -> Target:
    """Start the kind cluster `platform`, or use the running one."""
    if KIND_CLUSTER not in run("kind", "get", "clusters").split():
        run("kind", "create", "cluster", "--name", KIND_CLUSTER, "--config", "-", stdin=kind_config(nodes))
    STATE.mkdir(exist_ok=True)
    KUBECONFIG.write_text(run("kind", "get", "kubeconfig", "--name", KIND_CLUSTER))
    KUBECONFIG.chmod(0o600)
    return Target("kind", KUBECONFIG, _load_into_kind)


def stop_kind() -> None:
    """Delete the kind cluster `platform` if it exists."""
    if shutil.which("kind") and KIND_CLUSTER in run("kind", "get", "clusters").split():
        run("kind", "delete", "cluster", "--name", KIND_CLUSTER)


def current() -> Target:
    """Return the current cluster of the user's kubeconfig; its nodes pull their images."""
    own = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(path).exists() for path in own.split(os.pathsep)):
        raise ClusterError(f"CLUSTER=current needs a kubeconfig, but {own} does not exist", "export KUBECONFIG=…")
    return Target("current", None)


def _load_into_kind(image: images.Image) -> None:
    """Build an operator's image with docker and load it into the nodes; they pull the database images."""
    arguments = [f"--build-arg={name}={value}" for name, value in image.arguments.items()]
    run("docker", "build", *arguments, "--tag", image.tag, image.context)
    run("kind", "load", "docker-image", image.tag, "--name", KIND_CLUSTER)
