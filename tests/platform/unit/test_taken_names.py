"""Of two resources of one name, the second writes nothing: not even the Secrets that clients of the first look for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, SERVICE, Obj
from shared.status import conditions
from simulator.harness import NAMESPACE, Harness
from tests.harness.scenario import Subject
from tests.harness.scenario_runner import World
from tests.support.etcd.scenarios import ETCD
from tests.support.memcached.scenarios import MEMCACHED
from tests.support.redis.scenarios import REDIS

SECURE: Obj = {"auth": {}, "tls": {"mode": "self"}}

CASES: Mapping[str, tuple[Subject, Obj]] = {
    "memcached": (MEMCACHED, {"size": 3}),
    "memcached with Secrets": (MEMCACHED, {"size": 3, **SECURE}),
    "etcd": (ETCD, {"size": 3, "version": "3.6.5"}),
    "etcd with Secrets": (ETCD, {"size": 3, "version": "3.6.5", **SECURE}),
    "redis": (REDIS, {"replicas": 6}),
    "redis with Secrets": (REDIS, {"replicas": 6, **SECURE}),
}


def owner_in(harness: Harness) -> Obj:
    """Create another owner, and return a reference to it."""
    owner = harness.user_client.create(CONFIG_MAP, {"metadata": {"name": "other", "namespace": NAMESPACE}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "controller": True}
    return reference | {"uid": owner["metadata"]["uid"]}


@pytest.mark.parametrize(("subject", "spec"), CASES.values(), ids=CASES)
async def test_a_resource_whose_name_is_taken_writes_no_object(subject: Subject, spec: Any) -> None:
    world = World(subject)
    harness = world.operator()
    taken = {"metadata": {"name": "cache", "namespace": NAMESPACE, "ownerReferences": [owner_in(harness)]}, "spec": {}}
    harness.user_client.create(SERVICE, taken)
    harness.apply("cache", **spec)
    await harness.settle()
    ready = accessors.condition(harness.resource("cache"), conditions.READY)
    assert ready["reason"] == "ForeignObject"
    assert "Service cache belongs to ConfigMap other (uid " in ready["message"]
    assert [obj["metadata"]["name"] for _, obj in world.server.objects(SECRET)] == []
    assert [str(write) for write in world.server.log.writes(changed=True) if not write.subresource] == []


@pytest.mark.parametrize("kind", ["memcached", "etcd", "redis"])
async def test_a_taken_connection_secret_is_reported_with_its_owner(kind: str) -> None:
    subject, spec = CASES[kind]
    world = World(subject)
    harness = world.operator()
    metadata = {"name": "cache-connection", "namespace": NAMESPACE, "ownerReferences": [owner_in(harness)]}
    harness.user_client.create(SECRET, {"metadata": metadata})
    harness.apply("cache", **spec)
    await harness.settle()
    ready = accessors.condition(harness.resource("cache"), conditions.READY)
    assert ready["reason"] == "ConnectionSecretTaken"
    assert "Secret cache-connection belongs to ConfigMap other (uid " in ready["message"]
