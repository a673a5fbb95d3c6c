"""Schedules by the clock: cron's five fields, in UTC. Pure.

A schedule is read, never run: whoever acts by one asks which of its moments was the last one due, and remembers in a
status which one it has acted on. So a restart neither repeats nor misses one, and of those missed while nobody worked
only the last one is made up for:

    due = last_due(schedule, after=handled or created, now=now)   # None: nothing to do before next_due(schedule, now)

Fields are as in crontab(5): minute, hour, day of the month, month, day of the week, with `*`, lists, ranges, steps, and
names of months and days (`MON`); beyond it `L` (last) and `MON#1` (first of the month). Nicknames such as @daily and a
sixth field are refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

FIELDS = ("minute", "hour", "day of month", "month", "day of week")

_SECOND = timedelta(seconds=1)


class InvalidSchedule(ValueError):
    """What is no schedule; its text says what is wrong with which value."""


def last_due(schedule: str, after: datetime, now: datetime) -> datetime | None:
    """The last moment at which a schedule was due; None if there was none.

    Args:
        schedule: five fields, in UTC.
        after: moments up to this one count no longer: the one acted on last; if none was, when the wish was heard.
        now: moments up to and with this one count.

    Raises:
        InvalidSchedule: it is none.
    """
    due = _first(schedule, _utc(now) + _SECOND, reverse=True)
    return due if due is not None and due > after else None


def next_due(schedule: str, now: datetime) -> datetime | None:
    """The first moment after now at which a schedule is due; None if it never is (within fifty years).

    Raises:
        InvalidSchedule: it is none.
    """
    return _first(schedule, _utc(now), reverse=False)


def problem(schedule: str) -> str:
    """Why a text is no schedule, as a sentence without a full stop; empty if it is one."""
    try:
        never = next_due(schedule, datetime(2024, 1, 1, tzinfo=UTC)) is None
    except InvalidSchedule as error:
        return str(error)
    return f"'{schedule}' is never due" if never else ""


def _first(schedule: str, start: datetime, *, reverse: bool) -> datetime | None:
    if len(schedule.split()) != len(FIELDS):
        raise InvalidSchedule(f"'{schedule}' has not cron's five fields: {', '.join(FIELDS)}")
    try:
        return next(CronSim(schedule, start, reverse=reverse), None)
    except CronSimError as error:
        raise InvalidSchedule(f"'{schedule}' is no schedule: {str(error).lower()}") from error


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
