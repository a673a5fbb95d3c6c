"""Values of status.phase that several kinds report; most are reasons of conditions as well."""

from __future__ import annotations

from shared.status.reasons import CREATING, DEGRADED, PAUSED, RESTORING, SCALING, UPDATING, UPGRADING, Reason

RUNNING = Reason("Running")
FAILED = Reason("Failed")

__all__ = ["CREATING", "DEGRADED", "FAILED", "PAUSED", "RESTORING", "RUNNING", "SCALING", "UPDATING", "UPGRADING"]
