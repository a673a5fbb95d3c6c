"""One server of Redis or Valkey: its endpoint, the credentials for it, and the protocol of a connection to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.pki.certs import Pair

PORT, BUS_PORT = 6379, 16379
"""For clients, and for what nodes tell each other: always 10,000 above."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one node is asked.

    Attributes:
        name: the pod's, for people.
        address: IP address of the pod.
        host: DNS name of the pod, which its certificate bears.
        port: for clients.
        id: of the node that answered there before; empty if nobody has. Whoever does something there makes sure that it
            is still this one.
    """

    name: str
    address: str
    host: str
    port: int = PORT
    id: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """What lets the operator in.

    Attributes:
        authority: PEM certificates that vouch for servers; empty for no TLS.
        pair: the certificate that the operator shows; None where none is asked for.
        password: of the user `default`; empty where nobody authenticates.
        former: passwords that may hold still, tried in turn where the first is denied.
    """

    authority: str = field(default="", repr=False)
    pair: Pair | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)
    former: tuple[str, ...] = field(default=(), repr=False)


Command = tuple[str | int | bytes, ...]
"""A command and its arguments, as they go over the wire."""


class Server(Protocol):
    """A connection to one node."""

    async def execute(self, *command: str | int | bytes) -> Any:
        """The answer to one command: texts as str (CLUSTER, INFO and the like), keys and values as bytes.

        Raises:
            RedisError: there is none, or the server says no.
        """

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to several commands sent at once, in order; where the server refused one, the `Refused` instead.

        Raises:
            Unreachable: any of them may have come about.
        """

    async def aclose(self) -> None:
        """Close it; harmless to repeat."""


Connect = Callable[[Endpoint, Access], Server]
"""Makes a connection; nothing is sent before the first command."""
