"""Makefile: which tests its targets select."""

from __future__ import annotations

import re

import pytest

from e2e.cluster.paths import REPOSITORY


def recipe(target: str) -> list[str]:
    """Return the lines of a target's recipe."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, target
    return found[1].splitlines()


@pytest.mark.parametrize("target", ["test-unit", "test-api", "test-containers", "test-e2e", "test-long"])
def test_long_tests_run_in_test_long_only(target: str) -> None:
    """The settings of pytest exclude long tests, so each command of test-long selects them."""
    runs = [line for line in recipe(target) if "$(PYTEST)" in line or "call E2E" in line]
    assert len(runs) == (4 if target == "test-long" else 1)
    selection = r'-m (long|"long or not long")[ ,)]' if target == "test-long" else r'-m "not long"'
    assert [line for line in runs if not re.search(selection, line)] == []
