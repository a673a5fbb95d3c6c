"""Memcached servers in containers."""

from __future__ import annotations

import pytest

from tests.support.containers.servers import VERSIONS, Servers


@pytest.fixture(scope="session")
def servers(own_daemon: bool) -> Servers:
    """Factory of memcached servers."""
    factory = Servers(own_daemon=own_daemon)
    factory.provide()
    return factory


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Version of memcached; tests run with each."""
    return str(request.param)
