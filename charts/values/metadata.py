"""Turn the copy of a chart from a source checkout into the chart of a release: version, images, Artifact Hub metadata.

A chart in the tree names no image, because the tree does not know where its images are published. A release does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from charts.values.charts import CHARTS, OPERATORS
from charts.values.files import table, values_yaml, with_table
from charts.values.operator import ImageValues
from shared.api.image import Image
from shared.runtime.operator import Operator

HUB = "artifacthub.io/"
"""Prefix of the annotations of https://artifacthub.io/docs/topics/annotations/helm/."""


def with_release(
    chart: Path,
    version: str,
    images: Mapping[str, str],
    changes: Sequence[str] = (),
    *,
    home: str = "",
) -> None:
    """Write the version, the image and the metadata of a release into the copy of a chart.

    All charts below `charts/` need it before `helm dependency update`, because each depends on the same version of the
    others. The umbrella chart gets its images through them.

    Args:
        chart: directory with the copy, named as the chart.
        version: version of the chart and of the operators, without a leading v.
        images: image reference of each operator, such as {"redis": "registry/platform/redis-operator@sha256:…"}. A tag
            is kept only without a digest; without both, the tag is the version.
        changes: lines of the changelog for Artifact Hub.
        home: URL of the project.

    Raises:
        KeyError: `images` lacks the operator of the chart.
        ValueError: an image is not an image reference.
    """
    path = chart / "Chart.yaml"
    found = yaml.safe_load(path.read_text())
    operator = OPERATORS.get(chart.name)
    parts = [operator] if operator else list(OPERATORS.values()) if chart.name in CHARTS else []
    annotations = _annotations(version, parts, images, changes, _crds(chart))
    path.write_text(yaml.safe_dump(_metadata(found, version, annotations, home), sort_keys=False, allow_unicode=True))
    if operator:
        image = Image.parse(images[operator.name])
        tag = "" if image.digest else image.tag
        named = ImageValues(repository=_name(image), tag=tag, digest=image.digest)
        values = CHARTS[chart.name].model_validate({"image": named})
        (chart / "values.yaml").write_text(values_yaml(values))
        readme = chart / "README.md"
        readme.write_text(with_table(readme.read_text(), table(values)))


def _metadata(found: dict[str, Any], version: str, annotations: dict[str, str], home: str) -> dict[str, Any]:
    """Return the content of Chart.yaml for a release."""
    metadata = {**found, "version": version, "annotations": {**found.get("annotations", {}), **annotations}}
    if "appVersion" in found:
        metadata["appVersion"] = version
    if "dependencies" in found:
        metadata["dependencies"] = [{**each, "version": version} for each in found["dependencies"]]
    if home:
        metadata |= {"home": home, "sources": [home]}
    return metadata


def _annotations(
    version: str,
    operators: Sequence[Operator],
    images: Mapping[str, str],
    changes: Sequence[str],
    crds: Sequence[dict[str, Any]],
) -> dict[str, str]:
    """Return the annotations for Artifact Hub that differ between releases; lists are YAML in a string."""
    lists = {
        "images": [{"name": each.process_name, "image": images[each.name]} for each in operators],
        "crds": [
            {
                "kind": crd["spec"]["names"]["kind"],
                "version": crd["spec"]["versions"][0]["name"],
                "name": crd["metadata"]["name"],
                "displayName": crd["spec"]["names"]["kind"],
                "description": crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"],
            }
            for crd in crds
        ],
        "changes": list(changes),
    }
    found = {HUB + key: yaml.safe_dump(value, sort_keys=False) for key, value in lists.items() if value}
    return {**found, HUB + "prerelease": str("-" in version).lower()}


def _crds(chart: Path) -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in sorted(chart.glob("files/crds/*.yaml"))]


def _name(image: Image) -> str:
    return f"{image.registry}/{image.repository}" if image.registry else image.repository
