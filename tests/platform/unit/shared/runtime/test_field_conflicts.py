"""Conflicts about fields are named in short messages, and take little memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from shared.kubernetes.kinds import SERVICE, Key
from shared.runtime.field_conflicts import FieldConflicts
from tests.harness import cost

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("ns", "a")


async def test_many_long_names_of_fields_and_managers_take_little_memory() -> None:
    conflicts = FieldConflicts()
    async with cost.bounded():
        for number in range(80):
            fields = [f"metadata.labels.{number}{n}{'x' * 250_000}" for n in range(5)]
            managers = [f"kubectl-{number}-{n}-{'x' * 100}" for n in range(5_000)]
            conflicts.restored(KEY, SERVICE, "a", managers, fields, NOW + timedelta(seconds=10 * number))
            await asyncio.sleep(0)
    message, _ = conflicts.report(KEY, NOW + timedelta(seconds=800))
    assert message.startswith("The field manager kubectl-0-0")
    assert "keeps changing metadata.labels.0" in message
    assert len(message) < 2_000
