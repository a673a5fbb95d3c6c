"""The reference page of compatibility: versions of Kubernetes, Helm and the databases that the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

import operators
from shared.api.catalogue import Catalogue, dotted, release_of
from shared.runtime.operator import Operator, load
from tools.databases import redis_programs
from tools.local import binaries
from tools.local.images import Image
from tools.release.sbom import PYTHON

CHART = Path(__file__).parents[1] / "charts/platform/Chart.yaml"
HEADER = "<!-- Generated from the versions that the tests run by `make manifests`. Do not edit. -->\n"
INTRODUCTION = """\
# Compatibility

Versions that the tests of this tree run: the programs are built from these modules, and the images of databases from
these versions. Other versions are likely to work, but no test shows it.
"""
RUN_ON_OLDEST = (
    "API tests (no nodes): all in the workflows, some in `make test-weekly`. Ran on 2026-11-26: values and changes of "
    "all CRDs, broken watches, rights, two crash scenarios, resizing of pods, responses recorded from the newest "
    "version"
)
"""Tests that ran on the oldest version of Kubernetes, and when; the regular tests run the newest."""

DEFAULTS = """\
## Default versions

A default is the newest release of its line that [the catalogue](versions.md) knows. Where no package has that release,
the tests run the release of the same line in the table.

| engine | default | release of the same line in the tests |
|---|---|---|
"""

SUPPORT = """\
## Support

- A release supports the versions above. The charts refuse Kubernetes older than {kubernetes} (`kubeVersion`).
- Only the newest minor version gets fixes ([security policy](../../SECURITY.md)). An upgrade replaces no database pod.
- Lines of databases that their project no longer maintains still run, with a warning ([versions](versions.md)).
- Images are published for amd64 and arm64. The end-to-end tests run on amd64.
"""


def to_markdown() -> str:
    """Return the page."""
    return "\n".join(
        [HEADER + INTRODUCTION, *_platform(), *_databases(), *_defaults(), SUPPORT.format(kubernetes=_oldest())]
    )


def _platform() -> Iterator[str]:
    yield "## Platform\n"
    yield "| component | version | tests |"
    yield "|---|---|---|"
    newest, oldest = (_version(binaries.kubernetes(each)) for each in ("newest", "oldest"))
    yield f"| Kubernetes | {newest} | API tests (no nodes), end-to-end tests (nodes) |"
    yield f"| Kubernetes | {oldest} | {RUN_ON_OLDEST} |"
    minors = [f"1.{minor}" for minor in older_minors()]
    yield f"| Kubernetes | {minors[0]} to {minors[-1]} | fields of charts and of owned objects, by their schemas |"
    yield f"| Helm | {_version(binaries.HELM)} | charts, API tests and end-to-end tests |"
    yield f"| Helm | {_version(binaries.HELM3)} | rendering; installation, rollback, uninstallation (API tests) |"
    yield f"| Python in the images | {PYTHON} | end-to-end tests |"
    yield ""


def _databases() -> Iterator[str]:
    yield "## Databases\n"
    yield "Container tests or end-to-end tests run each of these versions; `make up` runs those of the samples.\n"
    yield "| operator | images |"
    yield "|---|---|"
    for operator in operators.installed():
        if operator.images:
            yield f"| {operator.name} | {', '.join(f'`{tag}`' for tag in _tags(operator))} |"
    others = [" ".join(each) for each in redis_programs.VERSIONS if each not in redis_programs.WITH_IMAGE]
    yield f"\nContainer tests also run, without an image: {', '.join(others)}.\n"


def _defaults() -> Iterator[str]:
    lines = [
        f"| {catalogue.engine} | {catalogue.default_version} | {_tested(operator, catalogue)} |"
        for operator in operators.installed()
        for catalogue in operator.catalogues
        if operator.images
    ]
    yield "\n".join((DEFAULTS.removesuffix("\n"), *lines, ""))


def _tested(operator: Operator, catalogue: Catalogue) -> str:
    found = tested(operator, catalogue)
    if found is None:
        return "none"
    if found == catalogue.default_version:
        return f"{found}, the default itself"
    if found in versions_of_images(operator, catalogue.engine):
        return found
    return f"{found}, in container tests and without TLS: no package has one with TLS"


def tested(operator: Operator, catalogue: Catalogue) -> str | None:
    """Return the newest release of the default's line that the tests run; None if they run none."""
    programs = [version for engine, version in redis_programs.VERSIONS if engine == catalogue.engine]
    available = {*versions_of_images(operator, catalogue.engine), *programs}
    line = [each for each in available if (found := release_of(each)) and dotted(found[:2]) == catalogue.default]
    return max(line, key=lambda each: release_of(each) or (), default=None)


def versions_of_images(operator: Operator, engine: str) -> list[str]:
    """Return the versions of an engine for which the local cluster has an image."""
    found = (tag.rpartition(":") for tag in _tags(operator))
    return [version.removeprefix("v") for name, _, version in found if name.rpartition("/")[2] == engine]


def _tags(operator: Operator) -> list[str]:
    built: list[Image] = load(operator.images)()
    return [image.tag for image in built]


def _version(program: binaries.Program) -> str:
    return binaries.version(program).removeprefix("v")


def older_minors() -> range:
    """Return the supported minor versions of Kubernetes before the one that the tests run."""
    return range(*(int(version.split(".")[1]) for version in (_oldest(), _version(binaries.kubernetes("newest")))))


def _oldest() -> str:
    """Return the oldest version of Kubernetes that the charts accept."""
    constraint = str(yaml.safe_load(CHART.read_text())["kubeVersion"])
    return constraint.removeprefix(">=").removesuffix("-0").removesuffix(".0")
