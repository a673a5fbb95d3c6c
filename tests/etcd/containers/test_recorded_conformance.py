"""Check that the recording that `FakeEtcd` must match is that of a real etcd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.etcd.lab import RealLab
from tests.support.etcd.recorded_conformance import SESSIONS
from tools.local import binaries
from tools.local.machine.network import free_ports

pytestmark = pytest.mark.nightly

VERSION = "3.6.16"
"""Version of the recording; others differ in details, such as when a lone member starts to serve clients."""

RECORD = paths.RECORDED / "etcd.json"
RECORDED: dict[str, list[str]] = json.loads(RECORD.read_text())

OF_EACH_COMMIT = "seed_bootstraps_again"


@pytest.mark.commit
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == OF_EACH_COMMIT else pytest.mark.nightly) for name in SESSIONS]
)
async def test_recording_matches_a_real_etcd(tmp_path: Path, name: str) -> None:
    lab = RealLab(binaries.build(binaries.ETCD[VERSION]) / "etcd", tmp_path, list(free_ports(12)))
    try:
        await SESSIONS[name](lab)
    finally:
        await lab.close()
    assert lab.transcript == RECORDED[name]
