"""Limits of servers while a large key moves: they are restored only when the source cannot be blocked any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from operators.redis.client.errors import Refused, Unreachable
from operators.redis.migration.big_keys import NODE_TIMEOUT, extended_timeouts


class Node:
    """An end of a move, and its server: a node with settings."""

    def __init__(self) -> None:
        self.settings = {NODE_TIMEOUT: 5000, "proto-max-bulk-len": 2**29, "client-query-buffer-limit": 2**30}
        self.server = self

    async def execute(self, *command: Any) -> list[Any]:
        assert command[:2] == ("CONFIG", "GET")
        return [command[2], self.settings[command[2]]]

    async def pipe(self, commands: list[tuple[Any, ...]]) -> list[str]:
        for _, verb, name, value in commands:
            assert verb == "SET"
            self.settings[name] = value
        return ["OK"] * len(commands)

    @asynccontextmanager
    async def reconnected(self) -> AsyncIterator[Node]:
        yield self


async def timeouts_after(error: BaseException | None) -> set[int]:
    """Return the node timeouts in milliseconds after a move that ended with an error."""
    nodes: list[Any] = [Node(), Node(), Node()]
    with suppress(*([type(error)] if error else [])):
        async with extended_timeouts(nodes, nodes[1], 2**30):
            assert all(node.settings[NODE_TIMEOUT] > 200_000 for node in nodes)
            if error is not None:
                raise error
    return {node.settings[NODE_TIMEOUT] for node in nodes}


@pytest.mark.parametrize("error", [None, Refused("IOERR error or timeout writing to target instance")])
async def test_timeouts_are_restored_when_the_source_has_answered(error: BaseException | None) -> None:
    assert await timeouts_after(error) == {5000}


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Unreachable("no answer within 5 s")])
async def test_timeouts_stay_raised_while_the_source_may_be_blocked(error: BaseException) -> None:
    """With the former ones, the other primaries would mark it as failed in the middle of MIGRATE."""
    (timeout,) = await timeouts_after(error)
    assert timeout > 200_000
