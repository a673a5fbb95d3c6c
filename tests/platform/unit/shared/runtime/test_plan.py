"""Chains of steps: which step stops them, and which verdict is reported."""

from datetime import UTC, datetime

import pytest

from shared.kubernetes.kinds import SERVICE
from shared.runtime.plan import PASS, Apply, Step, StepOf, combine, follow
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = (Apply(SERVICE, {"metadata": {"name": name}}) for name in ("one", "two"))


def returns(answer: Step) -> StepOf[None]:
    return lambda _seen: answer


def test_actions_accumulate_and_the_first_unfinished_step_is_the_verdict() -> None:
    steps = [
        returns(PASS),
        returns(Step.do(ONE)),
        returns(Step.progressing(Reason("First"), "one", requeue=30, poll=2)),
        returns(Step.do(TWO)),
        returns(Step.progressing(Reason("Second"), "two", requeue=5)),
    ]
    actions, verdict, requeue, poll = follow(steps, None)
    assert actions == (ONE, TWO)
    assert (verdict.progress, verdict.reason, verdict.message) == (Progress.PROGRESSING, "First", "one")
    assert (requeue, poll) == (5, 2)


def test_waiting_step_stops_the_chain_and_is_the_verdict() -> None:
    for blocking in (
        Step.wait(Reason("Blocked"), "…", ONE),
        Step.blocked(Reason("Blocked"), "…"),
        Step.paused(Reason("Blocked"), "…"),
    ):
        actions, verdict, *_ = follow(
            [returns(Step.progressing(Reason("Earlier"), "")), returns(blocking), returns(Step.do(TWO))],
            None,
        )
        assert TWO not in actions
        assert verdict.reason == "Blocked"


def test_resource_is_ready_if_every_step_is_done() -> None:
    _, verdict, requeue, poll = follow([returns(PASS)], None)
    assert verdict.done
    assert verdict.reason == "Ready"
    assert (requeue, poll) == (None, None)


DONE = Verdict()
REPAIR = Verdict(Progress.WAITING, "Meeting", "Updating addresses.")
WORKING = Verdict(Progress.PROGRESSING, "Rotating", "Rotating the password.")
INVALID = Verdict(Progress.BLOCKED, "InvalidSpec", "spec.size is wrong.", warning=True)
PAUSED = Verdict(Progress.PAUSED, "Paused", "spec.paused is true.")
WRITING = Verdict(Progress.WAITING, "Preparing", "Creating a Secret.")
SCALING = Verdict(Progress.WAITING, "Scaling", "Moving slots.")


@pytest.mark.parametrize(
    ("healing", "provided", "changed", "reason", "message"),
    [
        ([DONE, DONE], DONE, DONE, "Ready", ""),
        ([DONE, REPAIR], DONE, DONE, "Meeting", "Updating addresses."),
        ([DONE, REPAIR], INVALID, DONE, "Meeting", "Updating addresses. spec.size is wrong."),
        ([REPAIR], PAUSED, DONE, "Meeting", "Updating addresses. spec.paused is true."),
        ([REPAIR], WRITING, DONE, "Meeting", "Updating addresses."),
        ([WORKING], INVALID, DONE, "InvalidSpec", "spec.size is wrong."),
        ([WORKING], PAUSED, DONE, "Paused", "spec.paused is true."),
        ([WORKING, DONE], DONE, SCALING, "Scaling", "Moving slots."),
        ([WORKING], DONE, DONE, "Rotating", "Rotating the password."),
    ],
)
def test_repairs_are_reported_first_and_then_what_is_wrong_with_the_spec(
    healing: list[Verdict], provided: Verdict, changed: Verdict, reason: str, message: str
) -> None:
    verdict = combine(healing, provided, changed)
    assert (verdict.reason, verdict.message) == (reason, message)
