"""Recovery starts only after a user confirmed exactly that recovery, and the status records it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from shared.kubernetes.kinds import Obj
from shared.status.messages import MAX_CONDITION_CHARACTERS
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from shared.steps.confirmed_recovery import (
    LONGEST_GAP,
    RENEWAL,
    UNKNOWN,
    Proposal,
    awaits_confirmation,
    confirms,
    current,
    is_in_force,
    occurrence,
    recovery_token,
)
from tests.harness.messages import commands

TOKEN, OTHER = recovery_token("this loss"), recovery_token("another loss")
PROPOSAL = Proposal(Reason("Lost"), "", "It can continue.", "Check first.", "Recording it.", TOKEN)


NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SECOND, MONTH = timedelta(seconds=1), timedelta(days=30)


def resource(confirm: str | None, recorded: str = "", record: Obj | None = None, invalid: str = "") -> Any:
    recovery = SimpleNamespace(confirm=confirm) if confirm is not None else None
    reported = {"recovery": record or {"token": recorded}} if record or recorded else {}
    spec, obj = SimpleNamespace(recovery=recovery), {"kind": "EtcdCluster"}
    return SimpleNamespace(obj=obj, namespace="prod", name="orders", spec=spec, reported=reported, invalid=invalid)


@pytest.mark.parametrize(
    ("confirm", "recorded", "prior", "progress", "reason", "message"),
    [
        (None, "", None, Progress.BLOCKED, "Lost", f"To allow it, set spec.recovery.confirm to {TOKEN}. Check first."),
        (
            OTHER,
            "",
            None,
            Progress.BLOCKED,
            "TokenRefused",
            f"the current recovery is {TOKEN}: It can continue. Nothing was changed.",
        ),
        ("", "", None, Progress.BLOCKED, "TokenRefused", "spec.recovery.confirm is ''"),
        (OTHER, "", OTHER, Progress.BLOCKED, "Lost", f"to {TOKEN} (its present value is of an earlier loss). Check"),
        (OTHER, TOKEN, "a third", Progress.BLOCKED, "TokenRefused", f"is {OTHER!r}"),
        (TOKEN, "", None, Progress.WAITING, "Lost", "Recording it."),
        (TOKEN, OTHER, None, Progress.WAITING, "Lost", "Recording it."),
        (TOKEN, TOKEN, None, Progress.BLOCKED, "Lost", "To allow it"),
    ],
)
def test_user_decides_by_the_token(
    confirm: str | None, recorded: str, prior: str | None, progress: Progress, reason: str, message: str
) -> None:
    step = replace(PROPOSAL, prior=prior).decide(resource(confirm, recorded), requeue=30.0)
    assert (step.progress, step.reason, step.actions) == (progress, reason, ())
    assert message in step.message


@pytest.mark.parametrize("consequences", ["It can continue.", "It can continue. " * 100], ids=["short", "long"])
@pytest.mark.parametrize("confirm", [None, OTHER])
def test_message_ends_with_the_command_that_confirms(confirm: str | None, consequences: str) -> None:
    """The condition Stalled has all of the command, regardless of the length of the rest."""
    step = replace(PROPOSAL, consequences=consequences).decide(resource(confirm), requeue=30.0)
    assert len(step.message) <= MAX_CONDITION_CHARACTERS
    assert step.message.endswith("`")
    [[program, verb, kind, name, *options, patch]] = commands(step.message)
    assert (program, verb, kind, name) == ("kubectl", "patch", "etcdcluster", "orders")
    assert options == ["-n", "prod", "--type", "merge", "-p"]
    assert json.loads(patch) == {"spec": {"recovery": {"confirm": TOKEN}}}


def test_spec_that_cannot_be_parsed_is_named_instead_of_a_token() -> None:
    """A confirmation in such a spec does not count."""
    step = PROPOSAL.decide(resource(None, invalid="spec.size: 11 is too large."), requeue=30.0)
    assert step.progress is Progress.BLOCKED
    assert "once the spec is corrected: spec.size: 11 is too large." in step.message


def test_named_loss_comes_first_in_the_message() -> None:
    named = Proposal(Reason("Lost"), "Two are lost.", "It can continue.", "Check first.", "Recording it.", TOKEN)
    assert named.decide(resource(TOKEN), requeue=1.0).message == "Two are lost. Recording it."


def test_only_the_exact_token_confirms() -> None:
    assert confirms(resource(TOKEN), TOKEN)
    assert not confirms(resource(OTHER), TOKEN)
    assert not confirms(resource(None), TOKEN)
    assert TOKEN != OTHER


def test_same_loss_at_another_time_has_another_token() -> None:
    found = occurrence(resource(None), "a and b", NOW, continues=False)
    assert found["token"].startswith("20260101T120000Z-")
    for loss, time in (("a and b", NOW + SECOND), ("a and c", NOW)):
        assert occurrence(resource(None), loss, time, continues=False)["token"] != found["token"]


@pytest.mark.parametrize(
    ("passed", "continues", "stays"),
    [
        (timedelta(), True, True),
        (LONGEST_GAP, True, True),
        (LONGEST_GAP + SECOND, True, False),
        (MONTH, True, False),
        (-LONGEST_GAP - SECOND, True, False),
        (SECOND, False, False),
    ],
)
def test_token_stays_while_the_loss_is_observed(passed: timedelta, continues: bool, stays: bool) -> None:
    found = occurrence(resource(None), "a", NOW, continues=False)
    again = occurrence(resource(None, record=found), "a", NOW + passed, continues=continues)
    assert (again["token"] == found["token"]) is stays
    assert (current(resource(None, record=found), NOW + passed) == found) is (abs(passed) <= LONGEST_GAP)


def test_time_of_the_last_observation_is_renewed_rarely() -> None:
    found = occurrence(resource(None), "a", NOW, continues=False)
    assert occurrence(resource(None, record=found), "a", NOW + RENEWAL - SECOND, continues=True) == found
    later = occurrence(resource(None, record=found), "a", NOW + RENEWAL, continues=True)
    assert later == found | {"observed": "2026-01-01T12:10:00Z"}


def test_value_in_the_spec_when_a_loss_is_found_confirms_nothing() -> None:
    found = occurrence(resource(OTHER), "a", NOW, continues=False)
    assert found["priorConfirm"] == OTHER
    assert occurrence(resource(TOKEN, record=found), "a", NOW + SECOND, continues=True) == found
    token = found["token"]
    assert is_in_force(resource(token, record=found), token)
    assert not is_in_force(resource(token), token), "the status must record it before"
    assert not is_in_force(resource(None, record=found), token)
    assert not is_in_force(resource(token, record=found | {"priorConfirm": token}), token)


def test_recovery_without_a_confirmation_confirms_nothing() -> None:
    """A user may release what an earlier recovery kept, and confirm nothing."""
    released = resource(None)
    released.spec.recovery = SimpleNamespace(confirm=None)
    found = occurrence(released, "a", NOW, continues=False)
    assert "priorConfirm" not in found
    step = replace(PROPOSAL, token=found["token"]).decide(released, requeue=30.0)
    assert (step.progress, step.reason) == (Progress.BLOCKED, "Lost")
    assert f"set spec.recovery.confirm to {found['token']}. Check first." in step.message


@pytest.mark.parametrize(
    ("record", "confirm", "awaits"),
    [
        ({}, None, False),
        ({"token": "t"}, None, True),
        ({"token": "t"}, "s", True),
        ({"token": "t"}, "t", False),
        ({"token": "t", "priorConfirm": "t"}, "t", True),
        ({"token": "t", "message": UNKNOWN}, None, False),
    ],
)
def test_only_an_offered_recovery_that_is_not_confirmed_awaits_it(
    record: Obj, confirm: str | None, awaits: bool
) -> None:
    assert awaits_confirmation({"spec": {"recovery": {"confirm": confirm}}, "status": {"recovery": record}}) is awaits


def test_token_of_an_earlier_version_is_replaced() -> None:
    record = {"token": TOKEN}
    assert current(resource(TOKEN, record=record), NOW) == {}
    assert occurrence(resource(TOKEN, record=record), "a", NOW, continues=True)["token"] != TOKEN


def test_token_stays_for_the_same_loss_if_the_crd_of_an_earlier_version_keeps_nothing_else() -> None:
    record = {"token": occurrence(resource(None), "a", NOW, continues=False)["token"]}
    soon = NOW + timedelta(minutes=1)
    assert occurrence(resource(None, record=record), "a", soon, continues=False)["token"] == record["token"]
    assert occurrence(resource(None, record=record), "b", soon, continues=False)["token"] != record["token"]
