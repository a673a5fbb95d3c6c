"""Persistence that is switched off while nodes are away: their data is on their volumes, and they start with it."""

from __future__ import annotations

import pytest

from operators.redis.objects.names import APPLIED_PERSISTENCE
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from simulator.redis import server
from simulator.redis.process import Process
from tests.harness.scenario import ScenarioStep, Stage, at_once, delete, edit, later, limit_turns, operator_down
from tests.harness.scenario_runner import ScenarioRun
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.guard import values
from tests.redis.simulation.losses import SUBJECT
from tests.redis.simulation.moving_slots import redis_of, status
from tests.support.plays import begun, begun_once, ready, run
from tests.support.redis.scenarios import NAME, adopted, cluster

PLAIN = cluster(6)
SNAPSHOTS = cluster(6, config={"appendonly": "no"})
ALONE = cluster(3, replicasPerMaster=0)
VOLATILE = cluster(6, config={"appendonly": "no", "save": ""})


def require_all_keys(play: ScenarioRun) -> None:
    redis = redis_of(play.world)
    redis.settle("clients read")
    redis.guard.require_resolved(redis)
    assert redis.guard.records, "clients have written"


def nodes(play: ScenarioRun) -> dict[str, str]:
    """Return the id of each running node, by its pod."""
    return {process.pod: process.node.id for process in redis_of(play.world).running}


async def test_persistence_that_is_switched_off_while_no_pod_exists_loses_no_key() -> None:
    play = await begun_once(SUBJECT, PLAIN)
    before = nodes(play)
    deletions = (delete(STATEFUL_SET, NAME), *(delete(POD, pod) for pod in before))
    await run(play, operator_down(VOLATILE, *at_once(*deletions), later(30)))
    assert not nodes(play)
    play.begin()
    await run(play, (later(60), later(60)))
    assert "recovery" not in status(play)
    assert ready(play)["reason"] == "Ready"
    require_all_keys(play)


def killed(play: ScenarioRun) -> ScenarioStep:
    """Kill all servers, which the kubelet starts again."""

    def act(_: Stage) -> None:
        for process in redis_of(play.world).running:
            redis_of(play.world).stop(process, "killed")

    return ScenarioStep("all servers are killed", act)


