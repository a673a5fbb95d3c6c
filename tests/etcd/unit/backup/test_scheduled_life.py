"""Scheduled backups in one world with both controllers: their prerequisites are missing, mistyped and corrected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operators.etcd.api import resource as api
from operators.etcd.api.backup import API, COMPLETE, FAILED, RETRY_UNTIL
from operators.etcd.operator import backups
from shared.kubernetes.accessors import annotation, condition, is_terminating
from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import AlreadyExists, NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, Obj
from shared.kubernetes.pods import STUCK
from simulator.harness import NAMESPACE, Harness
from tests.harness.scenario_runner import World
from tests.support.etcd.scenarios import ETCD, OPTIONS

HOUR = 3600.0
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
KEYS = {"accessKeyID": "YQ==", "secretAccessKey": "Yg=="}


def bucket(secret: str) -> Obj:
    return {"s3": {"bucket": "orders", "credentialsSecret": secret}}


def volume(claim: str) -> Obj:
    return {"volume": {"claimName": claim}}


class Schedule:
    """A cluster of one member with an hourly schedule, and the operator's two controllers."""

    def __init__(self, destination: Obj) -> None:
        self.world = World(ETCD)
        self.clusters = self.world.operator()
        self.user = self.clusters.user_client
        self.backups = Harness(
            backups(OPTIONS, self.world.database.connect),  # type: ignore[attr-defined]
            workloads=self.world.workloads,
            clock=self.world.clock,
            patience=100.0,
            wait=self.world.clock.wait,
        )
        self.destination = destination

    async def configure(self, destination: Obj) -> None:
        self.destination = destination
        schedule = {"schedule": "0 * * * *", "retention": 3, "destination": destination}
        self.clusters.apply("demo", size=1, version="3.6.11", backup=schedule)
        await self.settle()

    async def settle(self) -> None:
        before = -1
        while before != self.world.server.version:
            before = self.world.server.version
            await self.clusters.settle()
            await self.backups.settle()
        if (self.ready["status"] == "True") and not self.has_destination:
            raise AssertionError(f"{self.ready} although {self.destination} does not exist")

    @property
    def has_destination(self) -> bool:
        """Whether the next snapshot could be stored, by what the API server has."""
        (store,) = self.destination.values()
        with contextlib.suppress(NotFound):
            if "claimName" in store:
                return not is_terminating(self.user.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, store["claimName"]))
            return set(KEYS) <= set(self.user.get(SECRET, NAMESPACE, store["credentialsSecret"])["data"])
        return False

    async def pass_hours(self, hours: float) -> None:
        self.world.clock.wait(hours * HOUR)
        await self.settle()

    async def restart(self) -> None:
        self.clusters, self.backups = self.clusters.restart(), self.backups.restart()
        await self.settle()

    def has_secret(self, name: str, **data: str) -> None:
        self._create(SECRET, name, data=data or KEYS)

    def has_claim(self, name: str) -> None:
        self._create(PERSISTENT_VOLUME_CLAIM, name, spec=CLAIM)

    def lacks(self, kind: Any, name: str) -> None:
        with contextlib.suppress(NotFound):
            self.user.delete(kind, NAMESPACE, name)

    def _create(self, kind: Any, name: str, **body: Any) -> None:
        self.lacks(kind, name)
        metadata = {"name": name, "namespace": NAMESPACE}
        with contextlib.suppress(AlreadyExists):  # a claim that is deleted remains for a moment
            self.user.create(kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **body})

    @property
    def cluster(self) -> Obj:
        return self.user.get(api.API.kind, NAMESPACE, "demo")

    @property
    def ready(self) -> Obj:
        return condition(self.cluster, "Ready")

    def all(self, *phases: str) -> list[Obj]:
        """Return the EtcdBackups in these phases, oldest first; all without any."""
        found = [obj for kind, obj in self.world.server.objects(API.kind)]
        found.sort(key=lambda obj: str(obj["metadata"]["name"]))
        return [obj for obj in found if not phases or (obj.get("status") or {}).get("phase") in phases]

    def completions(self, destination: Obj) -> list[datetime]:
        """Return the times of complete snapshots in a destination."""
        (store,) = destination
        return [
            datetime.fromisoformat(obj["status"]["completedAt"])
            for obj in self.all(COMPLETE)
            if all(obj["spec"]["destination"].get(store, {}).get(k) == v for k, v in destination[store].items())
        ]


async def begun(destination: Obj) -> Schedule:
    world = Schedule(destination)
    await world.configure(destination)
    return world


