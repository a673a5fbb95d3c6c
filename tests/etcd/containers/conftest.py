"""Clusters of etcd in containers."""

from __future__ import annotations

import pytest

from tests.support.containers.etcd_servers import NEWEST, Etcd
from tools.local.binaries import ETCD


@pytest.fixture(scope="session")
def etcd(own_daemon: bool, tmp_path_factory: pytest.TempPathFactory) -> Etcd:
    """Factory of etcd clusters."""
    return Etcd(tmp_path_factory.mktemp("etcd"), own_daemon=own_daemon)


@pytest.fixture(params=[pytest.param(each, marks=[] if each == NEWEST else pytest.mark.weekly) for each in ETCD])
def etcd_version(request: pytest.FixtureRequest) -> str:
    """Version of etcd; tests run with the newest, and each week with all."""
    return str(request.param)
