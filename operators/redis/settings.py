"""The operator's options that plans need."""

from __future__ import annotations

from dataclasses import dataclass

from shared.runtime import settings


@dataclass(frozen=True, slots=True)
class Settings(settings.Settings):
    """The options of every operator, and its own.

    Attributes:
        password_overlap: seconds for which a former password stays valid once the new one is used.
    """

    password_overlap: float = 600.0
