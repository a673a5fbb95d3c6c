"""Trust of the API server in the webhooks is repaired within seconds, by watches of three objects by name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest
from cryptography.x509.verification import VerificationError

from shared.kubernetes.client import Request
from shared.kubernetes.errors import Forbidden
from shared.kubernetes.kinds import SECRET
from shared.kubernetes.streams import Streams
from shared.pki import trust_watch
from shared.pki.rotation import LIFETIME
from shared.pki.serving import SelfSignedCertificates
from shared.pki.trust_bundle import MUTATING, VALIDATING
from shared.pki.trust_watch import NamedObject, TrustWatch
from simulator.api_server.streams import WatchServer
from tests.platform.unit.shared.pki.replicas import Cluster, configuration, served_by, verify

OBJECTS: list[NamedObject] = [
    (MUTATING, None, "ours"),
    (VALIDATING, None, "ours"),
    (SECRET, "system", "ours-certificates"),
]

REPAIRED_WITHIN_SECONDS = 10.0


class Denying:
    """An API server that grants no watch."""

    def stream(self, request: Request, *, accept: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise Forbidden(f"watch is not allowed: {request}", status=403)


class Ending:
    """A proxy that ends each watch at once, in good order."""

    def __init__(self) -> None:
        self.opened = 0

    @contextlib.asynccontextmanager
    async def stream(self, _: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened += 1
        await asyncio.sleep(0)
        yield self._nothing()

    async def _nothing(self) -> AsyncIterator[bytes]:
        for line in list[bytes]():
            yield line


@contextlib.asynccontextmanager
async def running(cluster: Cluster, streams: Streams, count: int = 3) -> AsyncIterator[list[SelfSignedCertificates]]:
    """Run replicas with certificates of the usual lifetime, which by themselves check every 600 s."""
    replicas = [cluster.replica(life=LIFETIME) for _ in range(count)]
    tasks = [task for replica in replicas for task in await started(replica, streams)]
    await asyncio.sleep(1.5)  # the checks after the start are over
    try:
        yield replicas
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def started(replica: SelfSignedCertificates, streams: Streams) -> list[asyncio.Task[None]]:
    await replica.open()
    watch = TrustWatch(streams, OBJECTS)
    return [asyncio.create_task(watch.run()), asyncio.create_task(replica.run(watch.wait))]


async def eventually(holds: Callable[[], bool]) -> float:
    """Return the seconds until a condition holds, at most the time of a repair."""
    since = time.monotonic()
    while not holds():
        assert time.monotonic() - since < REPAIRED_WITHIN_SECONDS, "not repaired in time"
        await asyncio.sleep(0.05)
    return time.monotonic() - since


def are_trusted(cluster: Cluster, *replicas: SelfSignedCertificates) -> bool:
    """Return whether both configurations verify what each replica serves."""
    try:
        for kind in (MUTATING, VALIDATING):
            for replica in replicas:
                verify(served_by(replica.context), cluster.trusted(kind), cluster.now)
    except (VerificationError, ValueError):
        return False
    return True


@pytest.fixture(params=["watch", "poll"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster], Streams]:
    """Replicas with and without the right to watch."""
    if request.param == "poll":
        assert trust_watch.RETRY_SECONDS + trust_watch.MIN_INTERVAL_SECONDS < REPAIRED_WITHIN_SECONDS
        monkeypatch.setattr(trust_watch, "RETRY_SECONDS", trust_watch.RETRY_SECONDS / 8)
    return lambda cluster: WatchServer(cluster.server) if request.param == "watch" else Denying()


async def test_recreated_configurations_are_trusted_again_within_seconds(
    connect: Callable[[Cluster], Streams],
) -> None:
    cluster = Cluster()
    async with running(cluster, connect(cluster)) as replicas:
        assert are_trusted(cluster, *replicas)
        for kind in (MUTATING, VALIDATING):
            cluster.chart.delete(kind, None, "ours")
            cluster.chart.create(kind, configuration(kind))
        assert not are_trusted(cluster, *replicas)
        await eventually(lambda: are_trusted(cluster, *replicas))


async def test_deleted_secret_and_a_restart_leave_no_replica_untrusted(
    connect: Callable[[Cluster], Streams],
) -> None:
    cluster = Cluster()
    streams = connect(cluster)
    async with running(cluster, streams, count=2) as replicas:
        cluster.chart.delete(SECRET, "system", "ours-certificates")
        new = cluster.replica(life=LIFETIME)
        tasks = await started(new, streams)
        for _ in range(20):
            assert are_trusted(cluster, *replicas, new), "at no time is any of them untrusted"
            await asyncio.sleep(0.1)
        await eventually(lambda: len({served_by(replica.context) for replica in (*replicas, new)}) == 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_secret_that_is_created_again_keeps_the_marks_of_helm() -> None:
    """Otherwise Helm refuses to install the chart while an operator of the former release has just ended."""
    cluster, name = Cluster(), ("system", "ours-certificates")
    async with running(cluster, WatchServer(cluster.server), count=1):
        marks = {
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "ours"},
        }
        cluster.chart.merge(SECRET, *name, {"metadata": marks})
        await asyncio.sleep(1.5)
        cluster.chart.delete(SECRET, *name)
        await eventually(lambda: bool(cluster.server.objects(SECRET)))
        metadata = cluster.chart.get(SECRET, *name)["metadata"]
        assert {key: metadata.get(key) for key in marks} == marks


async def test_new_authority_starts_from_what_the_configurations_trust() -> None:
    cluster = Cluster()
    replicas = [cluster.replica(life=LIFETIME) for _ in range(3)]
    for replica in replicas:
        await replica.open()
    cluster.chart.delete(SECRET, "system", "ours-certificates")
    await cluster.replica(life=LIFETIME).open()
    assert are_trusted(cluster, *replicas), "none of them has read the new certificate yet"


async def test_expired_and_unreadable_bundles_are_not_continued() -> None:
    cluster = Cluster()
    await cluster.replica(life=timedelta(seconds=100)).open()
    former = cluster.trusted()
    cluster.chart.delete(SECRET, "system", "ours-certificates")
    found = cluster.chart.get(MUTATING, None, "ours")
    found["webhooks"][0]["clientConfig"]["caBundle"] = "bm9uc2Vuc2U="
    cluster.chart.update(MUTATING, found)
    cluster.now += timedelta(days=3650)
    await cluster.replica(life=LIFETIME).open()
    assert former not in cluster.trusted()
    assert cluster.trusted().count("BEGIN CERTIFICATE") == 1


async def test_watch_selects_its_object_by_name_without_its_content() -> None:
    requested: list[tuple[str, str, str]] = []

    class Recording:
        def stream(self, request: Request, *, accept: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
            requested.append((request.path, request.query["fieldSelector"], accept))
            raise Forbidden("", status=403)

    task = asyncio.create_task(TrustWatch(Recording(), OBJECTS).run())
    await asyncio.sleep(0.01)
    task.cancel()
    assert [name for _, name, _ in requested] == ["metadata.name=ours"] * 2 + ["metadata.name=ours-certificates"]
    assert all("PartialObjectMetadata" in accept for _, _, accept in requested)


async def test_fight_over_an_object_costs_at_most_one_check_a_second() -> None:
    cluster = Cluster()
    watches = WatchServer(cluster.server)
    watch = TrustWatch(watches, OBJECTS)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    since = time.monotonic()
    for number in range(2):
        cluster.chart.merge(MUTATING, None, "ours", {"metadata": {"labels": {"change": str(number)}}})
        await asyncio.sleep(0.01)
        assert await watch.wait(5)
    assert time.monotonic() - since >= 2 * trust_watch.MIN_INTERVAL_SECONDS
    task.cancel()


async def test_watch_that_ends_at_once_is_not_opened_in_a_loop() -> None:
    proxy = Ending()
    task = asyncio.create_task(TrustWatch(proxy, OBJECTS[:1]).run())
    await asyncio.sleep(0.3)
    task.cancel()
    assert proxy.opened == 1


@pytest.mark.parametrize("turns", range(5))
async def test_cancellation_at_the_moment_of_a_change_is_not_lost(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, with asyncio.wait_for of Python 3.11, the task continued, and its end was awaited for ever."""
    monkeypatch.setattr(trust_watch, "MIN_INTERVAL_SECONDS", 0.0)
    watch = TrustWatch(Denying(), OBJECTS)
    task = asyncio.create_task(watch.wait(60))
    await asyncio.sleep(0.01)
    watch._changed.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.cancel():  # it has not ended yet
        with pytest.raises(asyncio.CancelledError):
            await task
