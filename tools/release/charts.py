"""Charts of a release: copies with the version, the images by digest and metadata, packaged by Helm."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from charts.values.metadata import with_release
from tools.local.errors import ClusterError
from tools.local.release import CHARTS, ordered_charts, update_charts


class Helm(Protocol):
    """A function that runs helm and returns its output."""

    def __call__(self, *arguments: str | Path) -> str: ...


def package(
    version: str, images: Mapping[str, str], output: Path, helm: Helm, *, changes: Sequence[str] = (), home: str = ""
) -> list[Path]:
    """Package every chart and return the archives: one per operator, then the umbrella chart.

    Args:
        version: version of the charts and of the operators, without a leading v.
        images: image of each operator, by digest.
        output: directory of the archives; created if missing.
        helm: runs helm.
        changes: entries of the changelog, for Artifact Hub.
        home: URL of the project.

    Raises:
        ClusterError: an image has no digest, or helm failed.
    """
    for operator, image in images.items():
        if "@sha256:" not in image:
            raise ClusterError(
                f"the image of {operator}, {image}, has no digest, so its content could change after the release",
                "push the image first and pass the digest: REPOSITORY@sha256:…",
            )
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        copies = Path(scratch) / "charts"
        shutil.copytree(CHARTS, copies, ignore=shutil.ignore_patterns("*.py", "__pycache__", "*.tgz", "Chart.lock"))
        for metadata in sorted(copies.glob("*/Chart.yaml")):
            with_release(metadata.parent, version, images, changes, home=home)
        update_charts(copies, helm)
        for name in ordered_charts():
            helm("package", copies / name, "--destination", output)
    return [output / f"{name}-{version}.tgz" for name in ordered_charts()]
