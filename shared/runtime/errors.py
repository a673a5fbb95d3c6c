"""Root of the exceptions of database clients."""

from __future__ import annotations


class DatabaseError(Exception):
    """A request that a database did not fulfil; the reconcile is retried."""
