"""The exceptions of requests to the Kubernetes API."""

from __future__ import annotations


class KubeError(Exception):
    """A request that the API server did not fulfil.

    KubeError
    ├── Unavailable        try again: 429, 5xx, no answer in time, no connection
    ├── Conflict           409: what the request was based on is no longer so; look again, then decide
    │   └── AlreadyExists  409 on creation: the name is taken
    └── Refused            the same request will never succeed
        ├── NotFound       404
        ├── Forbidden      401, 403: credentials or RBAC
        └── Invalid        400, 422: schema, CEL or admission says what is wrong

    Attributes:
        status: HTTP status, 0 where no answer came.
        retry_after: seconds the server asked to wait, if it did.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Unavailable(KubeError):
    """The server could not answer now."""


class Conflict(KubeError):
    """The object changed, or a precondition on its UID or resourceVersion failed."""


class AlreadyExists(Conflict):
    """The name is taken."""


class Refused(KubeError):
    """Only a different request can succeed."""


class NotFound(Refused):
    """No such object, or no such resource served."""


class Forbidden(Refused):
    """Credentials or RBAC do not allow it."""


class Invalid(Refused):
    """The schema, a CEL rule or admission refused the object; the message says why."""
