"""Random courses (`courses`): the guard finds no violation, and each ends with the desired servers."""

from __future__ import annotations

import pytest

from tests.memcached.simulation.courses import THEMES, check
from tests.support.course_runner import numbers


async def test_random_course() -> None:
    await check(0, "everything")


@pytest.mark.nightly
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("number", numbers(1, 8))
async def test_some_random_courses(number: int, theme: str) -> None:
    await check(number, theme)


@pytest.mark.weekly
@pytest.mark.parametrize("number", numbers(9, 200))
async def test_many_random_courses(number: int) -> None:
    await check(number)
