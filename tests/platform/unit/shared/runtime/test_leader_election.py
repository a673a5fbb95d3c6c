"""Leader election: the rules as pure functions, and candidates for a Lease on the in-memory API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.kubernetes.client import Kube, Request, Response, Transport
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import DEPLOYMENT, EVENT, LEASE, Obj
from shared.runtime.leader_election import Fence, Leadership, LeaseObservation, Times, claim, release, unopposed
from shared.status.events import Recorder
from simulator.faults import requests
from tests.harness import ApiServer
from tests.support.virtual_time import in_virtual_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = Times(lease_duration=1, renew_deadline=0.4, retry_period=0.05)


def observation(since: float = 0.0, **spec: Any) -> LeaseObservation:
    return LeaseObservation({"metadata": {"resourceVersion": "1"}, "spec": spec}, since)


# The rules.


def test_lease_is_free_once_it_has_not_changed_for_its_duration() -> None:
    observed = observation(
        since=100.0, holderIdentity="a", leaseDurationSeconds=15, renewTime="1970-01-01T00:00:00.000000Z"
    )
    assert not observed.may_be_taken_by("b", 114.9), "the clock of the holder does not matter"
    assert observed.may_be_taken_by("b", 115.0)
    assert observed.may_be_taken_by("a", 100.0), "one's own"


def test_released_lease_is_free_at_once() -> None:
    assert observation(since=100.0, **release(NOW)).may_be_taken_by("b", 100.0)
    assert observation(since=100.0).may_be_taken_by("b", 100.0), "a Lease without a holder is free"


def test_only_a_changed_spec_renews_a_lease() -> None:
    observed = observation(since=100.0, holderIdentity="a", renewTime="1")
    annotated = {"metadata": {"resourceVersion": "2"}, "spec": dict(observed.spec)}
    assert observed.next(annotated, 110.0) == LeaseObservation(annotated, 100.0)
    renewed = {"metadata": {"resourceVersion": "3"}, "spec": observed.spec | {"renewTime": "2"}}
    assert observed.next(renewed, 110.0).since == 110.0


def test_transitions_are_counted_when_the_holder_changes() -> None:
    first = claim(None, "a", 15, NOW)
    assert first["leaseTransitions"] == 0
    assert first["acquireTime"] == first["renewTime"] == "2026-01-01T00:00:00.000000Z"
    assert not {"leaseTransitions", "acquireTime"} & set(claim(observation(**first), "a", 15, NOW)), (
        "a renewal keeps them"
    )
    assert claim(observation(**first), "b", 15, NOW)["leaseTransitions"] == 1
    given_back = observation(**(first | release(NOW)))
    assert claim(given_back, "b", 15, NOW)["leaseTransitions"] == 1


def test_notice_is_the_time_between_deadline_and_takeover() -> None:
    assert Times(15, 10, 1).notice == 5


# Candidates.


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def candidate(transport: Transport, identity: str, **options: Any) -> Leadership:
    kube = Kube(transport, manager="operator")
    recorder = options.pop("recorder", None) or Recorder(kube, component="operator")
    options = {"times": TIMES, **options}
    return Leadership(kube, recorder, name="operator", namespace="default", identity=identity, **options)


def lease(server: ApiServer) -> Obj:
    spec: Obj = server.actor("reader").get(LEASE, "default", "operator")["spec"]
    return spec


def holder(server: ApiServer) -> str:
    return lease(server).get("holderIdentity") or ""


@asynccontextmanager
async def campaign(leadership: Leadership) -> AsyncIterator[asyncio.Event]:
    """Run a candidate; the yielded event is set while it leads."""
    leads = asyncio.Event()

    async def run() -> None:
        while True:
            async with leadership.term() as lost:
                leads.set()
                try:
                    await lost
                finally:
                    leads.clear()

    task = asyncio.create_task(run())
    try:
        yield leads
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


@in_virtual_time
async def test_first_candidate_leads_and_records_an_event(server: ApiServer) -> None:
    kube = Kube(server, manager="operator")
    recorder = Recorder(kube, component="operator")
    async with candidate(server, "a", recorder=recorder).term():
        assert (holder(server), lease(server)["leaseTransitions"]) == ("a", 0)
        assert REGISTRY.get_sample_value("leader_election_master_status", {"name": "operator"}) == 1
        writer = asyncio.create_task(recorder.run())
        await recorder.flush(1)
        writer.cancel()
    assert REGISTRY.get_sample_value("leader_election_master_status", {"name": "operator"}) == 0
    [(_, event)] = server.objects(EVENT)
    assert (event["reason"], event["message"]) == ("LeaderElection", "a became leader")
    assert event["involvedObject"]["kind"] == "Lease"


@in_virtual_time
async def test_standby_takes_over_a_released_lease_at_once(server: ApiServer) -> None:
    async with campaign(candidate(server, "b")) as leads:
        async with candidate(server, "a", times=TIMES).term():
            await asyncio.sleep(2 * TIMES.lease_duration)
            assert not leads.is_set(), "a leader that renews keeps the Lease"
        assert holder(server) == ""
        async with asyncio.timeout(4 * TIMES.retry_period):
            await leads.wait()
    assert lease(server)["leaseTransitions"] == 1


@in_virtual_time
async def test_crashed_leader_is_replaced_after_the_lease_duration(server: ApiServer) -> None:
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": "2999-01-01T00:00:00.000000Z"}
    metadata = {"name": "operator", "namespace": "default"}
    server.actor("gone").create(LEASE, {"metadata": metadata, "spec": spec})
    began = asyncio.get_running_loop().time()
    async with candidate(server, "b").term():
        took = asyncio.get_running_loop().time() - began
    assert 1.0 <= took < 1.0 + 4 * TIMES.retry_period


@in_virtual_time
async def test_leader_keeps_the_lease_until_its_work_has_stopped(server: ApiServer) -> None:
    begun = asyncio.Event()

    async def lead() -> None:
        async with candidate(server, "a").term():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1.5 * TIMES.lease_duration)

    leader = asyncio.create_task(lead())
    await begun.wait()
    async with campaign(candidate(server, "b")) as leads:
        leader.cancel()
        taken = asyncio.create_task(leads.wait())
        await asyncio.wait({leader, taken}, return_when=asyncio.FIRST_COMPLETED)
        assert leader.done()
        assert not taken.done()
        async with asyncio.timeout(4 * TIMES.retry_period):
            await taken


@in_virtual_time
async def test_leader_without_an_api_server_stops_in_time_and_leads_again(server: ApiServer) -> None:
    leadership, loop = candidate(server, "a"), asyncio.get_running_loop()
    async with leadership.term() as lost:
        server.faults.lose_request(when=requests("PATCH"), times=None)
        server.faults.lose_request(when=requests("GET"), times=None)
        before = loop.time()
        await lost
        stopped = loop.time() - before
    assert 0 < stopped <= TIMES.renew_deadline + 0.1 < TIMES.lease_duration
    assert leadership.has_expired
    server.faults.clear()
    async with asyncio.timeout(1), leadership.term():
        assert lease(server)["leaseTransitions"] == 0, "it kept the Lease all the time"


@in_virtual_time
async def test_leader_notices_that_another_took_its_lease(server: ApiServer) -> None:
    async with candidate(server, "a").term() as lost:
        server.actor("thief").merge(LEASE, "default", "operator", {"spec": {"holderIdentity": "thief"}})
        async with asyncio.timeout(2 * TIMES.renew_deadline):
            await lost
    assert holder(server) == "thief", "the Lease of another holder is not released"


@in_virtual_time
async def test_editing_or_deleting_the_lease_does_not_depose_the_leader(server: ApiServer) -> None:
    user_client = server.actor("person")
    async with candidate(server, "a").term() as lost:
        user_client.merge(LEASE, "default", "operator", {"metadata": {"annotations": {"by": "person"}}})
        await asyncio.sleep(TIMES.renew_deadline)
        user_client.delete(LEASE, "default", "operator")
        await asyncio.sleep(TIMES.renew_deadline)
        assert holder(server) == "a"
        assert not lost.done()


class Slow:
    """A transport whose responses to writes are late or missing."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.landed = asyncio.Event()

    async def request(self, request: Request) -> Response:
        answer = await self._server.request(request)
        if request.method == "POST":
            self.landed.set()
            await asyncio.sleep(60)
        return answer


