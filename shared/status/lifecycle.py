"""Lifecycles as tables: the legal transitions of a member, a slot or a certificate. Pure.

A lifecycle that can lose data is declared once, as data: the states, and for each state the legal events. Steps take
their transition from the table, so that an illegal one raises an error instead of reaching a database. Tests compare
the transitions that the crash harness recorded with the same table. The diagrams in docs/reference/lifecycles.md
are generated from it.

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
    """An event that is not legal in the current state: a defect of a step."""


@dataclass(frozen=True)
class Lifecycle(Generic[State, Event]):
    """The legal transitions of one kind of thing.

    Attributes:
        name: name of the thing, such as "etcd member".
        initial: state of a new one.
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
