"""Root of the exceptions of database clients."""

from __future__ import annotations

from typing import ClassVar


class DatabaseError(Exception):
    """A request that a database did not fulfil; the reconcile is retried.

    Attributes:
        failures_reported: number of failures in a row after which the status reports the error.
    """

    failures_reported: ClassVar[int] = 3