@in_virtual_time
async def test_candidate_stopped_before_it_learns_that_it_leads_releases_the_lease(server: ApiServer) -> None:
    slow = Slow(server)
    async with campaign(candidate(slow, "a", times=Times(15, 10, 1))):
        await slow.landed.wait()
        assert holder(server) == "a"
    assert holder(server) == ""


@in_virtual_time
async def test_stopped_standby_does_not_change_the_lease(server: ApiServer) -> None:
    async with candidate(server, "a").term():
        async with campaign(candidate(server, "b")):
            await asyncio.sleep(3 * TIMES.retry_period)
        assert holder(server) == "a"


@in_virtual_time
async def test_hanging_request_does_not_delay_the_loss_of_leadership(server: ApiServer) -> None:
    class Hanging:
        hangs = False

        async def request(self, request: Request) -> Response:
            if self.hangs:
                await asyncio.sleep(60)
            return await server.request(request)

    transport, loop = Hanging(), asyncio.get_running_loop()
    async with candidate(transport, "a").term() as lost:
        transport.hangs, before = True, loop.time()
        await lost
        assert loop.time() - before <= TIMES.renew_deadline + 0.1


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_two_replicas_never_lead_at_once(server: ApiServer, seed: int) -> None:
    """Five candidates, each on a network that loses requests and responses."""
    chance, leading, terms = random.Random(seed), set[str](), 0
    random.seed(seed)  # the pauses between attempts to take the Lease

    class Lossy:
        is_away = False

        async def request(self, request: Request) -> Response:
            if self.is_away or chance.random() < 0.1:
                raise Unavailable("request lost")
            answer = await server.request(request)
            if chance.random() < 0.1:
                raise Unavailable("response lost")
            return answer

    async def run(leadership: Leadership, network: Lossy) -> None:
        nonlocal terms
        while True:
            async with leadership.term() as lost:
                assert not leading, f"{leading} leads as well"
                leading.add(leadership._identity)
                terms += 1
                network.is_away = chance.random() < 0.5
                await asyncio.wait({lost}, timeout=chance.random())
                leading.clear()
            network.is_away = False

    networks = [Lossy() for _ in range(5)]
    tasks = [
        asyncio.create_task(run(candidate(network, f"candidate-{number}"), network))
        for number, network in enumerate(networks)
    ]
    done, _ = await asyncio.wait(tasks, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in done:
        task.result()
    assert terms >= 10


@in_virtual_time
async def test_fence_rejects_writes_once_another_replica_may_lead(server: ApiServer) -> None:
    now = 0.0
    leadership = candidate(server, "a", clock=lambda: now, times=Times(15, 10, 1))
    kube = Kube(Fence(server, leadership.permit), manager="operator")
    obj = {"metadata": {"name": "cache", "namespace": "default"}}
    with pytest.raises(Unavailable, match="another replica may be the leader"):
        await kube.create(EVENT, obj)
    with pytest.raises(Unavailable, match=r"remove member a-2: not executed"):
        leadership.permit("remove member a-2")
    async with leadership.term():
        await kube.create(EVENT, obj)
        leadership.permit("remove member a-2")
        now = 15.0  # suspended: nothing ran, and no renewal was sent
        with pytest.raises(Unavailable, match="another replica may be the leader"):
            await kube.create(EVENT, {"metadata": {"name": "late", "namespace": "default"}})
        with pytest.raises(Unavailable, match="another replica may be the leader"):
            leadership.permit("remove member a-2")
        assert (await kube.list(DEPLOYMENT))["items"] == []
    assert [obj["metadata"]["name"] for _, obj in server.objects(EVENT)] == ["cache"]


@in_virtual_time
async def test_term_without_leader_election_starts_at_once_and_never_ends() -> None:
    async with unopposed() as lost:
        assert not lost.done()
