"""Root of the exceptions of database clients."""

from __future__ import annotations

from typing import ClassVar

from shared.status.reasons import Reason


class DatabaseError(Exception):
    """A request that a database did not fulfil; the reconcile is retried.

    Attributes:
        reason: reason of Ready while the reconcile fails with the error. Each class that is raised has one.
        failures_reported: number of failures in a row after which the status reports the error.
    """

    reason: ClassVar[Reason]
    failures_reported: ClassVar[int] = 3
