"""What the failure of a TLS handshake means, to a client, and what mends it."""

from __future__ import annotations

import ssl
from functools import lru_cache

from shared.pki import certs

_CAUSES = {
    "CERTIFICATE_REQUIRED": "it requires a client certificate: give one.",
    "UNKNOWN_CA": "it does not trust the client's certificate: give one that its CA signed.",
    "BAD_CERTIFICATE": "it does not take the client's certificate: give another.",
    "CERTIFICATE_EXPIRED": "the client's certificate has expired: renew it.",
    "WRONG_VERSION_NUMBER": "it speaks no TLS on this port: leave TLS out, or give it a certificate.",
    "HANDSHAKE_FAILURE": "it wants a client certificate, or its own key does not fit its certificate.",
}
"""What OpenSSL's reasons mean here, by their ending: the alerts' names begin with a version of TLS."""


def cause(error: ssl.SSLError) -> str:
    """A sentence to follow the server's address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message.rstrip('.')}."
    reason = error.reason or type(error).__name__
    known = next((cause for ending, cause in _CAUSES.items() if reason.endswith(ending)), None)
    return known or f"the TLS handshake failed: {reason.replace('_', ' ').lower()}."


def failure(error: BaseException) -> ssl.SSLError | None:
    """The failure of a handshake from which an error came, if it did: of several OpenSSL's own, which comes last."""
    found: ssl.SSLError | None = None
    link: BaseException | None = error
    while link is not None:
        found = link if isinstance(link, ssl.SSLError) else found
        link = link.__cause__ or link.__context__
    return found


@lru_cache(maxsize=64)
def trust(authority: str, pair: certs.Pair | None) -> ssl.SSLContext:
    """One context for all servers of a database; renewed certificates have another.

    Raises:
        ValueError: as `certs.client_context`.
    """
    return certs.client_context(pair, authority)
