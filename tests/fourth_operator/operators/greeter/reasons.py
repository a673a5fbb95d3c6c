"""Reasons of the conditions and events of the greeter operator, in addition to the common ones."""

from __future__ import annotations

from pathlib import Path

from shared.status.reasons import Catalogue

REASONS = Catalogue.read("runbook/greeter.md", Path(__file__).with_suffix(".toml"))
