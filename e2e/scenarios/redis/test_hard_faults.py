"""The hard tests of Redis Cluster operators that are about losses: 1, 2, 9, 10 and 15, by their numbers.

Clients write and read all the time; every acknowledged write is checked afterwards, and redis-cli's own check must find
nothing. A crash may cost what was acknowledged just before it, and nothing else.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis.crc import key_slot

from e2e.scenarios.redis.cluster import SLOTS, Cluster
from e2e.scenarios.redis.consistency import lost
from e2e.scenarios.redis.versions import VALKEY_9, Spec
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import crowded

NODE_TIMEOUT = 5.0
"""Seconds after which a node that is not heard of is taken for failed, and a master without a majority stops."""


def of_nodes(cluster: Cluster) -> dict[str, str]:
    """The ids of its nodes by the names of their pods."""
    return {name: each["nodeId"] for name, each in cluster.instances.items()}


@pytest.mark.parametrize("how", ["killed", pytest.param("asked to end", marks=pytest.mark.long)])
def test_01_all_pods_deleted_come_back_elsewhere_with_all_they_had(kubectl: Kubectl, how: str) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    cluster.fill(5_000)
    before, addresses = of_nodes(cluster), set(cluster.addresses())
    now = ["--grace-period=0", "--force"] if how == "killed" else []
    with cluster.load(patience=120) as load:
        time.sleep(1)
        gone = time.monotonic()
        kubectl("delete", "pods", "--selector", cluster.selector, "--wait=false", *now)
        until("other pods are there", lambda: addresses.isdisjoint(cluster.addresses()) and cluster.addresses())
        cluster.await_ready(6, seconds=60)
        print(f"Ready {time.monotonic() - gone:.1f} s after all were gone")
        time.sleep(2)
    assert of_nodes(cluster) == before
    assert load.check(loses=[(gone - 1, gone + 1)] if how == "killed" else []) > 20
    assert cluster.keys() >= 5_000


@pytest.mark.long
def test_02_two_clusters_that_swap_addresses_stay_two(kubectl: Kubectl) -> None:
    other = kubectl.within(f"{kubectl.namespace}-other")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}})
    try:
        first, second = Cluster.create(kubectl, "first", replicas=6), Cluster.create(other, "second", replicas=6)
        both = (first, second)
        for cluster in both:
            cluster.await_ready(6)
        nodes, pods = [of_nodes(each) for each in both], [list(each.pods().values()) for each in both]
        before = [set(each.addresses()) for each in both]
        # Not meanwhile: clients that bring no password would take the one for the other, as any client would.
        with first.load() as one, second.load(prefix="other-") as two:
            time.sleep(3)
        gone = time.monotonic()
        with crowded(kubectl, 0), crowded(other, 0):
            for each in (kubectl, other):
                each("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
            until("nobody is left", lambda: not kubectl.items("pods") and not other.items("pods"))
            runtime.hand_out_from(pods[0])
            other("delete", "resourcequota", "few")
            until("the second is back", lambda: len(second.addresses()) == 6)
            runtime.hand_out_from(pods[1])
        for cluster in both:
            cluster.await_ready(6, seconds=120)
        after = [set(each.addresses()) for each in both]
        assert before[0] & after[1], "the second has none of the first's addresses: nothing was tried"
        assert [of_nodes(each) for each in both] == nodes
        for load in (one, two):
            assert load.check(loses=[(gone - 1, gone + 1)]) > 10
    finally:
        other("delete", "namespace", other.namespace, "--wait=false")


def slots_in(text: str) -> set[int]:
    """Of `0-5460 5462`."""
    pairs = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {slot for first, last in pairs for slot in range(int(first), int(last or first) + 1)}


@pytest.mark.long
def test_09_slots_of_which_nobody_is_left_are_taken_only_when_a_person_says_so(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, storage=None)
    cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(3)
    master, replicas = cluster.shard()
    doomed = cluster.masters()[master]
    gone = {slot for slot, node in cluster.owners().items() if node == doomed}
    cluster.lose(master, *replicas, volumes=False)
    cluster.await_reason("SlotsLost", seconds=120)
    recovery = until("a token", lambda: cluster.status.get("recovery"))
    assert slots_in(recovery["slots"]) == gone
    time.sleep(15)
    assert cluster.status["recovery"]["token"] == recovery["token"], "nothing happens by itself"
    assert set(cluster.owners()).isdisjoint(gone)
    cluster.change(recovery={"confirm": "something else"})
    cluster.await_reason("TokenRefused")
    assert set(cluster.owners()).isdisjoint(gone)
    cluster.change(recovery={"confirm": recovery["token"]})
    cluster.await_ready(6, seconds=240)
    missing = {each.key for each in lost(load.history, load.finals())}
    assert missing, "they held something"
    assert {key_slot(key.encode()) for key in missing} <= gone, "what was elsewhere is all there"


@pytest.mark.long
@pytest.mark.parametrize("engine", [{}, VALKEY_9], ids=["redis", "valkey"])
def test_10_a_master_cut_off_from_the_others_comes_back_as_a_replica(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    master, (replica,) = cluster.shard()
    pods = cluster.pods()
    others = [pod["status"]["podIP"] for name, pod in pods.items() if name != master]
    with cluster.load(patience=60) as load:
        cut = time.monotonic()
        with runtime.cut_off([pods[master]], others):
            until("its replica takes over", lambda: "master" in str(cluster.ask(replica, "ROLE")), seconds=60)
            time.sleep(5)
        cluster.await_ready(6, seconds=120)
        time.sleep(2)
    assert "slave" in str(cluster.ask(master, "ROLE"))
    assert set(cluster.owners()) == set(range(SLOTS)), "every slot has one owner, of whom all say so"
    assert load.check(loses=[(cut - 1, cut + NODE_TIMEOUT + 5)]) > 50
    assert Counter(each["type"] for each in cluster.instances.values()) == {"master": 3, "slave": 3}


MANY = 200
PROMPT = 5.0
"""Seconds within which what somebody deletes of a healthy cluster must be back, however many others wait."""


@contextmanager
def waiting(kubectl: Kubectl, many: int) -> Iterator[None]:
    """So many other clusters that never come, in a namespace without room for a pod."""
    crowd = kubectl.within(f"{kubectl.namespace}-crowd")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": crowd.namespace}})
    try:
        with crowded(crowd, 0):
            items = [Cluster.manifest(f"waits-{number}", replicas=3, replicasPerMaster=0) for number in range(many)]
            crowd.apply({"apiVersion": "v1", "kind": "List", "items": items})
            until("all are begun", lambda: len(begun(crowd)) == many, seconds=300, every=5)
            yield
    finally:
        crowd("delete", "namespace", crowd.namespace, "--wait=false")


def begun(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "statefulsets", "-o", "name").split()


@pytest.mark.long
def test_15_among_two_hundred_that_wait_a_healthy_one_is_looked_after(
    kubectl: Kubectl, redis_operator: Operator
) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before, waits = cluster.uids(), []
    with cluster.load(clients=1) as load, waiting(kubectl, MANY):
        for turn in range(20):
            if turn == 10:
                redis_operator.kill()
                redis_operator.await_rollout()
                until("it looks again", lambda: restored(kubectl) < PROMPT, seconds=120)
            waits.append(restored(kubectl))
        cluster.await_ready(6)
    print(f"restored within {max(waits):.1f} s, the median {sorted(waits)[len(waits) // 2]:.2f} s")
    assert max(waits) < PROMPT
    assert cluster.uids() == before, "nobody was restarted for it"
    assert load.unfelt()
    assert load.check() > 50


def restored(kubectl: Kubectl) -> float:
    """How long the operator took to put back a Service that was deleted, in seconds."""
    uid = kubectl.get("service", "demo-client")["metadata"]["uid"]
    kubectl("delete", "service", "demo-client")
    deleted = time.monotonic()

    def look() -> bool:
        try:
            return bool(kubectl.get("service", "demo-client")["metadata"]["uid"] != uid)
        except Refused:
            return False

    until("the Service is back", look, seconds=60, every=0.05)
    return time.monotonic() - deleted
