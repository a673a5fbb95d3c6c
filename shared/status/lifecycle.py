"""Lifecycles as tables: which transitions of a member, a slot or a certificate are legal. Pure.

A lifecycle that can lose data is written down once, as data: its states, and for each state the events that may happen
in it. Steps take their transition from the table, so an illegal one raises instead of being sent to a database; tests
compare what the crash harness saw with the same table; the diagrams in docs/architecture.md are generated from it.

The form is that of h11's state machines: https://h11.readthedocs.io/en/latest/api.html#the-state-machine
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=enum.Enum)
Event = TypeVar("Event", bound=enum.Enum)


class IllegalTransition(Exception):
    """An event that the lifecycle does not allow in the present state: a defect of a step."""


@dataclass(frozen=True)
class Lifecycle(Generic[State, Event]):
    """The legal transitions of one thing.

    Attributes:
        name: what goes through it, such as "etcd member".
        initial: the state of something new.
        transitions: for each state, the state that each legal event leads to. A state without events is final.
    """

    name: str
    initial: State
    transitions: Mapping[State, Mapping[Event, State]]

    def after(self, state: State, event: Event) -> State:
        """Return the state that `event` leads to.

        Raises:
            IllegalTransition: the event is not legal in this state.
        """
        try:
            return self.transitions[state][event]
        except KeyError:
            legal = ", ".join(each.value for each in self.transitions.get(state, {})) or "none"
            raise IllegalTransition(f"{self.name}: {event.value} in state {state.value!r}; legal: {legal}") from None

    def allows(self, state: State, event: Event) -> bool:
        """Whether `event` is legal in `state`."""
        return event in self.transitions.get(state, {})

    def to_mermaid(self) -> str:
        """Return the diagram of the lifecycle, as a Mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial.name}"]
        lines += [f"    {state.name}: {state.value}" for state in self.transitions]
        for state, events in self.transitions.items():
            lines += [f"    {state.name} --> {target.name}: {event.value}" for event, target in events.items()]
            lines += [f"    {state.name} --> [*]"] * (not events)
        return "\n".join(lines)
