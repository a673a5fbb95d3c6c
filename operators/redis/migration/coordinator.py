"""Carries out the moves of one call: chooses the path of each, and runs independent ones in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

from operators.redis.client.errors import RedisError, Refused, SlotStuck
from operators.redis.client.server import Access, Connect, Endpoint
from operators.redis.migration import big_keys, functions, key_by_key, server_side
from operators.redis.migration.latency_probe import LatencyProbe
from operators.redis.migration.participants import End, Ends
from operators.redis.migration.redis import RedisImport
from operators.redis.migration.server_side import MigrationPath
from operators.redis.migration.throttle import MAX_KEYS_PER_COMMAND, Throttle
from operators.redis.migration.valkey import ValkeyMigrateSlots
from operators.redis.slots.slot_planner import Move, rounds

BUDGET_SECONDS = 5.0
"""Time until no further batch is started, so that the operator can reconcile again."""

_NODE_TIMEOUT_SECONDS = 5.0
"""Node timeout if a server does not report its own."""


async def move(
    connect: Connect,
    access: Access,
    endpoints: Mapping[str, Endpoint],
    moves: Sequence[Move],
    *,
    keys: int = MAX_KEYS_PER_COMMAND,
    budget: float = BUDGET_SECONDS,
) -> None:
    """Move slots until all have arrived or time is up. Sources work in parallel, each on its targets in turn.

    Slots that a source does not own, by its own report, are skipped: the plan is outdated.

    Args:
        endpoints: endpoints of the nodes by id: the ends of moves, and the other primaries.
        keys: maximum number of keys of a slot in one command.
        budget: time in seconds.

    Raises:
        SlotStuck: some slots cannot be moved, and all others were; not raised while time is what stopped the others.
        RedisError: an end is unreachable, or no longer a primary.
    """
    until = asyncio.get_running_loop().time() + budget
    async with AsyncExitStack() as stack:
        ids = [node_id for each in moves for node_id in (each.source, each.target)]
        ends = await stack.enter_async_context(Ends.opened(connect, access, endpoints, ids))
        paths = [
            MigrationPath(ends.of[each.source], ends.of[each.target], each.slots)
            for each in moves
            if each.source in ends.of and each.target in ends.of
        ]
        by_keys = [path for path in paths if _kind(path) == "keys"]
        by_jobs = [path for path in paths if _kind(path) != "keys"]
        primaries = dict(ends.of)
        if any(path.source.report.memory > big_keys.BIG_KEY_BYTES for path in by_keys):
            others = [
                node_id
                for node_id in _all_primaries(ends.of.values())
                if node_id in endpoints.keys() - primaries.keys()
            ]
            primaries |= (await stack.enter_async_context(Ends.opened(connect, access, endpoints, others))).of
        work = [
            *(_by_keys(some, primaries, until, keys) for some in _by_source(by_keys)),
            _by_jobs(by_jobs, until),
        ]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [*filter(None, outcomes), *ends.missing.values()]
    if asyncio.get_running_loop().time() >= until and all(type(each) is SlotStuck for each in failures):
        return  # the next call moves the rest, and reports these once nothing else is left to move
    if failures:
        raise min(failures, key=_weight)


async def _by_keys(paths: Sequence[MigrationPath], primaries: Mapping[str, End], until: float, keys: int) -> None:
    """Move the slots of one source key by key."""
    source = paths[0].source
    block_limit = await _node_timeout(source) / 2
    throttle = Throttle(keys)
    failures: list[RedisError] = []
    async with LatencyProbe.of(source.pulse) as pulse:
        for path in paths:
            others = [end for node_id, end in primaries.items() if node_id not in (source.id, path.target.id)]
            try:
                await functions.give(source, path.target)
                keys_path = key_by_key.KeyByKeyPath(source, path.target, others, throttle, pulse, until, block_limit)
                await keys_path.move(path.slots)
            except RedisError as error:
                failures.append(error)
    if failures:
        raise min(failures, key=_weight)


async def _by_jobs(paths: Sequence[MigrationPath], until: float) -> None:
    """Move slots with server-side jobs: disjoint pairs in parallel.

    A Redis node takes part in one task and rejects the next; and a node that receives from several others at once
    responds
    more slowly to its clients.
    """
    for pairs in rounds(paths, lambda path: {path.source.id, path.target.id}):
        found = await asyncio.gather(*(_by_job(path, paths, until) for path in pairs), return_exceptions=True)
        if failures := [*filter(None, found)]:
            raise min(failures, key=_weight)
        if asyncio.get_running_loop().time() >= until:
            return  # running jobs continue


async def _by_job(path: MigrationPath, paths: Sequence[MigrationPath], until: float) -> None:
    await functions.give(path.source, path.target)
    mover = ValkeyMigrateSlots(path.source) if _kind(path) == "export" else RedisImport(path.target)
    await server_side.move(mover, path, paths, until)


async def _node_timeout(end: End) -> float:
    """Return the node timeout in seconds."""
    try:
        found = await end.server.execute("CONFIG", "GET", big_keys.NODE_TIMEOUT)
    except Refused:
        return _NODE_TIMEOUT_SECONDS
    return int(found[1]) / 1000 if found else _NODE_TIMEOUT_SECONDS


def _kind(path: MigrationPath) -> str:
    """Return how slots move on a path: server-side, if both ends support it and no slot was started key by key."""
    begun = {*path.source.report.me.migrating, *path.source.report.me.importing}
    begun |= {*path.target.report.me.migrating, *path.target.report.me.importing}
    kinds = {path.source.features.migration, path.target.features.migration}
    return "keys" if begun or len(kinds) > 1 else kinds.pop()


def _by_source(paths: Iterable[MigrationPath]) -> Iterable[list[MigrationPath]]:
    """Return the paths grouped by source."""
    found: dict[str, list[MigrationPath]] = {}
    for path in paths:
        found.setdefault(path.source.id, []).append(path)
    return found.values()


def _all_primaries(ends: Iterable[End]) -> list[str]:
    """Return the ids of all primaries that an end knows, and that have not failed."""
    return sorted({node.id for end in ends for node in end.report.nodes if node.is_primary and not node.failing})


def _weight(failure: BaseException) -> int:
    """Return the rank of a failure among several: a defect first, then one that needs manual action."""
    if not isinstance(failure, RedisError):
        return 0
    return 1 if isinstance(failure, SlotStuck) else 2
