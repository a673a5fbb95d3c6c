"""Checks of messages: their form, as the catalogue of reasons declares it, and their length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status import conditions
from shared.status.health import Finding

_make, _find, _compose = Step.__init__, Finding.__init__, conditions.compose
_undeclared: list[str] = []
_too_long: list[str] = []


def _checked(step: Step, *arguments: Any, **named: Any) -> None:
    _make(step, *arguments, **named)
    _note(step)


def _checked_finding(finding: Finding, *arguments: Any, **named: Any) -> None:
    _find(finding, *arguments, **named)
    _note(finding)


def _checked_status(*arguments: Any, **named: Any) -> Obj:
    status = _compose(*arguments, **named)
    for entry in (status, *status["conditions"]):
        limit = 400 if entry.get("type") == "Ready" else 1000
        texts = [text for key in ("message", "reason") if (text := entry.get(key))]
        _too_long.extend(text for text in texts if len(text) > limit)
    return status


def _note(made: Step | Finding) -> None:
    if not made.reason.describes(made.message):
        _undeclared.append(f"{made.reason}: {made.message}")


@contextmanager
def noted() -> Iterator[None]:
    """Note the faults of each message that is made within the context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__init__", _checked)
        patch.setattr(Finding, "__init__", _checked_finding)
        patch.setattr(conditions, "compose", _checked_status)
        yield


def forget() -> None:
    """Forget the faults so far."""
    _undeclared.clear()
    _too_long.clear()


def require_none() -> None:
    """Check that no faults were noted since the last `forget`."""
    assert not _too_long, "messages in a status that are longer than a column or a condition may be"
    assert not _undeclared, "messages that no template of their reason describes; add one in reasons.py"
