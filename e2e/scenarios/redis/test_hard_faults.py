"""Hard tests 1, 2, 9, 10 and 15 of Redis Cluster operators: losses.

Clients write and read all the time, old keys as well as new ones. Everything that was acknowledged is checked
afterwards, and redis-cli's own check must find no problem. A primary that crashes may lose only what it had not
replicated. A node that is terminated loses nothing: it waits for its replicas.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis.crc import key_slot

from e2e.scenarios.redis.cluster import SLOTS, Cluster
from e2e.scenarios.redis.consistency import Death, lost
from e2e.scenarios.redis.versions import VALKEY_9, Spec
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import crowded

NODE_TIMEOUT = 5.0
"""Seconds after which an unreachable node is marked as failed, and a primary without a majority stops."""


def of_nodes(cluster: Cluster) -> dict[str, str]:
    """Return the node ids by pod name."""
    return {name: each["nodeId"] for name, each in cluster.nodes.items()}


@pytest.mark.parametrize("how", ["killed", pytest.param("terminated", marks=pytest.mark.weekly)])
def test_01_deleted_pods_return_at_new_addresses_with_all_data(kubectl: Kubectl, how: str) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before, addresses = of_nodes(cluster), set(cluster.addresses())
    now = ["--grace-period=0", "--force"] if how == "killed" else []
    with cluster.replication() as replication, cluster.load(patience=120, seeds=5_000) as load:
        time.sleep(1)
        deleted = time.monotonic()
        if how == "killed":
            replication.crash(*before)
        kubectl("delete", "pods", "--selector", cluster.selector, "--wait=false", *now)
        until("all pods are recreated", lambda: addresses.isdisjoint(cluster.addresses()) and cluster.addresses())
        cluster.await_ready(6, seconds=60)
        print(f"Ready {time.monotonic() - deleted:.1f} s after the deletion")
        time.sleep(2)
    assert of_nodes(cluster) == before
    assert load.check(replication.deaths()) > 20


@pytest.mark.nightly
def test_02_clusters_that_swap_addresses_stay_separate(kubectl: Kubectl) -> None:
    other = kubectl.within(f"{kubectl.namespace}-other")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}})
    try:
        first, second = Cluster.create(kubectl, "first", replicas=6), Cluster.create(other, "second", replicas=6)
        both = (first, second)
        for cluster in both:
            cluster.await_ready(6)
        nodes, pods = [of_nodes(each) for each in both], [list(each.pods().values()) for each in both]
        before = [set(each.addresses()) for each in both]
        # Stop the load before the swap: clients without a password mistake one cluster for the other.
        with first.replication() as of_first, second.replication() as of_second:
            with first.load() as one, second.load(prefix="other-") as two:
                time.sleep(3)
            of_first.crash(*nodes[0])
            of_second.crash(*nodes[1])
            with crowded(kubectl, 0), crowded(other, 0):
                for each in (kubectl, other):
                    each("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
                until("all pods are deleted", lambda: not kubectl.items("pods") and not other.items("pods"))
                runtime.hand_out_from(pods[0])
                other("delete", "resourcequota", "few")
                until("the second cluster has addresses", lambda: len(second.addresses()) == 6)
                runtime.hand_out_from(pods[1])
        for cluster in both:
            cluster.await_ready(6, seconds=120)
        after = [set(each.addresses()) for each in both]
        assert before[0] & after[1], "no address was swapped"
        assert [of_nodes(each) for each in both] == nodes
        for load, replication in ((one, of_first), (two, of_second)):
            assert load.check(replication.deaths()) > 10
    finally:
        other("delete", "namespace", other.namespace, "--wait=false")


def slots_in(text: str) -> set[int]:
    """Return the slots of a text such as `0-5460 5462`."""
    pairs = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {slot for first, last in pairs for slot in range(int(first), int(last or first) + 1)}


@pytest.mark.nightly
def test_09_lost_slots_are_reassigned_only_after_confirmation(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, storage=None)
    cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(3)
    primary, replicas = cluster.shard()
    primary_id = cluster.primaries()[primary]
    lost_slots = {slot for slot, node in cluster.owners().items() if node == primary_id}
    cluster.lose(primary, *replicas, volumes=False)
    cluster.await_reason("SlotsLost", seconds=120)
    recovery = until("the recovery token is published", lambda: cluster.status.get("recovery"))
    assert slots_in(recovery["slots"]) == lost_slots
    time.sleep(15)
    assert cluster.status["recovery"]["token"] == recovery["token"], "no recovery without confirmation"
    assert set(cluster.owners()).isdisjoint(lost_slots)
    cluster.change(recovery={"confirm": "something else"})
    cluster.await_reason("TokenRefused")
    assert set(cluster.owners()).isdisjoint(lost_slots)
    cluster.change(recovery={"confirm": recovery["token"]})
    cluster.await_ready(6, seconds=240)
    missing = {each.key for each in lost(load.history, load.finals())}
    assert missing, "the lost slots had keys"
    assert {key_slot(key.encode()) for key in missing} <= lost_slots, "other slots lost no write"
    assert load.check([Death(primary, frozenset(lost_slots), replicated=-math.inf, until=math.inf)]) > 10


@pytest.mark.weekly
@pytest.mark.parametrize("engine", [{}, VALKEY_9], ids=["redis", "valkey"])
def test_10_isolated_primary_returns_as_a_replica(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    primary, (replica,) = cluster.shard()
    pods = cluster.pods()
    others = [pod["status"]["podIP"] for name, pod in pods.items() if name != primary]
    with cluster.replication() as replication, cluster.load(patience=60) as load:
        time.sleep(1)
        replication.crash(primary)
        with runtime.cut_off([pods[primary]], others):
            until("the replica takes over", lambda: "master" in str(cluster.execute(replica, "ROLE")), seconds=60)
            time.sleep(5)
        cluster.await_ready(6, seconds=120)
        time.sleep(2)
    assert "slave" in str(cluster.execute(primary, "ROLE"))
    assert set(cluster.owners()) == set(range(SLOTS)), "every slot has exactly one owner"
    [death] = replication.deaths()
    assert death.until - death.replicated < 1.5 * NODE_TIMEOUT + 1, "a primary without a majority stops"
    assert load.check([death]) > 50
    assert Counter(each["role"] for each in cluster.nodes.values()) == {"primary": 3, "replica": 3}


MANY = 200
PROMPT = 5.0
"""Seconds within which a deleted object of a healthy cluster is restored, with any number of waiting clusters."""


@contextmanager
def waiting(kubectl: Kubectl, many: int) -> Iterator[None]:
    """Keep this number of clusters waiting within the block, in a namespace whose quota allows no pod."""
    crowd = kubectl.within(f"{kubectl.namespace}-crowd")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": crowd.namespace}})
    try:
        with crowded(crowd, 0):
            items = [Cluster.manifest(f"waits-{number}", replicas=3, replicasPerMaster=0) for number in range(many)]
            crowd.apply({"apiVersion": "v1", "kind": "List", "items": items})
            until("all StatefulSets exist", lambda: len(stateful_sets(crowd)) == many, seconds=300, every=5)
            yield
    finally:
        crowd("delete", "namespace", crowd.namespace, "--wait=false")


def stateful_sets(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "statefulsets", "-o", "name").split()


@pytest.mark.weekly
def test_15_healthy_cluster_is_managed_among_two_hundred_waiting(kubectl: Kubectl, redis_operator: Operator) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before, waits = cluster.uids(), []
    with cluster.load(clients=1) as load, waiting(kubectl, MANY):
        for turn in range(20):
            if turn == 10:
                redis_operator.kill()
                redis_operator.await_rollout()
                until("the operator reconciles again", lambda: restored(kubectl) < PROMPT, seconds=120)
            waits.append(restored(kubectl))
        cluster.await_ready(6)
    print(f"restored after {max(waits):.1f} s, the median {sorted(waits)[len(waits) // 2]:.2f} s")
    assert max(waits) < PROMPT
    assert cluster.uids() == before, "no pod was restarted"
    assert load.is_undisturbed()
    assert load.check() > 50


def restored(kubectl: Kubectl) -> float:
    """Delete a Service; return the seconds until the operator restored it."""
    uid = kubectl.get("service", "demo-client")["metadata"]["uid"]
    kubectl("delete", "service", "demo-client")
    deleted = time.monotonic()

    def check() -> bool:
        try:
            return bool(kubectl.get("service", "demo-client")["metadata"]["uid"] != uid)
        except Refused:
            return False

    until("the Service is restored", check, seconds=60, every=0.05)
    return time.monotonic() - deleted
