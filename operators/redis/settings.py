"""Flags of the redis operator, and its settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from operators.redis.api.engine_versions import Engine, EngineName, refusal
from operators.redis.api.spec import DEFAULT_VERSIONS
from shared.cli.options import seconds
from shared.runtime import settings
from shared.runtime.options import Flag, Options

PASSWORD_OVERLAP = Flag(
    "--password-overlap", "600", "seconds for which a former password stays valid after a rotation", seconds
)


def versions(text: str) -> Mapping[EngineName, str]:
    """Parse default versions, such as redis=8.2.9,valkey=8.1.12; an engine that is not named keeps its default.

    Raises:
        argparse.ArgumentTypeError: the text has another form, or a version is not supported.
    """
    found = dict(DEFAULT_VERSIONS)
    for given in filter(None, text.split(",")):
        try:
            engine = Engine.parse(given.replace("=", " "))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}: use versions such as redis=8.2.9,valkey=8.1.12") from None
        if why := refusal(engine):
            raise argparse.ArgumentTypeError(why)
        found[engine.name] = given.partition("=")[2]
    return found


NEW_VERSIONS = Flag(
    "--default-versions",
    "",
    "versions of new clusters that name none, such as redis=8.2.9,valkey=8.1.12; empty: the newest patch of a "
    "maintained line",
    versions,
)

FLAGS = (PASSWORD_OVERLAP, NEW_VERSIONS)
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
