"""Defects that lost data in the past. Each is a case: with its fix removed, the guards of the simulation find it.

A table of a database (`tests/*/simulation/past_defects.py`) has a row for each defect: what is removed from the
operator of today, the course that led to the loss, and what the guard reports. The same course with the unmodified
operator has no violation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from shared.steps.confirmed_recovery import confirms, recorded, recovery_token
from tests.harness.scenario import Unsafe
from tests.support.virtual_time import in_virtual_time

IDS = (
    *("R1", "R2", "R4", "R7", "R17", "X1", "X6", "C1", "C8"),
    *("N1", "N2", "N3", "N4", "N5", "N6"),
)
"""Ids of all defects that lost data, from the reviews of the releases before 1.0."""

SECONDS = 60
"""CPU time within which each is found."""

Patch = Callable[[pytest.MonkeyPatch], None]

RemoveFix = Callable[[], None]
"""Removes the fix from the operator; does nothing in the course of the unmodified one."""

Course = Callable[[RemoveFix], Coroutine[Any, Any, None]]
"""The events that lead to the loss. They remove the fix as soon as the world before it exists."""


@dataclass(frozen=True)
class PastDefect:
    """A defect, and the course that finds it.

    Attributes:
        id: id in the reviews.
        variant: name of the case, if several fixes belong to one id.
        harm: the loss, as a sentence.
        remove_fix: removes the fix from the operator.
        happens: course of the events.
        reported: pattern of what the guard reports.
        level: lowest level of the tests that has the case.
    """

    id: str
    harm: str
    remove_fix: Patch
    happens: Course
    reported: str
    variant: str = ""
    level: str = "commit"

    def __str__(self) -> str:
        return f"{self.id} {self.variant}".strip()


def rows(table: tuple[PastDefect, ...]) -> list[Any]:
    """Return the rows of a table as parameters of a test."""
    return [pytest.param(row, id=str(row), marks=getattr(pytest.mark, row.level)) for row in table]


def row_of(defect: PastDefect) -> str:
    """Return the row of a defect in tests/README.md."""
    reported = defect.reported.replace("|", "\\|")
    return f"| {defect} | {defect.harm} | `{reported}` |"


def require_found(defect: PastDefect, patch: pytest.MonkeyPatch) -> None:
    """Require that the guard finds a defect, for its own reason, once its fix is removed."""
    began = time.process_time()
    with pytest.raises(AssertionError, match=defect.reported) as found:
        in_virtual_time(defect.happens)(lambda: defect.remove_fix(patch))
    assert time.process_time() - began < SECONDS
    assert isinstance(found.value, Unsafe) or defect.id in _WITHOUT_LOSS, f"no guard found it: {found.value}"


def require_none(defect: PastDefect) -> None:
    """Require that the unmodified operator passes the same course."""
    in_virtual_time(defect.happens)(lambda: None)


_WITHOUT_LOSS = {"N5"}
"""Defects that stop the operator for ever; the loss comes with a later failure, which it then does not heal."""


def tokens_identify_no_occurrence(patch: pytest.MonkeyPatch, module: Any, identity: Callable[[str], str] = str) -> None:
    """Let a token name what is lost, and not when: so it is the same whenever that is lost again (X1, N4).

    Args:
        module: step that offers and carries out the recovery.
        identity: reduces the text of a loss to what the token named.
    """

    def occurrence(resource: Any, loss: str, _: object, *, continues: bool) -> dict[str, str]:
        before = recorded(resource)
        return {"token": before["token"] if before and continues else recovery_token(identity(loss))}

    def is_in_force(resource: Any, token: str) -> bool:
        return confirms(resource, token) and recorded(resource).get("token") == token

    patch.setattr(module, "occurrence", occurrence)
    patch.setattr(module, "is_in_force", is_in_force)
    patch.setattr(module, "current", lambda resource, _: recorded(resource))