# X2: what a scheduled snapshot waits for ends with its time.


@pytest.mark.parametrize("destination", [bucket("kyes"), volume("snapshtos")], ids=["Secret", "claim"])
async def test_snapshot_that_waits_ends_when_the_next_one_is_due(destination: Obj) -> None:
    world = await begun(destination)
    await world.pass_hours(1)
    (first,) = world.all()
    assert (first["status"]["phase"], world.all(FAILED)) == ("Pending", [])
    await world.pass_hours(1)
    (ended,) = world.all(FAILED)
    assert ended["metadata"]["name"] == first["metadata"]["name"]
    ready = condition(ended, "Ready")
    assert ready["reason"] in ("SecretMissing", "VolumeMissing")
    assert "does not exist" in ready["message"]
    assert "before the next one was due" in ready["message"]
    assert ended["status"]["completedAt"] >= annotation(first, RETRY_UNTIL)
    assert len(world.all()) == 2, "the next one is created"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [(bucket("kyes"), bucket("keys")), (volume("snapshtos"), volume("snapshots")), (volume("none"), bucket("keys"))],
    ids=["Secret", "claim", "another store"],
)
async def test_corrected_spec_replaces_the_snapshot_that_waits(wrong: Obj, right: Obj) -> None:
    world = await begun(wrong)
    world.has_secret("keys")
    world.has_claim("snapshots")
    await world.pass_hours(1.5)
    (waits,) = world.all()
    assert waits["status"]["phase"] == "Pending"
    await world.configure(right)
    assert len(world.completions(right)) == 1, "the snapshot that is due is taken at once"
    assert [obj["metadata"]["name"] for obj in world.all()] == [waits["metadata"]["name"]]
    await world.pass_hours(1)
    assert len(world.completions(right)) == 2


async def test_snapshot_that_is_being_taken_is_not_replaced() -> None:
    world = await begun(volume("snapshots"))
    world.has_claim("snapshots")
    world.has_claim("other")
    world.world.clock.wait(HOUR)
    await world.clusters.run()
    world.clusters.queue.ring()
    await world.clusters.run()
    await world.backups.run()
    await world.backups.run()
    assert [obj["status"]["phase"] for obj in world.all()] == ["Running"]
    await world.configure(volume("other"))
    assert len(world.completions(volume("snapshots"))) == 1
    await world.pass_hours(1)
    assert len(world.completions(volume("other"))) == 1


async def test_unreachable_cluster_does_not_keep_a_snapshot_waiting() -> None:
    world = await begun(volume("snapshots"))
    world.has_claim("snapshots")
    world.world.database.cut_off = True  # type: ignore[attr-defined]
    await world.pass_hours(1)
    await world.pass_hours(1)
    (ended,) = world.all(FAILED)
    assert condition(ended, "Ready")["reason"] == "NoMember"
    assert "The operator retries." not in condition(ended, "Ready")["message"]
    world.world.database.cut_off = False  # type: ignore[attr-defined]
    await world.settle()
    assert len(world.completions(volume("snapshots"))) == 1


async def test_pod_that_cannot_be_deleted_delays_no_later_snapshot() -> None:
    """The node of the pod is lost, and stays registered."""
    world = await begun(volume("snapshots"))
    world.has_claim("snapshots")
    world.world.workloads.pod_problem = lambda pod: "" if stuck not in pod["metadata"]["name"] else "ImagePullBackOff"
    stuck = "-snapshot"
    await world.pass_hours(1)
    (first,) = world.all()
    stuck = f"{first['metadata']['name']}-snapshot"
    world.user.merge(POD, NAMESPACE, stuck, {"metadata": {"finalizers": ["example.com/lost-node"]}})
    await world.pass_hours(0.5)
    assert "deletionTimestamp" in world.user.get(POD, NAMESPACE, stuck)["metadata"]
    await world.pass_hours(0.5)
    (ended,) = world.all(FAILED)
    assert ended["metadata"]["name"] == first["metadata"]["name"]
    assert STUCK in condition(ended, "Ready")["message"]
    await world.pass_hours(1)
    assert len(world.completions(volume("snapshots"))) == 2


async def test_pod_that_the_api_server_refuses_ends_with_its_time() -> None:
    world = await begun(volume("snapshots"))
    world.has_claim("snapshots")
    serve, quota = world.world.server.request, True

    async def refuse(request: Request) -> Response:
        if quota and request.method != "GET" and request.path.endswith("-snapshot") and "/pods/" in request.path:
            return Response(403, {"message": "exceeded quota: pods", "reason": "Forbidden"})
        return await serve(request)

    world.world.server.request = refuse  # type: ignore[method-assign]
    await world.pass_hours(1)
    await world.pass_hours(1)
    (ended,) = world.all(FAILED)
    assert "exceeded quota" in condition(ended, "Ready")["message"]
    quota = False
    await world.pass_hours(1)
    assert world.completions(volume("snapshots"))


