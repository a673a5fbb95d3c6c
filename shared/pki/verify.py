"""Failures of TLS handshakes as a client sees them: meaning and remedy."""

from __future__ import annotations

import ssl

from shared.api.memo import Memo, remembered
from shared.pki import certs

_CAUSES = {
    "CERTIFICATE_REQUIRED": "the server requires a client certificate: configure one.",
    "UNKNOWN_CA": "the server does not trust the client certificate: use one signed by its CA.",
    "BAD_CERTIFICATE": "the server rejects the client certificate: use another.",
    "CERTIFICATE_EXPIRED": "the client certificate has expired: renew it.",
    "WRONG_VERSION_NUMBER": "the server does not use TLS on this port: disable TLS in the client or enable it there.",
    "HANDSHAKE_FAILURE": "the server requires a client certificate, or its key does not match its certificate.",
}
"""Messages by the end of OpenSSL's reason; the names of alerts begin with a version of TLS."""


def cause(error: ssl.SSLError) -> str:
    """Return a sentence to append to the address of the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the server is not trusted: {error.verify_message.rstrip('.')}."
    reason = error.reason or type(error).__name__
    known = next((cause for ending, cause in _CAUSES.items() if reason.endswith(ending)), None)
    return known or f"the TLS handshake failed: {reason.replace('_', ' ').lower()}."


_UNKNOWN_ISSUER = frozenset({18, 19, 20, 21})
"""OpenSSL's codes of a server's certificate whose authority is not among the trusted ones (X509_V_ERR_…)."""


def is_distrust(error: ssl.SSLError) -> bool:
    """Whether one side does not know the authority of the other, rather than that a name or a date is wrong."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_code in _UNKNOWN_ISSUER
    return (error.reason or "").endswith("UNKNOWN_CA")


def failure(error: BaseException) -> ssl.SSLError | None:
    """Return the handshake failure that caused an error, if any; of several, the innermost, which is OpenSSL's own."""
    found: ssl.SSLError | None = None
    link: BaseException | None = error
    while link is not None:
        found = link if isinstance(link, ssl.SSLError) else found
        link = link.__cause__ or link.__context__
    return found


_contexts = Memo()
"""Contexts, apart from other results: only they are needed where no thread can compute them."""


def _size(context: ssl.SSLContext) -> int:
    """Return the approximate size of a context, most of which is that of its authorities."""
    return 32 * 1024 + 6 * 1024 * context.cert_store_stats()["x509"]


@remembered(_size, _contexts)
def trust(authority: str, pair: certs.Pair | None) -> ssl.SSLContext:
    """Return a shared context for all servers of a database; a renewed certificate gets another context.

    Raises:
        ValueError: see `certs.client_context`.
    """
    return certs.client_context(pair, authority)
