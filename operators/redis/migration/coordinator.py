"""Carries out the moves of one call: chooses the path of each, and runs independent ones in parallel."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from operators.redis.api.directives import NODE_TIMEOUT_MS
from operators.redis.client.errors import RedisError, Refused, SlotStuck, TargetNotReplicating, reads_replies
from operators.redis.client.server import Access, Connect, Endpoint
from operators.redis.migration import functions, server_side
from operators.redis.migration.big_keys import NODE_TIMEOUT
from operators.redis.migration.journal import Journal
from operators.redis.migration.key_by_key import KeyByKeyPath
from operators.redis.migration.participants import End, Ends, Limits
from operators.redis.migration.redis import RedisImport
from operators.redis.migration.server_side import MigrationPath
from operators.redis.migration.target_check import require_one_database
from operators.redis.migration.throttle import MAX_KEYS_PER_COMMAND, Throttle
from operators.redis.migration.valkey import ValkeyMigrateSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, rounds

log = logging.getLogger(__name__)

BUDGET_SECONDS = 5.0
"""Time until no further batch is started, so that the operator can reconcile again."""

_NONE = Slots()


async def move(
    connect: Connect,
    access: Access,
    endpoints: Mapping[str, Endpoint],
    moves: Sequence[Move],
    *,
    keys: int = MAX_KEYS_PER_COMMAND,
    budget: float = BUDGET_SECONDS,
    promoted: Slots = _NONE,
    acknowledge: bool = True,
    journal: Journal | None = None,
) -> None:
    """Move slots until all have arrived or time is up. Disjoint pairs of a source and a target work in parallel.

    Slots that a source does not own, by its own report, are skipped: the plan is outdated.

    Args:
        endpoints: endpoints of the nodes by id: the ends of moves, and the other primaries.
        keys: maximum number of keys of a slot in one command.
        budget: time in seconds.
        promoted: slots whose recorded source is no longer their owner, because a replica of it took over: there, a
            key that exists at both ends is never replaced at the target.
        acknowledge: whether each batch waits until a replica of the target has it, if the target has a replica.
        journal: where opened slots are recorded; by default nowhere.

    Raises:
        KubeError: opened slots cannot be recorded.
        SlotStuck: some slots cannot be moved, and all others were; not raised while time is what stopped the others.
        TargetNotReplicating: no replica of a target has the moved keys.
        RedisError: an end is unreachable, or no longer a primary.
    """
    limits = Limits(asyncio.get_running_loop().time() + budget, keys, promoted, acknowledge)
    ids = [node_id for each in moves for node_id in (each.source, each.target)]
    async with Ends.opened(connect, access, endpoints, ids) as ends:
        paths = [
            MigrationPath(ends.of[each.source], ends.of[each.target], each.slots)
            for each in moves
            if each.source in ends.of and each.target in ends.of
        ]
        call = _Call(connect, access, endpoints, limits, journal or Journal())
        by_keys = [path for path in paths if _kind(path) == "keys"]
        by_jobs = [path for path in paths if _kind(path) != "keys"]
        work = [*map(call.by_keys, _by_source(by_keys)), call.by_jobs(by_jobs)]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [*filter(None, outcomes), *ends.missing.values()]
    if asyncio.get_running_loop().time() >= limits.until and all(type(each) is SlotStuck for each in failures):
        return  # the next call moves the rest, and reports these once nothing else is left to move
    if failures:
        raise min(failures, key=_weight)


@dataclass(frozen=True)
class _Call:
    """Parameters that all moves of one call share.

    Attributes:
        endpoints: endpoints of the nodes by id.
        journal: where opened slots are recorded.
        turns: lock of each target, by id. A target receives keys from one source at a time: more are hardly faster,
            and its clients wait longer.
    """

    connect: Connect
    access: Access = field(repr=False)
    endpoints: Mapping[str, Endpoint]
    limits: Limits
    journal: Journal
    turns: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def by_keys(self, paths: Sequence[MigrationPath]) -> None:
        """Move the slots of one source key by key."""
        source = paths[0].source
        block_limit, throttle = await _node_timeout(source) / 2, Throttle()
        failures: list[RedisError] = []
        found: list[KeyByKeyPath] = []
        for path in paths:
            others = partial(self._other_primaries, path)
            found.append(
                KeyByKeyPath(source, path.target, path.slots, others, throttle, self.limits, block_limit, self.journal)
            )
        for each in found:
            await each.mark()
        for each in found:
            try:
                await require_one_database(source, each.target)
                await functions.give(source, each.target)
                async with self.turns[each.target.id]:
                    await each.move()
            except RedisError as error:
                failures.append(error)
        if failures:
            raise min(failures, key=_weight)

    async def by_jobs(self, paths: Sequence[MigrationPath]) -> None:
        """Move slots with server-side jobs, in parallel as far as `_shares` allows."""
        for some in rounds([*zip(paths, _shares(paths), strict=True)], lambda each: each[1]):
            found = await asyncio.gather(*(self._by_job(path, paths) for path, _ in some), return_exceptions=True)
            if failures := [*filter(None, found)]:
                raise min(failures, key=_weight)
            if asyncio.get_running_loop().time() >= self.limits.until:
                return  # running jobs continue

    async def _by_job(self, path: MigrationPath, paths: Sequence[MigrationPath]) -> None:
        await functions.give(path.source, path.target)
        mover = ValkeyMigrateSlots(path.source) if _kind(path) == "export" else RedisImport(path.target)
        failed = await server_side.move(mover, path, paths, self.limits, self.journal)
        if failed is not None:
            log.warning(
                "The servers failed %d times in a row to move slots from %s to %s (%s). The operator moves these "
                "slots key by key, which takes longer.",
                *(server_side.MAX_TRIES, path.source.name, path.target.name, failed.message or failed.state),
            )
            await self.by_keys([path])

    @asynccontextmanager
    async def _other_primaries(self, path: MigrationPath) -> AsyncIterator[Sequence[End]]:
        """Connect to all primaries that an end of a path knows, and that have not failed."""
        known = {
            node.id
            for end in (path.source, path.target)
            for node in end.report.nodes
            if node.is_primary and not node.failing
        }
        ids = (known & self.endpoints.keys()) - {path.source.id, path.target.id}
        async with Ends.opened(self.connect, self.access, self.endpoints, sorted(ids)) as ends:
            yield [*ends.of.values()]


@reads_replies
async def _node_timeout(end: End) -> float:
    """Return the node timeout in seconds."""
    try:
        found = await end.server.execute("CONFIG", "GET", NODE_TIMEOUT)
    except Refused:
        return NODE_TIMEOUT_MS / 1000
    return (int(found[1]) if found else NODE_TIMEOUT_MS) / 1000


def _kind(path: MigrationPath) -> str:
    """Return how slots move on a path: server-side, if both ends support it and no slot was started key by key."""
    begun = {*path.source.report.me.migrating, *path.source.report.me.importing}
    begun |= {*path.target.report.me.migrating, *path.target.report.me.importing}
    kinds = {path.source.report.features.migration, path.target.report.features.migration}
    return "keys" if begun or len(kinds) > 1 else kinds.pop()


def _shares(paths: Iterable[MigrationPath]) -> Iterator[set[str]]:
    """Yield the shares of nodes that each path uses: two paths that use the same one run one after the other.

    A Redis node takes part in one task and rejects the next. A Valkey node receives from two others at once: with more,
    its clients would wait longer.
    """
    received: Counter[str] = Counter()
    for path in paths:
        target = _halves(path.target)
        if _kind(path) == "export":
            target = target[received[path.target.id] % 2 :][:1]
        received[path.target.id] += 1
        yield {*_halves(path.source), *target}


def _halves(end: End) -> list[str]:
    return [f"{end.id}/0", f"{end.id}/1"]


def _by_source(paths: Iterable[MigrationPath]) -> Iterable[list[MigrationPath]]:
    """Return the paths grouped by source."""
    found: dict[str, list[MigrationPath]] = {}
    for path in paths:
        found.setdefault(path.source.id, []).append(path)
    return found.values()


def _weight(failure: BaseException) -> int:
    """Return the rank of a failure among several: a defect first, then one that needs manual action."""
    if not isinstance(failure, RedisError):
        return 0
    return 1 if isinstance(failure, SlotStuck) else 2 if isinstance(failure, TargetNotReplicating) else 3
