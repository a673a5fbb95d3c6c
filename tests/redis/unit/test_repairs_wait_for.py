"""Each step of the plan that stops its chain, with each repair: which ones wait for it, and why they have to.

`test_blocked_repairs.py` has states; here rows and columns are those of the plan itself, so that none is missing.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from operators.redis.database import DATABASE
from operators.redis.facts.assessment import Assessment
from operators.redis.plan import Planner
from shared.runtime.plan import Step
from shared.status.reasons import Reason
from tests.redis.unit.world import NOW, SETTINGS, formed, world
from tools.local.paths import REPOSITORY

PLANNER = Planner(SETTINGS)
CHAINS = PLANNER._heal()

WAITING = {
    "keep_stopped": "pods that are stopped on purpose are not missing, and nothing about them is repaired",
    "repair_proven": "the next steps write and use these Secrets, which another client may have made",
    "require_authentication": "no node accepts a command that would change its passwords",
    "rotate_password": "a node that restarts with a certificate reads the passwords, too: one change at a time",
    "restart_distrusting": "these nodes reject the operator; a failover to one that restarts first could lose writes",
    "await_redis": "no node is reachable, so that there is no report to act on",
    "refuse_unknown_owners": "the cluster may be merging with another one, which any repair could help",
    "record_nodes": "the record distinguishes a loss from an outage; it is written at once",
    "update_addresses": "peers that know each other vote and gossip; nothing waits while they are being met",
    "replace_primaries": "one change of owners at a time: later steps count owners and replicas",
    "take_back_slots": "its slots have no owner until then, and would be assigned to others",
    "forget_removed_nodes": "FORGET lasts a minute at each node, and a node must know the members when others join",
    "prepare_restarts": "no member may have an identity with which it would resume empty; it is written at once",
    "join_nodes": "an empty node may have to take lost slots, or to become the missing replica",
    "repair_role_conflict": "the node is recreated, and with it the replica that later steps would count",
    "assign_unowned_slots": "a slot with keys must not be given up as lost",
    "recover_lost_slots": "empty nodes may take the lost slots, so that they do not become replicas before",
    "release_slots": "the record of foreign keys comes first: only the mark shows them",
    "await_agreement": "moves and replicas follow from the owners, on which the nodes do not agree",
    "repair_open_slots": "a replica of an end would need a full sync while keys move",
}
"""Repairs that may stop their chain, and why the later ones of it wait. All others continue."""


def _function(step: Any) -> FunctionType:
    found = getattr(step, "__func__", step)
    assert isinstance(found, FunctionType)
    return found


def name_of(step: Any) -> str:
    """Return the name of a step's function."""
    return _function(step).__name__


STEPS = [name_of(step) for step in (*PLANNER._steps(), *(each for chain in CHAINS for each in chain))]


@dataclass(frozen=True)
class _Spied:
    """The planner, with one step that blocks, and the names of the steps that it calls."""

    blocked: str
    called: list[str] = field(default_factory=list)

    def chain(self, steps: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(partial(self._call, step) for step in steps)

    def _call(self, step: Any, seen: Assessment) -> Step:
        self.called.append(name_of(step))
        if name_of(step) == self.blocked:
            return Step.blocked(Reason("Blocked"), "This step is blocked.")
        return step(seen)  # type: ignore[no-any-return]

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        provided, heal = PLANNER._steps(), CHAINS
        monkeypatch.setattr(Planner, "_steps", lambda _: self.chain(provided))
        monkeypatch.setattr(Planner, "_heal", lambda _: tuple(map(self.chain, heal)))
        resource, found = world(*formed())
        PLANNER.plan(resource, found, NOW)


def later_in_chain(blocked: str) -> set[str]:
    """Return the repairs that come after a step in its own chain."""
    for chain in CHAINS:
        names = [name_of(step) for step in chain]
        if blocked in names:
            return set(names[names.index(blocked) + 1 :])
    return set()


@pytest.mark.parametrize("blocked", ["", *STEPS])
def test_blocked_step_stops_only_later_repairs_of_its_own_chain(blocked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spied = _Spied(blocked)
    spied.run(monkeypatch)
    repairs = {name_of(step) for chain in CHAINS for step in chain}
    assert repairs - set(spied.called) == later_in_chain(blocked)


def test_each_repair_that_stops_its_chain_has_a_reason() -> None:
    stopping = {
        name_of(step)
        for chain in CHAINS
        for step in chain[:-1]
        if any(
            word in source for source in sources(step) for word in ("Step.wait(", "Step.blocked(", "Progress.BLOCKED")
        )
    }
    assert stopping == WAITING.keys()


def test_no_step_outside_the_plan_blocks() -> None:
    """Rows are complete: each function that blocks is called by a step of the plan."""
    steps = (*PLANNER._steps(), *(each for chain in CHAINS for each in chain), *PLANNER._change())
    given = (getattr(DATABASE, each.name) for each in fields(DATABASE))  # shared steps call what the table gives
    functions = [*map(_function, steps), *(each for each in given if isinstance(each, FunctionType))]
    reached = {function for each in functions for function in reachable(each)}
    known = {(function.__module__, function.__qualname__) for function in reached}
    blocking = {(module, name) for module, name in _blocking(REPOSITORY / "operators/redis/steps")}
    assert len(blocking) > 10
    assert blocking - known == set()


def sources(step: Any) -> Iterator[str]:
    """Return the source of a step and of all functions that it calls."""
    return map(inspect.getsource, reachable(_function(step)))


@cache
def reachable(function: FunctionType) -> frozenset[FunctionType]:
    """Return a function and those that it names, as far as they are of steps."""
    found, rest = set[FunctionType](), [function]
    while rest:
        each = rest.pop()
        if each in found or ".steps" not in each.__module__:
            continue
        found.add(each)
        names = {**each.__globals__, **inspect.getclosurevars(each).nonlocals}
        rest += filter(None, map(partial(_resolved, names), _named(each)))
    return frozenset(found)


def _named(function: FunctionType) -> list[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]


def _resolved(names: dict[str, Any], text: str) -> FunctionType | None:
    """Return the function that an expression names: of the module, or a method of a class that the module knows."""
    first, *rest = text.split(".")
    found: Any = names.get(first)
    for part in rest:
        found = getattr(found, part, None)
    if found is None and len(rest) == 1:
        found = next((getattr(each, rest[0]) for each in _classes(names) if hasattr(each, rest[0])), None)
    return found if isinstance(found, FunctionType) else None


def _classes(names: dict[str, Any]) -> Iterator[type]:
    return (each for each in names.values() if isinstance(each, type) and ".steps" in each.__module__)


def _blocking(under: Path) -> Iterator[tuple[str, str]]:
    """Return module and name of each function that returns a blocked step."""
    for path in under.glob("*.py"):
        module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        importlib.import_module(module)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and "Step.blocked(" in ast.unparse(node):
                yield module, node.name
