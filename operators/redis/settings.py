"""Flags of the redis operator, and its settings."""

from __future__ import annotations

from dataclasses import dataclass

from shared.cli.options import seconds
from shared.runtime import settings
from shared.runtime.options import Flag, Options

PASSWORD_OVERLAP = Flag(
    "--password-overlap", "600", "seconds for which a former password stays valid after a rotation", seconds
)

FLAGS = (PASSWORD_OVERLAP,)
"""Source of the chart's values: `make manifests`."""


@dataclass(frozen=True)
class Settings(settings.Settings):
    """Settings of every operator, and those of the flags above.

    Attributes:
        password_overlap: seconds for which a former password stays valid once the new one is used.
    """

    password_overlap: float = 600.0

    @classmethod
    def read(cls, options: Options) -> Settings:
        """Return the settings that the options give."""
        return cls.of(options, password_overlap=options.option(PASSWORD_OVERLAP))
