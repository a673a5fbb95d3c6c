"""Directories of this repository that tests read."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RECORDED = REPOSITORY / "tests/recorded"
