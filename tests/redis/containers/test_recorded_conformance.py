"""The recordings that verify `FakeRedis` match a real Redis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operators.redis.api.engine_versions import Engine, EngineName, Version, features
from operators.redis.client.responses import fields
from tests.support import paths
from tests.support.redis.lab import RealLab
from tests.support.redis.recorded_conformance import SCRIPTS, form
from tools.databases import redis_programs

pytestmark = pytest.mark.nightly

VERSION = "7.0"

RECORD = paths.RECORDED / "redis.json"
RECORDED: dict[str, list[str]] = json.loads(RECORD.read_text())

OF_EACH_COMMIT = "config_epochs_collide"


@pytest.mark.parametrize(("engine", "version"), [("redis", "7.0"), ("redis", "8.0"), ("valkey", "9.1")])
async def test_replicate_of_the_same_primary_connects_again_or_does_nothing(
    tmp_path: Path, engine: EngineName, version: str
) -> None:
    lab = RealLab(redis_programs.server(engine, version), tmp_path, "127.79")
    try:
        recorder = await form(lab, "def")
        await lab.server("f").execute("CLUSTER", "REPLICATE", recorder.ids["c"])
        await lab.wait(2)
        resynced = int(fields(await lab.server("c").execute("INFO"))["sync_partial_ok"])
    finally:
        await lab.close()
    assert bool(resynced) is features(Engine(engine, Version.parse(f"{version}.0"))).replicates_again


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
