"""Hooks of all tests: selection by level, the seed of random tests, and output of results that tests recorded."""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.support import levels, seeds
from tests.support.levels import Level

COUNTS = pytest.StashKey[Counter[Level]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    known = list(levels.BY_NAME)
    parser.addoption("--level", choices=known, default=str(Level.COMMIT), help="highest level of the tests that run")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option and workers inherit the environment
def pytest_configure(config: pytest.Config) -> None:
    if level_of(config).is_random:
        os.environ.setdefault(seeds.VARIABLE, str(int(time.time())))
        config.option.hypothesis_seed = os.environ[seeds.VARIABLE]


def pytest_report_header(config: pytest.Config) -> str:
    level = level_of(config)
    repeat = f"; {seeds.VARIABLE}={seeds.seed()} repeats this run" if level.is_random else ""
    return f"level: {level}{repeat}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COUNTS] = Counter(levels.of(item) for item in items)
    selected, others = levels.split(items, level_of(config))
    config.hook.pytest_deselected(items=others)
    items[:] = selected


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    """Print how many tests each level adds to those below it."""
    found = config.stash.get(COUNTS, Counter[Level]())  # a path that does not exist ends the collection before
    return "added by level: " + ", ".join(f"{level} {found[level]}" for level in Level)


def level_of(config: pytest.Config) -> Level:
    return levels.BY_NAME[config.getoption("--level")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the properties `summary` that tests recorded with record_property, also with several worker processes."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(str(value))
