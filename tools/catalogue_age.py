"""Check before a release that the catalogues of versions are recent: `python -m tools.catalogue_age [YYYY-MM-DD]`.

Engines publish advisories at any time, so that an old catalogue calls a version safe that is not. The check depends on
the day, and is part of a release only: a change that has nothing to do with it must not fail one day.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta

import operators
from shared.api.catalogue import Catalogue
from tools.local.environment import forget_clusters

MAX_AGE = timedelta(days=90)
"""Age from which a catalogue is too old for a release: engines publish advisories every few months."""


def is_outdated(catalogue: Catalogue, today: date) -> bool:
    """Whether a catalogue is too old for a release."""
    return today - catalogue.looked_up > MAX_AGE


def outdated(today: date) -> list[str]:
    """Return a sentence for each catalogue that is too old for a release."""
    return [
        f"{catalogue.engine}: the catalogue of versions of {catalogue.looked_up} is more than {MAX_AGE.days} days old. "
        f"Look up its sources again, and update operators/{operator.name}/api/catalogue*.toml."
        for operator in operators.installed()
        for catalogue in operator.catalogues
        if is_outdated(catalogue, today)
    ]


def main(arguments: list[str]) -> int:
    """Print what is outdated; return the exit code.

    Args:
        arguments: the day of the release, as YYYY-MM-DD; empty for today.
    """
    forget_clusters()
    found = outdated(date.fromisoformat(arguments[0]) if arguments else datetime.now(UTC).date())
    sys.stdout.write("\n".join(found or ["The catalogues of versions are recent enough for a release."]) + "\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