@pytest.mark.parametrize("turns", [3, 5, 6, 9, 11, 12, 15, 18, 22, 26, 30, 36, 42, 48, 54])
async def test_servers_that_end_before_their_first_log_is_complete_have_their_snapshots(turns: int) -> None:
    play = await begun_once(SUBJECT, SNAPSHOTS)
    await run(play, (later(60), later(7200), limit_turns(PLAIN, turns), killed(play), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    require_all_keys(play)


@pytest.mark.parametrize("given", [PLAIN, pytest.param(SNAPSHOTS, marks=pytest.mark.nightly)], ids=["log", "snapshots"])
async def test_persistence_that_is_switched_off_and_on_again_ends_ready(given: ScenarioStep) -> None:
    """The volumes still have the node ids, the addresses and the snapshots of the time before."""
    play = await begun_once(SUBJECT, given)
    before = nodes(play)
    await run(play, (VOLATILE, later(60)))
    assert not before.items() & nodes(play).items(), "each process is a new node"
    await run(play, (given, later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert not {*before.values()} & {*nodes(play).values()}
    require_all_keys(play)


@pytest.mark.nightly
@pytest.mark.parametrize("turns", [6, 30, 44], ids=["no pod is replaced yet", "the first one is", "half of them are"])
@pytest.mark.parametrize("given", [PLAIN, SNAPSHOTS], ids=["log", "snapshots"])
async def test_persistence_that_is_switched_on_again_while_pods_are_replaced(given: ScenarioStep, turns: int) -> None:
    play = await begun_once(SUBJECT, given)
    await run(play, (limit_turns(VOLATILE, turns), given, later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    require_all_keys(play)


TURNS = [
    *(4, 8, 18, 36),
    *(pytest.param(turns, marks=pytest.mark.nightly) for turns in (2, 3, 5, 6, 10, 14, 24, 30, 42, 48, 54)),
]


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("shape", [{}, {"replicasPerMaster": 0}], ids=["replicas", "no replicas"])
async def test_servers_that_end_while_snapshots_replace_the_log_have_their_data(shape: Obj, turns: int) -> None:
    """Keys of before are in the log, or in a snapshot; the guard judges when the log is switched off."""
    play = await begun_once(SUBJECT, PLAIN if not shape else ALONE)
    redis = redis_of(play.world)
    redis.client.idle = True  # so that no key changes
    before = {key: entry for key, entry in values(redis).items() if not entry.expires}
    assert before
    snapshots = cluster(3 if shape else 6, config={"appendonly": "no"}, **shape)
    await run(play, (limit_turns(snapshots, turns), killed(play), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert {key for key, entry in before.items() if values(redis).get(key) != entry} == set()


async def test_primary_without_its_replica_accepts_writes_while_snapshots_replace_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All pods are replaced, and no server can write a snapshot."""
    play = await begun_once(SUBJECT, PLAIN)
    monkeypatch.setattr(server, "REWRITE_SECONDS", 1e9)
    await run(play, (SNAPSHOTS, later(60)))
    redis = redis_of(play.world)
    assert {(process.config("appendonly"), process.saved) for process in redis.running} == {("yes", 0.0)}
    primary = next(process for process in redis.running if process.node.me.slots)
    redis.partitions = {replica.pod: 1 for replica in redis.replicas_of(primary)}
    await play.wait(1, times=3)
    assert [redis.client.send(redis, key, "SET") for key in redis.client.keys] == [True] * len(redis.client.keys)


async def test_server_that_rewrites_its_log_gets_few_requests_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server notes the request until the rewrite is over (BGSAVE SCHEDULE), which INFO does not show."""
    requests: list[tuple[str, float]] = []

    def noted(redis: FakeRedis, process: Process, _: server.Words) -> str:
        requests.append((process.pod, redis.now))
        return "Background saving scheduled"

    play = await begun_once(SUBJECT, ALONE)
    monkeypatch.setitem(server._COMMANDS, "BGSAVE", noted)
    await run(play, (limit_turns(cluster(3, config={"appendonly": "no"}, replicasPerMaster=0), 20),))
    assert len({pod for pod, _ in requests}) == 3
    for pod in nodes(play):
        times = [at for other, at in requests if other == pod]
        assert len(times) - 2 <= (times[-1] - times[0]) / 2, "one each 2 s, and one more after another change"


async def test_log_is_switched_off_once_all_servers_have_snapshots() -> None:
    play = await begun_once(SUBJECT, ALONE)
    await run(play, (cluster(3, config={"appendonly": "no"}, replicasPerMaster=0), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert {process.config("appendonly") for process in redis_of(play.world).running} == {"no"}


NO_LOG: Obj = {"config": {"appendonly": "no"}}
NOTHING: Obj = {"config": {"appendonly": "no", "save": ""}}
ADOPTIONS = [(NO_LOG, NO_LOG), (NO_LOG, {}), ({}, NO_LOG), ({}, NOTHING), (NO_LOG, NOTHING)]


@pytest.mark.parametrize(
    ("former", "spec"),
    ADOPTIONS,
    ids=["snapshots", "snapshots-log", "log-snapshots", "log-nothing", "snapshots-nothing"],
)
@pytest.mark.parametrize("shape", [{}, {"replicasPerMaster": 0}], ids=["replicas", "no replicas"])
async def test_adopted_volumes_have_their_data(former: Obj, spec: Obj, shape: Obj) -> None:
    """Neither the former ConfigMap nor the StatefulSet shows how the servers kept their data."""
    if spec is NOTHING and shape:
        return  # a node that starts is empty
    play = await begun(SUBJECT, cluster(6, **former, **shape))
    redis = redis_of(play.world)
    await run(play, (later(60),))
    redis.client.idle = True  # so that no key changes
    before = {key: entry for key, entry in values(redis).items() if not entry.expires}
    assert before
    await run(play, (delete(), adopted(**spec, **shape), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert {key for key, entry in before.items() if values(redis).get(key) != entry} == set()


@pytest.mark.parametrize(("former", "other"), [({}, NO_LOG), (NO_LOG, {})], ids=["log", "snapshots"])
async def test_record_of_persistence_that_a_person_edited_is_none(former: Obj, other: Obj) -> None:
    """With the files that the edited records name, each server would start without the keys on its volume."""
    play = await begun(SUBJECT, cluster(6, **other))
    await run(play, (later(60),))
    lines = annotation(play.stage.find(PERSISTENT_VOLUME_CLAIM)[0], APPLIED_PERSISTENCE)
    change: Obj = {"metadata": {"annotations": {APPLIED_PERSISTENCE: lines}}}
    play = await begun(SUBJECT, cluster(6, **former))
    redis = redis_of(play.world)
    await run(play, (later(60),))
    redis.client.idle = True  # so that no key changes
    before = {key: entry for key, entry in values(redis).items() if not entry.expires}
    edits = (edit(PERSISTENT_VOLUME_CLAIM, change, f"data-{NAME}-{number}") for number in range(6))
    await run(play, (delete(), *edits, adopted(), later(60)))
    assert (ready(play)["reason"], redis.running) == ("AdoptionRefused", [])
    explicit = former or {"config": {"appendonly": "yes"}}
    await run(play, (adopted(**explicit), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert {key for key, entry in before.items() if values(redis).get(key) != entry} == set()
    records = {annotation(claim, APPLIED_PERSISTENCE) for claim in play.stage.find(PERSISTENT_VOLUME_CLAIM)}
    assert records.isdisjoint({lines}), "the operator has recorded what servers start with"


@pytest.mark.nightly
async def test_adopted_volumes_have_the_files_of_the_last_time() -> None:
    """Only the claims outlive the resource: with the files of the time before, the nodes would be forgotten ones."""
    play = await begun_once(SUBJECT, PLAIN)
    await run(play, (VOLATILE, later(60), PLAIN, later(60), later(60), delete(), adopted(), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert all(process.settings["cluster-config-file"].endswith(".1.conf") for process in redis_of(play.world).running)
    require_all_keys(play)
