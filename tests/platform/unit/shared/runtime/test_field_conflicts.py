"""Conflicts about fields are named in short messages, and take little memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from shared.kubernetes.kinds import SERVICE, Key
from shared.runtime.field_conflicts import FieldConflicts
from tests.harness import cost

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("ns", "a")


async def test_names_of_many_long_fields_take_little_memory() -> None:
    conflicts = FieldConflicts()
    async with cost.bounded():
        for number in range(80):
            fields = [f"metadata.labels.{number}{n}{'x' * 250_000}" for n in range(5)]
            conflicts.restored(KEY, SERVICE, "a", ["kubectl"], fields, NOW + timedelta(seconds=10 * number))
            await asyncio.sleep(0)
    message, _ = conflicts.report(KEY, NOW + timedelta(seconds=800))
    assert message.startswith("The field manager kubectl keeps changing metadata.labels.0")
    assert len(message) < 2_000
