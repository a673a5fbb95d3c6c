"""Root of the exceptions of database clients."""

from __future__ import annotations

from typing import ClassVar

from shared.status.reasons import Catalogue, Reason


class DatabaseError(Exception):
    """A request that a database did not fulfil; the reconcile is retried.

    Attributes:
        reasons: catalogue of the operator. A class has the reason of its name, and otherwise that of its base.
        reason: reason of Ready while the reconcile fails with the error. Each class that is raised has one.
        failures_reported: number of failures in a row after which the status reports the error.
    """

    reasons: ClassVar[Catalogue] = Catalogue("")
    reason: ClassVar[Reason]
    failures_reported: ClassVar[int] = 3

    def __init_subclass__(cls) -> None:
        if named := cls.reasons.reasons.get(cls.__name__):
            cls.reason = named
