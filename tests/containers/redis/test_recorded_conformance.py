"""The recordings that verify `FakeRedis` match a real Redis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.databases import redis_programs
from tests.support import paths
from tests.support.redis.lab import RealLab
from tests.support.redis.recorded_conformance import SCRIPTS

pytestmark = pytest.mark.nightly

VERSION = "7.0"

RECORD = paths.RECORDED / "redis.json"
RECORDED: dict[str, list[str]] = json.loads(RECORD.read_text())

OF_EACH_COMMIT = "config_epochs_collide"


@pytest.mark.commit
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == OF_EACH_COMMIT else pytest.mark.nightly) for name in SCRIPTS]
)
async def test_script_matches_its_recording(tmp_path: Path, name: str) -> None:
    lab = RealLab(redis_programs.server("redis", VERSION), tmp_path, "127.78")
    try:
        await SCRIPTS[name](lab)
    finally:
        await lab.close()
    assert lab.transcript == RECORDED[name]
