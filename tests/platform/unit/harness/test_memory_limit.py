"""The limit of the suite of hostile clients is the kernel's, wherever it can be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import memory_limit as module
from tests.support.memory_limit import memory_limit, writable

MIB = 1024 * 1024
FILL = "filled = bytearray(128 << 20)\nfor at in range(0, len(filled), 4096):\n    filled[at] = 1"


def test_process_beyond_the_limit_ends() -> None:
    with memory_limit(64 * MIB) as limit:
        ended = subprocess.run([*limit.prefix, sys.executable, "-c", FILL], capture_output=True, check=False)
    assert ended.returncode == (-9 if limit.kind.startswith("cgroup") else 1)


@pytest.mark.skipif(os.geteuid() != 0 or not writable(), reason="cgroups are not writable")
def test_root_gets_a_cgroup_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_limit(64 * MIB) as limit:
        assert limit.kind.startswith("cgroup")
    monkeypatch.setattr(module, "_is_set", lambda *_: False)
    with pytest.raises(AssertionError, match="takes a memory limit"), memory_limit(64 * MIB):
        pass
