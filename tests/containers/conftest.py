"""Memcached in containers: on the Docker daemon that answers, else on one of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from testcontainers.core.config import testcontainers_config

from tests.containers.daemon import answers, daemon
from tests.containers.servers import VERSIONS, Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Starts servers, on a daemon that has their images."""
    with ExitStack() as stack:
        ours = not answers()
        if ours:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("DOCKER_HOST", stack.enter_context(daemon()))
        testcontainers_config.ryuk_disabled = True  # would be pulled; every container here is in a context that ends it
        made = Servers(ours=ours)
        made.provide()
        yield made


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A version of memcached: what holds, holds for each."""
    return str(request.param)
