"""A person starts and cancels migration jobs of Valkey 9 while the operator scales (CLUSTER MIGRATESLOTS)."""

from __future__ import annotations

import pytest

from operators.redis.migration import server_side
from shared.kubernetes import accessors
from simulator.redis import atomic_migration
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import status
from tests.support.redis.scenarios import REDIS, cluster

pytestmark = pytest.mark.nightly

VALKEY = "9.0.1"
IMAGE = {"repository": "valkey/valkey", "replicasPerMaster": 0}


async def test_persons_jobs_go_on_and_a_cancelled_job_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    play = ScenarioRun(World(REDIS))
    await play.step(cluster(3, VALKEY, **IMAGE))
    redis: FakeRedis = play.stage.database
    source, target = (process for process in redis.running[:2])
    monkeypatch.setattr(server_side, "OTHERS_SECONDS", 0.0)
    atomic_migration.migrate_slots(redis, source, [b"SLOTSRANGE", b"0", b"9", b"NODE", target.node.id.encode()])
    [job] = source.migrations
    job.begun, job.polls = redis.now + 60, -(10**6)  # it lasts for a minute
    await play.step(cluster(4, VALKEY, **IMAGE))
    ready = accessors.condition_in(status(play)["conditions"], "Ready")
    assert job.state == "migrating", "it was not cancelled"
    assert (ready["reason"], "Another client migrates slots 0-9" in ready["message"]) == ("SlotStuck", True)
    await play.wait(20, times=4)
    assert job.state == "success"

    def cancel(what: str) -> None:
        if "CLUSTER MIGRATESLOTS" in what and not cancelled:
            process = redis.named(what.rpartition(" ")[2])
            cancelled.append(process.pod)
            atomic_migration.cancel(redis, process, [])

    cancelled: list[str] = []
    redis.after = cancel
    await play.step(cluster(3, VALKEY, **IMAGE))
    assert cancelled
    redis.after = str
    giver = redis.named(cancelled[0])
    assert [each.state for each in giver.migrations if each.state == "migrating"] == []
    await play.wait(20, times=8)
    assert sorted(process.node.me.slots.bit_count() for process in redis.running) == [5461, 5461, 5462]
    assert accessors.condition_in(status(play)["conditions"], "Ready")["status"] == "True"
    assert not redis.violations
