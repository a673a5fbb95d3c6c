"""Checks of messages: how urgent their reasons are, and their length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status import conditions
from shared.status.reasons import Severity
from shared.status.verdict import Progress

_make, _compose = Step.__init__, conditions.compose
_URGENCY = list(Severity)
_too_mild: list[str] = []
_too_long: list[str] = []


def _checked(step: Step, *arguments: Any, **named: Any) -> None:
    _make(step, *arguments, **named)
    blocks = step.progress is Progress.BLOCKED
    least = Severity.ACTION if blocks else Severity.WARNING if step.warning else Severity.NORMAL
    is_declared = bool(step.reason.runbook)  # others are those of a test
    if is_declared and _URGENCY.index(step.reason.severity) < _URGENCY.index(least):
        _too_mild.append(f"{step.reason} ({step.reason.severity.value}, not {least.value}): {step.message}")


def _checked_status(*arguments: Any, **named: Any) -> Obj:
    status = _compose(*arguments, **named)
    for entry in (status, *status["conditions"]):
        limit = 400 if entry.get("type") == "Ready" else 1000
        texts = [text for key in ("message", "reason") if (text := entry.get(key))]
        _too_long.extend(text for text in texts if len(text) > limit)
    return status


@contextmanager
def noted() -> Iterator[None]:
    """Note the faults of each message that is made within the context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__init__", _checked)
        patch.setattr(conditions, "compose", _checked_status)
        yield


def forget() -> None:
    """Forget the faults so far."""
    _too_mild.clear()
    _too_long.clear()


def require_none() -> None:
    """Check that no faults were noted since the last `forget`."""
    assert not _too_long, f"messages in a status that are longer than a column or a condition may be: {_too_long}"
    assert not _too_mild, f"messages whose reason is declared as less urgent than the step is: {_too_mild}"
