"""Inspection of the users that running servers accept, so that a changed password is reported until it is in effect.

A server loads its users file at startup and on SIGHUP, which its sidecar sends when the kubelet has updated the file
(`exporter.reload`). Only an authentication shows what a server has loaded. The operator authenticates as each user of
the Secret until all servers accept all of them. Then it records a digest of the file in the status, and connects again
only after the next change. That a removed user is rejected cannot be checked without its password.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.memcached.client.errors import AuthenticationFailed, MemcachedError
from operators.memcached.security.connection import Access


@dataclass(frozen=True, slots=True)
class AcceptedUsers:
    """Result of the inspection of one server.

    Attributes:
        all: whether the server accepts all users of the Secret.
        error: reason why the inspection failed; empty if it succeeded.
    """

    all: bool = False
    error: str = ""


async def inspect_users(access: Access, address: str) -> AcceptedUsers:
    """Return whether a server accepts all users of the Secret, or the error of the inspection."""
    try:
        for credentials in access.secrets.all_credentials:
            async with access.connected(address, credentials):
                pass
    except AuthenticationFailed:
        return AcceptedUsers()
    except MemcachedError as error:
        return AcceptedUsers(error=str(error))
    return AcceptedUsers(all=True)
