"""Durations of a plan: measured on the pods that run now, else defaults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import POD, Obj
from simulator.api_server.server import ApiServer
from simulator.clock import Clock
from simulator.durations import Durations, measured
from simulator.kubelet.timing import PodTiming
from simulator.kubelet.workloads import Workloads
from simulator.plan import Live, plan
from simulator.subjects import subject
from tests.support import plays
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.planning import WORLDS, changed, live, nothing_else
from tests.support.redis import scenarios as redis

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def pod(started: float, ready: float, *, restarts: int = 0, is_ready: str = "True") -> Obj:
    """Return a pod whose containers started, and which was ready, so many seconds after its creation."""
    moments = [rfc3339(BEGIN + timedelta(seconds=seconds)) for seconds in (0, started, ready)]
    container = {"name": "etcd", "restartCount": restarts, "state": {"running": {"startedAt": moments[1]}}}
    condition = {"type": "Ready", "status": is_ready, "lastTransitionTime": moments[2]}
    status = {"phase": "Running", "containerStatuses": [container], "conditions": [condition]}
    return {"metadata": {"name": "demo-0", "creationTimestamp": moments[0]}, "status": status}


def test_pods_that_run_are_measured() -> None:
    found = measured([pod(1, 3), pod(2, 5), pod(9, 60)])
    assert (found.start, found.ready, found.pods) == (2.0, 3.0, 3)
    assert found.source == (
        "A new pod takes as long as the 3 pods that run now: 5 s from its creation until it is ready. "
        "Other durations are defaults."
    )


@pytest.mark.parametrize(
    "other",
    [pod(1, 3, restarts=1), pod(1, 3, is_ready="False"), pod(1, 5000), {"metadata": {"name": "new"}}],
    ids=["container restarted", "not ready", "readiness lost in between", "no status"],
)
def test_pods_that_show_no_start_are_not_measured(other: Obj) -> None:
    assert measured([other]) == Durations()
    assert measured([other, pod(1, 3)]).pods == 1


def test_without_pods_the_defaults_are_used() -> None:
    assert measured([]) == Durations()
    assert measured([], Durations(stop=5)) == Durations(stop=5)
    assert Durations().source.startswith("Durations are defaults")


def with_times(found: Live, started: float, ready: float) -> Live:
    """Return what runs now with pods that took so many seconds to start, and then to become ready."""
    objects = []
    for kind, obj in found.objects:
        if kind == POD:
            since = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
            moments = [rfc3339(since + timedelta(seconds=seconds)) for seconds in (started, started + ready)]
            containers = [
                each | {"state": {"running": {"startedAt": moments[0]}}} for each in obj["status"]["containerStatuses"]
            ]
            conditions = [each | {"lastTransitionTime": moments[1]} for each in obj["status"]["conditions"]]
            obj = obj | {"status": obj["status"] | {"containerStatuses": containers, "conditions": conditions}}
        objects.append((kind, obj))
    return Live(found.resource, objects, found.now + timedelta(seconds=60), found.resizes)


async def test_etcd_from_3_to_5_members_takes_as_long_as_on_a_real_cluster() -> None:
    """Measured on a local cluster whose pods start within two seconds: 9 s, of which 6 are etcd's own."""
    play = await plays.begun(etcd.ETCD, etcd.cluster(3))
    found = with_times(live(play), 1, 1)
    assert found.resource is not None
    made = await plan(subject("etcd"), WORLDS["etcd"][1], found, changed(found.resource, {"size": 5}), nothing_else)
    assert made.seconds == pytest.approx(9, rel=0.25), [(each.title, each.seconds) for each in made.steps]
    assert made.assumptions[0].startswith("A new pod takes as long as the 3 pods that run now: 2 s")


async def test_restarts_take_the_time_of_the_pods_and_of_their_hooks() -> None:
    play = await plays.begun(WORLDS["redis"][0], redis.cluster(6))
    found = with_times(live(play), 2, 2)
    assert found.resource is not None
    spec = {"resources": {"requests": {"cpu": "200m"}}}
    made = await plan(subject("redis"), WORLDS["redis"][1], found, changed(found.resource, spec), nothing_else)
    evictions = [each for each in made.steps if each.action == "evict"]
    assert len(evictions) == 6
    assert all(each.seconds >= 5 + 1 + 4 for each in evictions), [each.seconds for each in evictions]


async def test_pods_that_start_together_take_the_time_once() -> None:
    play = await plays.begun(WORLDS["memcached"][0], memcached.apply(size=3))
    found = with_times(live(play), 10, 10)
    assert found.resource is not None
    change = changed(found.resource, {"size": 8})
    made = await plan(subject("memcached"), WORLDS["memcached"][1], found, change, nothing_else)
    assert len([each for each in made.steps if each.action == "starts"]) == 5
    assert 20 <= made.seconds <= 21


def test_time_passes_once_for_pods_that_are_created_together() -> None:
    clock = Clock(BEGIN)
    server = ApiServer([], clock=clock)
    timing = PodTiming(server, clock, Durations(start=3, ready=2, stop=1))
    Workloads(server).use_timing(timing)
    user = server.actor("kubectl")
    server_with_hook = {"name": "a", "image": "a:1", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    spec = {"containers": [server_with_hook]}
    pods = [user.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}) for name in "ab"]
    assert [timing.start(each) for each in pods] == ["2026-01-01T00:00:03Z"] * 2
    assert clock.now == BEGIN + timedelta(seconds=5)
    timing.stop(pods[0])
    assert clock.now == BEGIN + timedelta(seconds=11)
