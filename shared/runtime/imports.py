"""Imports of other libraries without what they import only in case it is installed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def hidden(package: str) -> Iterator[None]:
    """Make a package appear as not installed to what is imported within the context; later imports find it.

    Nothing changes if the package is imported already.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # an import then raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[package]
