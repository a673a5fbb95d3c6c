"""Seed of the tests that draw edits of fields at random.

The short suite always draws the same, so that a change passes or fails alike on every machine. `make test-long` sets a
new seed for each run, and a failure names it.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("LEAF_SEED") or 1)
