"""A learner that copies a large database joins in its own time; one that makes no progress is replaced."""

from __future__ import annotations

from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD
from shared.status import conditions
from tests.harness.scenario import ScenarioStep, later, operator_down, unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, MIDDLE, cluster, member, to_etcd

GIB = 2**30
LEARNER = member(1)


def passes(seconds: float) -> ScenarioStep:
    return unobserved(later(seconds))


async def joining(*, receives: bool) -> ScenarioRun:
    """Return a cluster of one member and 2 GiB of data to which a second one is added."""
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(1, MIDDLE),))
    etcd = play.world.database
    etcd.member(member(0)).size = 2 * GIB  # type: ignore[attr-defined]
    etcd.written(ENTRIES_PER_SNAPSHOT)  # type: ignore[attr-defined]
    (etcd.receiving if receives else etcd.lagging).add(LEARNER)  # type: ignore[attr-defined]
    await play.run_steps((cluster(2, MIDDLE),))
    return play


def added(play: ScenarioRun) -> int:
    return play.world.database.counts()["learners added"]


def ready(play: ScenarioRun) -> tuple[str, str]:
    [found] = play.stage.find()
    condition = accessors.condition(found, conditions.READY)
    return condition["reason"], condition["message"]


async def test_learner_that_receives_a_large_snapshot_is_not_removed() -> None:
    play = await joining(receives=True)
    reason, message = ready(play)
    assert (reason, message) == ("Joining", "cache-1 is joining: it receives a snapshot of the database (2048 MiB).")
    await play.run_steps((passes(700), passes(700), passes(700)))
    assert (added(play), ready(play)[0]) == (1, "Joining")
    play.world.database.receiving.clear()  # type: ignore[attr-defined]
    play.world.database.settle("the snapshot is applied")  # type: ignore[attr-defined]
    await play.run_steps((passes(10),))
    assert (added(play), ready(play)[0]) == (1, "Ready")


async def test_restart_of_the_operator_does_not_extend_the_time() -> None:
    play = await joining(receives=True)
    for _ in range(4):
        await play.run_steps((*operator_down(later(700)), passes(10)))
    assert added(play) == 2


async def test_learner_that_applies_some_entries_is_not_removed() -> None:
    play = await joining(receives=False)
    for _ in range(5):
        await play.run_steps((passes(500), to_etcd("it applies 10 entries", lambda etcd: etcd.advance(LEARNER, 10))))
    assert (added(play), ready(play)[0]) == (1, "Joining")


async def test_learner_that_makes_no_progress_joins_again() -> None:
    play = await joining(receives=False)
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in play.stage.find(POD)}
    await play.run_steps((passes(500),))
    assert added(play) == 1
    await play.run_steps((passes(500), passes(10)))
    assert added(play) == 2
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in play.stage.find(POD)}
    assert before[LEARNER] != after[LEARNER]
