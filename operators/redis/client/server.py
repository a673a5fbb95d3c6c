"""One Redis or Valkey server: its endpoint, the credentials for it, and the protocol of a connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.pki.certs import Pair

PORT, BUS_PORT = 6379, 16379
"""Ports for clients, and for the cluster bus by default: 10,000 above. See `bus_port` for that of a cluster."""

REPLICATION_USER = "replication"
"""ACL user as which replicas authenticate at their primary (security/users.py)."""

ALL_RIGHTS = "~* &* +@all"
"""ACL rules of a user without limits: all keys, channels and commands."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of one node.

    Attributes:
        name: name of the pod, for messages.
        address: IP address of the pod.
        host: DNS name of the pod, as in its certificate.
        port: port for clients.
        id: node id last seen there; empty if unknown. A call checks that the node still has it.
    """

    name: str
    address: str
    host: str
    port: int = PORT
    id: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials of the operator.

    Attributes:
        authority: PEM certificates of trusted authorities; None without TLS. Empty if TLS is required and they are
            unknown: no connection is opened then.
        pair: client certificate of the operator; None if none is required.
        password: password of user `default`; empty if none is required.
        former: passwords that may still be valid, tried in turn if the first one is rejected.
    """

    authority: str | None = field(default=None, repr=False)
    pair: Pair | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)
    former: tuple[str, ...] = field(default=(), repr=False)


Command = tuple[str | int | bytes, ...]
"""A command and its arguments."""


class Server(Protocol):
    """A connection to one node."""

    async def execute(self, *command: str | int | bytes) -> Any:
        """Return the response to one command: text as str (CLUSTER, INFO and others), keys and values as bytes.

        Raises:
            RedisError: there is no response, or the server answers with an error.
        """

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        """Return the responses to several commands sent at once, in order; for a refused command, the `Refused`.

        Raises:
            Unreachable: any of the commands may have been executed.
        """

    async def aclose(self) -> None:
        """Close the connection; safe to repeat."""


Connect = Callable[[Endpoint, Access], Server]
"""Opens a connection; nothing is sent before the first command."""

MAX_LONG_ANSWERS = 4
"""Maximum number of servers of a cluster that send long answers at once while it is observed."""

LONG_ANSWERS: ContextVar[asyncio.Semaphore | None] = ContextVar("long_answers", default=None)
"""Semaphore that a connection of this task acquires before it reads a long answer, until it is closed."""


@contextmanager
def few_long_answers() -> Iterator[None]:
    """Limit the number of long answers at once, in tasks that are created before the context exits.

    A server that does not answer, or only briefly, delays no other one.
    """
    token = LONG_ANSWERS.set(asyncio.Semaphore(MAX_LONG_ANSWERS))
    try:
        yield
    finally:
        LONG_ANSWERS.reset(token)
