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
"""Seconds until nothing more is begun, so that the operator looks again."""

_NODE_TIMEOUT_SECONDS = 5.0
"""Seconds, where a server does not tell its own."""


async def move(
    connect: Connect,
    access: Access,
    endpoints: Mapping[str, Endpoint],
    moves: Sequence[Move],
    *,
    keys: int = MAX_KEYS_PER_COMMAND,
    budget: float = BUDGET_SECONDS,
) -> None:
    """Move slots until all have arrived or time is up. Sources work at once, each for its targets in turn.

    Slots that a source does not own, by its own word, are left alone: they have arrived, or the moves are out of date.

    Args:
        endpoints: where nodes are asked, by their ids: the ends of moves, and the other masters.
        keys: at most, of a slot in one command.
        budget: seconds.

    Raises:
        SlotStuck: some slots cannot be moved on; the others have been, as far as time allowed.
        RedisError: an end cannot be asked, or is no master any more.
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
            beside = [
                node_id for node_id in _masters(ends.of.values()) if node_id in endpoints.keys() - primaries.keys()
            ]
            primaries |= (await stack.enter_async_context(Ends.opened(connect, access, endpoints, beside))).of
        work = [
            *(_by_keys(some, primaries, until, keys) for some in _by_source(by_keys)),
            _by_jobs(by_jobs, until),
        ]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [*filter(None, outcomes), *ends.missing.values()]
    if failures:
        raise min(failures, key=_weight)


async def _by_keys(paths: Sequence[MigrationPath], primaries: Mapping[str, End], until: float, keys: int) -> None:
    """What one source gives away, key by key."""
    source = paths[0].source
    patience = await _node_timeout(source) / 2
    throttle = Throttle(keys)
    failures: list[RedisError] = []
    async with LatencyProbe.of(source.pulse) as pulse:
        for path in paths:
            others = [end for node_id, end in primaries.items() if node_id not in (source.id, path.target.id)]
            try:
                await functions.give(source, path.target)
                keys_path = key_by_key.KeyByKeyPath(source, path.target, others, throttle, pulse, until, patience)
                await keys_path.move(path.slots)
            except RedisError as error:
                failures.append(error)
    if failures:
        raise min(failures, key=_weight)


async def _by_jobs(paths: Sequence[MigrationPath], until: float) -> None:
    """What servers move by themselves: disjoint pairs at once, and nobody in two.

    A node takes part in one task of Redis, and refuses the next; and one that takes from several at once answers its
    clients the later for it.
    """
    for pairs in rounds(paths, lambda path: {path.source.id, path.target.id}):
        found = await asyncio.gather(*(_by_job(path, paths, until) for path in pairs), return_exceptions=True)
        if failures := [*filter(None, found)]:
            raise min(failures, key=_weight)
        if asyncio.get_running_loop().time() >= until:
            return  # what still runs goes on


async def _by_job(path: MigrationPath, paths: Sequence[MigrationPath], until: float) -> None:
    await functions.give(path.source, path.target)
    mover = ValkeyMigrateSlots(path.source) if _kind(path) == "export" else RedisImport(path.target)
    await server_side.move(mover, path, paths, until)


async def _node_timeout(end: End) -> float:
    """Seconds after which others take a node for dead."""
    try:
        found = await end.server.execute("CONFIG", "GET", big_keys.PATIENT)
    except Refused:
        return _NODE_TIMEOUT_SECONDS
    return int(found[1]) / 1000 if found else _NODE_TIMEOUT_SECONDS


def _kind(path: MigrationPath) -> str:
    """How slots go this way: as servers do it by themselves, if both can and none of these was begun otherwise."""
    begun = {*path.source.report.me.migrating, *path.source.report.me.importing}
    begun |= {*path.target.report.me.migrating, *path.target.report.me.importing}
    kinds = {path.source.features.migration, path.target.features.migration}
    return "keys" if begun or len(kinds) > 1 else kinds.pop()


def _by_source(paths: Iterable[MigrationPath]) -> Iterable[list[MigrationPath]]:
    """The ways of a source together."""
    found: dict[str, list[MigrationPath]] = {}
    for path in paths:
        found.setdefault(path.source.id, []).append(path)
    return found.values()


def _masters(ends: Iterable[End]) -> list[str]:
    """Ids of all masters that an end knows of, and that have not failed."""
    return sorted({node.id for end in ends for node in end.report.nodes if node.is_primary and not node.failing})


def _weight(failure: BaseException) -> int:
    """What is told of several failures: a defect first, then what does not mend itself."""
    if not isinstance(failure, RedisError):
        return 0
    return 1 if isinstance(failure, SlotStuck) else 2
