"""Nothing is done about a loss before a person confirmed exactly that, and the status records it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shared.status.reasons import Reason
from shared.status.verdict import Progress
from shared.steps.confirmed_recovery import Proposal, confirms, recovery_token

TOKEN, OTHER = recovery_token("this loss"), recovery_token("another loss")
PROPOSAL = Proposal(Reason("Lost"), "", "It can go on.", "Look twice.", "It is written down.", TOKEN)


def resource(confirm: str | None, recorded: str = "") -> Any:
    recovery = SimpleNamespace(confirm=confirm) if confirm is not None else None
    reported = {"recovery": {"token": recorded}} if recorded else {}
    return SimpleNamespace(spec=SimpleNamespace(recovery=recovery), reported=reported)


@pytest.mark.parametrize(
    ("confirm", "recorded", "accepted", "progress", "reason", "said"),
    [
        (None, "", (), Progress.BLOCKED, "Lost", f"To allow it, set spec.recovery.confirm to {TOKEN}. Look twice."),
        (OTHER, "", (), Progress.BLOCKED, "TokenRefused", f"the token {TOKEN}: It can go on. Nothing was changed."),
        ("", "", (), Progress.BLOCKED, "TokenRefused", "spec.recovery.confirm is ''"),
        (OTHER, OTHER, (OTHER,), Progress.WAITING, "Lost", "It is written down."),
        (TOKEN, "", (), Progress.WAITING, "Lost", "It is written down."),
        (TOKEN, OTHER, (), Progress.WAITING, "Lost", "It is written down."),
        (TOKEN, TOKEN, (), Progress.BLOCKED, "Lost", "To allow it"),
    ],
)
def test_a_person_decides_by_the_token(
    confirm: str | None, recorded: str, accepted: tuple[str, ...], progress: Progress, reason: str, said: str
) -> None:
    step = PROPOSAL.decide(resource(confirm, recorded), *accepted, requeue=30.0)
    assert (step.progress, step.reason, step.actions) == (progress, reason, ())
    assert said in step.message


def test_a_loss_that_is_named_comes_first() -> None:
    named = Proposal(Reason("Lost"), "Two are lost.", "It can go on.", "Look twice.", "It is written down.", TOKEN)
    assert named.decide(resource(TOKEN), requeue=1.0).message == "Two are lost. It is written down."


def test_only_this_very_token_confirms() -> None:
    assert confirms(resource(TOKEN), TOKEN)
    assert not confirms(resource(OTHER), TOKEN)
    assert not confirms(resource(None), TOKEN)
    assert TOKEN != OTHER
