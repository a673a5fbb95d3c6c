"""What the crash harness counted, at the end of a session."""

from __future__ import annotations

import pytest

from shared.testing.scoreboard import Scoreboard

_BOARD = pytest.StashKey[Scoreboard]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_BOARD] = Scoreboard()


@pytest.fixture(scope="session")
def scoreboard(pytestconfig: pytest.Config) -> Scoreboard:
    return pytestconfig.stash[_BOARD]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[_BOARD].lines
    for line in lines:
        terminalreporter.write_line(f"crash harness: {line}")
