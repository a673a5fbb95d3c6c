"""Seed of the tests that draw values at random.

The tests of a commit draw the same values in each run, so that a change passes or fails alike on every machine. Nightly
and weekly runs have a new seed, which their first lines name; setting the variable repeats a run.
"""

from __future__ import annotations

import os

VARIABLE = "TEST_SEED"


def seed() -> int:
    return int(os.environ.get(VARIABLE) or 1)
