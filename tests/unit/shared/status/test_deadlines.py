"""What takes too long is told once, however often the operator starts anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.kubernetes.kinds import Obj
from shared.status.deadlines import Deadline
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE = Deadline(Reason("CreateTimeout"), 600, "--create-timeout")
UNDERWAY = Verdict(Progress.PROGRESSING, "Creating", "1 of 3 servers are ready.")


def since(seconds: float) -> Obj:
    """A resource that has been under way for so long."""
    then = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"status": {"conditions": [{"type": "Reconciling", "status": "True", "lastTransitionTime": then}]}}


def test_within_its_time_a_verdict_stands_and_is_looked_at_again_at_its_end() -> None:
    assert DEADLINE.judge(since(590), UNDERWAY, NOW) == (UNDERWAY, 10)


def test_what_only_begins_has_all_of_its_time() -> None:
    done: Obj = {"status": {"conditions": [{"type": "Reconciling", "status": "False", "lastTransitionTime": "x"}]}}
    assert DEADLINE.judge({}, UNDERWAY, NOW) == DEADLINE.judge(done, UNDERWAY, NOW) == (UNDERWAY, 600)


@pytest.mark.parametrize("progress", [Progress.PROGRESSING, Progress.WAITING])
@pytest.mark.parametrize("seconds", [600, 86400])
def test_after_its_time_it_is_a_warning_that_says_what_hinders(progress: Progress, seconds: float) -> None:
    verdict, again = DEADLINE.judge(since(seconds), Verdict(progress, "ServerFailing", "No such image."), NOW)
    assert (verdict.progress, verdict.reason, verdict.warning, again) == (progress, "CreateTimeout", True, None)
    assert verdict.message.startswith("No such image. In progress since 202")
    assert verdict.message.endswith("longer than 600 s (--create-timeout).")


def test_the_message_does_not_change_with_the_time() -> None:
    """Or else the status would be written at every look."""
    late = DEADLINE.judge(since(700), UNDERWAY, NOW)
    obj = since(700)
    assert DEADLINE.judge(obj, UNDERWAY, NOW + timedelta(hours=1)) == late


@pytest.mark.parametrize("progress", [Progress.DONE, Progress.BLOCKED, Progress.PAUSED])
def test_what_is_not_under_way_takes_no_time(progress: Progress) -> None:
    verdict = Verdict(progress, "It", "is so.")
    assert DEADLINE.judge(since(10**6), verdict, NOW) == (verdict, None)
