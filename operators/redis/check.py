"""The check of `helm test`, from the operator's own image: `python -m operators.redis.check …`.

It creates a RedisCluster of three primaries without storage, sets and reads keys of all primaries through one
address,
as a client does, and deletes everything.
"""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack

from operators.redis.api.resource import API
from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.server import Access, Endpoint, Server
from shared.cli import check
from shared.cli.check import Check, Failed, NotYet
from shared.kubernetes.kinds import Obj

KEYS = tuple(f"platform-check-{number}" for number in range(12))
"""Enough keys that each of three primaries has some."""

SPEC: Obj = {"replicas": 3, "replicasPerMaster": 0, "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}}}


class Client:
    """A client that knows one address and follows redirects.

    Args:
        first: address of a node, host:port.
        stack: closes the connections.
    """

    def __init__(self, first: str, stack: AsyncExitStack) -> None:
        self.first, self.used = first, set[str]()
        self._stack, self._servers = stack, dict[str, Server]()

    async def execute(self, *command: str) -> object:
        """Return the reply to a command, from the first address or the one that it redirects to.

        Raises:
            Failed: a node rejects the command, or the redirects form a loop.
            NotYet: a node is unreachable: its name may not resolve everywhere yet.
        """
        address = self.first
        for _ in range(3):
            try:
                answer = await self._server(address).execute(*command)
            except Unreachable as error:
                raise NotYet(str(error)) from None
            except Refused as error:
                if error.code != "MOVED":
                    raise Failed(f"{address} rejects {command[0]}: {error}") from None
                address = str(error).rpartition(" ")[2]
                continue
            self.used.add(address)
            return answer
        raise Failed(f"too many redirects for {command[0]} {command[1]}, the last to {address}")

    def _server(self, address: str) -> Server:
        if address not in self._servers:
            host, _, port = address.rpartition(":")
            self._servers[address] = server = connect(Endpoint(host, host, host, int(port)), Access())
            self._stack.push_async_callback(server.aclose)
        return self._servers[address]


async def use(cluster: Obj) -> str:
    """Set and read keys of all primaries.

    Raises:
        Failed: a node rejected a command, or returned another value.
        NotYet: a node is unreachable.
    """
    endpoints, value = cluster["status"]["endpoints"], secrets.token_hex(8)
    if not endpoints:
        raise NotYet("status.endpoints is empty.")
    async with AsyncExitStack() as stack:
        client = Client(endpoints[0], stack)
        for key in KEYS:
            await client.execute("SET", key, value)
        for key in KEYS:
            found = await client.execute("GET", key)
            if found not in (value, value.encode()):
                raise Failed(f"{key} is {found!r} instead of {value!r}")
        for key in KEYS:
            await client.execute("DEL", key)
        return f"{len(client.used)} primaries returned {len(KEYS)} keys"


CHECK = Check(API.kind, SPEC, use)

if __name__ == "__main__":
    check.main(CHECK, "python -m operators.redis.check")
