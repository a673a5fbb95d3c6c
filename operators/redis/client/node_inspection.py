"""Inspects a node: its own state, its view of the others, and its settings, in one round trip."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from operators.redis.client import responses
from operators.redis.client.errors import no_node, sure
from operators.redis.client.key_counts import count_keys
from operators.redis.client.responses import Entries, NodeReport
from operators.redis.client.server import REPLICATION_USER, Command, Server
from operators.redis.slots.hash_slots import Slots

COMMANDS: tuple[Command, ...] = (
    ("INFO",),
    ("DBSIZE",),  # unlike INFO, without keys of a slot that moved away at once, while the server deletes such
    ("CLUSTER", "INFO"),
    ("CLUSTER", "NODES"),
    ("CONFIG", "GET", "masterauth"),
    ("ACL", "GETUSER", "default"),
    ("CONFIG", "GET", "masteruser"),
    ("ACL", "GETUSER", REPLICATION_USER),
)


async def inspect_node(server: Server, settings: Collection[str] = ()) -> NodeReport:
    """Return the report of a node.

    Args:
        settings: directives whose values the report contains. Each is a command, because redis 6.2 accepts one name.

    Raises:
        Loading: the node still loads its data, and knows no node until then, not even itself.
        RedisError: the node is unreachable, answers with an error, or is not in cluster mode.
    """
    return report_of(await request_report(server, settings))


async def request_report(server: Server, settings: Collection[str] = (), users: Collection[str] = ()) -> Sequence[Any]:
    """Return the responses that `report_of` parses.

    Args:
        settings: names of directives whose values to read.
        users: names of further users.

    Raises:
        RedisError: the node is unreachable, or answers with an error.
    """
    more = [("CONFIG", "GET", name) for name in settings] + [("ACL", "GETUSER", name) for name in users]
    found = await server.pipe((*COMMANDS, *more))
    return [sure(answer) for answer in found]


def report_of(found: Sequence[Any], users: Collection[str] = (), entries: Entries | None = None) -> NodeReport:
    """Return the report in the responses of a node. With 500 nodes, it takes half a millisecond.

    Args:
        users: names of the further users, of which the last responses are.
        entries: entries of the other reports of the observation, if there are any.

    Raises:
        Unreachable: the server is not in cluster mode.
    """
    try:
        end = len(found) - len(users)
        answers = dict(zip(users, found[end:], strict=True))
        settings = found[len(COMMANDS) : end]
        return responses.report_of(*found[: len(COMMANDS)], settings=settings, users=answers, entries=entries)
    except responses.MALFORMED as error:
        raise no_node(error) from None


async def count_strays(server: Server, report: NodeReport, suspected: Slots, entries: Entries) -> NodeReport:
    """Return the report of a primary with the number of its keys of slots that it does not own.

    Counted are importing slots and the suspected ones. A node without any needs no request.

    Raises:
        RedisError: see `inspect_node`.
    """
    counted = (suspected | Slots.of(*report.me.importing)) - report.me.slots
    if not counted or report.me.is_replica:
        return report
    return dataclasses.replace(report, strays=await count_keys(server, counted, entries.use))
