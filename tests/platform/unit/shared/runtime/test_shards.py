"""Shards: how keys are split, and that no key is ever worked on by two replicas."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from shared.kubernetes.client import Kube, Request, Response, Transport
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import LEASE, Key
from shared.runtime.leader_election import REQUESTED_BY, Leadership, Times
from shared.runtime.shards import Election, Shard, lease_of, shard_of
from shared.status.events import Recorder
from tests.harness import ApiServer
from tests.support.virtual_time import in_virtual_time

TIMES = Times(lease_duration=1, renew_deadline=0.4, retry_period=0.05)
KEYS = [Key(f"team-{number % 7}", f"cache-{number}") for number in range(10_000)]


def test_shard_of_a_key_never_changes() -> None:
    """Replicas of two versions of the operator may run at the same time."""
    names = [Key("default", "cache"), Key("default", "carts"), Key("shop", "carts")]
    assert [shard_of(key, 4) for key in names] == [0, 0, 1]
    assert [shard_of(key, 2) for key in names] == [0, 0, 1]
    assert {shard_of(key, 1) for key in KEYS[:10]} == {0}


@pytest.mark.parametrize("count", [2, 4, 10])
def test_every_key_has_exactly_one_shard_and_shards_are_of_similar_size(count: int) -> None:
    shards = [Shard(index, count) for index in range(count)]
    assert all(sum(shard.owns(key) for shard in shards) == 1 for key in KEYS[:1000])
    sizes = Counter(shard_of(key, count) for key in KEYS)
    assert all(abs(sizes[index] / len(KEYS) - 1 / count) < 0.02 for index in range(count))


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def election(transport: Transport, identity: str, shards: int) -> Election:
    kube = Kube(transport, manager="operator")
    recorder = Recorder(kube, component="operator")
    options = {"operator": "operator", "namespace": "default", "times": TIMES}
    return Election(kube, recorder, identity=identity, shards=shards, **options)  # type: ignore[arg-type]


class Work:
    """Which replica works on which keys now: the oracle of this module."""

    def __init__(self) -> None:
        self.workers: dict[Key, str] = {}
        self.terms: Counter[str] = Counter()

    @contextmanager
    def on(self, shard: Shard, identity: str) -> Iterator[None]:
        mine = [key for key in KEYS[:64] if shard.owns(key)]
        for key in mine:
            assert key not in self.workers, f"{identity} works on {key}, as {self.workers[key]} does"
            self.workers[key] = identity
        self.terms[identity] += 1
        try:
            yield
        finally:
            for key in mine:
                del self.workers[key]

    def shares(self) -> Counter[str]:
        """Return the number of keys in work by replica."""
        return Counter(self.workers.values())


@asynccontextmanager
async def replica(transport: Transport, identity: str, shards: int, work: Work) -> AsyncIterator[None]:
    """Run a replica as `Process` does: it ends its work when its term is lost, or another replica requests it."""
    candidate = election(transport, identity, shards)

    async def lead(shard: Shard) -> None:
        while True:
            async with shard.term() as lost:
                with work.on(shard, identity):
                    requested = asyncio.create_task(wait(shard.requested))
                    await asyncio.wait({lost, requested}, return_when=asyncio.FIRST_COMPLETED)
                    requested.cancel()

    guard = asyncio.create_task(candidate.run())
    leading = {asyncio.create_task(lead(shard)) for shard in candidate.shards}
    try:
        yield
    finally:
        await end(leading)
        await end({guard})


async def wait(event: asyncio.Event) -> None:
    await event.wait()


async def end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def until(check: object, seconds: float = 3.0) -> None:
    assert callable(check)
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@in_virtual_time
async def test_replica_that_leads_every_shard_hands_half_of_them_to_a_second(server: ApiServer) -> None:
    work = Work()
    async with replica(server, "a", 4, work):
        await until(lambda: work.shares()["a"] == 64)
        async with replica(server, "b", 4, work):
            await until(lambda: work.terms["b"] == 2)
            await until(lambda: len(work.workers) == 64)
            await asyncio.sleep(1)
            assert work.terms == {"a": 4, "b": 2}, "an even split does not change"
        await until(lambda: work.shares()["a"] == 64, 6 * TIMES.retry_period)


@in_virtual_time
async def test_request_of_a_replica_that_ended_costs_no_more_than_its_reservation(server: ApiServer) -> None:
    """A Lease is reserved for the replica that requested it, which may not exist any more."""
    work = Work()
    async with replica(server, "a", 2, work):
        await until(lambda: work.shares()["a"] == 64)
        annotations = {"metadata": {"annotations": {REQUESTED_BY: "ended"}}}
        server.actor("ended").merge(LEASE, "default", lease_of("operator", 1), annotations)
        await until(lambda: work.shares()["a"] < 64)
        await until(lambda: work.shares()["a"] == 64, 1 + 6 * TIMES.retry_period)
        lease = server.actor("reader").get(LEASE, "default", lease_of("operator", 1))
        assert REQUESTED_BY not in (lease["metadata"].get("annotations") or {})


@in_virtual_time
async def test_replica_keeps_its_only_shard(server: ApiServer) -> None:
    work = Work()
    async with replica(server, "a", 2, work), replica(server, "b", 2, work):
        await until(lambda: len(work.workers) == 64 and len(work.shares()) == 2)
        terms = dict(work.terms)
        for index in range(2):
            annotations = {"metadata": {"annotations": {REQUESTED_BY: "greedy"}}}
            server.actor("greedy").merge(LEASE, "default", lease_of("operator", index), annotations)
        await asyncio.sleep(2 * TIMES.renew_deadline)
        assert work.terms == terms


@in_virtual_time
async def test_requests_with_a_single_shard_are_those_of_an_operator_without_shards(server: ApiServer) -> None:
    [shard] = election(server, "a", 1).shards
    async with shard.term():
        sent = [str(write) for write in server.log.writes()]
    leadership = Leadership(
        Kube(server, manager="operator"),
        Recorder(Kube(server, manager="operator"), component="operator"),
        name="operator-2",
        namespace="default",
        times=TIMES,
    )
    server.log.reset()
    async with leadership.term():
        assert [str(write).replace("operator-2", "operator") for write in server.log.writes()] == sent
    assert [obj["metadata"]["name"] for _, obj in server.objects(LEASE)] == ["operator", "operator-2"]


@in_virtual_time
async def test_other_number_of_shards_waits_until_the_last_replica_has_ended(server: ApiServer) -> None:
    work, loop = Work(), asyncio.get_running_loop()
    async with replica(server, "new", 1, work):
        await until(lambda: work.shares()["new"] == 64)
        async with replica(server, "sharded", 2, work):
            await asyncio.sleep(2 * TIMES.lease_duration)
            assert work.shares() == {"new": 64}
    async with replica(server, "b", 2, work):
        await until(lambda: work.shares()["b"] == 64)
        async with replica(server, "c", 2, work), replica(server, "d", 3, work):
            await until(lambda: len(work.shares()) == 2 and len(work.workers) == 64)
            before = loop.time()
            assert work.terms["d"] == 0
    assert loop.time() - before < TIMES.lease_duration
    async with replica(server, "old", 1, work):
        await until(lambda: work.shares()["old"] == 64, TIMES.lease_duration + 4 * TIMES.retry_period)


class Lossy:
    """A network that loses requests and responses, and may be down, for all Leases or for some."""

    def __init__(self, server: ApiServer, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.is_down_for: Callable[[str], bool] = lambda path: False

    async def request(self, request: Request) -> Response:
        if self.is_down_for(request.path) or self._chance.random() < 0.1:
            raise Unavailable("request lost")
        await asyncio.sleep(self._chance.random() * 0.02)
        answer = await self._server.request(request)
        if self._chance.random() < 0.1:
            raise Unavailable("response lost")
        return answer


OUTAGES: tuple[Callable[[str], bool], ...] = (
    lambda path: False,
    lambda path: True,
    lambda path: path.endswith("/operator"),  # the guard of replicas with shards, and the Lease of one without
    lambda path: "-shard-" in path,
)


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_no_key_is_ever_worked_on_by_two(server: ApiServer, seed: int) -> None:
    """Replicas with 2, 4 and no shards come and go, on networks that lose messages; some lose the API server."""
    chance, work = random.Random(seed), Work()
    random.seed(seed)  # the pauses between attempts to take a Lease
    end = asyncio.get_running_loop().time() + 20

    async def live(number: int) -> None:
        while asyncio.get_running_loop().time() < end:
            network = Lossy(server, chance)
            async with replica(network, f"replica-{number}", (2, 2, 4, 1)[number % 4], work):
                await asyncio.sleep(chance.random() * 1.5)
                network.is_down_for = chance.choice(OUTAGES)
                await asyncio.sleep(chance.random() * 3)  # three times the duration of a Lease
            await asyncio.sleep(chance.random() * 0.5)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(live(number))
    assert sum(work.terms.values()) >= 6
    assert len(work.terms) >= 2


@pytest.mark.parametrize("frozen", ["guard", "shard"])
@in_virtual_time
async def test_frozen_replica_may_not_act_once_one_of_its_leases_expired(server: ApiServer, frozen: str) -> None:
    """A suspended process resumes within a task, before it learns that it lost the Lease."""
    now = 0.0
    kube = Kube(server, manager="operator")
    candidate = Election(
        kube,
        Recorder(kube, component="operator"),
        operator="operator",
        namespace="default",
        shards=2,
        times=Times(15, 10, 1),
        identity="a",
        clock=lambda: now,
    )
    guard = asyncio.create_task(candidate.run())
    [shard, _] = candidate.shards
    with pytest.raises(Unavailable):
        shard.permit("write")
    async with shard.term():
        shard.permit("write")
        now = 14.0
        renewed = candidate._guard._leadership if frozen == "shard" else candidate._leaderships[0]  # type: ignore[union-attr]
        assert await renewed._attempt(1)
        now = 16.0
        with pytest.raises(Unavailable, match="another replica may be the leader"):
            shard.permit("write")
    guard.cancel()
