"""What a crash leaves: connections over which only so many commands get through, and then nothing any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.server import Access, Command, Endpoint, Server


@dataclass
class Scissors:
    """Makes connections; all of them together let so many commands through.

    Attributes:
        left: after how many commands nothing gets through any more; negative for never.
        of: the name of the commands that count; empty for all.
        sent: all that have been.
    """

    left: int = -1
    of: str = ""
    sent: list[Command] = field(default_factory=list)

    def let(self, commands: Sequence[Command]) -> list[Command]:
        """Those of some commands that get through; the first that does not is the end of all."""
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
        (answer,) = await self.pipe((command,))
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        if commands == (("PING",),):  # only looks how the node fares
            return ["PONG"]
        through = self._scissors.let(commands)
        answers = await self._server.pipe(through)
        if len(through) < len(commands):
            raise Unreachable("cut")
        return answers

    async def aclose(self) -> None:
        await self._server.aclose()
