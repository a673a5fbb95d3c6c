"""Environment, memory, messages, charts and Docker of all tests; counts of the crash harness; Hypothesis."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.harness import messages
from tests.harness.cost import return_free_memory
from tests.harness.scoreboard import Scoreboard
from tests.support.levels import BY_NAME
from tools.local.environment import forget_clusters

_BOARD = pytest.StashKey[Scoreboard]()


def pytest_configure(config: pytest.Config) -> None:
    forget_clusters()
    return_free_memory()
    config.stash[_BOARD] = Scoreboard()
    # The time of an example depends on the load of the machine, not on the tested code. The tests of a commit draw the
    # same examples each time, so that a change passes or fails alike on every machine; the other levels draw new ones.
    settings.register_profile("same", deadline=None, derandomize=True)
    settings.register_profile("new", deadline=None)
    settings.load_profile("new" if BY_NAME[config.getoption("--level")].is_random else "same")


def pytest_collection_finish() -> None:
    """Search for garbage seldom, and never among modules and tests: worlds have many objects that live for a test."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _messages_are_noted() -> Iterator[None]:
    with messages.noted():
        yield


@pytest.fixture(autouse=True)
def _messages_are_fit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the messages of a test whose operator runs in this thread."""
    messages.forget()
    yield
    if {"unit", "simulation"}.intersection(request.path.parts):
        messages.require_none()


@pytest.fixture(scope="session")
def own_daemon() -> Iterator[bool]:
    """Ensure that Docker is running; return whether the tests started the daemon."""
    from testcontainers.core.config import testcontainers_config

    from tests.support.containers.daemon import answers, daemon

    with ExitStack() as stack:
        started = not answers()
        if started:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("DOCKER_HOST", stack.enter_context(daemon()))
        testcontainers_config.ryuk_disabled = True  # Ryuk would have to be pulled; context managers stop all containers
        yield started


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the charts with their dependencies."""
    from tests.support.charts import copy_to  # it imports the models of all resources, which few sessions need

    return copy_to(tmp_path_factory.mktemp("charts"))


@pytest.fixture(scope="session")
def scoreboard(pytestconfig: pytest.Config) -> Scoreboard:
    return pytestconfig.stash[_BOARD]


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["crash harness"] = session.config.stash[_BOARD].counts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_BOARD].add(getattr(node, "workeroutput", {}).get("crash harness", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[_BOARD].lines
    for line in lines:
        terminalreporter.write_line(f"crash harness: {line}")
