"""The chain of steps: which step stops it, and which verdict is reported."""

from datetime import UTC, datetime

from shared.kubernetes.kinds import SERVICE
from shared.runtime.plan import PASS, Apply, Step, StepOf, follow
from shared.status.reasons import Reason
from shared.status.verdict import Progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = (Apply(SERVICE, {"metadata": {"name": name}}) for name in ("one", "two"))


def returns(answer: Step) -> StepOf[None, None]:
    return lambda _resource, _seen, _now: answer


def test_actions_accumulate_and_the_first_unfinished_step_is_the_verdict() -> None:
    steps = [
        returns(PASS),
        returns(Step.do(ONE)),
        returns(Step.progressing(Reason("First"), "one", requeue=30)),
        returns(Step.do(TWO)),
        returns(Step.progressing(Reason("Second"), "two", requeue=5)),
    ]
    actions, verdict, requeue = follow(steps, None, None, NOW)
    assert actions == (ONE, TWO)
    assert (verdict.progress, verdict.reason, verdict.message) == (Progress.PROGRESSING, "First", "one")
    assert requeue == 5


def test_waiting_step_stops_the_chain_and_is_the_verdict() -> None:
    for blocking in (
        Step.wait(Reason("Blocked"), "…", ONE),
        Step.blocked(Reason("Blocked"), "…"),
        Step.paused(Reason("Blocked"), "…"),
    ):
        actions, verdict, _ = follow(
            [returns(Step.progressing(Reason("Earlier"), "")), returns(blocking), returns(Step.do(TWO))],
            None,
            None,
            NOW,
        )
        assert TWO not in actions
        assert verdict.reason == "Blocked"


def test_resource_is_ready_if_every_step_is_done() -> None:
    _, verdict, requeue = follow([returns(PASS)], None, None, NOW)
    assert verdict.done
    assert verdict.reason == "Ready"
    assert requeue is None
