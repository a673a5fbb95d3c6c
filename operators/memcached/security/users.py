"""Inspection of the users that running servers have loaded, so that a changed file is reported until it is in effect.

A server loads its users file at startup and on SIGHUP, which its sidecar sends when the kubelet has updated the file
(`exporter.reload`). The sidecar attests the file that the server has loaded (`exporter.watch`): only then is it certain
that a removed user is rejected. Of a server whose sidecar attests nothing, only an authentication as each user shows
that the present ones are accepted; of removed ones nothing is known.

The status records a digest of the file that all servers have loaded, and no server is inspected until the next change.
"""

from __future__ import annotations

import hmac
import secrets as randomness
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from operators.memcached.client.attestation import Attestation, digest
from operators.memcached.client.errors import AuthenticationFailed, MemcachedError
from operators.memcached.security.connection import Access

Attest = Callable[[str, int, str], Awaitable[Attestation]]
"""Type of `client.attestation.fetch`, or of a fake in tests."""


@dataclass(frozen=True, slots=True)
class AcceptedUsers:
    """Result of the inspection of one server.

    Attributes:
        all: whether the server accepts all users of the Secret.
        only: whether it is proven that it accepts no other ones.
        error: reason why the inspection failed; empty if it succeeded.
    """

    all: bool = False
    only: bool = False
    error: str = ""


async def inspect_users(access: Access, attest: Attest, address: str, port: int | None) -> AcceptedUsers:
    """Return whether a server accepts the users of the Secret, or the error of the inspection.

    Args:
        address: IP address of the server's pod.
        port: port of its sidecar; None if that cannot attest the users file.
    """
    key, users = access.secrets.attestation_key, access.secrets.users
    try:
        if port is None or not key:
            return await _log_in(access, address)
        nonce = randomness.token_hex(16)
        async with access.turn:
            found = await attest(address, port, nonce)
    except AuthenticationFailed:
        return AcceptedUsers()
    except MemcachedError as error:
        return AcceptedUsers(error=str(error))
    is_loaded = hmac.compare_digest(found.users, digest(key.encode(), nonce, users.encode()))
    return AcceptedUsers(is_loaded, is_loaded, "" if found.serves else found.error or "the server does not respond")


async def _log_in(access: Access, address: str) -> AcceptedUsers:
    for credentials in access.secrets.all_credentials:
        async with access.connected(address, credentials):
            pass
    return AcceptedUsers(all=True)
