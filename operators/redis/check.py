"""What `helm test` runs, from the operator's own image: `python -m operators.redis.check …`.

It makes a RedisCluster of three masters that keep nothing, for nothing is left of it; sets a value for each of some
keys, which are other masters', as a client does that knows one address alone, gets them again, and deletes them.
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
"""So many that each of three masters has some."""

SPEC: Obj = {
    "replicas": 3,
    "replicasPerMaster": 0,
    "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
}


class Client:
    """Somebody who knows one address, and goes where nodes send it.

    Args:
        stack: closes its connections.
    """

    def __init__(self, first: str, stack: AsyncExitStack) -> None:
        self.first, self.used = first, set[str]()
        self._stack, self._servers = stack, dict[str, Server]()

    async def execute(self, *command: str) -> object:
        """The answer to a command, of whom the first address, or the one that it names, has it from.

        Raises:
            Failed: a node refuses it, or nodes send us round in a circle.
            NotYet: one cannot be reached: its name may not be known everywhere yet.
        """
        address = self.first
        for _ in range(3):
            try:
                answer = await self._server(address).execute(*command)
            except Unreachable as error:
                raise NotYet(str(error)) from None
            except Refused as error:
                if error.code != "MOVED":
                    raise Failed(f"{address} refuses {command[0]}: {error}") from None
                address = str(error).rpartition(" ")[2]
                continue
            self.used.add(address)
            return answer
        raise Failed(f"{command[0]} of {command[1]} was sent on and on, at last to {address}")

    def _server(self, address: str) -> Server:
        if address not in self._servers:
            host, _, port = address.rpartition(":")
            self._servers[address] = server = connect(Endpoint(host, host, host, int(port)), Access())
            self._stack.push_async_callback(server.aclose)
        return self._servers[address]


async def use(cluster: Obj) -> str:
    """Set and get keys of all masters.

    Raises:
        Failed: a node refused it, or did not give it back.
        NotYet: one cannot be reached.
    """
    endpoints, value = cluster["status"]["endpoints"], secrets.token_hex(8)
    if not endpoints:
        raise NotYet("status.endpoints names no node.")
    async with AsyncExitStack() as stack:
        client = Client(endpoints[0], stack)
        for key in KEYS:
            await client.execute("SET", key, value)
        for key in KEYS:
            found = await client.execute("GET", key)
            if found not in (value, value.encode()):
                raise Failed(f"{key} was to be {value}, and is {found!r}")
        for key in KEYS:
            await client.execute("DEL", key)
        return f"{len(client.used)} masters gave back {len(KEYS)} keys"


CHECK = Check(API.kind, SPEC, use)

if __name__ == "__main__":
    check.main(CHECK, "python -m operators.redis.check")
