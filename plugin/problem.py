"""The one error that the plugin shows: what is wrong, and what would fix it."""

from __future__ import annotations


class Problem(Exception):
    """An error of a user, or of the cluster, that ends a command.

    Attributes:
        fix: command or change that helps; empty if none is known.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix
