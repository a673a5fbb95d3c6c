"""Fixtures: a real API server with a restricted namespace, and the charts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.platform.api.charts.cluster import Cluster
from tests.support import charts as rendering
from tests.support import foreign_kinds
from tools.local.controlplane import ControlPlane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server for these tests only, because they install and delete CRDs."""
    with ControlPlane.alone(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def bare(plane: ControlPlane) -> Cluster:
    """The API server with a restricted release namespace that also warns, and with the CRDs of foreign kinds."""
    cluster = Cluster(plane)
    cluster.kubectl("create", "namespace", rendering.NAMESPACE)
    levels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    cluster.kubectl("label", "namespace", rendering.NAMESPACE, *levels)
    cluster.kubectl("apply", "--filename", "-", stdin=yaml.safe_dump_all(foreign_kinds.CRDS))
    cluster.await_established()
    return cluster


@pytest.fixture
def cluster(bare: Cluster) -> Iterator[Cluster]:
    """The API server for a test that installs charts; afterwards all releases, CRDs and objects are deleted."""
    yield bare
    bare.clear()
