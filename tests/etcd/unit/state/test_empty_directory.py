"""An empty directory proves a loss only if it was empty at two starts, minutes apart: a disk may not be mounted."""

from __future__ import annotations

import pytest

from operators.etcd.objects.bootstrap import REFUSED
from operators.etcd.state.empty_directory import observed, to_record
from shared.kubernetes.kinds import Obj

ONE: Obj = {"first": "2026-01-01T12:00:00Z", "last": "2026-01-01T12:00:00Z"}


def pod(started: str = "", message: str = f'"{REFUSED} …"', *, runs: bool = False) -> Obj:
    ended = {"terminated": {"message": message, "startedAt": f"2026-01-01T{started}Z"}} if started else {}
    state: Obj = {"running": {}} if runs else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {"status": {"containerStatuses": [{"name": "etcd", "state": state, "lastState": ended}]}}


@pytest.mark.parametrize(
    ("started", "before", "proves"),
    [
        ("12:00:00", None, False),
        ("12:00:00", ONE, False),
        ("12:01:59", ONE, False),
        ("12:02:00", ONE, True),
        ("12:59:00", ONE, True),
        ("13:00:01", ONE, False),
        ("11:59:59", ONE, False),
    ],
)
def test_two_starts_that_are_minutes_apart_prove_a_loss(started: str, before: Obj | None, proves: bool) -> None:
    found = observed(pod(started), before)
    assert found is not None
    assert found.prove_loss is proves


def test_empty_start_long_after_the_last_one_is_a_first_one() -> None:
    """The operator did not observe the member in between: the disk may have been mounted."""
    found = observed(pod("14:00:00"), ONE)
    assert to_record(pod("14:00:00"), found, ONE, answers=False) == {
        "first": "2026-01-01T14:00:00Z",
        "last": "2026-01-01T14:00:00Z",
    }


@pytest.mark.parametrize("starting", [pod("12:00:00", runs=True), pod(), None])
def test_record_is_kept_while_the_next_start_is_not_decided(starting: Obj | None) -> None:
    assert observed(starting, ONE) is None
    assert to_record(starting, None, ONE, answers=False) == ONE


def test_record_ends_when_the_member_answers_or_ends_for_another_reason() -> None:
    assert to_record(pod("12:00:00", runs=True), None, ONE, answers=True) is None
    assert to_record(pod("12:05:00", "panic"), None, ONE, answers=False) is None


def test_start_without_a_time_proves_nothing() -> None:
    ended: Obj = {"name": "etcd", "state": {"terminated": {"message": REFUSED}}}
    assert observed({"status": {"containerStatuses": [ended]}}, ONE) is None
