"""Shards on a real API server: several replicas lead, and none works on a key of another."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from shared.kubernetes.kinds import LEASE, STATEFUL_SET, Key
from shared.runtime.reconciler import Reconciler
from shared.runtime.shards import lease_of, shard_of
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.live import LiveServer
from tests.platform.api.support.replicas import Replica, wait
from tests.platform.api.support.running import NAME, Operator
from tests.platform.api.support.world import MEMCACHED, World
from tests.platform.api.test_leadership import QUICK, flags
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly

log = logging.getLogger(__name__)

NAMES = [f"cache-{number}" for number in range(8)]


def holders(world: World, count: int = 2) -> list[str]:
    """Return the holder of each shard's Lease; empty if it is free."""
    found = (world.find(LEASE, lease_of(NAME, index)) for index in range(count))
    return [(lease["spec"].get("holderIdentity") or "") if lease else "" for lease in found]


def leads(replica: Replica, index: int) -> bool:
    return replica.metric(f'leader_election_master_status{{name="{lease_of(NAME, index)}"}}') == 1


def led(replica: Replica) -> list[int]:
    """Return the shards that a replica leads."""
    return [index for index in range(2) if leads(replica, index)]


@contextmanager
def replicas(plane: ControlPlane, world: World, count: int, *arguments: str) -> Iterator[list[Replica]]:
    """Run replicas with two shards, until two of them lead one each."""
    with ExitStack() as stack:
        arguments = (*flags(world), "--shards=2", *arguments)
        running = [stack.enter_context(Replica.running(plane.kubeconfig, *arguments)) for _ in range(count)]
        wait(lambda: sorted(led(each) for each in running)[-2:] == [[0], [1]], 30)
        yield running


def names_of(world: World, index: int) -> list[str]:
    return [name for name in NAMES if shard_of(Key(world.namespace, name), 2) == index]


def create_all(world: World) -> None:
    for name in NAMES:
        world.create(name, size=1)
    wait(lambda: all(world.find(STATEFUL_SET, name) for name in NAMES))


def change(world: World, name: str, size: int, seconds: float = 20) -> float:
    """Change the size of a resource; return the seconds until its StatefulSet has it."""
    world.change(name, size=size)
    began = time.monotonic()
    wait(lambda: world.get(STATEFUL_SET, name)["spec"]["replicas"] == size, seconds)
    return time.monotonic() - began


def test_each_replica_works_on_the_keys_of_its_shard_only(plane: ControlPlane, world: World) -> None:
    with replicas(plane, world, 2) as running:
        create_all(world)
        for replica in running:
            [index] = led(replica)
            lines = [line for line in replica.log_lines if f"{world.namespace}/cache-" in line]
            assert {name for name in NAMES if any(f"/{name}:" in line for line in lines)} <= set(names_of(world, index))
            expected = len(names_of(world, index))  # exported once, by the replica that works on it
            wait(lambda: replica.metric("platform_resource_info") == expected)  # noqa: B023
        assert world.get(LEASE, NAME)["spec"]["holderIdentity"] == "2-shards"


def test_terminated_replica_hands_its_shard_over_within_two_seconds(plane: ControlPlane, world: World) -> None:
    with replicas(plane, world, 3) as running:
        create_all(world)
        leader = next(replica for replica in running if leads(replica, 0))
        leader.signal(signal.SIGTERM)
        took = change(world, names_of(world, 0)[0], 3)
        log.info("handover of a shard: %.2f s from SIGTERM to the first write", took)
        assert took < 2
        assert leader.end() == 0


def test_killed_replica_delays_only_its_shard(plane: ControlPlane, world: World) -> None:
    """Uses the default lease times."""
    with replicas(plane, world, 2) as running:
        create_all(world)
        leader = next(replica for replica in running if leads(replica, 0))
        leader.signal(signal.SIGKILL)
        began, slowest, size = time.monotonic(), 0.0, 2
        lost, other = names_of(world, 0)[0], names_of(world, 1)[0]
        world.change(lost, size=5)
        while world.get(STATEFUL_SET, lost)["spec"]["replicas"] != 5:
            size = 5 - size
            slowest = max(slowest, change(world, other, size))
            assert time.monotonic() - began < 30
            time.sleep(0.2)
        took = time.monotonic() - began
        log.info("killed leader of a shard: %.2f s; slowest change of the other shard: %.2f s", took, slowest)
        assert 10 < took < 20
        assert slowest < 1


