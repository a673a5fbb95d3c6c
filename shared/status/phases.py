"""Phases that resources of several kinds report in status.phase."""

from __future__ import annotations

CREATING = "Creating"
RESTORING = "Restoring"
SCALING = "Scaling"
UPDATING = "Updating"
UPGRADING = "Upgrading"
DEGRADED = "Degraded"
RUNNING = "Running"
PAUSED = "Paused"
FAILED = "Failed"
