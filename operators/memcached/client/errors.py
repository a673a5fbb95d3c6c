"""How a request to a memcached server fails."""

from __future__ import annotations


class MemcachedError(Exception):
    """A server that could not be spoken with, or did not do as told.

    MemcachedError
    ├── Unreachable             no connection, or it ended: refused, reset, no such host
    │   ├── TimedOut            no connection, or no whole answer, in time
    │   └── Busy                it has as many clients as it takes
    ├── TLSFailed               the handshake failed: trust, names, or a client certificate
    ├── AuthenticationFailed    it wants a user and a password, and not these
    ├── CertificatesRefused     it could not read its own certificate or key
    └── UnexpectedAnswer        it is not memcached, or a version that answers otherwise
    """


class Unreachable(MemcachedError): ...


class TimedOut(Unreachable): ...


class Busy(Unreachable): ...


class TLSFailed(MemcachedError): ...


class AuthenticationFailed(MemcachedError): ...


class CertificatesRefused(MemcachedError): ...


class UnexpectedAnswer(MemcachedError): ...