def test_frozen_replica_does_not_write_after_it_was_replaced(plane: ControlPlane, world: World) -> None:
    with replicas(plane, world, 3, *QUICK) as running:
        create_all(world)
        leader = next(replica for replica in running if leads(replica, 0))
        leader.signal(signal.SIGSTOP)
        change(world, names_of(world, 0)[0], 4)
        world.change(names_of(world, 0)[1], size=4)
        leader.signal(signal.SIGCONT)
        wait(lambda: not leads(leader, 0))
        written = leader.metric('rest_client_requests_total{method="PATCH"}')
        change(world, names_of(world, 0)[1], 2)
        time.sleep(1)
        leader_writes = leader.metric('rest_client_requests_total{method="PATCH"}') - written
        assert any("stopped leading" in line for line in leader.log_lines)
        assert leader.process.poll() is None
        assert leader_writes <= 6, "it renews the guard, and nothing else"


def test_new_replica_gets_a_shard_of_a_replica_that_leads_both(plane: ControlPlane, world: World) -> None:
    arguments = (*flags(world), "--shards=2")
    with Replica.running(plane.kubeconfig, *arguments) as first:
        wait(lambda: led(first) == [0, 1])
        create_all(world)
        with Replica.running(plane.kubeconfig, *arguments) as second:
            wait(lambda: len(led(second)) == len(led(first)) == 1, 10)
            for index in range(2):
                change(world, names_of(world, index)[0], 2)


class Overlaps:
    """Which process reconciles which key, and whether two ever did at once: the oracle of the test below."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[str] = []
        self.reconciles: Counter[str] = Counter()
        self._running: dict[Key, str] = {}
        self._lock = threading.Lock()
        reconcile = Reconciler.reconcile

        async def observed(reconciler: Reconciler, key: Key) -> str:
            thread = f"thread {threading.get_ident()}"
            with self._lock:
                if other := self._running.get(key):
                    self.found.append(f"{thread} reconciles {key}, as {other} does")
                self._running[key] = thread
                self.reconciles[key.name] += 1
            try:
                await asyncio.sleep(0.05)
                return await reconcile(reconciler, key)
            finally:
                with self._lock:
                    self._running.pop(key, None)

        monkeypatch.setattr(Reconciler, "reconcile", observed)


def test_no_key_is_reconciled_by_two_while_the_number_of_shards_changes(
    plane: ControlPlane, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling update from one to two, to three and back to one shard, with changes all the time."""
    overlaps = Overlaps(monkeypatch)
    stop = threading.Event()
    loader = LiveServer(plane, world.namespace).actor("loader")

    def load() -> None:
        size = 1
        while not stop.wait(0.05):
            size = 3 - size
            for name in NAMES:
                loader.merge(MEMCACHED, world.namespace, name, {"spec": {"size": size}})

    def operator(shards: int) -> Operator:
        running = Operator(plane.kubeconfig, world.namespace, flags=(*flags(world), *QUICK, f"--shards={shards}"))
        running.start()
        return running

    running = [operator(1)]
    create_all(world)
    loading = threading.Thread(target=load)
    loading.start()
    try:
        for shards in (1, 2, 2, 3, 3, 1, 1):
            running.append(operator(shards))
            if len(running) > 2:
                running.pop(0).stop()
            time.sleep(1.5)
        time.sleep(6)
    finally:
        stop.set()
        loading.join()
        for each in running:
            each.stop()
    assert not overlaps.found
    assert min(overlaps.reconciles[name] for name in NAMES) > 20, overlaps.reconciles


def test_shards_use_get_create_and_patch_of_their_leases(plane: ControlPlane, world: World, gate: Gate) -> None:
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url, flags=(*flags(world), *QUICK, "--shards=2"))
    operator.start()
    wait(lambda: all(holders(world)))
    time.sleep(1)
    operator.stop()
    assert holders(world) == ["", ""], "released"
    paths = {LEASE.path(world.namespace, name) for name in (NAME, lease_of(NAME, 0), lease_of(NAME, 1))}
    sent = {passed.path for passed in gate.passed if "/leases" in passed.path}
    assert sent == {LEASE.path(world.namespace), *paths}
