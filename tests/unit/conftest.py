"""Every message that a step reports in a unit test has the form that the catalogue of reasons declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shared.runtime.plan import Step

_make = Step.__init__
_undeclared: list[str] = []


def _checked(step: Step, *arguments: Any, **named: Any) -> None:
    _make(step, *arguments, **named)
    if not step.reason.describes(step.message):
        _undeclared.append(f"{step.reason}: {step.message}")


@pytest.fixture(scope="session", autouse=True)
def _messages_are_compared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__init__", _checked)
        yield


@pytest.fixture(autouse=True)
def _every_message_is_declared() -> Iterator[None]:
    _undeclared.clear()
    yield
    assert not _undeclared, "messages that no template of their reason describes; add one in reasons.py"
