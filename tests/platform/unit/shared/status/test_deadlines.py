"""A resource that exceeds its deadline is reported once, even if the operator restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.kubernetes.kinds import Obj
from shared.status.deadlines import Deadline
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE = Deadline(Reason("CreateTimeout"), 600, "--create-timeout")
PROGRESSING = Verdict(Progress.PROGRESSING, "Creating", "1 of 3 servers are ready.")


def since(seconds: float) -> Obj:
    """Return a resource that has been reconciling for this time."""
    then = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"status": {"conditions": [{"type": "Reconciling", "status": "True", "lastTransitionTime": then}]}}


def test_verdict_is_unchanged_before_the_deadline_and_rechecked_then() -> None:
    assert DEADLINE.judge(since(590), PROGRESSING, NOW) == (PROGRESSING, 10)


def test_deadline_starts_with_the_reconciling_condition() -> None:
    done: Obj = {"status": {"conditions": [{"type": "Reconciling", "status": "False", "lastTransitionTime": "x"}]}}
    assert DEADLINE.judge({}, PROGRESSING, NOW) == DEADLINE.judge(done, PROGRESSING, NOW) == (PROGRESSING, 600)


@pytest.mark.parametrize("progress", [Progress.PROGRESSING, Progress.WAITING])
@pytest.mark.parametrize("seconds", [600, 86400])
def test_exceeded_deadline_is_a_warning_with_the_cause(progress: Progress, seconds: float) -> None:
    verdict, again = DEADLINE.judge(since(seconds), Verdict(progress, "ServerFailing", "No such image."), NOW)
    assert (verdict.progress, verdict.reason, verdict.warning, again) == (progress, "CreateTimeout", True, None)
    assert verdict.message.startswith("No such image. In progress since 202")
    assert verdict.message.endswith("longer than 600 s (--create-timeout).")


def test_message_does_not_change_with_time() -> None:
    """Otherwise the status would be written on each reconcile."""
    late = DEADLINE.judge(since(700), PROGRESSING, NOW)
    obj = since(700)
    assert DEADLINE.judge(obj, PROGRESSING, NOW + timedelta(hours=1)) == late


@pytest.mark.parametrize("progress", [Progress.DONE, Progress.BLOCKED, Progress.PAUSED])
def test_deadline_does_not_apply_to_a_resource_at_rest(progress: Progress) -> None:
    verdict = Verdict(progress, "Reason", "A message.")
    assert DEADLINE.judge(since(10**6), verdict, NOW) == (verdict, None)
