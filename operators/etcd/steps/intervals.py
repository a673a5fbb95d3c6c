"""Seconds until a cluster is observed again if no watch reports the change that a step waits for."""

from __future__ import annotations

MEMBERSHIP_POLL_SECONDS = 1.0
"""Seconds until etcd is queried again about changes inside etcd: no watch reports them."""

BLOCKED_POLL_SECONDS = 10.0
"""Seconds until a step is retried that is blocked by something that is down."""
