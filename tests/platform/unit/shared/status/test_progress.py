"""Progress of unfinished work in the status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.status.progress import Work, report

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = BEGIN + timedelta(seconds=60)


def test_unfinished_work_is_reported_in_numbers() -> None:
    found = report({}, [Work("Pods", 1, 3), Work("Servers", 3, 3)], LATER)
    assert found == {"progress": [{"what": "Pods", "done": 1, "total": 3}]}


def test_finished_work_is_not_reported() -> None:
    assert report({"progress": [{"what": "Pods", "done": 1, "total": 3}]}, [Work("Pods", 3, 3)], LATER) == {}


def test_remaining_time_follows_from_the_rate_so_far() -> None:
    (entry,) = report({}, [Work("Slots", 100, 400, BEGIN)], LATER)["progress"]
    assert entry == {"what": "Slots", "done": 100, "total": 400, "remainingSeconds": 180}
    (entry,) = report({}, [Work("Slots", 0, 400, BEGIN)], LATER)["progress"]
    assert "remainingSeconds" not in entry, "there is no rate yet"


def test_estimate_changes_only_with_the_numbers() -> None:
    """An estimate that changes with the clock would cause a write at each reconcile."""
    first = report({}, [Work("Slots", 100, 400, BEGIN)], LATER)
    assert report(first, [Work("Slots", 100, 400, BEGIN)], LATER + timedelta(hours=1)) == first
    assert report(first, [Work("Slots", 200, 400, BEGIN)], LATER) != first
