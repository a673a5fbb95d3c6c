"""The user of replicas is introduced to a cluster of an earlier release while clients write and nodes fail."""

from __future__ import annotations

import pytest

from operators.redis.client.server import REPLICATION_USER
from shared.kubernetes import accessors
from shared.kubernetes.kinds import SECRET
from tests.harness.scenario import ScenarioStep, delete
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import happens_after, redis_of, settled
from tests.support.redis.scenarios import (
    AUTH,
    NAME,
    REDIS,
    all_pods_deleted,
    cluster,
    of_earlier_release,
    password_given,
    primary_lost,
)


async def begun(password: str = "") -> tuple[ScenarioRun, FakeRedis]:
    """Return a cluster without the user of replicas, of which the operator has not seen anything yet."""
    steps = (password_given(password), cluster(6, **AUTH)) if password else (cluster(6),)
    run = ScenarioRun(await settled(World(REDIS), *steps))
    run.begin()
    await run.settle()
    of_earlier_release(password).act(run.stage)
    return run, redis_of(run.world)


def refused(redis: FakeRedis) -> list[str]:
    """Return the pairs of nodes of which one would refuse the other as its replica."""
    here = [process for process in redis.running if process.cluster == NAME]
    return [f"{one.pod} refuses {other.pod}" for one in here for other in here if not one.admits(other)]


def are_protected(redis: FakeRedis) -> bool:
    """Whether all nodes authenticate as the user of replicas, with the only password that this user has everywhere."""
    here = [process for process in redis.running if process.cluster == NAME]
    given = {(process.config("masteruser"), process.config("masterauth")) for process in here}
    own = {frozenset(process.users[REPLICATION_USER] - process.passwords) for process in here}
    return len(given) == len(own) == 1 and given.pop()[0] == REPLICATION_USER and len(own.pop()) == 1


async def ready(run: ScenarioRun) -> bool:
    await run.wait(20, times=4)
    [found] = run.stage.find()
    return bool(accessors.condition(found, "Ready")["status"] == "True")


@pytest.mark.parametrize("password", ["", "one"])
async def test_user_of_replicas_is_introduced_without_a_moment_in_which_a_node_refuses_one(password: str) -> None:
    run, redis = await begun(password)
    assert not refused(redis)
    wrong: list[str] = []
    processes, before = {process.run_id for process in redis.running}, len(redis.commanded)
    redis.after = lambda what: wrong.extend(f"after {what}: {pair}" for pair in refused(redis))
    run.resync()
    await run.settle()
    assert await ready(run)
    assert wrong == []
    assert are_protected(redis)
    assert {process.run_id for process in redis.running} == processes, "nothing restarts"
    run.world.require_safe()
    written = len(redis.commanded)
    assert written > before
    run.resync()
    await run.settle()
    assert len(redis.commanded) == written, "nothing is written again"


EVENTS: dict[str, tuple[ScenarioStep, ...]] = {
    "a primary fails": (primary_lost(),),
    "all pods restart": all_pods_deleted(),
    "the cluster grows": (cluster(8),),
    "the Secret is deleted": (delete(SECRET, f"{NAME}-users"),),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(
    "number", [8, *(pytest.param(number, marks=pytest.mark.nightly) for number in (1, 4, 6, 7, 12, 18))]
)
async def test_user_of_replicas_is_introduced_although_something_happens_in_the_middle(event: str, number: int) -> None:
    """After that command: six give a node the user, and twelve let it use the user."""
    run, redis = await begun()
    has_happened = happens_after(run, number, EVENTS[event])
    run.resync()
    await run.settle()
    assert has_happened()
    assert await ready(run)
    assert are_protected(redis)
    run.world.require_safe()


async def test_replaced_password_of_replicas_leaves_no_former_one() -> None:
    run = ScenarioRun(await settled(World(REDIS), cluster(6)))
    redis = redis_of(run.world)
    before = {process.config("masterauth") for process in redis.running}
    run.begin()
    await run.settle()
    wrong: list[str] = []
    redis.after = lambda what: wrong.extend(f"after {what}: {pair}" for pair in refused(redis))
    delete(SECRET, f"{NAME}-users").act(run.stage)
    run.resync()
    await run.settle()
    assert await ready(run)
    assert wrong == []
    assert are_protected(redis)
    assert before.isdisjoint(process.config("masterauth") for process in redis.running)
