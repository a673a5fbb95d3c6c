"""Fixtures of the steps that several databases share."""

from __future__ import annotations

import copy

import pytest

from shared.kubernetes.kinds import Obj
from tests.support.applied_workloads import RECORDED


@pytest.fixture
def known() -> dict[str, Obj]:
    """Return a workload as applied, and as a real API server stored it."""
    return copy.deepcopy(RECORDED["Deployment"])
