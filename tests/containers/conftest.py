"""Fixtures for databases in containers, on the running Docker daemon or on one that the tests start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from testcontainers.core.config import testcontainers_config

from tests.containers.support.daemon import answers, daemon
from tests.containers.support.etcd_servers import NEWEST, Etcd
from tests.containers.support.servers import VERSIONS, Servers
from tools.databases import redis_programs
from tools.databases.redis_servers import DEFAULTS, REGULAR, Redis
from tools.databases.redis_servers import NEWEST as NEWEST_REDIS
from tools.local.binaries import ETCD


@pytest.fixture(scope="session")
def own_daemon() -> Iterator[bool]:
    """Ensure that Docker is running; return whether the tests started the daemon."""
    with ExitStack() as stack:
        started = not answers()
        if started:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("DOCKER_HOST", stack.enter_context(daemon()))
        testcontainers_config.ryuk_disabled = True  # Ryuk would have to be pulled; context managers stop all containers
        yield started


@pytest.fixture(scope="session")
def servers(own_daemon: bool) -> Servers:
    """Factory of memcached servers."""
    factory = Servers(own_daemon=own_daemon)
    factory.provide()
    return factory


@pytest.fixture(scope="session")
def etcd(own_daemon: bool, tmp_path_factory: pytest.TempPathFactory) -> Etcd:
    """Factory of etcd clusters."""
    return Etcd(tmp_path_factory.mktemp("etcd"), own_daemon=own_daemon)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Version of memcached; tests run with each."""
    return str(request.param)


@pytest.fixture(params=[pytest.param(each, marks=[] if each == NEWEST else pytest.mark.weekly) for each in ETCD])
def etcd_version(request: pytest.FixtureRequest) -> str:
    """Version of etcd; tests run with the newest, and each week with all."""
    return str(request.param)


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Redis:
    """Factory of Redis and Valkey clusters."""
    return Redis(tmp_path_factory.mktemp("redis"))


def _marks(version: tuple[str, str]) -> list[pytest.MarkDecorator]:
    """Return the level of a version: the default of Redis and the newest run for each commit, others less often."""
    if version in (DEFAULTS[0], NEWEST_REDIS):
        return []
    return [pytest.mark.nightly if version in REGULAR else pytest.mark.weekly]


@pytest.fixture(
    params=[pytest.param(each, marks=_marks(each), id="-".join(each)) for each in redis_programs.VERSIONS],
)
def engine(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Engine and version."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(
    params=[
        pytest.param(each, marks=_marks(each), id="-".join(each))
        for each in redis_programs.VERSIONS
        if redis_programs.has_tls(*each)
    ]
)
def engine_with_tls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Engine and version of a server that was built with TLS."""
    found: tuple[str, str] = request.param
    return found
