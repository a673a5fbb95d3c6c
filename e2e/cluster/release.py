"""The platform on a cluster: the Helm release `platform`, and the samples."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster import binaries
from e2e.cluster.cluster import kubectl
from e2e.cluster.errors import ClusterError
from e2e.cluster.images import digest
from e2e.cluster.machine.commands import run
from e2e.cluster.paths import REPOSITORY
from operators import installed

RELEASE = "platform"
NAMESPACE = "platform-system"
CHARTS = REPOSITORY / "charts"
SAMPLES = REPOSITORY / "samples"
APPLIED_SAMPLES = ("small", "complete")

PATIENCE = 300
"""Seconds that a sample may take: members of etcd join one after the other."""


@dataclass(frozen=True)
class Helm:
    """Helm on one cluster.

    Attributes:
        kubeconfig: the cluster's; None for the user's own.
    """

    kubeconfig: Path | None

    def __call__(self, *arguments: str | Path, mend: str = "") -> str:
        """Run helm and return what it says."""
        config = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return run(binaries.find("helm"), *arguments, *config, mend=mend, timeout=600)


def operators() -> list[str]:
    """The operators of this project, by name."""
    return [operator.name for operator in installed()]


def install(kubeconfig: Path | None, tags: dict[str, str]) -> bool:
    """Install the platform, or upgrade it, unless the release there is made of just these charts and images.

    Args:
        kubeconfig: the cluster's; None for the user's own.
        tags: the image of each operator.

    Returns:
        Whether anything was to do.
    """
    helm = Helm(kubeconfig)
    label = f"platform-digest={_made_of(tags)}"
    found = helm("list", "--namespace", NAMESPACE, "--deployed", "--selector", label, "--output", "json")
    if json.loads(found or "[]"):
        return False
    _refuse_rivals(helm)
    for chart in (*(CHARTS / f"{operator}-operator" for operator in operators()), CHARTS / RELEASE):
        helm("dependency", "update", chart, "--skip-refresh")
    images = []
    for operator, tag in tags.items():
        repository, _, version = tag.rpartition(":")
        images += ["--set", f"{operator}.image.repository={repository},{operator}.image.tag={version}"]
    helm(
        "upgrade", "--install", RELEASE, CHARTS / RELEASE, "--namespace", NAMESPACE, "--create-namespace",
        "--take-ownership", "--force-conflicts", "--labels", label, "--wait", "--timeout", "3m", *images,
        mend=f"see why its pods do not come: kubectl --namespace {NAMESPACE} get pods,events, and their logs",
    )  # fmt: skip
    return True


def apply_samples(kubeconfig: Path | None, say: Callable[[str], None]) -> list[Path]:
    """Apply every operator's small and complete sample and wait until they are Ready.

    One that somebody changed by hand is left as it is.

    Returns:
        The samples' files.
    """
    found = [SAMPLES / operator / f"{name}.yaml" for operator in operators() for name in APPLIED_SAMPLES]
    samples = [path for path in found if path.exists()]
    for sample in samples:
        try:
            kubectl("apply", "--server-side", "--field-manager=make-up", "--filename", sample, kubeconfig=kubeconfig)
        except ClusterError as error:
            if "conflict" not in error.what:
                raise
            say(f"{sample.relative_to(REPOSITORY)} was changed on the cluster by hand: left as it is")
    for sample in samples:
        for resource, namespace in _resources(sample):
            kubectl(
                "wait", "--for=condition=Ready", f"--timeout={PATIENCE}s", resource, "--namespace", namespace,
                kubeconfig=kubeconfig, timeout=PATIENCE + 20,
            )  # fmt: skip
    return samples


def _resources(sample: Path) -> Iterator[tuple[str, str]]:
    """What operators make Ready of a sample, as kubectl takes it, with its namespace; not Secrets and the like."""
    for obj in yaml.safe_load_all(sample.read_text()):
        group = obj["apiVersion"].rpartition("/")[0]
        if "." in group and not group.endswith(".k8s.io"):
            yield f"{obj['kind']}.{group}/{obj['metadata']['name']}", obj["metadata"].get("namespace", "default")


def _refuse_rivals(helm: Helm) -> None:
    """Refuse to run an operator beside the same one that `make deploy` installed by itself."""
    releases = {release["name"] for release in json.loads(helm("list", "--namespace", NAMESPACE, "--output", "json"))}
    for operator in operators():
        if f"{operator}-operator" in releases:
            raise ClusterError(
                f"the release {operator}-operator is installed, and two operators would contend for the same resources",
                f"make undeploy OPERATOR={operator}; resources and CRDs stay",
            )


def _made_of(tags: dict[str, str]) -> str:
    """A hash of the charts' own files and the images; what helm fetches into them is made of these."""
    files = (path for chart in CHARTS.glob("*/Chart.yaml") for path in chart.parent.rglob("*") if path.is_file())
    sources = [path for path in files if path.suffix not in {".tgz", ".lock"}]
    return digest(sorted(sources), salt=json.dumps(tags, sort_keys=True) + str(sorted(sources)))
