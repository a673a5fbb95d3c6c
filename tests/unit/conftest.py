"""Every message of a step or a condition in a unit test has the form that the catalogue of reasons declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shared.runtime.plan import Step
from shared.status.health import Finding

_make, _find = Step.__init__, Finding.__init__
_undeclared: list[str] = []


def _checked(step: Step, *arguments: Any, **named: Any) -> None:
    _make(step, *arguments, **named)
    _note(step)


def _checked_finding(finding: Finding, *arguments: Any, **named: Any) -> None:
    _find(finding, *arguments, **named)
    _note(finding)


def _note(made: Step | Finding) -> None:
    if not made.reason.describes(made.message):
        _undeclared.append(f"{made.reason}: {made.message}")


@pytest.fixture(scope="session", autouse=True)
def _messages_are_compared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__init__", _checked)
        patch.setattr(Finding, "__init__", _checked_finding)
        yield


@pytest.fixture(autouse=True)
def _every_message_is_declared() -> Iterator[None]:
    _undeclared.clear()
    yield
    assert not _undeclared, "messages that no template of their reason describes; add one in reasons.py"
