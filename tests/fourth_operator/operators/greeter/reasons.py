"""Reasons of the conditions and events of the greeter operator, in addition to the common ones."""

from __future__ import annotations

from shared.status.reasons import Catalogue

REASONS = Catalogue("runbook/greeter.md")
