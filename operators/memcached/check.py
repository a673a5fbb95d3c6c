"""Check that `helm test` runs, from the operator's own image: `python -m operators.memcached.check …`.

The check creates a Memcached, and sets and gets a value on each server in `status.servers`.
"""

from __future__ import annotations

import asyncio
import secrets

from operators.memcached.api.resource import API
from shared.cli import check
from shared.cli.check import Check, Failed
from shared.kubernetes.kinds import Obj

TIMEOUT_SECONDS = 10.0
"""Time that a server has to respond."""


async def use(memcached: Obj) -> str:
    """Set a value on each server and read it back.

    Raises:
        Failed: a server did not return the stored value.
    """
    servers = memcached["status"]["servers"]
    for server in servers:
        await set_and_get(server)
    return f"{len(servers)} of {len(servers)} servers stored and returned a value"


async def set_and_get(server: str) -> None:
    """Set a value on one server and read it back.

    Args:
        server: host:port.

    Raises:
        Failed: the response is late, missing or unexpected.
    """
    host, _, port = server.rpartition(":")
    value = secrets.token_hex(8).encode()
    request = b"set platform-check 0 60 %d\r\n%s\r\nget platform-check\r\nquit\r\n" % (len(value), value)
    expected = b"STORED\r\nVALUE platform-check 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.write(request)
            response = await reader.read()  # until the server closes the connection after quit
            writer.close()
    except OSError as error:
        raise Failed(f"{server} does not respond: {str(error) or type(error).__name__}") from None
    if response != expected:
        raise Failed(f"{server} returned {response!r} instead of {expected!r}")


# The servers of a Deployment are listed by address: a cache of DNS names could have that of a former one.
CHECK = Check(API.kind, {"size": 1, "memoryMB": 16, "workload": "Deployment"}, use)

if __name__ == "__main__":
    check.main(CHECK, "python -m operators.memcached.check")
