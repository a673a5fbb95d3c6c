"""Reads of the cache by reconciles cost little, with any objects that have the labels of a resource.

The creator of a pod chooses its labels: one tenant must not stop the operator of all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml

import operators
from operators.memcached.operator import controller as memcached_controller
from operators.redis.objects.names import NODES
from shared.cli.options import parse_options
from shared.kubernetes.accessors import condition
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.fair_queue import MAX_NAMESPACE_BYTES
from shared.kubernetes.kinds import CONFIG_MAP, NODE, PERSISTENT_VOLUME_CLAIM, POD, SECRET, Key, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, MAX_OWNED_BYTES, NAME, ForeignObject
from shared.runtime.cache import Cache, Relist
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies
from shared.runtime.queue import LARGE_BYTES, Queue
from shared.runtime.supervisor import Supervisor
from shared.runtime.watch import Watch, Watched
from simulator.api_server.server import ApiServer
from simulator.api_server.streams import WatchServer
from simulator.harness import NAMESPACE, Harness
from tests.harness import cost
from tests.support import paths

MIB = 1024 * 1024
RESOURCES = 40

NAMED = {"name": "a", "image": "a"}

CONTENTS: dict[str, Obj] = {
    "8,000 variables": {"spec": {"containers": [NAMED | {"env": [{"name": f"e{number}"} for number in range(8_000)]}]}},
    "arguments of 1 MiB": {"spec": {"containers": [NAMED | {"args": ["x" * MIB]}]}},
    "annotations": {"metadata": {"annotations": {f"{number:x}": "" for number in range(40_000)}}},
}


def controllers() -> dict[str, Controller[Any, Any]]:
    found = dict[str, Controller[Any, Any]]()
    for operator in operators.installed():
        options = parse_options(operator.process_name, operator.name, ["--agent-image=operator:1"], {})
        found |= {each.name: each for each in operator.controllers(options) if POD in each.owns}
    return found


def a_pod(of: Controller[Any, Any], resource: str, number: int, content: str) -> Obj:
    parts = CONTENTS[content]
    labels = {MANAGED_BY: of.operator, INSTANCE: resource, NAME: of.application or of.operator}
    metadata = {"name": f"{resource}-{number}", "namespace": NAMESPACE, "resourceVersion": "5", "labels": labels}
    named = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | parts.get("metadata", {})}
    return {"spec": {"containers": []}} | parts | named


def filled(of: Controller[Any, Any], content: str, pods: int, resources: int = 1) -> Cache:
    """Return a cache with pods of several resources."""
    cache = of.cache(lambda _: None)
    for resource in range(resources):
        for number in range(pods):
            cache.put(POD, a_pod(of, f"cache-{resource}", number, content))
    return cache


def read(cache: Cache, resource: int = 0) -> list[Obj]:
    return cache.owned(POD, Key(NAMESPACE, f"cache-{resource}"))


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", controllers())
async def test_any_pods_with_the_labels_of_a_resource_cost_little(
    name: str, content: str, record_property: Callable[[str, object], None]
) -> None:
    of = controllers()[name]
    cache = filled(of, content, pods=60)
    async with cost.bounded() as refused:
        with pytest.raises(ForeignObject, match=r"more than 18 MiB, .* A large one is Pod cache-0-"):
            read(cache)
    for number in range(60):  # as many as are read
        cache.drop(POD, a_pod(of, "cache-0", number, content))
        if cache.memory(Key(NAMESPACE, "cache-0")) <= MAX_OWNED_BYTES:
            break
    async with cost.bounded() as found:
        kept = read(cache)
    record_property("summary", f"{name}, {content}: 60 pods {refused}; {len(kept)} pods {found}")
    assert 1 <= len(kept) < 60


LARGEST = {
    "rediscluster": ("redis/unit/objects/golden/everything", "replicas", 500),
    "memcached": ("memcached/unit/objects/golden/secure", "size", 1_000),
}
"""The golden objects with the largest pods, and the largest number of servers that the schema accepts."""


def usual_status(template: Obj, number: int) -> Obj:
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    time = "2026-11-30T12:00:00Z"
    states = [
        {
            "name": each["name"],
            "state": {"running": {"startedAt": time}},
            "lastState": {},
            "ready": True,
            "restartCount": 0,
            "image": each["image"],
            "imageID": f"{each['image']}@sha256:{'0' * 64}",
            "containerID": f"containerd://{'0' * 64}",
            "started": True,
            "allocatedResources": each.get("resources", {}).get("requests", {}),
            "resources": each.get("resources", {}),
            "volumeMounts": each.get("volumeMounts", []),
        }
        for each in template["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "conditions": [
            {"type": name, "status": "True", "observedGeneration": 1, "lastProbeTime": None, "lastTransitionTime": time}
            for name in conditions
        ],
        "hostIP": "10.0.0.1",
        "podIP": f"10.1.{number // 250}.{number % 250}",
        "startTime": time,
        "containerStatuses": states,
        "qosClass": "Burstable",
    }


@pytest.mark.parametrize("name", LARGEST)
async def test_largest_resource_of_the_schema_is_read(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    of, (path, field, count) = controllers()[name], LARGEST[name]
    cache, key = of.cache(lambda _: None), Key(NAMESPACE, "cache")
    objects = yaml.safe_load_all((paths.REPOSITORY / "tests" / path / "objects.yaml").read_text())
    template = next(each["spec"]["template"] for each in objects if "template" in (each.get("spec") or {}))
    nodes = ",".join(f"cache-{number}={'0' * 40}" for number in range(count))
    labels = {MANAGED_BY: of.operator, INSTANCE: "cache", NAME: of.application or of.operator}
    for number in range(count):
        metadata = {**template["metadata"], "name": f"cache-{number}", "namespace": NAMESPACE, "uid": f"{number:036}"}
        metadata |= {"labels": template["metadata"].get("labels", {}) | labels, "resourceVersion": "5"}
        owner = {"kind": "StatefulSet", "name": "cache", "uid": "0" * 36, "controller": True}
        pod = {"metadata": metadata | {"ownerReferences": [owner]}, "spec": template["spec"]}
        cache.put(POD, pod | {"status": usual_status(template, number)})
        if PERSISTENT_VOLUME_CLAIM in of.kinds:
            claim = {"name": f"data-cache-{number}", "annotations": {NODES: nodes}}
            cache.put(PERSISTENT_VOLUME_CLAIM, {"metadata": metadata | claim, "spec": {}, "status": {}})
    with pytest.raises(ForeignObject):
        cache.owned(POD, key)
    metadata = {"name": "cache", "namespace": NAMESPACE, "resourceVersion": "5", "uid": "a"}
    entries = [{"name": f"cache-{number}", "nodeId": "0" * 40, "role": "Primary"} for number in range(count)]
    cache.put(of.kind, {"metadata": metadata, "spec": {field: count}, "status": {"nodes": entries}})
    assert len(cache.owned(POD, key)) == count
    smaller = {"metadata": metadata | {"resourceVersion": "6"}, "spec": {field: 3}, "status": {"replicas": count}}
    cache.put(of.kind, smaller)
    assert len(cache.owned(POD, key)) == count, "they are read until they are removed"
    record_property("summary", f"{name} of {count}: {cache.memory(key) / MIB:.1f} MiB")


@pytest.mark.parametrize("content", CONTENTS)
async def test_resources_of_a_namespace_cost_little_together(
    content: str, record_property: Callable[[str, object], None]
) -> None:
    """A reconcile that waits meanwhile, such as for a database, holds what it has read."""
    of = memcached_controller(parse_options("memcached-operator", "memcached", [], {}))
    cache, most = filled(of, content, pods=1, resources=RESOURCES), 0
    queue, working, left, finished = Queue("test", memory=cache.memory), set[Key](), RESOURCES, asyncio.Event()

    async def work() -> None:
        nonlocal most, left
        while True:
            key = await queue.get()
            working.add(key)
            most = max(most, len(working))
            found = cache.owned(POD, key)
            await asyncio.sleep(0.01)
            working.remove(key)
            del found
            queue.done(key)
            left -= 1
            if not left:
                finished.set()

    async with cost.bounded() as found:
        workers = [asyncio.create_task(work()) for _ in range(RESOURCES)]
        for resource in range(RESOURCES):
            queue.add(Key(NAMESPACE, f"cache-{resource}"))
        await finished.wait()
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    record_property("summary", f"{RESOURCES} resources with a pod of {content}: {most} at once, {found}")


def random_config_map(number: int, instance: str) -> Obj:
    """Return a ConfigMap that cannot be compressed."""
    labels = {MANAGED_BY: "redis-operator", INSTANCE: instance}
    metadata = {"name": f"a-{number}", "namespace": NAMESPACE, "resourceVersion": "5", "labels": labels}
    return {"metadata": metadata, "data": {"a": random.Random(number).randbytes(400_000).hex()}}


async def test_objects_of_a_namespace_take_a_share_of_the_cache() -> None:
    of, foreign = controllers()["rediscluster"], Key(NAMESPACE, "b")
    cache = of.cache(lambda _: None)
    async with cost.bounded():
        for number in range(100):
            cache.put(CONFIG_MAP, random_config_map(number, "a" if number % 2 else "b"))
            await asyncio.sleep(0)
    assert len(cache.keys(CONFIG_MAP)) == 2
    for left_out in (lambda: cache.get(CONFIG_MAP, NAMESPACE, "a-99"), lambda: cache.owned(POD, foreign)):
        with pytest.raises(
            ForeignObject, match="objects of operators in namespace default take more than 16 MiB"
        ) as raised:
            left_out()
        assert "Delete those that no operator made: `kubectl get redisclusters," in str(raised.value)
        assert ",configmaps," in str(raised.value)
        assert f" -n {NAMESPACE} -l " in str(raised.value)
    for number in range(60):  # its status has the reason, unless there are as many of them
        metadata = {"name": f"{number}", "namespace": NAMESPACE, "resourceVersion": "5"}
        cache.put(of.kind, {"metadata": metadata, "spec": random.Random(number).randbytes(400_000).hex()})
    elsewhere = {"name": "b", "namespace": "other", "resourceVersion": "5"}
    cache.put(of.kind, {"metadata": elsewhere, "spec": {}})
    assert cache.get(of.kind, NAMESPACE, "0") is not None
    assert 8 < len(list(cache.all(of.kind))) < 20
    assert cache.get(of.kind, "other", "b") is not None
    assert len(list(cache.all(CONFIG_MAP))) < 50


async def test_left_out_objects_are_stored_by_a_later_list_with_fewer_objects() -> None:
    of, key = controllers()["rediscluster"], Key(NAMESPACE, "a")
    cache = of.cache(lambda _: None)
    items = [random_config_map(number, "a") for number in range(60)]
    for item in items:
        cache.put(CONFIG_MAP, item)
    found = set[Key]()
    for version in ("6", "7"):  # the first list removes the others
        with pytest.raises(ForeignObject):
            cache.owned(CONFIG_MAP, key)
        found = Relist(cache, CONFIG_MAP, None).take({"metadata": {"resourceVersion": version}, "items": items[-2:]})
    assert found == {key}
    assert cache.owned(CONFIG_MAP, key) == items[-2:]
    assert cache.get(CONFIG_MAP, NAMESPACE, "missing") is None


async def test_resource_whose_objects_are_complete_is_read_although_others_are_left_out() -> None:
    """One left-out object of a kind stopped every resource of the namespace that has none of this kind."""
    cache = controllers()["rediscluster"].cache(lambda _: None)
    for number in range(60):
        cache.put(CONFIG_MAP, random_config_map(number, "a"))
    assert cache.get(CONFIG_MAP, NAMESPACE, "b") is None
    assert cache.owned(POD, Key(NAMESPACE, "b")) == []
    with pytest.raises(ForeignObject):
        cache.get(CONFIG_MAP, NAMESPACE, "a-59")
    with pytest.raises(ForeignObject):
        cache.owned(POD, Key(NAMESPACE, "a"))


async def test_kinds_with_left_out_objects_are_named_once_there_is_space() -> None:
    cache = controllers()["rediscluster"].cache(lambda _: None)
    items = [random_config_map(number, "a") for number in range(60)]
    for item in items:
        cache.put(CONFIG_MAP, item)
    assert not cache.lacks(), "a list would leave them out again"
    for item in items:
        cache.on_deleted(CONFIG_MAP, item)
    assert cache.lacks() == {(CONFIG_MAP, NAMESPACE)}
    listed: Obj = {"metadata": {"resourceVersion": "7"}, "items": []}
    assert Relist(cache, CONFIG_MAP, None).take(listed) == set(), "it has no objects"
    assert not cache.lacks()
    assert cache.owned(POD, Key(NAMESPACE, "a")) == []


async def test_object_that_was_left_out_is_listed_as_soon_as_it_fits() -> None:
    """There was space for it, but not for the largest object that can be."""
    cache = controllers()["rediscluster"].cache(lambda _: None)
    items = [random_config_map(number, "a") for number in range(60)]
    for item in items:
        cache.put(CONFIG_MAP, item)
    for item in items[:2]:
        cache.on_deleted(CONFIG_MAP, item)
    assert cache.lacks() == {(CONFIG_MAP, NAMESPACE)}
    Relist(cache, CONFIG_MAP, NAMESPACE).take({"metadata": {"resourceVersion": "7"}, "items": items[2:]})
    assert not cache.lacks(), "a list would leave them out again"


async def test_search_for_what_was_left_out_costs_little() -> None:
    """All names were read for each watched collection, in one turn of the event loop."""
    of = controllers()["rediscluster"]
    cache, large = of.cache(lambda _: None), [random_config_map(number, "a") for number in range(60)]
    for item in large:
        cache.put(CONFIG_MAP, item)
    for number in range(1_000, 13_000):
        cache.put(CONFIG_MAP, empty_config_map(number))
    for item in large:
        cache.on_deleted(CONFIG_MAP, item)
    watch = Watch(
        [Watched(of, cache, Dependencies(of.reads, lambda _: None))],
        kube=Kube(Claims(), manager="op"),
        streams=WatchServer(ApiServer()),
        namespaces=(NAMESPACE, *(f"n-{number}" for number in range(50))),
        supervisor=Supervisor(),
    )
    assert cache.lacks()
    async with cost.bounded(seconds=0.02):
        await watch.readmit()


def empty_config_map(number: int, version: int = 5, instance: str = "a") -> Obj:
    labels = {MANAGED_BY: "redis-operator", INSTANCE: instance}
    return {
        "metadata": {"name": f"a-{number}", "namespace": NAMESPACE, "resourceVersion": f"{version}", "labels": labels}
    }


async def test_event_of_a_resource_with_many_objects_costs_no_more() -> None:
    queue = Queue("test", memory=lambda key: cache.memory(key))
    cache = controllers()["rediscluster"].cache(queue.add)
    for number in range(10_000):
        cache.put(CONFIG_MAP, empty_config_map(number))
    async with cost.bounded():
        for number in range(100):
            cache.on_changed(CONFIG_MAP, empty_config_map(number, 6))
        key = await queue.get()
        with pytest.raises(ForeignObject):
            cache.owned(POD, key)
        queue.done(key)


@pytest.mark.parametrize("instances", [1, 60_000])
async def test_many_small_objects_take_a_share_of_the_cache(instances: int) -> None:
    """The entry of each takes 20 times as much as its content."""
    cache = controllers()["rediscluster"].cache(lambda _: None)
    async with cost.bounded(size=48 * MIB):
        for number in range(60_000):
            cache.put(CONFIG_MAP, empty_config_map(number, instance=f"a-{number % instances}"))
            if number % 100 == 0:
                await asyncio.sleep(0)
            if number == 40_000:  # 3,000 resources with 12 objects each
                assert cache.owned(POD, Key(NAMESPACE, "b")) == []
    with pytest.raises(ForeignObject, match="more than 16 MiB"):
        cache.owned(POD, Key(NAMESPACE, "another" if instances > 1 else "a-0"))
    assert cache.owned(POD, Key("other", "b")) == []


async def test_large_resource_delays_no_small_one_of_its_namespace() -> None:
    """The reconcile of a large one may wait for a server for minutes."""
    sizes = {"large": 3 * MAX_NAMESPACE_BYTES, "also-large": LARGE_BYTES, "small": 100_000}
    queue = Queue("test", memory=lambda key: sizes[key.name])
    for name in sizes:
        queue.add(Key(NAMESPACE, name))
    assert {(await queue.get()).name for _ in range(2)} == {"large", "small"}
    waiting = asyncio.create_task(queue.get())
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    queue.done(Key(NAMESPACE, "large"))
    assert (await waiting).name == "also-large"


async def test_nodes_and_pods_that_are_read_by_name_do_not_count() -> None:
    key, dependencies = Key(NAMESPACE, "cache"), Dependencies([SECRET], lambda _: None)
    with dependencies.noting(key, Kube(Claims(), manager="op")) as kube:
        for kind, namespace in ((NODE, None), (POD, NAMESPACE)):
            for number in range(40):
                await kube.get(kind, namespace, f"a-{number}")


class Claims:
    """An API server with an object of this size for every name."""

    def __init__(self, size: int = 600_000) -> None:
        self._size = size

    async def request(self, request: Request) -> Response:
        await asyncio.sleep(0)
        plural, name = request.path.split("/")[-2:]
        metadata = {"name": name, "namespace": NAMESPACE, "resourceVersion": "5"}
        kind = {"nodes": "Node", "pods": "Pod"}.get(plural, "PersistentVolumeClaim")
        annotations = {"annotations": {"a": "x" * self._size}}
        return Response(200, {"apiVersion": "v1", "kind": kind, "metadata": metadata | annotations})


async def test_claims_that_are_read_by_name_cost_little_together() -> None:
    key, dependencies = Key(NAMESPACE, "cache"), Dependencies([SECRET], lambda _: None)
    with dependencies.noting(key, Kube(Claims(), manager="op")) as kube:
        async with cost.bounded():
            reads = (kube.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, f"data-cache-{number}") for number in range(500))
            found = await asyncio.gather(*reads, return_exceptions=True)
    assert 25 < len([each for each in found if isinstance(each, dict)]) < 40
    assert "One is PersistentVolumeClaim data-cache-" in str(found[-1])


async def test_claims_that_the_reconciles_of_a_namespace_read_by_name_cost_little_together() -> None:
    """Users may annotate the claims of all their resources: those that read much take turns."""
    dependencies, ended = Dependencies([SECRET], lambda _: None), list[str]()

    async def reconcile(key: Key, claims: Claims, count: int) -> None:
        with dependencies.reconcile(key):
            with dependencies.noting(key, Kube(claims, manager="op")) as kube:
                reads = (kube.get(PERSISTENT_VOLUME_CLAIM, key.namespace, f"data-{number}") for number in range(count))
                found = await asyncio.gather(*reads)
            await asyncio.sleep(0.001)  # for a database, such as to write
            ended.append(key.name)
            del found

    large = [reconcile(Key(NAMESPACE, f"large-{number}"), Claims(), 24) for number in range(RESOURCES)]
    small = [reconcile(Key(NAMESPACE, "small"), Claims(6_000), 3), reconcile(Key("other", "other"), Claims(), 3)]
    async with cost.bounded():
        await asyncio.gather(*large, *small)
    assert len(ended) == RESOURCES + 2
    assert max(map(ended.index, ("small", "other"))) <= 2


async def test_cancelled_reconcile_leaves_its_turn_to_the_next() -> None:
    dependencies = Dependencies([SECRET], lambda _: None)

    async def reconcile(name: str, seconds: float) -> str:
        with dependencies.reconcile(Key(NAMESPACE, name)):
            await dependencies.take_turn(Key(NAMESPACE, name))
            await asyncio.sleep(seconds)
        return name

    tasks = [asyncio.create_task(reconcile(name, seconds)) for name, seconds in (("a", 60), ("b", 60), ("c", 0))]
    await asyncio.sleep(0)
    for task in (tasks[1], tasks[0]):
        task.cancel()
    assert await asyncio.wait_for(tasks[2], 5) == "c"


async def test_read_that_a_failed_reconcile_left_behind_keeps_no_turn() -> None:
    dependencies, failing = Dependencies([SECRET], lambda _: None), Key(NAMESPACE, "failing")
    holder = Key(NAMESPACE, "holder")

    async def fail() -> None:
        raise ConnectionError

    with dependencies.reconcile(holder):
        await dependencies.take_turn(holder)
        with pytest.raises(ConnectionError), dependencies.reconcile(failing):
            await asyncio.gather(dependencies.take_turn(failing), fail())
    for key in (failing, Key(NAMESPACE, "another")):
        with dependencies.reconcile(key):
            async with asyncio.timeout(5):
                await dependencies.take_turn(key)


async def test_read_that_a_failed_reconcile_left_behind_does_not_take_the_turn_of_the_next_one() -> None:
    """The next one waited for itself until it was stopped."""
    dependencies, failing = Dependencies([SECRET], lambda _: None), Key(NAMESPACE, "failing")
    holder, answers = Key(NAMESPACE, "holder"), asyncio.Event()

    class Late(Claims):
        async def request(self, request: Request) -> Response:
            await answers.wait()
            return await super().request(request)

    def read(claims: Claims) -> asyncio.Task[Obj]:
        with dependencies.noting(failing, Kube(claims, manager="op")) as kube:
            return asyncio.create_task(kube.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "data-0"))

    with dependencies.reconcile(failing):
        left = read(Late())
        await asyncio.sleep(0.01)
    with dependencies.reconcile(failing):
        with dependencies.reconcile(holder):
            await dependencies.take_turn(holder)
            answers.set()
            await asyncio.sleep(0.01)
            present = read(Claims())
            await asyncio.sleep(0.01)
            assert not present.done()
        async with asyncio.timeout(5):
            await present
    await left


async def test_status_names_the_objects_that_take_too_much_memory() -> None:
    of = memcached_controller(parse_options("memcached-operator", "memcached", [], {}))
    harness = Harness(of)
    harness.apply("cache", size=1)
    await harness.settle()
    for number in range(20):
        pod = a_pod(of, "cache", 100 + number, "arguments of 1 MiB")
        del pod["metadata"]["resourceVersion"]
        harness.user_client.create(POD, pod)
    await harness.settle()
    ready = condition(harness.resource("cache"), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ForeignObject")
    assert "MiB of memory, more than 18 MiB, and are not read. A large one is Pod cache-" in ready["message"]
    assert len(ready["message"]) <= 400
    for number in range(20):
        harness.user_client.delete(POD, NAMESPACE, f"cache-{100 + number}")
    await harness.settle()
    assert condition(harness.resource("cache"), "Ready")["status"] == "True"
