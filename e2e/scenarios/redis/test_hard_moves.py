"""The hard tests of Redis Cluster operators that are about slots on their way: 3, 4, 5, 6, 7 and 11, by their numbers.

Clients write and read all the time; every acknowledged write is checked afterwards, and redis-cli's own check must find
nothing. Planned operations may cost no write and no error; a crash, what was acknowledged just before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from e2e.scenarios.redis.cluster import SLOTS, Cluster, opened, own_slots
from e2e.scenarios.redis.versions import ATOMIC, KEY_BY_KEY, REDIS_8, Spec
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Operator

ENGINES = pytest.mark.parametrize("engine", [KEY_BY_KEY, ATOMIC], ids=["key-by-key", "atomic"])
SLOWLY = {"pipeline": "1"}
"""A key at a time: there is time to disturb."""

CALM = 0.5
"""Seconds within which 99 of 100 operations must come about while slots move."""

GRACE = (1.0, 15.0)
"""Seconds before a crash and after it within which what was acknowledged may be lost: replication is asynchronous."""


def least(owned: Sequence[int], masters: int) -> int:
    """How many slots must move at least so that so many masters own as many as each other."""
    share, more = divmod(SLOTS, masters)
    wanted = [share + 1] * more + [share] * (masters - more)
    return sum(max(0, have - want) for have, want in zip(sorted(owned, reverse=True), wanted, strict=False))


def moved(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before[slot] != after[slot] for slot in range(SLOTS))


@ENGINES
@pytest.mark.long
def test_03_an_operator_killed_again_and_again_while_slots_move_goes_on(
    kubectl: Kubectl, redis_operator: Operator, engine: Spec
) -> None:
    cluster = Cluster.create(kubectl, replicas=6, updateStrategy=SLOWLY, **engine)
    cluster.await_ready(6)
    cluster.fill(20_000)
    with cluster.load() as load:
        for replicas, masters in ((8, 4), (6, 3)):
            until("the change is taken", lambda wanted=replicas: cluster.change(replicas=wanted))  # type: ignore[misc]
            for _ in range(8):
                redis_operator.kill()
                time.sleep(3)
            cluster.await_ready(replicas, masters, seconds=300)
    assert load.unfelt(gone=1)
    assert load.check() > 100
    assert cluster.keys() >= 20_000
    redis_operator.await_rollout()


def caught(cluster: Cluster, who: str) -> str:
    """A pod, at the moment when a slot is on its way: whose slot it is, to whom it goes, or to whom some have gone."""
    wanted = cluster.now["spec"]["replicas"]
    until("all pods have addresses", lambda: wanted <= len(cluster.addresses()) == len(cluster.pods()), seconds=60)
    with ExitStack() as stack:
        nodes = {name: stack.enter_context(cluster.node(name)) for name in cluster.pods()}

        def look() -> str | None:
            return next((name for name, node in nodes.items() if is_it(node, who)), None)

        return until(f"a slot is on its way ({who})", look, seconds=120, every=0.01)


def is_it(node: Redis, who: str) -> bool:
    try:
        said = str(node.execute_command("CLUSTER", "NODES"))  # type: ignore[no-untyped-call]
    except RedisError:
        return False
    if who == "source":
        return "->-" in opened(said)
    [slots] = own_slots(said).values()
    return "-<-" in opened(said) and (who == "destination" or bool(slots))


@pytest.mark.long
@pytest.mark.parametrize("who", ["source", "destination", "handoff"])
def test_04_a_master_killed_while_its_slots_move_leaves_no_slot_open(kubectl: Kubectl, who: str) -> None:
    cluster = Cluster.create(kubectl, replicas=6, updateStrategy=SLOWLY, **KEY_BY_KEY)
    cluster.await_ready(6)
    cluster.fill(60_000)
    with cluster.load(patience=90) as load:
        cluster.change(replicas=8)
        victim = caught(cluster, who)
        killed = time.monotonic()
        runtime.signal(cluster.pods()[victim], "redis", "SIGKILL")
        cluster.await_ready(8, 4, seconds=300)
    before, after = GRACE
    assert load.check(loses=[(killed - before, killed + after)]) > 50
    assert cluster.keys() >= 60_000, "what was written long before is all there"


@ENGINES
@pytest.mark.long
def test_05_it_grows_and_shrinks_by_the_fewest_moves(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    cluster.fill(20_000)
    first = cluster.owners()
    with cluster.load() as load:
        cluster.change(replicas=14)
        cluster.await_ready(14, 7, seconds=400)
        grown = cluster.owners()
        cluster.change(replicas=6)
        cluster.await_ready(6, seconds=400)
        shrunk = cluster.owners()
    assert moved(first, grown) == least(list(Counter(first.values()).values()), 7)
    assert moved(grown, shrunk) == sum(owner not in set(shrunk.values()) for owner in grown.values())
    for owners in (grown, shrunk):
        owned = Counter(owners.values()).values()
        assert max(owned) - min(owned) <= 1
    assert load.unfelt(gone=4)
    assert load.check() > 200
    assert load.percentile(0.99) < CALM
    assert cluster.keys() >= 20_000


@pytest.mark.long
@pytest.mark.parametrize("when", ["on their way", "gone"])
def test_06_a_scale_in_that_is_taken_back_ends_as_it_began(kubectl: Kubectl, when: str) -> None:
    cluster = Cluster.create(kubectl, replicas=8, updateStrategy=SLOWLY, **KEY_BY_KEY)
    cluster.await_ready(8, 4)
    cluster.fill(40_000)
    with cluster.load() as load:
        cluster.change(replicas=6)
        if when == "gone":
            until("a master is drained", lambda: len(set(cluster.owners().values())) == 3, seconds=180)
        else:
            caught(cluster, "source")
        cluster.change(replicas=8)
        cluster.await_ready(8, 4, seconds=300)
    assert load.unfelt(gone=1)
    assert load.check() > 50
    assert cluster.keys() >= 40_000


@pytest.mark.long
def test_07_size_version_and_configuration_in_one_change(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **KEY_BY_KEY)
    cluster.await_ready(6)
    cluster.fill(10_000)
    with cluster.load() as load:
        cluster.change(replicas=8, config={"maxmemory-policy": "allkeys-lru", "databases": "1"}, **REDIS_8)
        cluster.await_ready(8, 4, seconds=400)
    for name in cluster.uids():
        with cluster.node(name) as node:
            assert node.info("server")["redis_version"] == REDIS_8["version"]
            assert node.config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lru"
    assert load.unfelt(gone=3)
    assert load.check() > 100
    assert cluster.keys() >= 10_000


PIECES, PIECE = 1024, 1024 * 1024


@ENGINES
@pytest.mark.long
def test_11_a_key_of_a_gigabyte_and_a_hot_slot_move_and_lose_nothing(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, storage=None, **engine)
    cluster.await_ready(6)
    first = set(cluster.masters().values())
    cluster.change(replicas=8)
    cluster.await_ready(8, 4)
    owners = cluster.owners()
    tag = next(f"{{{n}}}" for n in range(SLOTS) if owners[key_slot(str(n).encode())] not in first)
    with cluster.client() as client:
        for number in range(PIECES):
            client.rpush(f"{tag}big", f"{number}:".ljust(PIECE, "x"))
    until("replicas have it, too", lambda: synced(cluster), seconds=120)
    with cluster.load(prefix=tag, patience=120) as load:
        cluster.change(replicas=6)
        cluster.await_ready(6, seconds=400)
    with cluster.client() as client:
        assert client.llen(f"{tag}big") == PIECES
        assert client.lindex(f"{tag}big", PIECES - 1) == f"{PIECES - 1}:".ljust(PIECE, "x")
    assert load.check() > 50


def synced(cluster: Cluster) -> bool:
    """Whether every replica has what its master has sent."""
    for name, each in cluster.instances.items():
        if each["type"] == "slave":
            with cluster.node(name) as node:
                told = node.info("replication")
            assert told["master_link_status"] == "up", f"{name}: {told}"
            assert told["master_last_io_seconds_ago"] < 15, f"{name}: {told}"
    return True


@pytest.mark.long
def test_11_masters_without_room_take_no_more_and_nothing_is_lost(kubectl: Kubectl) -> None:
    room = [{"name": "MAXMEMORY", "value": "24mb"}]
    cluster = Cluster.create(kubectl, replicas=8, pod=[{"env": room}], **KEY_BY_KEY)
    cluster.await_ready(8, 4)
    cluster.fill(65_000, size=1000)
    held = cluster.keys()
    cluster.change(replicas=6)
    cluster.await_reason("TargetFull", seconds=120)
    time.sleep(10)
    assert set(cluster.owners()) == set(range(SLOTS)), "every slot has one owner"
    assert cluster.keys() == held
    cluster.change(replicas=8)
    cluster.await_ready(8, 4, seconds=240)
    assert cluster.keys() == held
