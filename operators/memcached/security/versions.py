"""Queries of a server: its version, which the tag of an image does not show, and whether it responds."""

from __future__ import annotations

import re

from operators.memcached.client.errors import Busy, MemcachedError, Unreachable
from operators.memcached.security.connection import Access
from operators.memcached.security.users import Attest

_FORM = re.compile(r"[0-9A-Za-z.+~_-]{1,64}")


async def inspect_version(access: Access, attest: Attest, address: str, port: int | None) -> str:
    """Return the version that a server reports; empty if it does not respond, or with something else.

    Args:
        address: IP address of the server's pod.
        port: port of its sidecar; None if that attests nothing.
    """
    try:
        if port is not None:
            version = (await attest(address, port, "")).version
        else:
            async with access.connected(address, access.secrets.credentials) as server:
                version = await server.version()
    except MemcachedError:
        return ""
    return version if _FORM.fullmatch(version) else ""


async def inspect_response(access: Access, address: str) -> Unreachable | None:
    """Return why a server does not respond; None if it does, also by refusing a password or a further connection.

    Args:
        address: IP address of the server's pod.
    """
    try:
        async with access.connected(address, access.secrets.credentials):
            return None
    except MemcachedError as error:
        error.__context__ = None  # with the traceback, it would keep what has arrived
        return error.with_traceback(None) if isinstance(error, Unreachable) and not isinstance(error, Busy) else None
