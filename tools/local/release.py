"""Installation of the platform: the Helm release `platform` and the samples."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from operators import installed
from tools.local import binaries
from tools.local.cluster import kubectl
from tools.local.errors import ClusterError
from tools.local.images import digest
from tools.local.machine.commands import run
from tools.local.paths import REPOSITORY

RELEASE = "platform"
NAMESPACE = "platform-system"
CHARTS = REPOSITORY / "charts"
SAMPLES = REPOSITORY / "samples"
APPLIED_SAMPLES = ("small", "complete")

READY_TIMEOUT_SECONDS = 300
"""Time allowed for each sample to become Ready: members of etcd join one after the other."""


@dataclass(frozen=True)
class Helm:
    """Helm for one cluster.

    Attributes:
        kubeconfig: kubeconfig of the cluster; None for the user's own.
    """

    kubeconfig: Path | None

    def __call__(self, *arguments: str | Path, fix: str = "") -> str:
        """Run helm and return its output."""
        config = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return run(binaries.find("helm"), *arguments, *config, fix=fix, timeout=600)


def operators() -> list[str]:
    """Return the names of the operators of this project."""
    return [operator.name for operator in installed()]


def version() -> str:
    """Return the version of the operators and the charts in this tree."""
    [found] = re.findall(r'^version = "(.*)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    return str(found)


def ordered_charts() -> list[str]:
    """Return the directories of the charts to install, the umbrella chart last: it contains the others."""
    return [*(f"{operator}-operator" for operator in operators()), RELEASE]


def update_charts(charts: Path = CHARTS, helm: Callable[..., str] = Helm(None)) -> None:
    """Package each chart into those that depend on it.

    Args:
        charts: directory of all charts, so that nothing is downloaded.
        helm: runs helm.
    """
    for name in ordered_charts():
        helm("dependency", "update", charts / name, "--skip-refresh")


def local_values() -> list[str]:
    """Return options of helm with which resources without a version get one of which the local cluster has an image."""
    return [
        f"--set-string={each.name}.defaultVersions="
        + "\\,".join(f"{engine}={version}" for engine, version in each.local_versions.items())
        for each in installed()
        if each.local_versions
    ]


def local_defaults() -> str:
    """Return which default versions differ on the local cluster, as a sentence; empty if none does."""
    differing = [
        f"{catalogue.engine} {each.local_versions[catalogue.engine]} (elsewhere {catalogue.default_version})"
        for each in installed()
        for catalogue in each.catalogues
        if catalogue.engine in each.local_versions
    ]
    return f"Default versions here, by the images of this machine: {', '.join(differing)}" if differing else ""


def install(
    kubeconfig: Path | None, tags: dict[str, str], update_charts: Callable[[], None], values: Sequence[str] = ()
) -> bool:
    """Install or upgrade the platform from this tree, unless the installed release has the same charts and images.

    Args:
        kubeconfig: kubeconfig of the cluster; None for the user's own.
        tags: image of each operator.
        update_charts: called before the charts are installed; returns when they contain the charts they depend on.
        values: further options of helm, such as `local_values`.

    Returns:
        Whether the release was installed or upgraded.
    """
    helm = Helm(kubeconfig)
    if _is_installed(helm, tags):
        return False
    update_charts()
    chosen = list(values)
    for operator, tag in tags.items():
        repository, _, name = tag.rpartition(":")
        chosen += ["--set", f"{operator}.image.repository={repository},{operator}.image.tag={name}"]
    _upgrade(helm, tags, CHARTS / RELEASE, *chosen)
    return True


def install_published(
    kubeconfig: Path | None, chart: str, version: str, images: dict[str, str], values: Sequence[str] = ()
) -> bool:
    """Install or upgrade the platform from a registry; the chart contains the images.

    Args:
        kubeconfig: kubeconfig of the cluster.
        chart: OCI reference of the umbrella chart, in a registry without TLS.
        version: version of the chart.
        images: image of each operator in the chart, by digest.
        values: further options of helm, such as `local_values`.

    Returns:
        Whether the release was installed or upgraded.
    """
    helm = Helm(kubeconfig)
    if _is_installed(helm, images):
        return False
    _upgrade(helm, images, chart, "--version", version, "--plain-http", *values)
    return True


def _is_installed(helm: Helm, images: dict[str, str]) -> bool:
    """Return whether the installed release has these images and the charts of this tree; refuse separate releases."""
    found = helm("list", "--namespace", NAMESPACE, "--deployed", "--selector", _label(images), "--output", "json")
    if json.loads(found or "[]"):
        return True
    _reject_standalone_releases(helm)
    return False


def _upgrade(helm: Helm, images: dict[str, str], chart: str | Path, *options: str) -> None:
    helm(
        "upgrade", "--install", RELEASE, chart, "--namespace", NAMESPACE, "--create-namespace", "--take-ownership",
        "--force-conflicts", "--labels", _label(images), "--wait", "--timeout", "3m", *options,
        fix=f"check why its pods are not ready: kubectl --namespace {NAMESPACE} get pods,events; read the pods' logs",
    )  # fmt: skip


def _label(images: dict[str, str]) -> str:
    return f"platform-digest={charts_digest(CHARTS, salt=json.dumps(images, sort_keys=True))}"


def sample_files() -> list[Path]:
    """Return the samples that `make up` applies: the small and the complete one of every operator."""
    found = [SAMPLES / operator / f"{name}.yaml" for operator in operators() for name in APPLIED_SAMPLES]
    return [path for path in found if path.exists()]


def apply_samples(kubeconfig: Path | None, write: Callable[[str], None]) -> list[Path]:
    """Apply the samples and wait until all are Ready.

    Samples that were changed by hand on the cluster are not applied.

    Returns:
        Files of the samples.
    """
    samples = sample_files()

    def apply(*files: Path) -> None:
        named = [f"--filename={file}" for file in files]
        kubectl("apply", "--server-side", "--field-manager=make-up", *named, kubeconfig=kubeconfig)

    try:
        apply(*samples)
    except ClusterError:  # once more, to find out which
        for sample in samples:
            try:
                apply(sample)
            except ClusterError as error:
                if "conflict" not in error.what:
                    raise
                write(f"        {sample.relative_to(REPOSITORY)} is not applied: it was changed on the cluster by hand")
    resources = [found for sample in samples for found in _resources(sample)]
    for number, (resource, namespace) in enumerate(resources, start=1):
        try:
            kubectl(
                "wait", "--for=condition=Ready", f"--timeout={READY_TIMEOUT_SECONDS}s", resource,
                "--namespace", namespace, kubeconfig=kubeconfig, timeout=READY_TIMEOUT_SECONDS + 20,
            )  # fmt: skip
        except ClusterError as error:
            describe = f"kubectl --namespace {namespace} describe {resource.replace('/', ' ', 1)}"
            raise ClusterError(error.what, f"check its conditions and events: {describe}") from error
        write(f"        {resource} is Ready ({number} of {len(resources)})")
    return samples


def _resources(sample: Path) -> Iterator[tuple[str, str]]:
    """Yield the name, as kubectl takes it, and the namespace of each custom resource in a sample."""
    for obj in yaml.safe_load_all(sample.read_text()):
        group = obj["apiVersion"].rpartition("/")[0]
        if "." in group and not group.endswith(".k8s.io"):
            yield f"{obj['kind']}.{group}/{obj['metadata']['name']}", obj["metadata"].get("namespace", "default")


def _reject_standalone_releases(helm: Helm) -> None:
    """Refuse to install an operator that `make deploy` already installed as a separate release."""
    releases = {release["name"] for release in json.loads(helm("list", "--namespace", NAMESPACE, "--output", "json"))}
    for operator in operators():
        if f"{operator}-operator" in releases:
            raise ClusterError(
                f"the release {operator}-operator is installed; two operators would manage the same resources",
                f"make undeploy OPERATOR={operator} (keeps resources and CRDs)",
            )


def charts_digest(charts: Path, *, salt: str) -> str:
    """Return a hash of the charts' own files; Helm's copies of dependencies do not count: they contain the time.

    Args:
        charts: directory with a directory for each chart.
        salt: further inputs of the result that the hash identifies, such as the version of Helm.
    """
    files = (path for chart in charts.glob("*/Chart.yaml") for path in chart.parent.rglob("*") if path.is_file())
    sources = sorted(path for path in files if path.suffix not in {".tgz", ".lock"})
    return digest(sources, salt=f"{salt}{[str(path.relative_to(charts)) for path in sources]}")
