"""Crashes at a chosen command: connections that kill a server before or after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused
from operators.redis.client.server import Access, Command, Endpoint, Server


@dataclass(frozen=True)
class Point:
    """Moment of a crash: before or after the nth command that contains a word.

    Attributes:
        word: word of the command, such as IMPORTING.
        count: position among the commands with this word, from 1.
        after: whether the command is answered before the crash.
        optional: whether the migration may end before this point.
    """

    word: str
    count: int
    after: bool
    optional: bool = False

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.word} {self.count}"


@dataclass
class Killer:
    """Factory of connections that share a point at which a server is killed.

    Attributes:
        point: moment of the crash.
        kill: kills the server.
        killed: whether the point was reached.
        sent: commands that have been sent, without health checks.
    """

    point: Point
    kill: Callable[[], None]
    killed: bool = False
    sent: list[Command] = field(default_factory=list)

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        return _Lethal(self, connect(endpoint, access))

    def is_at(self, command: Command) -> bool:
        """Record a command, and return whether it is the one of the point."""
        self.sent.append(command)
        words = [each for each in self.sent if self.point.word in each]
        return not self.killed and self.point.word in command and len(words) == self.point.count


class _Lethal:
    def __init__(self, killer: Killer, server: Server) -> None:
        self._killer = killer
        self._server = server

    async def execute(self, *command: str | int | bytes) -> Any:
        (reply,) = await self.pipe((command,))
        if isinstance(reply, Refused):
            raise reply
        return reply

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        if commands == (("PING",),):
            return await self._server.pipe(commands)
        replies: list[Any] = []
        begun = 0
        for index, command in enumerate(commands):
            if not self._killer.is_at(command):
                continue
            begun = index + self._killer.point.after
            replies = await self._server.pipe(commands[:begun])
            self._killer.killed = True
            self._killer.kill()
        return replies + await self._server.pipe(commands[begun:])

    async def aclose(self) -> None:
        await self._server.aclose()
