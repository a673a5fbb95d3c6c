"""Continuous samples of the replication of all nodes, and the deaths of primaries that a test causes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from e2e.scenarios.redis.consistency import Death
from e2e.scenarios.redis.deaths import Sample, death_of, sample_of
from e2e.scenarios.redis.session import FAILURES, Access, Address, ignore_unclosed

INTERVAL_SECONDS = 0.1
"""Time between two samples of a node, which bounds how exactly the budget is known."""

REFRESH_SECONDS = 1.0
"""Time between two queries of the nodes' addresses."""

TIMEOUT_SECONDS = 1.0

FindNodes = Callable[[], Mapping[str, Address]]
"""Returns the current addresses of the nodes by name."""


@dataclass
class ReplicationMonitor:
    """Samples of all nodes.

    Attributes:
        find: returns the addresses of the nodes.
        access: credentials.
        samples: the samples so far.
    """

    find: FindNodes
    access: Access = field(default_factory=Access)
    samples: list[Sample] = field(default_factory=list)
    _crashes: list[tuple[str, float]] = field(default_factory=list)
    _addresses: dict[str, Address] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def running(cls, find: FindNodes, access: Access | None = None) -> Iterator[ReplicationMonitor]:
        """Sample the nodes within the block, which starts after the first samples."""
        monitor = cls(find, access or Access(), _addresses=dict(find()))
        working = threading.Thread(target=lambda: asyncio.run(monitor._run()), daemon=True)
        working.start()
        try:
            deadline = time.monotonic() + 30
            while {each.name for each in monitor.samples} < monitor._addresses.keys() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield monitor
        finally:
            monitor._ending.set()
            working.join(30)

    def crash(self, *names: str) -> None:
        """Record that a test is about to kill or isolate these nodes, which may lose what they have not replicated."""
        self._crashes += [(name, time.monotonic()) for name in names]

    def deaths(self) -> list[Death]:
        """Return the deaths of the primaries among the nodes that the test killed or isolated."""
        found = (death_of(self.samples, name, at) for name, at in self._crashes)
        return [each for each in found if each is not None]

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(ignore_unclosed)  # of clients in other threads
        tasks: dict[str, asyncio.Task[None]] = {}
        while not self._ending.is_set():
            for name in self._addresses.keys() - tasks.keys():
                tasks[name] = asyncio.create_task(self._sample_all(name))
            await asyncio.sleep(REFRESH_SECONDS)
            with suppress(Exception):  # the API may be down; the nodes keep their addresses
                self._addresses |= await asyncio.to_thread(self.find)
        await asyncio.gather(*tasks.values())

    async def _sample_all(self, name: str) -> None:
        address, client = None, None
        while not self._ending.is_set():
            if client is None or address != self._addresses[name]:
                if client is not None:
                    await client.aclose()
                address = self._addresses[name]
                client = self._client(address)
            called = time.monotonic()
            try:
                self.samples.append(await self._sample(client, name, called))
            except (*FAILURES, ValueError, KeyError, IndexError):  # a server that starts answers with errors
                self.samples.append(Sample(name, called, time.monotonic()))
            await asyncio.sleep(INTERVAL_SECONDS)
        if client is not None:
            await client.aclose()

    async def _sample(self, client: Redis, name: str, called: float) -> Sample:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            info = await client.execute_command("INFO")  # type: ignore[no-untyped-call]
            state = await client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
            nodes = await client.execute_command("CLUSTER", "NODES")  # type: ignore[no-untyped-call]
        return sample_of(name, called, time.monotonic(), info, str(state), str(nodes))

    def _client(self, address: Address) -> Redis:
        return Redis(
            host=address[0],
            port=address[1],
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=True,
            decode_responses=True,
            protocol=2,
            **self.access.options(),
        )
