"""Shards: the keys are split by a stable hash among several leaders, each with a Lease.

Each shard has a Lease, `<operator>-shard-<i>`. With several shards, the Lease `<operator>` is the guard: replicas with
the same number of shards hold it together, as one holder. A replica works on a shard while it holds both Leases. So two
replicas that split the keys differently, such as during an upgrade, never work at the same time. Each replica renews
the guard itself, so the rules of `shared.runtime.leader_election` apply to it. Only its release differs: other holders
may still work, so it is not released but expires.

With one shard there is no guard: the Lease of the shard is `<operator>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Key
from shared.runtime.executor import Permit, always
from shared.runtime.leader_election import EvenBalance, Leadership, Term, Times, new_identity, unopposed
from shared.status.events import Recorder

MAX_SHARDS = 10
"""Maximum number of shards: the chart names the Leases that an operator may write (operator-library)."""


def shard_of(key: Key, shards: int) -> int:
    """Return the shard of a resource: the same in every process and version of the operator."""
    if shards == 1:
        return 0
    digest = hashlib.sha256(f"{key.namespace}/{key.name}".encode()).digest()
    return int.from_bytes(digest[:8]) % shards


def lease_of(operator: str, index: int) -> str:
    """Return the name of a shard's Lease, if there are several shards."""
    return f"{operator}-shard-{index}"


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the keys.

    Attributes:
        index: number of the shard, from 0.
        count: number of shards.
        term: returns a context that is entered as the leader of the shard.
        permit: called before each act as the leader; raises Unavailable if another replica may lead.
        requested: set while another replica should lead this shard instead; its term should then end.
        continues: whether the present term continues the former one of this replica (`Leadership.continues`).
    """

    index: int = 0
    count: int = 1
    term: Term = unopposed
    permit: Permit = always
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    continues: Callable[[], bool] = lambda: False

    def owns(self, key: Key) -> bool:
        return shard_of(key, self.count) == self.index


class Election:
    """The shards of a replica that takes part in the election of each.

    Args:
        kube: client for the Leases.
        operator: name of the operator.
        shards: number of shards; 1 elects one leader, without a guard.
        identity: identity of this replica.
        clock: monotonic time in seconds.

    Attributes:
        shards: every shard, whether or not this replica leads it.
    """

    def __init__(
        self,
        kube: Kube,
        recorder: Recorder,
        *,
        operator: str,
        namespace: str,
        shards: int,
        times: Times,
        identity: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        identity = identity or new_identity()

        def candidate(
            name: str, identity: str, balance: EvenBalance | None = None, *, is_shared: bool = False
        ) -> Leadership:
            return Leadership(
                kube,
                recorder,
                name=name,
                namespace=namespace,
                times=times,
                identity=identity,
                clock=clock,
                balance=balance,
                is_shared=is_shared,
            )

        self._guard: _Guard | None = None
        if shards == 1:
            alone = candidate(operator, identity)
            self.shards: tuple[Shard, ...] = (Shard(0, 1, alone.term, alone.permit, alone.requested, alone.continues),)
            return
        balance = EvenBalance(identity)
        guard = self._guard = _Guard(candidate(operator, f"{shards}-shards", is_shared=True))
        self._leaderships = [candidate(lease_of(operator, i), identity, balance) for i in range(shards)]
        balance.leaderships = self._leaderships
        self.shards = tuple(guard.shard(i, own, shards) for i, own in enumerate(self._leaderships))

    async def run(self) -> None:
        """Hold the guard, if there is one, until cancelled. It must outlast the terms of the shards."""
        if self._guard is not None:
            await self._guard.run()


class _Guard:
    """The Lease that the replicas with the same number of shards hold together."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._held = asyncio.Event()
        self._lost: asyncio.Future[None] | None = None

    async def run(self) -> None:
        while True:
            async with self._leadership.term() as self._lost:
                self._held.set()
                try:
                    await asyncio.wait({self._lost})
                finally:
                    self._held.clear()

    def shard(self, index: int, own: Leadership, count: int) -> Shard:
        """Return a shard that is led while this replica holds both Leases."""

        def permit(act: str) -> None:
            self._leadership.permit(act)
            own.permit(act)

        return Shard(index, count, lambda: self._term(own), permit, own.requested)

    @contextlib.asynccontextmanager
    async def _term(self, own: Leadership) -> AsyncIterator[asyncio.Future[None]]:
        while True:
            await self._held.wait()
            async with own.term() as lost:
                guard_lost = self._lost
                if not self._held.is_set() or guard_lost is None:
                    continue  # lost while this replica waited for the shard's Lease, which is released
                either = asyncio.ensure_future(_first(lost, guard_lost))
                try:
                    yield either
                finally:
                    either.cancel()
                return


async def _first(*futures: asyncio.Future[None]) -> None:
    """Wait until one of the futures is done; raise its error."""
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for future in done:
        future.result()
