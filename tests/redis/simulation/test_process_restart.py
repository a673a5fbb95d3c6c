"""A container that restarts at once, at the same address and on the same volume."""

from __future__ import annotations

import pytest

from operators.redis.objects import pod
from shared.kubernetes.kinds import CONFIG_MAP, POD, Obj
from simulator.faults import requests
from simulator.redis.client import Entry
from tests.harness.scenario import ScenarioStep, delete, edit, later, operator_down, unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.guard import values
from tests.support.redis.scenarios import NAME, REDIS, all_pods_deleted, cluster, failing, faults_end, in_memory

VOLATILE: Obj = {"config": {"appendonly": "no", "save": ""}}


def container_restarts(before: dict[bytes, Entry]) -> ScenarioStep:
    """Kill the server of a primary; the kubelet starts it again before anyone notices that it failed."""

    def act(redis: FakeRedis) -> None:
        redis.client.idle = True  # a later write would hide the loss
        redis.settle("replicas receive the last writes")
        before.update(values(redis))
        redis.stop(next(process for process in redis.running if process.node.me.slots), "killed")

    return unobserved(ScenarioStep("the container of a primary restarts", lambda stage: act(stage.database)))


async def restarted(given: ScenarioStep, *, absent: bool) -> FakeRedis:
    """Restart the container of a primary, and check that no key is lost."""
    run, before = ScenarioRun(World(REDIS)), dict[bytes, Entry]()
    await run.run_steps((given,))
    steps = (container_restarts(before),)
    await run.run_steps(operator_down(*steps) if absent else steps)
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    after = values(redis)
    assert before
    assert {key for key, value in before.items() if after.get(key) != value and not value.expires} == set()
    return redis


ABSENT = (
    pytest.param(True, id="operator is down"),
    pytest.param(False, id="operator runs", marks=pytest.mark.nightly),
)


@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize("given", [cluster(6, **VOLATILE), in_memory(6, **VOLATILE)], ids=["volumes", "no volumes"])
async def test_primary_without_persistence_does_not_resume_empty(given: ScenarioStep, *, absent: bool) -> None:
    """The replicas would copy the empty data set before an election begins."""
    redis = await restarted(given, absent=absent)
    assert redis.state()[0]["replicas by primary"] == [1, 1, 1]


SNAPSHOTS: Obj = {"config": {"appendonly": "no"}}


@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize(
    "given",
    [
        cluster(6, **SNAPSHOTS),
        cluster(9, replicasPerMaster=2, **SNAPSHOTS),
        cluster(6, "9.0.1", repository="valkey/valkey", **SNAPSHOTS),
    ],
    ids=["redis", "two replicas", "valkey"],
)
async def test_replicas_keep_newer_keys_than_the_last_snapshot_of_their_primary(
    given: ScenarioStep, *, absent: bool
) -> None:
    """The primary is back within the node timeout: nothing is elected, and its replicas would copy the snapshot."""
    redis = await restarted(given, absent=absent)
    assert {process.config("min-replicas-to-write") for process in redis.running} == {"0"}, "all accept writes again"
    assert len({process.config("repl-diskless-sync-delay") for process in redis.running}) == 1


async def test_primary_continues_with_a_snapshot_that_is_newer_than_the_data_of_its_replica() -> None:
    """The replica lost its link before the snapshot was saved, and reaches the primary when that has restarted."""
    run, before = ScenarioRun(World(REDIS)), dict[bytes, Entry]()
    await run.run_steps((cluster(6, **SNAPSHOTS),))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    primary = next(process for process in redis.running if process.node.me.slots)
    [replica] = redis.replicas_of(primary)
    redis.partitions = {replica.pod: 1}
    await run.run_steps((later(60),))

    def act(redis: FakeRedis) -> None:
        redis.client.idle = True
        before.update(values(redis))
        primary.node.save()
        redis.stop(primary, "killed")
        redis.partitions.clear()

    killed = ScenarioStep("the primary is killed just after it saved", lambda stage: act(stage.database))
    await run.run_steps((unobserved(killed), later(60)))
    assert primary.node.me.slots
    after = values(redis)
    assert {key for key, value in before.items() if after.get(key) != value and not value.expires} == set()
    assert replica.linked


