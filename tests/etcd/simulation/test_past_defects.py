"""Past defects that lost data are found at once when their fix is removed (`past_defects`)."""

from __future__ import annotations

import pytest

from tests.etcd.simulation.past_defects import DEFECTS
from tests.support.past_defects import PastDefect, require_found, require_none, rows


@pytest.mark.parametrize("defect", rows(DEFECTS))
def test_guard_finds_a_past_defect(defect: PastDefect, monkeypatch: pytest.MonkeyPatch) -> None:
    require_found(defect, monkeypatch)


@pytest.mark.parametrize("defect", rows(DEFECTS))
def test_unmodified_operator_passes_the_same_course(defect: PastDefect) -> None:
    require_none(defect)
