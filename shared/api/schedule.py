"""Cron schedules: five fields, in UTC. Pure.

There is no timer. The caller computes the last time that was due and records in a status which one it has handled. A
restart neither repeats nor misses one, and of several that were missed during a downtime only the last one is handled:

    due = last_due(schedule, after=handled or created, now=now)   # None: nothing to do before next_due(schedule, now)

Fields are as in crontab(5): minute, hour, day of the month, month, day of the week, with `*`, lists, ranges, steps, and
names of months and days (`MON`). Also supported are `L` (last) and `MON#1` (first of the month). Nicknames such as
@daily and a sixth field are rejected.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

FIELDS = ("minute", "hour", "day of month", "month", "day of week")

_SECOND = timedelta(seconds=1)


class InvalidSchedule(ValueError):
    """The text is not a valid schedule; the message names the problem and the value."""


def last_due(schedule: str, after: datetime, now: datetime) -> datetime | None:
    """Return the last time at which a schedule was due; None if there was none.

    Args:
        schedule: five fields, in UTC.
        after: exclusive start: the last time that was handled, or the time at which the schedule was set.
        now: inclusive end.

    Raises:
        InvalidSchedule: `schedule` is not valid.
    """
    due = _first(schedule, _utc(now) + _SECOND, reverse=True)
    return due if due is not None and due > after else None


def next_due(schedule: str, now: datetime) -> datetime | None:
    """Return the first time after `now` at which a schedule is due; None if there is none within fifty years.

    Raises:
        InvalidSchedule: `schedule` is not valid.
    """
    return _first(schedule, _utc(now), reverse=False)


def problem(schedule: str) -> str:
    """Return why a text is not a valid schedule, as a sentence without a period; empty if it is valid."""
    try:
        never = next_due(schedule, datetime(2024, 1, 1, tzinfo=UTC)) is None
    except InvalidSchedule as error:
        return str(error)
    return f"'{schedule}' is never due" if never else ""


def _first(schedule: str, start: datetime, *, reverse: bool) -> datetime | None:
    if len(schedule.split()) != len(FIELDS):
        raise InvalidSchedule(f"'{schedule}' does not have the five fields of cron: {', '.join(FIELDS)}")
    try:
        return next(CronSim(schedule, start, reverse=reverse), None)
    except CronSimError as error:
        raise InvalidSchedule(f"'{schedule}' is not a valid schedule: {str(error).lower()}") from error


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
