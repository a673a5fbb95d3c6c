"""Errors of requests to a memcached server."""

from __future__ import annotations


class MemcachedError(Exception):
    """A failed request to a server.

    MemcachedError
    ├── Unreachable             connection refused, reset or closed, or unknown host
    │   ├── TimedOut            no connection or no complete response in time
    │   └── Busy                connection limit of the server reached
    ├── TLSFailed               TLS handshake failed: trust, host name, or client certificate
    │   └── NotTrusted          the caller does not trust the certificate of the server
    ├── AuthenticationFailed    user and password missing or rejected
    ├── CertificatesRefused     certificate or key of the server cannot be loaded
    └── UnexpectedAnswer        response of another program, or of an unknown version

    The class names are label values of `memcached_exporter_errors_total`.
    """


class Unreachable(MemcachedError): ...


class TimedOut(Unreachable):
    """No connection or no complete response in time.

    Attributes:
        is_accepted: whether the server, or its kernel, had accepted the connection: the network is not the cause.
    """

    def __init__(self, message: str, *, is_accepted: bool = False) -> None:
        super().__init__(message)
        self.is_accepted = is_accepted


class Busy(Unreachable): ...


class TLSFailed(MemcachedError): ...


class NotTrusted(TLSFailed): ...


class AuthenticationFailed(MemcachedError): ...


class CertificatesRefused(MemcachedError): ...


class UnexpectedAnswer(MemcachedError): ...
