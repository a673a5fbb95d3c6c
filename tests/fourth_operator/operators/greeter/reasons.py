"""Reasons of the conditions and events of the greeter operator, in addition to the common ones."""

from __future__ import annotations

from shared.status.reasons import CREATING, Catalogue

REASONS = Catalogue("runbook/greeter.md")

REASONS.extend(CREATING, "{ready} of {desired} servers are ready.", "Waiting for ConfigMap {name} to contain the text.")
