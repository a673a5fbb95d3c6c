"""Databases in containers: on the Docker daemon that answers, else on one of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from testcontainers.core.config import testcontainers_config

from e2e.cluster.binaries import ETCD
from e2e.databases import redis_programs
from e2e.databases.redis_servers import NEWEST as NEWEST_REDIS
from e2e.databases.redis_servers import OLDEST as OLDEST_REDIS
from e2e.databases.redis_servers import Redis
from tests.containers.support.daemon import answers, daemon
from tests.containers.support.etcd_servers import NEWEST, Etcd
from tests.containers.support.servers import VERSIONS, Servers


@pytest.fixture(scope="session")
def ours() -> Iterator[bool]:
    """A daemon that answers where the environment says; whether it is of our own."""
    with ExitStack() as stack:
        made = not answers()
        if made:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("DOCKER_HOST", stack.enter_context(daemon()))
        testcontainers_config.ryuk_disabled = True  # would be pulled; every container here is in a context that ends it
        yield made


@pytest.fixture(scope="session")
def servers(ours: bool) -> Servers:
    """Starts servers of memcached."""
    made = Servers(ours=ours)
    made.provide()
    return made


@pytest.fixture(scope="session")
def etcd(ours: bool, tmp_path_factory: pytest.TempPathFactory) -> Etcd:
    """Starts clusters of etcd."""
    return Etcd(tmp_path_factory.mktemp("etcd"), ours=ours)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A version of memcached: what holds, holds for each."""
    return str(request.param)


@pytest.fixture(params=[pytest.param(each, marks=[] if each == NEWEST else pytest.mark.long) for each in ETCD])
def etcd_version(request: pytest.FixtureRequest) -> str:
    """A version of etcd: what holds, holds for each; but the newest one's are enough for most changes."""
    return str(request.param)


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Redis:
    """Starts clusters of Redis and Valkey."""
    return Redis(tmp_path_factory.mktemp("redis"))


@pytest.fixture(
    params=[
        pytest.param(each, marks=[] if each in (OLDEST_REDIS, NEWEST_REDIS) else pytest.mark.long, id="-".join(each))
        for each in redis_programs.VERSIONS
    ]
)
def engine(request: pytest.FixtureRequest) -> tuple[str, str]:
    """An engine and its version: what holds, holds for each; but oldest and newest are enough for most changes."""
    found: tuple[str, str] = request.param
    return found
