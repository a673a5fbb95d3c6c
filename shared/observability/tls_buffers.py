"""Memory of TLS connections. asyncio is made for few of them: each allocates 256 KiB before its handshake begins."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

TLS_BUFFER_BYTES = 32 * 1024
"""Size of the buffer of a TLS connection, for two records: one has at most 16 KiB (RFC 8446, 5.1)."""


def limit_tls_buffers() -> None:
    """Limit the buffers of TLS connections that this process opens or accepts from now on.

    asyncio has no argument for it, so that the limit is one of the process. What opens or accepts many connections sets
    it: the HTTP server, and the transport to the API server.
    """
    SSLProtocol.max_size = TLS_BUFFER_BYTES
