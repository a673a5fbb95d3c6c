"""Hard tests 3, 4, 5, 6, 7 and 11 of Redis Cluster operators: slot migration.

Clients write and read all the time, old keys as well as new ones. Everything that was acknowledged is checked
afterwards, and redis-cli's own check must find no problem. Planned operations may lose no write and cause no error. A
primary that crashes may lose only what it had not replicated.
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

from e2e.scenarios.redis.cluster import SLOTS, Cluster, open_slots, own_slots
from e2e.scenarios.redis.versions import ATOMIC, KEY_BY_KEY, REDIS_8, Spec
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Operator

ENGINES = pytest.mark.parametrize("engine", [KEY_BY_KEY, ATOMIC], ids=["key-by-key", "atomic"])
SLOWLY = {"pipeline": "1"}
"""One key at a time, which leaves time for faults."""

CALM = 0.5
"""Maximum of the 99th percentile of latency while slots move, in seconds."""

SIZE = 100
"""Size of values in bytes."""


def least(owned: Sequence[int], primaries: int) -> int:
    """Return the minimum number of moves to balance all slots between this number of primaries."""
    share, more = divmod(SLOTS, primaries)
    targets = [share + 1] * more + [share] * (primaries - more)
    return sum(max(0, have - want) for have, want in zip(sorted(owned, reverse=True), targets, strict=False))


def moved(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before[slot] != after[slot] for slot in range(SLOTS))


@pytest.mark.nightly
@ENGINES
def test_03_repeatedly_killed_operator_completes_the_migration(
    kubectl: Kubectl, redis_operator: Operator, engine: Spec
) -> None:
    cluster = Cluster.create(kubectl, replicas=6, updateStrategy=SLOWLY, **engine)
    cluster.await_ready(6)
    with cluster.load(seeds=20_000, size=SIZE) as load:
        for replicas, primaries in ((8, 4), (6, 3)):
            until("the change is accepted", lambda count=replicas: cluster.change(replicas=count))  # type: ignore[misc]
            for _ in range(8):
                redis_operator.kill()
                time.sleep(3)
            cluster.await_ready(replicas, primaries, seconds=300)
    assert load.is_undisturbed(removed=1)
    assert load.check() > 100
    redis_operator.await_rollout()


def pod_with_open_slot(cluster: Cluster, role: str) -> str:
    """Wait until a slot is open, and return the pod: its source, its destination, or a destination that owns slots."""
    replicas = cluster.now["spec"]["replicas"]
    until("all pods have addresses", lambda: replicas <= len(cluster.addresses()) == len(cluster.pods()), seconds=60)
    with ExitStack() as stack:
        nodes = {name: stack.enter_context(cluster.node(name)) for name in cluster.pods()}

        def check() -> str | None:
            return next((name for name, node in nodes.items() if has_role(node, role)), None)

        return until(f"a slot is open ({role})", check, seconds=120, every=0.01)


def has_role(node: Redis, role: str) -> bool:
    try:
        nodes = str(node.execute_command("CLUSTER", "NODES"))  # type: ignore[no-untyped-call]
    except RedisError:
        return False
    if role == "source":
        return "->-" in open_slots(nodes)
    [slots] = own_slots(nodes).values()
    return "-<-" in open_slots(nodes) and (role == "destination" or bool(slots))


@pytest.mark.weekly
@pytest.mark.parametrize("role", ["source", "destination", "handoff"])
def test_04_primary_killed_during_a_migration_leaves_no_open_slot(kubectl: Kubectl, role: str) -> None:
    cluster = Cluster.create(kubectl, replicas=6, updateStrategy=SLOWLY, **KEY_BY_KEY)
    cluster.await_ready(6)
    with cluster.replication() as replication, cluster.load(patience=90, seeds=60_000, size=SIZE) as load:
        cluster.change(replicas=8)
        victim = pod_with_open_slot(cluster, role)
        replication.crash(victim)
        runtime.signal(cluster.pods()[victim], "redis", "SIGKILL")
        load.workload.focus = cluster.open_slots()
        cluster.await_ready(8, 4, seconds=300)
    assert load.check(replication.deaths()) > 50


@ENGINES
@pytest.mark.weekly
def test_05_scaling_moves_the_minimum_number_of_slots(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    first = cluster.owners()
    with cluster.load(seeds=20_000, size=SIZE) as load:
        with cluster.planned(replicas=14):
            cluster.await_ready(14, 7, seconds=400)
        grown = cluster.owners()
        with cluster.planned(replicas=6):
            cluster.await_ready(6, seconds=400)
        shrunk = cluster.owners()
    assert moved(first, grown) == least(list(Counter(first.values()).values()), 7)
    assert moved(grown, shrunk) == sum(owner not in set(shrunk.values()) for owner in grown.values())
    for owners in (grown, shrunk):
        owned = Counter(owners.values()).values()
        assert max(owned) - min(owned) <= 1
    assert load.is_undisturbed(removed=4)
    assert load.check() > 200
    assert load.percentile(0.99) < CALM


@pytest.mark.weekly
@pytest.mark.parametrize("when", ["moving", "moved"])
def test_06_reverted_scale_in_restores_all_primaries(kubectl: Kubectl, when: str) -> None:
    cluster = Cluster.create(kubectl, replicas=8, updateStrategy=SLOWLY, **KEY_BY_KEY)
    cluster.await_ready(8, 4)
    with cluster.load(seeds=40_000, size=SIZE) as load:
        cluster.change(replicas=6)
        if when == "moved":
            until("a primary is drained", lambda: len(set(cluster.owners().values())) == 3, seconds=180)
        else:
            pod_with_open_slot(cluster, "source")
        cluster.change(replicas=8)
        cluster.await_ready(8, 4, seconds=300)
    assert load.is_undisturbed(removed=1)
    assert load.check() > 50


@pytest.mark.weekly
def test_07_size_version_and_configuration_in_one_change(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **KEY_BY_KEY)
    cluster.await_ready(6)
    with cluster.load(seeds=10_000, size=SIZE) as load:
        config = {"maxmemory-policy": "allkeys-lru", "databases": "1"}
        with cluster.planned(replicas=8, config=config, **REDIS_8):
            cluster.await_ready(8, 4, seconds=400)
    for name in cluster.uids():
        with cluster.node(name) as node:
            assert node.info("server")["redis_version"] == REDIS_8["version"]
            assert node.config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lru"
    assert load.is_undisturbed(removed=3)
    assert load.check() > 100


PIECES, PIECE = 1024, 1024 * 1024


@ENGINES
@pytest.mark.weekly
def test_11_large_key_and_hot_slot_move_without_loss(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, storage=None, **engine)
    cluster.await_ready(6)
    first = set(cluster.primaries().values())
    with cluster.planned(replicas=8):
        cluster.await_ready(8, 4)
    owners = cluster.owners()
    tag = next(f"{{{n}}}" for n in range(SLOTS) if owners[key_slot(str(n).encode())] not in first)
    with cluster.client() as client:
        for number in range(PIECES):
            client.rpush(f"{tag}big", f"{number}:".ljust(PIECE, "x"))
    until("replicas are in sync", lambda: synced(cluster), seconds=120)
    with cluster.load(prefix=tag, patience=120) as load, cluster.planned(replicas=6):
        cluster.await_ready(6, seconds=400)
    with cluster.client() as client:
        assert client.llen(f"{tag}big") == PIECES
        assert client.lindex(f"{tag}big", PIECES - 1) == f"{PIECES - 1}:".ljust(PIECE, "x")
    assert load.check() > 50


def synced(cluster: Cluster) -> bool:
    """Whether every replica is in sync with its primary."""
    for name, each in cluster.nodes.items():
        if each["role"] == "replica":
            with cluster.node(name) as node:
                info = node.info("replication")
            assert info["master_link_status"] == "up", f"{name}: {info}"
            assert info["master_last_io_seconds_ago"] < 15, f"{name}: {info}"
    return True


@pytest.mark.weekly
def test_11_full_primaries_receive_no_slots_and_lose_no_key(kubectl: Kubectl) -> None:
    limit = [{"name": "MAXMEMORY", "value": "24mb"}]
    cluster = Cluster.create(kubectl, replicas=8, pod=[{"env": limit}], **KEY_BY_KEY)
    cluster.await_ready(8, 4)
    cluster.fill(65_000, size=1000)
    keys = cluster.keys()
    cluster.change(replicas=6)
    cluster.await_reason("TargetFull", seconds=120)
    time.sleep(10)
    assert set(cluster.owners()) == set(range(SLOTS)), "every slot has one owner"
    assert cluster.keys() == keys
    cluster.change(replicas=8)
    cluster.await_ready(8, 4, seconds=240)
    assert cluster.keys() == keys
