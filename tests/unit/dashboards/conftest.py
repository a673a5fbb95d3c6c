from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import charts as rendering


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendering.copy_to(tmp_path_factory.mktemp("charts"))
