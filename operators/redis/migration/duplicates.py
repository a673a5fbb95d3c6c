"""Keys that both ends of an open slot have.

MIGRATE sends RESTORE to the target and deletes the key at the source after the reply. If the reply does not come in
time (IOERR), the target may execute the RESTORE later: the copy is outdated as soon as a client writes to the source,
and it undoes a deletion. Such a copy is removed while the source still has the key.

A key that the source lacks is never created there while its slot is migrating. So if the source has a key *after* the
target's copy was read, no client wrote that copy, and it may be removed. It is removed only if it is unchanged: a
client may delete the key at the source in between, and create it again at the target.

If a replica of the source took over, this does not hold: it may have lost the deletion of a moved key, or served
clients before it was marked as migrating. Then only identical copies are removed; a user decides about the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from operators.redis.client.errors import Refused, Unreachable, reads_replies, sure
from operators.redis.client.server import Command, Server
from operators.redis.migration.participants import End
from operators.redis.slots.slot_planner import Doubt

REDIRECTED: Command = ("ASKING",)
"""Command before another one for a slot that the server imports."""

_DIGEST = "local value = redis.call('DUMP', KEYS[1]) return value and redis.sha1hex(value)"

_REMAINING = (
    "if redis.call('CLUSTER', 'COUNTKEYSINSLOT', ARGV[1]) == 0 then return {} end "
    "local found = {} "
    "for number = 2, #ARGV do "
    "local value = redis.pcall('DUMP', ARGV[number]) "  # of a key that has moved, it is an error
    "found[number - 1] = type(value) == 'string' and redis.sha1hex(value) or '' "
    "end return found"
)

_DISCARD = (
    "local value = redis.call('DUMP', KEYS[1]) "
    "if value and redis.sha1hex(value) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)

_FIND = (
    "local wanted, found = {}, {} "
    "for number = 2, #ARGV do wanted[ARGV[number]] = true end "
    "local count = redis.call('CLUSTER', 'COUNTKEYSINSLOT', ARGV[1]) "
    "for _, key in ipairs(count > 0 and redis.call('CLUSTER', 'GETKEYSINSLOT', ARGV[1], count) or {}) do "
    "if wanted[redis.sha1hex(key)] then "
    "found[#found + 1] = (key:gsub('.', function(each) return string.format('%02x', each:byte()) end)) "
    "end end return found"
)

_RETRY_SECONDS = 0.1

_RESTORE = "restore-asking"

_RECEIVING = frozenset({_RESTORE, "NULL", "auth", "select"})
"""Last command of connections that may still have a RESTORE to execute, as CLIENT LIST names it."""


def list_remaining(slot: int, keys: Sequence[bytes]) -> Command:
    """Return the command that lists the SHA-1 of the value of each key, empty for keys that do not exist.

    In the same pipeline as a MIGRATE it shows the values that the MIGRATE has sent: no client writes in between. The
    reply is an empty list if the slot has no key at all, as after its last MIGRATE.
    """
    return ("EVAL", _REMAINING, 0, slot, *keys)


def parse_remaining(keys: Sequence[bytes], reply: Sequence[str]) -> dict[bytes, str]:
    """Return the SHA-1 of the value of each existing key, by key."""
    return {key: digest for key, digest in zip(keys, reply, strict=bool(reply)) if digest}


async def digests(end: End, keys: Iterable[bytes], *, imported: bool) -> dict[bytes, str]:
    """Return the SHA-1 of the value of each key that a node has.

    Args:
        imported: whether the node imports the slot, instead of owning it.

    Raises:
        Refused: the node answers with another error than that it has no such key.
    """
    keys = list(keys)
    found = await _evaluate(end.server, [("EVAL", _DIGEST, 1, key) for key in keys], imported=imported)
    for each in found:
        if isinstance(each, Refused) and each.code not in ("ASK", "MOVED"):
            raise each
    return {key: each for key, each in zip(keys, found, strict=True) if isinstance(each, str)}


async def resolve(source: End, target: End, keys: Iterable[bytes], *, keep: bool) -> tuple[list[bytes], int]:
    """Remove outdated copies of keys from the target.

    Args:
        keep: whether a copy at the target may be newer than the source's; then only identical ones are removed.

    Returns:
        Keys with different values at both ends, of which a user has to delete one; and the number of all keys that
        both ends had.
    """
    at_target = await digests(target, keys, imported=True)
    at_source = await digests(source, at_target, imported=False)
    conflicts = [key for key, digest in at_source.items() if keep and digest != at_target[key]]
    await discard(target.server, {key: at_target[key] for key in at_source.keys() - set(conflicts)})
    return conflicts, len(at_source)


async def remove_large(source: End, target: End, key: bytes) -> None:
    """Remove an outdated copy from the target without reading it, because its digest would need its size in memory."""
    if await source.server.execute("EXISTS", key):
        await target.server.pipe([REDIRECTED, ("UNLINK", key)])


async def remove_late(source: End, target: End, doubts: Mapping[bytes, str], patience: float) -> None:
    """Wait until no RESTORE of an earlier MIGRATE can be executed at the target, and remove the copies that were.

    Args:
        doubts: SHA-1 of the value of each key that the failed MIGRATE has sent, and that the source still had then.
        patience: time in seconds that the target may be unreachable.

    Raises:
        Unreachable: the target does not respond.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + patience
    while True:
        try:
            async with target.reconnected() as server:
                await _end_transfers(server, source)
                return await discard(server, doubts)
        except Unreachable:
            if clock() >= until:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


