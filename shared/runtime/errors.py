"""What every operator's database may answer: the root of their exceptions."""

from __future__ import annotations


class DatabaseError(Exception):
    """A request that a database did not fulfil. Time, or a person, may mend it: the reconcile is tried again."""
