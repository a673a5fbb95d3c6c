"""Servers that each scenario empties: none but those that the spec replaces, or that are lost by a failure."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import Obj
from tests.harness.scenario import Scenario, ScenarioStep, apply, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.unit.world import UNPAUSED
from tests.support.memcached.scenarios import DEPLOYED, MEMCACHED, SCENARIOS, Servers

DECLARED = {
    "scale": 1,
    "scale a Deployment": 1,
    "scale to zero and back": 1,
    "change the image": 2,
    "change the port": 2,
    "authentication on and off": 4,
    "change the image of a Deployment": 1,
    "change again during an update": 2,
    "switch the workload": 2,
    "switch the workload and back immediately": 1,
    "no longer set the workload after a switch": 1,
    "upgrade from release 0.1.0": 2,  # when its Deployment is deleted
    "a server lost while the users file is empty": 1,
    "TLS on, then a renewed certificate": 1,
    "generated password: rotated, its Secret deleted": 1,  # when spec.auth is set
    "edits while paused": 2,  # of the three servers that the edit of another client requested
    "owned objects deleted": 1,
    "Deployment deleted and edited": 1,
    "a server lost": 1,
    "deleted": 1,
    "deleted and recreated": 1,
    "replaced immediately": 2,
    "changes without an operator": 3,
}
"""Servers that a scenario empties by design: a change of the spec replaces or removes them, or a step loses them."""


async def emptied(*steps: ScenarioStep) -> int:
    """Return the number of servers that ended with their items."""
    world = World(MEMCACHED)
    await ScenarioRun(world).run_steps(steps)
    assert isinstance(world.database, Servers)
    return world.database.emptied


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
async def test_no_server_is_emptied_but_by_a_declared_change(scenario: Scenario) -> None:
    assert await emptied(*scenario.given) == 0
    assert await emptied(*scenario.given, *scenario.steps) == DECLARED.get(scenario.name, 0)


@pytest.mark.parametrize("spec", [DEPLOYED | {"size": 3}, {"size": 3}], ids=["Deployment", "StatefulSet"])
async def test_paced_roll_replaces_the_next_server_after_the_pause(spec: Obj) -> None:
    paced = {**spec, "updateStrategy": {"pauseSeconds": 30}}  # too short for evidence
    roll = (apply(**paced), apply(**paced, memoryMB=128))
    first = await emptied(*roll)
    assert first <= 1, "the next one waits; a Deployment starts the new server first"
    assert await emptied(*roll, later(29)) == first
    assert await emptied(*roll, later(30)) == first + 1
    assert await emptied(*roll, later(30), later(30)) == first + 2
    assert await emptied(*roll, *(later(30),) * 3) == 3
    unpaused = spec | UNPAUSED
    assert await emptied(apply(**unpaused), apply(**unpaused, memoryMB=128)) == 3


async def test_changed_pause_replaces_no_server() -> None:
    steps = (apply(size=2), apply(size=2, updateStrategy={"pauseSeconds": 60}), apply(size=2))
    assert await emptied(*steps) == 0