async def test_snapshots_serve_again_if_all_servers_restarted() -> None:
    """No replica has newer keys than its snapshot, so that each primary continues with its own."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6, **SNAPSHOTS), *all_pods_deleted(6)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    assert redis.state()[0]["healthy"]
    assert {process.config("min-replicas-to-write") for process in redis.running} == {"0"}


async def test_delay_of_sigterm_is_adopted_with_the_next_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of the operator restarts no pod for it."""
    run = ScenarioRun(World(REDIS))

    def pods() -> dict[str, bool]:
        found = run.stage.find(POD)
        return {each["metadata"]["uid"]: "lifecycle" in each["spec"]["containers"][0] for each in found}

    with monkeypatch.context() as earlier:
        earlier.setattr(pod, "_stop", lambda _: {})
        await run.run_steps((cluster(3, replicasPerMaster=0),))
    before = pods()
    assert [*before.values()] == [False] * 3
    await run.run_steps((later(700),))
    assert pods() == before
    await run.run_steps((cluster(3, replicasPerMaster=0, resources={"limits": {"memory": "1Gi"}}),))
    assert [*pods().values()] == [True] * 3


async def test_edit_of_the_config_map_by_hand_restarts_no_pod() -> None:
    """The file is restored before a server has read it."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6),))
    uids = [each["metadata"]["uid"] for each in run.stage.find(POD)]
    [found] = run.stage.find(CONFIG_MAP)
    text = found["data"]["redis.conf"]
    edited = {"data": {"redis.conf": f"{text}maxmemory-policy allkeys-lru\n"}}
    await run.run_steps((edit(CONFIG_MAP, edited, found["metadata"]["name"]), later(60)))
    [found] = run.stage.find(CONFIG_MAP)
    assert found["data"]["redis.conf"] == text
    assert [each["metadata"]["uid"] for each in run.stage.find(POD)] == uids


ON_DELETE: Obj = {"pod": [{"updateStrategy": {"type": "OnDelete"}}]}


SWITCHED_OFF = edit(CONFIG_MAP, {"data": {"redis.conf": "appendonly no\n"}}, f"{NAME}-config")
BY_HAND = [(), (delete(CONFIG_MAP, f"{NAME}-config"),), (SWITCHED_OFF,)]


@pytest.mark.parametrize("by_hand", BY_HAND, ids=["", "file deleted", "file edited"])
async def test_persistence_is_not_switched_off_before_the_pods_start_as_new_nodes(
    by_hand: tuple[ScenarioStep, ...],
) -> None:
    """The pods stay (OnDelete): a container that restarts resumes as the node that it was, and so needs its data."""
    run, before = ScenarioRun(World(REDIS)), dict[bytes, Entry]()
    await run.run_steps((cluster(6, **ON_DELETE), cluster(6, **ON_DELETE, **VOLATILE), *by_hand))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    assert {process.config("appendonly") for process in redis.running} == {"yes"}
    await run.run_steps((container_restarts(before),))
    after = values(redis)
    assert before
    assert {key for key, value in before.items() if after.get(key) != value and not value.expires} == set()


async def test_persistence_is_switched_off_once_all_pods_are_replaced() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), cluster(6, **VOLATILE)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    assert {process.config("appendonly") for process in redis.running} == {"no"}
    assert {file.startswith("nodes-") for file in redis.files.values()} == {True}
    [found] = run.stage.find(CONFIG_MAP)
    assert "\nappendonly no\n" in next(iter(found["data"].values()))


async def test_nodes_have_their_data_although_the_file_was_edited_while_no_pod_ran() -> None:
    """A server that starts with another persistence ignores its files, and its replicas would copy an empty data set.

    The guard judges every key.
    """
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6), *(failing(number) for number in range(6)), *all_pods_deleted(6)))
    await run.run_steps((SWITCHED_OFF, faults_end(), later(60)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    assert redis.state()[0]["healthy"]
    assert redis.guard.records
    redis.guard.require_resolved(redis)


@pytest.mark.parametrize(("former", "desired"), [("no", "yes"), ("yes", "no")])
async def test_nodes_have_their_data_although_only_the_file_was_written(former: str, desired: str) -> None:
    """A webhook refuses the writes that follow the one of the ConfigMap, and all nodes stop after the switch."""
    run = ScenarioRun(World(REDIS))
    of: Obj = {"replicasPerMaster": 0}  # with replicas, the file stays on until the pods are replaced
    await run.run_steps((cluster(3, config={"appendonly": former}, **of),))
    run.world.server.faults.answer(403, when=requests("PATCH", "/statefulsets/"), times=None)
    await run.run_steps((cluster(3, config={"appendonly": desired}, **of), later(60)))
    redis = run.world.database
    assert isinstance(redis, FakeRedis)
    assert {process.config("appendonly") for process in redis.running} == {desired}
    [found] = run.stage.find(CONFIG_MAP)
    assert f"\nappendonly {desired}\n" in found["data"]["redis.conf"]
    await run.run_steps((*(failing(number) for number in range(3)), *all_pods_deleted(3)))
    await run.wait(60)
    assert run.stage.find(CONFIG_MAP)[0]["data"] == found["data"], "a former file has older keys"
    await run.run_steps((faults_end(), later(60)))
    assert redis.state()[0]["healthy"]
    assert redis.guard.records
    redis.guard.require_resolved(redis)