async def test_snapshot_is_taken_after_the_operator_was_down_at_its_time() -> None:
    world = await begun(volume("snapshots"))
    world.has_claim("snapshots")
    world.world.clock.wait(HOUR)
    world.clusters.queue.ring()
    await world.clusters.run()  # created
    world.world.clock.wait(5 * HOUR)
    await world.restart()
    assert world.all(FAILED) == []
    assert len(world.completions(volume("snapshots"))) == 2, "that one, and the latest one that is due"


def cut_off(world: Schedule) -> None:
    etcd: Any = world.world.database
    etcd.cut_off = not etcd.cut_off


# J3: a schedule without its destination is reported before the first snapshot is due.


@pytest.mark.parametrize(
    ("destination", "reason", "missing"),
    [(bucket("keys"), "SecretMissing", "Secret keys"), (volume("snapshots"), "VolumeMissing", "Claim snapshots")],
    ids=["Secret", "claim"],
)
async def test_missing_destination_of_a_schedule_is_reported_at_once(
    destination: Obj, reason: str, missing: str
) -> None:
    world = await begun(destination)
    assert world.all() == [], "no snapshot is due yet"
    assert (world.ready["status"], world.ready["reason"]) == ("False", reason)
    assert "spec.backup.destination." in world.ready["message"]
    assert missing.lower() in world.ready["message"].lower()
    assert condition(world.cluster, "Available")["status"] == "True", "clients are served"
    assert world.cluster["status"]["phase"] == "Running"
    await world.pass_hours(0.9)
    assert world.cluster["status"]["phase"] == "Running", "no time-out of the creation"
    world.has_secret("keys")
    world.has_claim("snapshots")
    await world.settle()
    assert world.ready["status"] == "True"
    world.lacks(SECRET, "keys")
    world.lacks(PERSISTENT_VOLUME_CLAIM, "snapshots")
    await world.settle()
    assert (world.ready["status"], world.ready["reason"]) == ("False", reason)


async def test_claim_of_a_schedule_that_is_being_deleted_is_reported_at_once() -> None:
    """The claim stays while a pod uses it, and no other pod can mount it."""
    world = await begun(volume("snapshots"))
    world.has_claim("snapshots")
    await world.settle()
    assert world.ready["status"] == "True"
    used = {"metadata": {"finalizers": ["example.com/used"]}}
    world.user.merge(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "snapshots", used)
    world.lacks(PERSISTENT_VOLUME_CLAIM, "snapshots")
    await world.settle()
    assert (world.ready["status"], world.ready["reason"]) == ("False", "VolumeMissing")
    assert "PersistentVolumeClaim snapshots is being deleted" in world.ready["message"]


EVENTS: dict[str, Callable[[Schedule], Any]] = {
    "mistype": lambda world: world.configure(bucket("kyes")),
    "correct": lambda world: world.configure(bucket("keys")),
    "another store": lambda world: world.configure(volume("snapshots")),
    "create the Secret": lambda world: world.has_secret("keys"),
    "delete the Secret": lambda world: world.lacks(SECRET, "keys"),
    "half a Secret": lambda world: world.has_secret("keys", accessKeyID="YQ=="),
    "create the claim": lambda world: world.has_claim("snapshots"),
    "delete the claim": lambda world: world.lacks(PERSISTENT_VOLUME_CLAIM, "snapshots"),
    "an hour": lambda world: world.pass_hours(1),
    "a day": lambda world: world.pass_hours(24),
    "restart": lambda world: world.restart(),
    "cut off": cut_off,
}


@pytest.mark.nightly
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(EVENTS)), min_size=1, max_size=10))
async def test_any_course_ends_with_snapshots_once_nothing_is_missing(events: list[str]) -> None:
    world = await begun(bucket("kyes"))
    for event in events:
        if (found := EVENTS[event](world)) is not None:
            await found
        await world.settle()
    world.world.database.cut_off = False  # type: ignore[attr-defined]
    world.has_secret("keys")
    await world.configure(bucket("keys"))
    moment = world.world.clock.now
    await world.pass_hours(1)
    assert [at for at in world.completions(bucket("keys")) if at >= moment], (events, world.all())
