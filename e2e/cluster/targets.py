"""Which cluster `make up` uses: this machine's own, one of kind's, or the one the user's kubeconfig names."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import images
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.commands import run, succeeds
from e2e.cluster.paths import KUBECONFIG, STATE

KIND_CLUSTER = "platform"
CHOICES = ("auto", "local", "kind", "current")
_PROBE_IMAGE = "busybox:stable"  # small, and where it can be pulled kind's own image can


@dataclass(frozen=True)
class Target:
    """A cluster to install into.

    Attributes:
        name: what people chose: ``local``, ``kind`` or ``current``.
        kubeconfig: its kubeconfig; None for the user's own.
        load: builds an operator's image and brings it to the nodes; None where they have it or pull it.
    """

    name: str
    kubeconfig: Path | None
    load: Callable[[images.Image], None] | None = None


def choose(wanted: str, *, local_runs: bool, kind_can_pull: Callable[[], bool]) -> str:
    """The kind of cluster to use.

    Args:
        wanted: one of `CHOICES`.
        local_runs: a local cluster is up already: ``auto`` stays with it.
        kind_can_pull: whether docker and kind are there and images can be pulled; asked only when it matters.

    Returns:
        ``local``, ``kind`` or ``current``.

    Raises:
        ClusterError: `wanted` is none of the choices.
    """
    if wanted not in CHOICES:
        raise ClusterError(f"CLUSTER={wanted} is not known", f"one of: {', '.join(CHOICES)}")
    if wanted != "auto":
        return wanted
    return "kind" if not local_runs and kind_can_pull() else "local"


def kind_can_pull() -> bool:
    """Whether kind is installed, docker's engine answers, and a registry lets it pull."""
    return (
        shutil.which("kind") is not None
        and succeeds("docker", "info")
        and (succeeds("docker", "image", "inspect", _PROBE_IMAGE) or succeeds("docker", "pull", _PROBE_IMAGE))
    )


def kind_config(nodes: int) -> str:
    """The configuration for kind: so many workers, and a control plane that runs no pods of ours."""
    roles = ["control-plane", *["worker"] * nodes]
    return json.dumps(
        {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [{"role": role} for role in roles]}
    )


def start_kind(nodes: int) -> Target:
    """Start kind's cluster of our name, or take the running one."""
    if KIND_CLUSTER not in run("kind", "get", "clusters").split():
        run("kind", "create", "cluster", "--name", KIND_CLUSTER, "--config", "-", stdin=kind_config(nodes))
    STATE.mkdir(exist_ok=True)
    KUBECONFIG.write_text(run("kind", "get", "kubeconfig", "--name", KIND_CLUSTER))
    KUBECONFIG.chmod(0o600)
    return Target("kind", KUBECONFIG, _load_into_kind)


def stop_kind() -> None:
    """Delete kind's cluster of our name, if there is one."""
    if shutil.which("kind") and KIND_CLUSTER in run("kind", "get", "clusters").split():
        run("kind", "delete", "cluster", "--name", KIND_CLUSTER)


def current() -> Target:
    """What the user's kubeconfig names; its nodes pull their images by themselves."""
    own = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(path).exists() for path in own.split(os.pathsep)):
        raise ClusterError(f"CLUSTER=current, but there is no kubeconfig at {own}", "export KUBECONFIG=…")
    return Target("current", None)


def _load_into_kind(image: images.Image) -> None:
    """Build by docker and load; operands' images are pulled by the nodes."""
    arguments = [f"--build-arg={name}={value}" for name, value in image.arguments.items()]
    run("docker", "build", *arguments, "--tag", image.tag, image.context)
    run("kind", "load", "docker-image", image.tag, "--name", KIND_CLUSTER)
