"""Plans of changes in simulated worlds, and what the operator of such a world then executes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from shared.kubernetes.kinds import EVENT, Kind, Obj
from simulator.plan import Live, Plan, plan
from simulator.recorder import Recorder, Step
from simulator.subjects import subject
from tests.harness.scenario import Subject, edit
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.redis import scenarios as redis

WORLDS: dict[str, tuple[Subject, Any]] = {
    "memcached": (memcached.MEMCACHED, memcached.OPTIONS),
    "etcd": (etcd.ETCD, etcd.OPTIONS),
    "redis": (redis.REDIS, redis.OPTIONS),
}
"""Worlds and options of the operators, by their names."""


async def nothing_else(kind: Kind, namespace: str, name: str) -> Obj | None:
    """Find no further object: the plan has all of the world."""
    return None


def live(play: ScenarioRun, name: str = "cache") -> Live:
    """Return what runs in a world, as a user reads it. Its API server does not resize running pods."""
    resource = next((each for each in play.stage.find() if each["metadata"]["name"] == name), None)
    objects = [(kind, obj) for kind, obj in play.world.server.objects() if kind != EVENT]
    return Live(resource, objects, play.world.clock.now, resizes=False)


def changed(resource: Obj, spec: Obj) -> Obj:
    """Return a resource with changed fields of its spec."""
    found = copy.deepcopy(resource)
    found["spec"] |= spec
    return found


async def planned(operator: str, play: ScenarioRun, spec: Obj) -> Plan:
    """Return the plan of a change of the spec in a world."""
    found = live(play)
    assert found.resource is not None
    return await plan(subject(operator), WORLDS[operator][1], found, changed(found.resource, spec), nothing_else)


async def executed(operator: str, play: ScenarioRun, spec: Obj | None = None) -> tuple[Step, ...]:
    """Return what the operator of a world executes from now on: after a change of the spec, or without one."""
    play.end()
    world, controller = play.world, play.world.subject.controller
    view = subject(operator).view
    recorder = Recorder(world.server, world.clock, lambda: view(world.database, world.server, "cache"))  # type: ignore[arg-type]
    world.subject = dataclasses.replace(world.subject, controller=lambda found: recorder.attached(controller(found)))
    play.begin()
    await play.settle()
    if spec is not None:
        await play.step(edit(None, {"spec": spec}))
    return recorder.finished()


def form(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    """Return what must be equal of steps: order, action, object, reason and effects."""
    return [
        (each.by, each.action, each.target, each.count, each.reason, each.fields, each.pods, each.members, each.moves)
        for each in steps
        if not each.minor
    ]
