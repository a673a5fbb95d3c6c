"""Hooks of all tests: selection of tests that take turns, and output of results that tests recorded."""

from __future__ import annotations

import pytest

from tests.support.rotation import is_turn, mark_other_turns


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="run one test in N, others after each commit")


@pytest.hookimpl(tryfirst=True)  # before the tests are selected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_other_turns(items)
    parts = config.getoption("--one-in")
    if parts > 1:
        config.hook.pytest_deselected(items=[item for item in items if not is_turn(item.nodeid, parts)])
        items[:] = [item for item in items if is_turn(item.nodeid, parts)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the properties `summary` that tests recorded with record_property, also with several worker processes."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(str(value))
