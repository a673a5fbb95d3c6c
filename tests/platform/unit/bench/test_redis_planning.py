"""The benchmark of the placement of large clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.bench import redis_planning
from e2e.bench.redis_planning import Planning, goals, main, measure


def test_each_phase_is_measured() -> None:
    found = measure(3, 6, hosts=9, rounds=2)
    assert (found.primaries, found.replicas) == (3, 6)
    assert min(found.first, found.unchanged, found.moved) > 0


def test_goals_are_in_milliseconds() -> None:
    found = goals([Planning(250, 250, 0.0999, 0.029, 0.031)])
    assert [(round(goal.value, 1), goal.met) for goal in found] == [(99.9, True), (29.0, True), (31.0, False)]


def test_figures_are_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(redis_planning, "SIZES", ((3, 3),))
    output = tmp_path / "planning.json"
    assert main(["--quick", "--output", str(output)]) == 0
    assert "3 primaries, 3 replicas: unchanged, ms" in capsys.readouterr().out
    assert json.loads(output.read_text())["placement"][0]["replicas"] == 3
