"""Measurements of an operator with thousands of resources: changes, starts, handovers, shards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from e2e.bench.bare import Bare, Sent
from e2e.bench.measures import Buckets, percentile, quantile
from e2e.bench.scale_measures import Changes, Scale, Sharded
from e2e.bench.scale_replicas import NAMESPACE, Replica, replicas
from e2e.bench.timed_operator import LEADS, QUEUE_DEPTH, QUEUE_TIME, RECONCILE_TIME, RECONCILES
from operators import installed
from shared.kubernetes.client import Kube, Request
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import EVENT, POD, STATEFUL_SET, Kind, Obj
from shared.kubernetes.transport import UNLIMITED, HttpTransport
from shared.runtime.install import install_crds
from simulator.kubelet.replicas import replica
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

NAMESPACE_KIND = Kind("", "v1", "Namespace", "namespaces", namespaced=False)

CREATORS = 64
"""Connections that create resources."""

SERVER_PORT = 11211
"""Port of the servers of a Memcached, unless its spec names another one."""

CHANGES_PER_SECOND = 20
POLICY_SECONDS = 5.0
"""Seconds until the API server applies a new admission policy."""

SETTLE_SECONDS = 8.0
"""Delay before memory is measured: kopf keeps its state for an object for five seconds after the last event."""

CHANGES: dict[str, tuple[Obj, Obj]] = {
    "memcached": ({"size": 3}, {"size": 2}),
    "etcd": ({"labels": {"change": "a"}}, {"labels": {"change": "b"}}),
    "redis": ({"labels": {"change": "a"}}, {"labels": {"change": "b"}}),
}
"""The specs between which resources change, by operator."""


FAILING = "failing"
"""Begin of the names of resources whose Services the API server refuses."""

_ADMISSION = "admissionregistration.k8s.io"
REFUSAL: tuple[tuple[Kind, Obj], ...] = (
    (
        Kind(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
        {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["services"]}
                ]
            },
            "validations": [
                {
                    "expression": f"!object.metadata.name.startsWith('{FAILING}')",
                    "message": "the benchmark refuses the Service",
                    "reason": "Forbidden",
                }
            ],
        },
    ),
    (
        Kind(
            _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False
        ),
        {"policyName": "bench-refusal", "validationActions": ["Deny"]},
    ),
)
"""A policy by which the reconciles of some resources fail, and are retried with back-off."""


class Seen(NamedTuple):
    """A resource as last observed by the benchmark.

    Attributes:
        generation: generation that the status describes; 0 for none.
        at: when that was first observed, by the monotonic clock.
    """

    generation: int
    at: float


class Fleet:
    """The resources of one operator on an API server without nodes, and a watch of their statuses.

    Attributes:
        seen: resources, by name.
    """

    def __init__(self, plane: ControlPlane, operator: str) -> None:
        self._plane = plane
        (of,) = (each for each in installed() if each.name == operator)
        self.kind: Kind = of.main.kind
        self._resources = [resource for each in installed() for resource in each.resources]
        self._sample = yaml.safe_load((REPOSITORY / f"samples/{operator}/small.yaml").read_text())
        self._operator = operator
        self.seen: dict[str, Seen] = {}
        self._namespaces: dict[str, str] = {}  # by name of a resource
        self._loop = asyncio.new_event_loop()

    @classmethod
    @contextmanager
    def running(cls, plane: ControlPlane, operator: str) -> Iterator[Fleet]:
        """Install the CRDs, and watch until the context exits."""
        fleet = cls(plane, operator)
        thread = threading.Thread(target=fleet._loop.run_forever, daemon=True)
        thread.start()
        fleet._call(fleet._open()).result(60)
        try:
            yield fleet
        finally:
            fleet._call(fleet._close()).result(60)
            fleet._loop.call_soon_threadsafe(fleet._loop.stop)
            thread.join(10)

    def create(self, count: int, failing: int = 0) -> float:
        """Create resources at once; return the duration in seconds.

        Args:
            failing: number of further resources whose reconciles fail.
        """
        took: float = self._call(self._create_some(count, failing)).result(600)
        return took

    def create_in(self, namespaces: Sequence[str], count: int, prefix: str) -> None:
        """Create resources at once, spread evenly over namespaces.

        Args:
            prefix: begin of their names.
        """
        names = {f"{prefix}-{number:05}": namespaces[number % len(namespaces)] for number in range(count)}
        self._call(self._create(names)).result(600)

    def add_servers(self, namespace: str, count: int, address: str) -> None:
        """Give each Memcached of a namespace a ready server at an address, as Kubernetes would.

        Args:
            count: number of resources, whose StatefulSets are awaited.
        """
        self._call(self._add_servers(namespace, count, address)).result(600)

    def apply(self, kind: Kind, obj: Obj) -> None:
        """Apply an object of another kind."""
        self._call(self._kube.apply(kind, obj)).result(60)

    def events(self) -> int:
        """Return how often events of the resources were recorded."""
        found: Obj = self._call(self._kube.list(EVENT)).result(60)
        return sum(each["count"] for each in found["items"] if each["involvedObject"]["kind"] == self.kind.name)

    @property
    def healthy(self) -> list[str]:
        """Names of the resources whose reconciles do not fail."""
        return sorted(name for name in self.seen if not name.startswith(FAILING))

    def reported(self, generation: int = 1) -> int:
        """Return the number of resources whose status describes at least this generation."""
        return sum(each.generation >= generation for each in list(self.seen.values()))

    def change(self, name: str) -> tuple[int, float]:
        """Change a resource; return its new generation, and when the API server responded."""
        changed: tuple[int, float] = self._call(self._change(name)).result(60)
        return changed

    def changes(self, seconds: float) -> list[float]:
        """Change random resources at a constant rate; return the seconds until each change was reported."""
        latencies: list[float] = self._call(self._changes(seconds)).result(seconds + 120)
        return latencies

    def _call(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self) -> None:
        configuration = await load_configuration(str(self._plane.kubeconfig))
        self._transport = HttpTransport(configuration)
        self._streams = HttpTransport(configuration, UNLIMITED)
        self._kube = Kube(self._transport, manager="bench")
        await install_crds(self._kube, self._resources)
        self._watching = asyncio.create_task(self._watch_always())

    async def _close(self) -> None:
        self._watching.cancel()
        await asyncio.wait({self._watching})
        await self._transport.close()
        await self._streams.close()

    async def _watch_always(self) -> None:
        """Watch until cancelled; a new watch begins with the present resources."""
        while True:
            with contextlib.suppress(KubeError):
                await self._watch()
            await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        request = Request("GET", self.kind.path(), {"watch": "true", "allowWatchBookmarks": "true"})
        async with self._streams.stream(request, accept="application/json") as lines:
            async for line in lines:
                obj = json.loads(line)["object"]
                name, status = obj["metadata"].get("name"), obj.get("status") or {}
                generation = status.get("observedGeneration", 0)
                if name and generation > self.seen.get(name, Seen(-1, 0.0)).generation:
                    self.seen[name] = Seen(generation, time.monotonic())

    async def _create_some(self, count: int, failing: int) -> float:
        if failing:
            for kind, spec in REFUSAL:
                metadata = {"name": "bench-refusal"}
                await self._kube.apply(
                    kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
                )
            await asyncio.sleep(POLICY_SECONDS)
        names = (f"{FAILING if number < failing else 'r'}-{number:05}" for number in range(count + failing))
        return await self._create(dict.fromkeys(names, NAMESPACE))

    async def _create(self, namespaces: dict[str, str]) -> float:
        """Create resources, given the namespace of each name."""
        self._namespaces |= namespaces
        for namespace in set(namespaces.values()):
            await self._kube.apply(
                NAMESPACE_KIND, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            )
        sent = []
        for name, namespace in namespaces.items():
            self._sample["metadata"]["name"] = name
            sent.append(Sent("POST", self.kind.path(namespace), json.dumps(self._sample).encode()))
        random.Random(7).shuffle(sent)
        async with Bare.of(self._plane, CREATORS) as client:
            took, _ = await client.send(sent)
        return took

    async def _add_servers(self, namespace: str, count: int, address: str) -> None:
        found: list[Obj] = []
        while len(found) < count:
            await asyncio.sleep(0.5)
            found = (await self._kube.list(STATEFUL_SET, namespace))["items"]
        limit = asyncio.Semaphore(CREATORS)

        async def add(stateful_set: Obj) -> None:
            async with limit:
                await _add_server(self._kube, stateful_set, address)

        await asyncio.gather(*map(add, found))

    async def _change(self, name: str) -> tuple[int, float]:
        first, second = CHANGES[self._operator]
        current = await self._kube.get(self.kind, self._namespaces[name], name)
        spec = second if first.items() <= current["spec"].items() else first
        changed = await self._kube.merge(self.kind, self._namespaces[name], name, {"spec": spec})
        return changed["metadata"]["generation"], time.monotonic()

    async def _changes(self, seconds: float) -> list[float]:
        chance, loop, latencies = random.Random(7), asyncio.get_running_loop(), list[float]()
        names = chance.sample(self.healthy, min(len(self.healthy), int(seconds * CHANGES_PER_SECOND)))

        async def one(name: str) -> None:
            generation, at = await self._change(name)
            while self.seen[name].generation < generation:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            latencies.append(max(0.0, self.seen[name].at - at))

        began = loop.time()
        async with asyncio.timeout(seconds + 60), asyncio.TaskGroup() as group:
            for number, name in enumerate(names):
                await asyncio.sleep(max(0.0, began + number / CHANGES_PER_SECOND - loop.time()))
                group.create_task(one(name))
        return latencies


async def _add_server(kube: Kube, stateful_set: Obj, address: str) -> None:
    """Create one ready pod of a StatefulSet."""
    metadata = stateful_set["metadata"]
    pod = replica(stateful_set, STATEFUL_SET, f"{metadata['name']}-0", {})
    await kube.create(POD, pod)
    container = pod["spec"]["containers"][0]
    ready = {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"bench@sha256:{'0' * 64}",
        "ready": True,
    }
    ready |= {"restartCount": 0, "started": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [ready],
    }
    await kube.merge(POD, metadata["namespace"], pod["metadata"]["name"], {"status": status}, subresource="status")


def measure(operator: str, count: int, seconds: float, note: Callable[[str], None], *, failing: int = 0) -> Scale:
    """Measure one operator with a number of resources.

    Args:
        seconds: duration of the changes.
        failing: number of further resources whose reconciles fail.
        note: called with the name of each phase.

    Raises:
        ClusterError: the operator did not complete its work.
    """
    with world(operator) as (_, fleet, start):
        leader = start()
        leader.wait(lambda: leader.is_ready, "start")
        empty = leader.memory()
        note(f"{count} resources")
        began = time.monotonic()
        fleet.create(count, failing)
        reported(leader, fleet, count + failing)
        loaded = time.monotonic() - began
        leader.wait(lambda: leader.scrape().total(QUEUE_DEPTH) == 0, "an empty queue", 600)
        rested = time.monotonic() - began
        load_blocks = leader.blocks()
        time.sleep(SETTLE_SECONDS)
        memory = leader.memory()
        note("changes")
        changes = _changes(leader, fleet, seconds)
        note("start with all resources, handover")
        second = start()
        synced = second.wait(lambda: second.is_ready, "start with all resources")
        start_blocks = second.blocks()
        began = time.monotonic()
        handover = _takeover(leader, fleet, signal.SIGTERM)
        second.wait(lambda: _reconciles(second) >= count, "reconcile of all resources")
        reconciled = synced + time.monotonic() - began
        takeover_blocks = second.blocks()
        note("crash")
        third = start()
        third.wait(lambda: third.is_ready, "start of the third replica")
        crash = _takeover(second, fleet, signal.SIGKILL)
        restarted = third.memory()
    return Scale(
        operator=operator,
        count=count,
        loaded=loaded,
        rested=rested,
        memory=(memory - empty) / count,
        restarted=(restarted - empty) / count,
        changes=changes,
        synced=synced,
        reconciled=reconciled,
        handover=handover,
        crash=crash,
        load_blocks=load_blocks,
        start_blocks=start_blocks,
        takeover_blocks=takeover_blocks,
    )


def measure_shards(operator: str, shards: int, count: int) -> Sharded:
    """Create resources at once for as many replicas as shards."""
    with world(operator) as (plane, fleet, start):
        running = [start(shards) for _ in range(shards)]
        for replica in running:
            replica.wait(lambda replica=replica: replica.is_ready, "start")  # type: ignore[misc]
        running[0].wait(lambda: all(_leads(replica) == 1 for replica in running), "an even split", 60)
        empty = [replica.memory() for replica in running]
        server = sum(process.cpu for process in plane.processes)
        client = sum(replica.process.cpu for replica in running)
        began = time.monotonic()
        fleet.create(count)
        reported(running[0], fleet, count)
        took = time.monotonic() - began
        busy = sum(process.cpu for process in plane.processes) - server
        work = sum(replica.process.cpu for replica in running) - client
        time.sleep(SETTLE_SECONDS)
        return Sharded(
            shards=shards,
            count=count,
            seconds=took,
            client=work,
            server=busy,
            memory=tuple(replica.memory() for replica in running),
            growth=tuple((replica.memory() - was) / count for replica, was in zip(running, empty, strict=True)),
            reconciles=tuple(_reconciles(replica) for replica in running),
        )


@contextmanager
def world(operator: str) -> Iterator[tuple[ControlPlane, Fleet, Callable[..., Replica]]]:
    """Run an API server; yield it, its resources and a function that starts replicas of their operator."""
    with (
        tempfile.TemporaryDirectory(prefix="platform-bench-") as name,
        ControlPlane.alone(Path(name)) as plane,
        Fleet.running(plane, operator) as fleet,
        replicas(plane, Path(name), operator) as start,
    ):
        yield plane, fleet, start


def reported(replica: Replica, fleet: Fleet, count: int) -> None:
    replica.wait(lambda: fleet.reported() >= count, f"status of {count} resources", 600)


def _reconciles(replica: Replica) -> float:
    return replica.scrape().total(RECONCILES)


def _leads(replica: Replica) -> float:
    return replica.scrape().total(LEADS)


def _changes(leader: Replica, fleet: Fleet, seconds: float) -> Changes:
    before = leader.scrape()
    leader.blocks()
    latencies = fleet.changes(seconds)
    after = leader.scrape()
    blocks = leader.blocks()
    scraped = leader.scrape_all()

    def p99(name: str) -> float:
        return quantile(_difference(after.histogram(name), before.histogram(name)), 0.99)

    return Changes(
        count=len(latencies),
        queue_p99=p99(QUEUE_TIME),
        reconcile_p99=p99(RECONCILE_TIME),
        reported_p50=percentile(latencies, 0.5),
        reported_p99=percentile(latencies, 0.99),
        blocks=blocks,
        scraped=scraped,
        scrape_blocks=leader.blocks(),
    )


def _difference(after: Buckets, before: Buckets) -> Buckets:
    return {bound: value - before.get(bound, 0.0) for bound, value in after.items()}


def _takeover(leader: Replica, fleet: Fleet, number: signal.Signals) -> float:
    """End the leader, and change a resource at the same time; return the seconds until the change is reported."""
    name = random.Random(number).choice(fleet.healthy)
    leader.end(number)
    began = time.monotonic()
    generation, _ = fleet.change(name)
    while fleet.seen[name].generation < generation:
        if time.monotonic() > began + 60:
            raise ClusterError("no replica took over within 60 s", "check the logs of the replicas")
        time.sleep(0.01)
    return fleet.seen[name].at - began
