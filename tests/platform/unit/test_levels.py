"""Levels of the tests: each selection has tests, and those of make and of the workflows have every test together."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.platform.unit.tools.test_makefile import DIRECTORIES
from tests.support.levels import Level
from tools.local.paths import REPOSITORY

WORKFLOWS = REPOSITORY / ".github/workflows"


def collected(*arguments: str) -> tuple[int, int, dict[str, int]]:
    """Return how many tests pytest selects and deselects, and how many of all each level adds."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    counts = re.search(r"^(?:(\d+)/)?(\d+) tests collected", done.stdout, re.MULTILINE)
    added = re.search(r"^added by level: (.*)$", done.stdout, re.MULTILINE)
    assert counts is not None, done.stdout[-2000:]
    assert added is not None
    selected = int(counts[1] or counts[2])
    found = {level: int(count) for level, _, count in (each.partition(" ") for each in added[1].split(", "))}
    return selected, int(counts[2]) - selected, found


@pytest.mark.nightly  # collecting all tests takes a minute of CPU time
@pytest.mark.parametrize("directories", DIRECTORIES.values())
def test_each_level_adds_tests_and_the_highest_has_all(directories: str) -> None:
    found = [str(path) for pattern in directories.split() for path in REPOSITORY.glob(pattern)]
    selected, deselected, added = collected(*found, f"--level={Level.WEEKLY}")
    assert deselected == 0
    assert min(added.values()) > 0
    assert sum(added.values()) == selected


def test_level_selects_its_tests_and_those_of_the_levels_below() -> None:
    directory = "tests/redis/simulation/test_scaled_by_hand.py"  # has tests of each level
    total = 0
    for level in Level:
        selected, deselected, added = collected(directory, f"--level={level}")
        total += added[str(level)]
        assert selected == total > 0
        assert selected + deselected == sum(added.values())
    assert collected(directory)[0] == added[str(Level.COMMIT)], "the default"


def test_session_that_removes_the_cluster_has_no_tests_of_other_levels() -> None:
    _, deselected, _ = collected("e2e/scenarios/test_cluster.py")
    assert deselected == 0


def load(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((WORKFLOWS / name).read_text())
    return found


def test_jobs_of_the_workflow_run_every_target_and_the_lint_at_its_level() -> None:
    workflow = load("test.yml")
    assert workflow["env"] == {"LEVEL": "${{ inputs.level || 'commit' }}"}
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "make" in step.get("run", "")]
    commands = (line.rpartition('" ')[2] for run in runs for line in run.splitlines())  # after sudo env "NAME=value"
    targets = [words[1] for command in commands if (words := command.split())[0] == "make"]
    assert sorted(targets) == sorted(["lint", *DIRECTORIES]), "each once"
    assert [run for run in runs if "ARGS" in run or "LEVEL" in run] == [], "a job selects nothing else"


@pytest.mark.parametrize("level", [Level.NIGHTLY, Level.WEEKLY], ids=str)
def test_scheduled_workflow_runs_the_jobs_at_its_level(level: Level) -> None:
    workflow = load(f"{level}.yml")
    assert workflow[True]["schedule"], "YAML reads the key `on` as True"
    [job] = workflow["jobs"].values()
    assert (job["uses"], job["with"]) == ("./.github/workflows/test.yml", {"level": str(level)})
