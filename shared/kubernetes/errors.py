"""Exceptions of requests to the Kubernetes API."""

from __future__ import annotations


class KubeError(Exception):
    """A request that the API server did not fulfil.

    KubeError
    ├── Unavailable        retry: 429, 5xx, timeout, no connection
    │   ├── NotEvictable   429 on eviction: the disruption budget allows none now; 500: several budgets select the pod
    │   └── Undiscovered   403: an admission plugin does not know the kind of the owner yet
    ├── TooLarge           an object, or a page of a list, cannot be parsed, or not at once
    ├── Conflict           409: the observed state is outdated; observe again, then decide
    │   ├── AlreadyExists  409 on creation: the name is taken
    │   └── Terminating    the object of this name is still being deleted
    └── Refused            the same request never succeeds
        ├── NotFound       404
        ├── Forbidden      401, 403: credentials or RBAC
        │   └── NamespaceTerminating  403 on creation: the namespace is being deleted
        └── Invalid        400, 422: rejected by schema, CEL or admission; the message has the reason
                           500: an apply has fields that the schema does not declare, or values that it cannot parse

    Attributes:
        status: HTTP status; 0 if there was no response.
        retry_after: seconds to wait, if the server requested a delay.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Unavailable(KubeError):
    """The server cannot respond now."""


class NotEvictable(Unavailable):
    """A PodDisruptionBudget does not allow the eviction now; the message names the budget."""


class Undiscovered(Unavailable):
    """An admission plugin of the API server does not know the kind of an owner, because its CRD is new."""


class TooLarge(KubeError):
    """A response costs more than may be parsed at once (`encoding.parsed_share`), or cannot be parsed."""


class Conflict(KubeError):
    """The object changed, or a precondition on its UID or resourceVersion failed."""


class AlreadyExists(Conflict):
    """The name is taken."""


class Terminating(Conflict):
    """The object is still being deleted; it can be created again afterwards."""


class Refused(KubeError):
    """Only a different request can succeed."""


class NotFound(Refused):
    """No such object, or no such resource served."""


class Forbidden(Refused):
    """Credentials or RBAC do not allow it."""


class NamespaceTerminating(Forbidden):
    """The namespace is being deleted: nothing can be created in it, and its resources will be deleted."""


class Invalid(Refused):
    """The schema, a CEL rule or admission rejected the object; the message has the reason."""
