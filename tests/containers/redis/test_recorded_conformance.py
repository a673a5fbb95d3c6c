"""The recording that `FakeRedis` must match is that of a real Redis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.databases import redis_programs
from tests.support import paths
from tests.support.redis.lab import RealLab
from tests.support.redis.recorded_conformance import STORIES

VERSION = "7.0"

RECORD = paths.RECORDED / "redis.json"
RECORDED: dict[str, list[str]] = json.loads(RECORD.read_text())

AT_ONCE = "epochs_collide"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == AT_ONCE else pytest.mark.long) for name in STORIES]
)
async def test_real_redis_matches_the_recording(tmp_path: Path, name: str) -> None:
    lab = RealLab(redis_programs.server("redis", VERSION), tmp_path, "127.78")
    try:
        await STORIES[name](lab)
    finally:
        await lab.close()
    assert lab.told == RECORDED[name]
