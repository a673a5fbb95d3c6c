"""A lifecycle allows the transitions in its table, rejects others, and generates its diagram."""

from __future__ import annotations

import enum

import pytest

from docs.__main__ import mermaid
from shared.status.lifecycle import IllegalTransition, Lifecycle


class Door(enum.Enum):
    OPEN = "open"
    CLOSED = "closed"
    WALLED = "walled up"


class Act(enum.Enum):
    CLOSE = "close"
    OPEN = "open"
    WALL_UP = "wall up"


DOOR = Lifecycle(
    "door",
    Door.OPEN,
    {
        Door.OPEN: {Act.CLOSE: Door.CLOSED},
        Door.CLOSED: {Act.OPEN: Door.OPEN, Act.WALL_UP: Door.WALLED},
        Door.WALLED: {},
    },
)


def test_legal_transitions_lead_to_the_state_in_the_table() -> None:
    assert DOOR.after(Door.OPEN, Act.CLOSE) is Door.CLOSED
    assert DOOR.allows(Door.CLOSED, Act.WALL_UP)


def test_illegal_transitions_raise_and_name_the_legal_ones() -> None:
    assert not DOOR.allows(Door.OPEN, Act.WALL_UP)
    with pytest.raises(IllegalTransition, match=r"door: wall up in state 'open'; legal: close"):
        DOOR.after(Door.OPEN, Act.WALL_UP)
    with pytest.raises(IllegalTransition, match="legal: none"):
        DOOR.after(Door.WALLED, Act.OPEN)


def test_the_diagram_has_every_state_and_transition() -> None:
    assert mermaid(DOOR).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> OPEN",
        "    OPEN: open",
        "    CLOSED: closed",
        "    WALLED: walled up",
        "    OPEN --> CLOSED: close",
        "    CLOSED --> OPEN: open",
        "    CLOSED --> WALLED: wall up",
        "    WALLED --> [*]",
    ]