@reads_replies
async def remove_recorded(source: End, target: End, doubts: Iterable[Doubt]) -> None:
    """Do the same for an earlier process of the operator: it may have ended during a MIGRATE.

    The source may have replaced the one that sent it, and then the address of that one is unknown. So all transfers to
    the target are ended that no other primary sends.

    Args:
        doubts: keys that the earlier process recorded.

    Raises:
        Unreachable: the target does not respond.
    """
    by_slot: dict[int, dict[str, str]] = {}
    for doubt in doubts:
        by_slot.setdefault(doubt.slot, {})[doubt.key] = doubt.value
    async with target.reconnected() as server:
        await _end_transfers(server, source, also_of_others=True)
        for slot, values in by_slot.items():
            found = [bytes.fromhex(each) for each in await server.execute("EVAL", _FIND, 0, slot, *values)]
            await discard(server, {key: values[Doubt.of(slot, key, "").key] for key in found})


async def discard(target: Server, copies: Mapping[bytes, str]) -> None:
    """Delete keys at the target of an open slot whose value has this SHA-1."""
    commands: list[Command] = [("EVAL", _DISCARD, 1, key, digest) for key, digest in copies.items()]
    for answer in await _evaluate(target, commands, imported=True):
        sure(answer)


@reads_replies
async def _end_transfers(target: Server, source: End, *, also_of_others: bool = False) -> None:
    """Close the connections of MIGRATE from a source: what they sent and was not executed is dropped.

    A source opens another connection if one is closed. PING comes first: a server that did not respond accepts the
    waiting connections before it answers.

    Args:
        also_of_others: whether to close those of all other servers too, except healthy primaries.
    """
    await target.execute("PING")
    own = source.endpoint.address
    spared = {node.address for node in source.report.nodes if node.is_primary and not node.failing} - {own}
    commands: list[Command] = []
    for each in map(_fields, str(await target.execute("CLIENT", "LIST")).splitlines()):
        address, last = each.get("addr", "").rpartition(":")[0].strip("[]"), each.get("cmd")
        is_other = also_of_others and last == _RESTORE and address not in spared
        if (address == own and last in _RECEIVING) or is_other:
            commands.append(("CLIENT", "KILL", "ID", each["id"]))
    await target.pipe(commands)


async def _evaluate(server: Server, commands: Sequence[Command], *, imported: bool) -> list[object]:
    if not imported:
        return await server.pipe(commands)
    answers = await server.pipe([each for command in commands for each in (REDIRECTED, command)])
    return answers[1::2]


def _fields(line: str) -> dict[str, str]:
    """Parse a line of CLIENT LIST."""
    return {name: value for name, _, value in (word.partition("=") for word in line.split(" "))}
