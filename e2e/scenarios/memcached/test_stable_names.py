"""With stable names, which are the default, clients find a key on the same server."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pymemcache.client.hash import HashClient
from pymemcache.client.rendezvous import RendezvousHash
from uhashring import HashRing

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Names
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import uids

pytestmark = pytest.mark.nightly

KEYS = [f"key-{number}" for number in range(10_000)]
HASHERS: dict[str, Callable[[], Any]] = {"ketama": partial(HashRing, hash_fn="ketama"), "rendezvous": RendezvousHash}


def client_of(servers: list[str], hasher: Callable[[], Any], names: Names) -> HashClient:
    """Return a client that distributes keys among the servers of a status."""
    return HashClient(servers, hasher=hasher, socket_module=names, connect_timeout=5, timeout=5)


def test_fourth_server_moves_few_keys_and_the_others_are_still_found(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=3)
    cache.await_ready(3)
    three, names = cache.servers, Names(kubectl)
    pods = uids(kubectl)
    for way, hasher in HASHERS.items():
        client = client_of(three, hasher, names)
        assert client.set_many({f"{way}-{key}": key for key in KEYS}) == []

    with cache.planned(partial(kubectl, "scale", "memcached", "cache", "--replicas=4"), size=4):
        cache.await_ready(4)
    four = cache.servers
    assert four[:3] == three
    assert pods < uids(kubectl), "no server was replaced"
    for way, hasher in HASHERS.items():
        before, after = client_of(three, hasher, names), client_of(four, hasher, names)
        kept = {
            key: key.removeprefix(f"{way}-")
            for key in (f"{way}-{key}" for key in KEYS)
            if before.hasher.get_node(key) == after.hasher.get_node(key)
        }
        share = 1 - len(kept) / len(KEYS)
        print(f"3 to 4 servers, {way}: {share:.1%} of {len(KEYS)} keys moved")
        assert 0.1 < share <= 0.35
        found = after.get_many([f"{way}-{key}" for key in KEYS])
        assert {key: value.decode() for key, value in found.items()} == kept


def test_replaced_pod_keeps_its_name_and_position_in_the_list(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=2)
    cache.await_ready(2)
    servers = cache.servers
    [first] = kubectl.items("pods", "--field-selector", "metadata.name=cache-0")
    kubectl("delete", "pod", "cache-0")

    def replaced() -> bool:
        return bool(kubectl.get("pod", "cache-0")["metadata"]["uid"] != first["metadata"]["uid"])

    until("a new pod of the same name", replaced)
    cache.await_ready(2)
    assert cache.servers == servers
    assert cache.serves() == 2


def test_workload_change_and_back_leaves_a_single_workload(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=2)
    cache.await_ready(2)
    for workload, other in (("Deployment", "statefulsets"), ("StatefulSet", "deployments")):
        started_at = time.monotonic()
        with cache.planned(workload=workload):
            cache.await_ready(2)
            until(f"the {other} are deleted", partial(lambda other: not kubectl.items(other), other))
            until("only the new pods remain", lambda: len(kubectl.items("pods")) == 2)
        print(f"to a {workload}: {time.monotonic() - started_at:.1f} s")
        assert cache.serves() == 2
        assert [found["kind"] for found in kubectl.items("deployments,statefulsets")] == [workload]
