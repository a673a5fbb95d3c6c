"""Seconds until a cluster is observed again where no watch reports the change that a step waits for."""

from __future__ import annotations

MEMBERSHIP_POLL_SECONDS = 1.0
"""Seconds until etcd is asked again about what moves in it alone: no watch tells of that."""

HELD_BACK_POLL_SECONDS = 10.0
"""The same while a step is held for something that is down."""
