"""Push the images of the operators, by digest, and their charts to a registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.local import images
from tools.local.console import Steps
from tools.local.machine.commands import run
from tools.local.paths import REPOSITORY
from tools.local.release import operators
from tools.release.charts import Helm


def push_images(
    address: str, version: str, architectures: Sequence[str], steps: Steps, *, layout: Path | None = None
) -> dict[str, str]:
    """Build the image of every operator, push it to a registry without TLS, and return each image by digest.

    Args:
        address: host and port of the registry.
        version: version of the release, which becomes the tag.
        architectures: architectures of the images.
        steps: shows the progress.
        layout: directory of an OCI layout to write the images to as well.

    Raises:
        ClusterError: a build or a push failed.
    """
    revision = run("git", "-C", REPOSITORY, "rev-parse", "HEAD").strip()
    references = {}
    for operator in operators():
        name = f"{operator}-operator"
        with steps.step(f"Build image {name} {version} ({' and '.join(architectures)}) and push it to {address}"):
            index = images.build_index(operator, version, revision, architectures)
            if layout:
                images.push_index(index, f"oci:{layout}:{name}-{version}")
            repository = f"{address}/platform/{name}"
            digest = images.push_index(index, f"docker://{repository}:{version}", tls=False)
            references[operator] = f"{repository}@{digest}"
    return references


def push_charts(packaged: Sequence[Path], address: str, helm: Helm) -> str:
    """Push packaged charts to a registry without TLS and return the OCI reference of the umbrella chart."""
    for archive in packaged:
        helm("push", archive, f"oci://{address}/charts", "--plain-http")
    return f"oci://{address}/charts/platform"
