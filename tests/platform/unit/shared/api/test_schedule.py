from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.schedule import InvalidSchedule, last_due, next_due, problem

NIGHTLY = "30 2 * * *"


def at(day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, second, tzinfo=UTC)


def test_schedule_is_due_from_the_start_of_its_minute() -> None:
    before, begun = at(2, 2, 29, 59), at(2, 2, 30)
    assert last_due(NIGHTLY, at(1, 12), before) is None
    assert last_due(NIGHTLY, at(1, 12), begun) == begun
    assert last_due(NIGHTLY, at(1, 12), begun + timedelta(microseconds=1)) == begun


def test_handled_time_is_not_due_again() -> None:
    handled = at(2, 2, 30)
    assert last_due(NIGHTLY, handled, at(3, 2, 29)) is None
    assert last_due(NIGHTLY, handled, at(3, 2, 30)) == at(3, 2, 30)


def test_only_the_last_of_several_missed_times_is_due() -> None:
    assert last_due(NIGHTLY, at(2, 2, 30), at(20, 9)) == at(20, 2, 30)


def test_times_are_in_utc_regardless_of_the_time_zone() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    now = datetime(2026, 3, 2, 8, 15, tzinfo=east)  # 02:45 UTC
    assert last_due(NIGHTLY, at(1, 12), now) == at(2, 2, 30)
    assert next_due(NIGHTLY, now) == at(3, 2, 30)


def test_next_time_is_after_now() -> None:
    assert next_due(NIGHTLY, at(2, 2, 30)) == at(3, 2, 30)
    assert next_due("0 0 29 2 *", at(2)) == datetime(2028, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize("schedule", [NIGHTLY, "*/15 * * * MON-FRI", "0 0 1,15 JAN *", "0 3 * * MON#1", "0 0 L * *"])
def test_cron_expression_is_accepted(schedule: str) -> None:
    assert problem(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("", "five fields"),
        ("@daily", "five fields"),
        ("0 30 2 * * *", "five fields"),
        ("60 2 * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 * * NOON", "bad day-of-week"),
    ],
)
def test_problem_contains_the_value(schedule: str, words: str) -> None:
    assert words in problem(schedule)
    assert f"'{schedule}'" in problem(schedule)
    with pytest.raises(InvalidSchedule):
        last_due(schedule, at(1), at(2))


SCHEDULES = st.sampled_from([NIGHTLY, "*/7 * * * *", "0 4 * * SUN", "0 0 1 * *", "5,35 8-17 * * MON-FRI"])
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2034, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis adds it


@given(SCHEDULES, MOMENTS, st.timedeltas(timedelta(0), timedelta(days=90)))
def test_no_time_is_due_between_the_last_one_and_the_next(schedule: str, after: datetime, passed: timedelta) -> None:
    now = after + passed
    due, upcoming = last_due(schedule, after, now), next_due(schedule, now)
    assert upcoming is not None
    assert upcoming > now
    if due is None:
        assert next_due(schedule, after) == upcoming
    else:
        assert after < due <= now
        assert next_due(schedule, due) == upcoming
        assert last_due(schedule, due, now) is None
