"""Recovery starts only after a user confirmed exactly that recovery, and the status records it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shared.status.reasons import Reason
from shared.status.verdict import Progress
from shared.steps.confirmed_recovery import Proposal, confirms, recovery_token

TOKEN, OTHER = recovery_token("this loss"), recovery_token("another loss")
PROPOSAL = Proposal(Reason("Lost"), "", "It can continue.", "Check first.", "Recording it.", TOKEN)


def resource(confirm: str | None, recorded: str = "") -> Any:
    recovery = SimpleNamespace(confirm=confirm) if confirm is not None else None
    reported = {"recovery": {"token": recorded}} if recorded else {}
    return SimpleNamespace(spec=SimpleNamespace(recovery=recovery), reported=reported)


@pytest.mark.parametrize(
    ("confirm", "recorded", "accepted", "progress", "reason", "message"),
    [
        (None, "", (), Progress.BLOCKED, "Lost", f"To allow it, set spec.recovery.confirm to {TOKEN}. Check first."),
        (
            OTHER,
            "",
            (),
            Progress.BLOCKED,
            "TokenRefused",
            f"the current recovery is {TOKEN}: It can continue. Nothing was changed.",
        ),
        ("", "", (), Progress.BLOCKED, "TokenRefused", "spec.recovery.confirm is ''"),
        (OTHER, OTHER, (OTHER,), Progress.WAITING, "Lost", "Recording it."),
        (TOKEN, "", (), Progress.WAITING, "Lost", "Recording it."),
        (TOKEN, OTHER, (), Progress.WAITING, "Lost", "Recording it."),
        (TOKEN, TOKEN, (), Progress.BLOCKED, "Lost", "To allow it"),
    ],
)
def test_user_decides_by_the_token(
    confirm: str | None, recorded: str, accepted: tuple[str, ...], progress: Progress, reason: str, message: str
) -> None:
    step = PROPOSAL.decide(resource(confirm, recorded), *accepted, requeue=30.0)
    assert (step.progress, step.reason, step.actions) == (progress, reason, ())
    assert message in step.message


def test_named_loss_comes_first_in_the_message() -> None:
    named = Proposal(Reason("Lost"), "Two are lost.", "It can continue.", "Check first.", "Recording it.", TOKEN)
    assert named.decide(resource(TOKEN), requeue=1.0).message == "Two are lost. Recording it."


def test_only_the_exact_token_confirms() -> None:
    assert confirms(resource(TOKEN), TOKEN)
    assert not confirms(resource(OTHER), TOKEN)
    assert not confirms(resource(None), TOKEN)
    assert TOKEN != OTHER
