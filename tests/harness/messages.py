"""Checks of messages: how urgent their reasons are, their length, and the commands that they propose."""

from __future__ import annotations

import re
import shlex
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
_incomplete: list[str] = []

CHANGES = re.compile(r"kubectl (?:annotate|delete|edit|label|patch)\b")
"""A command that changes objects."""

_NAME = r"[a-z0-9][a-z0-9.-]*"
_COMPLETE = re.compile(rf"`kubectl [a-z]+ (?:[a-z]+ {_NAME}|[a-z]+/{_NAME}(?: [a-z]+/{_NAME})*) -n {_NAME}(?: [^`]+)?`")


def commands(message: str) -> list[list[str]]:
    """Return the words of each command that a user can copy from a message."""
    return [shlex.split(each) for each in re.findall(r"`(kubectl [^`]*)`", message)]


def incomplete_commands(message: str) -> list[str]:
    """Return the commands that change objects without a name or a namespace, or are not apart from other text."""
    complete = {found.start() + 1 for found in _COMPLETE.finditer(message)}
    return [message[found.start() :] for found in CHANGES.finditer(message) if found.start() not in complete]


def _checked(step: Step, *arguments: Any, **named: Any) -> None:
    _make(step, *arguments, **named)
    blocks = step.progress is Progress.BLOCKED
    least = Severity.ACTION if blocks else Severity.WARNING if step.warning else Severity.NORMAL
    is_declared = bool(step.reason.runbook)  # others are those of a test
    if is_declared and _URGENCY.index(step.reason.severity) < _URGENCY.index(least):
        _too_mild.append(f"{step.reason} ({step.reason.severity.value}, not {least.value}): {step.message}")
    _incomplete.extend(incomplete_commands(step.message))


def _checked_status(*arguments: Any, **named: Any) -> Obj:
    status = _compose(*arguments, **named)
    for entry in (status, *status["conditions"]):
        limit = 400 if entry.get("type") == "Ready" else 1000
        texts = [text for key in ("message", "reason") if (text := entry.get(key))]
        _too_long.extend(text for text in texts if len(text) > limit)
        is_cut = any(text.endswith("more characters)") for text in texts)  # the condition Stalled has the whole command
        _incomplete.extend(each for text in texts for each in incomplete_commands(text) if limit > 400 or not is_cut)
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
    _incomplete.clear()


def require_none() -> None:
    """Check that no faults were noted since the last `forget`."""
    assert not _too_long, f"messages in a status that are longer than a column or a condition may be: {_too_long}"
    assert not _incomplete, f"commands in messages that a user cannot copy and run in any namespace: {_incomplete}"
    assert not _too_mild, f"messages whose reason is declared as less urgent than the step is: {_too_mild}"
