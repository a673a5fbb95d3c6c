"""The charts as tests take them: by the real Helm, in a copy with its dependencies in place; the tree stays clean."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries
from e2e.cluster.commands import run
from e2e.cluster.paths import REPOSITORY

CHARTS = REPOSITORY / "charts"
OPERATORS = tuple(sorted(path.name for path in CHARTS.glob("*-operator")))
NAMESPACE = "platform-system"

Obj = dict[str, Any]
Values = Mapping[str, Any]


def helm(*arguments: str | Path, values: Values | None = None) -> str:
    """What a helm command says; raises ClusterError with its words where it fails."""
    # As JSON: Go's YAML takes a bare y for a boolean, Python's does not.
    given = ["--values", "-"] if values is not None else []
    return run(binaries.find("helm"), *arguments, *given, stdin=json.dumps(values) if values is not None else None)


def copy_to(directory: Path) -> Path:
    """A copy of all charts, their dependencies in place."""
    charts = directory / "charts"
    shutil.copytree(CHARTS, charts, ignore=shutil.ignore_patterns("*.tgz"))
    for name in (*OPERATORS, "platform"):
        helm("dependency", "update", charts / name)
    return charts


def manifest(
    chart: Path, values: Values | None = None, *, release: str = "platform", namespace: str = NAMESPACE
) -> str:
    """What a chart renders, as text."""
    return helm("template", release, chart, "--namespace", namespace, values=values or {})


def render(
    chart: Path, values: Values | None = None, *, release: str = "platform", namespace: str = NAMESPACE
) -> list[Obj]:
    """What a chart renders, as objects."""
    return [obj for obj in yaml.safe_load_all(manifest(chart, values, release=release, namespace=namespace)) if obj]


def only(objects: list[Obj], kind: str) -> Obj:
    """The one object of a kind."""
    (found,) = (obj for obj in objects if obj["kind"] == kind)
    return found
