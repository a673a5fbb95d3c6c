"""Chains of steps: which step stops them, and which verdict is reported."""

from datetime import UTC, datetime

import pytest

from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import SERVICE, Obj
from shared.runtime.plan import PASS, Apply, Step, StepOf, announced, combine, follow
from shared.status.conditions import compose
from shared.status.deadlines import Deadline
from shared.status.messages import MAX_COLUMN_CHARACTERS
from shared.status.reasons import CREATE_TIMEOUT, Reason
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


@pytest.mark.parametrize("length", [20, MAX_COLUMN_CHARACTERS, 2 * MAX_COLUMN_CHARACTERS])
@pytest.mark.parametrize("earlier", [DONE, REPAIR], ids=["nothing else", "a chain that stops"])
@pytest.mark.parametrize("seconds", [0, 10**6], ids=["late", "in time"])
def test_announced_step_is_executed_after_one_report(length: int, earlier: Verdict, seconds: float) -> None:
    """No chain stops another one, and no deadline: the report of either replaced the announcement for ever."""
    conditions: list[Obj] = [{"type": "Reconciling", "status": "True", "lastTransitionTime": rfc3339(NOW)}]
    resource: Obj = {"metadata": {}, "status": {"conditions": conditions}}
    step = Step.wait(Reason("Compacting"), "Compacting the history. ".ljust(length, "x"), ONE)
    executed = []
    for _ in range(2):
        found = follow([returns(announced(resource, step))], None)
        executed.append(found.actions)
        reported = combine([earlier, found.verdict], DONE, DONE)
        reported, _ = Deadline(CREATE_TIMEOUT, seconds, "--create-timeout").judge(resource, reported, NOW)
        resource["status"] = compose(resource, {}, reported, rfc3339(NOW))
    assert executed == [(), (ONE,)]
