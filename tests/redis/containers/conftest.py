"""Clusters of Redis and Valkey, from the programs that the machine has."""

from __future__ import annotations

import pytest

from tools.databases import redis_programs
from tools.databases.redis_servers import DEFAULTS, NEWEST, REGULAR, Redis


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Redis:
    """Factory of Redis and Valkey clusters."""
    return Redis(tmp_path_factory.mktemp("redis"))


def _marks(version: tuple[str, str]) -> list[pytest.MarkDecorator]:
    """Return the level of a version: the default of Redis and the newest run for each commit, others less often."""
    if version in (DEFAULTS[0], NEWEST):
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
