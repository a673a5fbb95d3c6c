"""Simulated crashes: connections that pass a limited number of commands and then fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.server import Access, Command, Endpoint, Server


@dataclass
class Scissors:
    """Factory of connections that share a limit on the number of commands.

    Attributes:
        left: number of commands that are still passed on; negative for no limit.
        of: name of the commands that count towards the limit; empty for all commands.
        sent: commands that have been passed on.
    """

    left: int = -1
    of: str = ""
    sent: list[Command] = field(default_factory=list)

    def let(self, commands: Sequence[Command]) -> list[Command]:
        """Return the commands that are passed on; the first rejected command and all later ones are dropped."""
        through: list[Command] = []
        for command in commands:
            if not self.left:
                break
            through.append(command)
            self.left -= self.of in ("", command[0])
        self.sent += through
        return through

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        return _Cut(self, connect(endpoint, access))


class _Cut:
    def __init__(self, scissors: Scissors, server: Server) -> None:
        self._scissors = scissors
        self._server = server

    async def execute(self, *command: str | int | bytes) -> Any:
        (reply,) = await self.pipe((command,))
        if isinstance(reply, Refused):
            raise reply
        return reply

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        if commands == (("PING",),):  # a health check does not count
            return ["PONG"]
        through = self._scissors.let(commands)
        replies = await self._server.pipe(through)
        if len(through) < len(commands):
            raise Unreachable("cut")
        return replies

    async def aclose(self) -> None:
        await self._server.aclose()
