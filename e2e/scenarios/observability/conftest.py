"""Fixtures: a Prometheus server that scrapes the platform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.scenarios.observability.watch import NAMES, Watch, watching
from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.release import Release


@pytest.fixture
def operators(system: Kubectl) -> list[Operator]:
    return [Operator(system, name) for name in NAMES]


@pytest.fixture
def watch(
    kubectl: Kubectl, found_release: Release, operators: list[Operator], account: Account, tmp_path: Path
) -> Iterator[Watch]:
    """A Prometheus server with the charts' rules that scrapes all operators, and the databases of the namespace."""
    with watching(tmp_path / "watch", found_release, operators, kubectl, account) as watch:
        yield watch
