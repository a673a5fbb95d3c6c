"""Makefile: its test targets select by level."""

from __future__ import annotations

import ast
import re
import subprocess
from typing import TypeGuard

import pytest

from tools.local.paths import REPOSITORY

DIRECTORIES = {
    "test-unit": "tests/*/unit tests/*/simulation",
    "test-api": "tests/*/api",
    "test-containers": "tests/*/containers",
    "test-e2e": "e2e/scenarios",
}
"""Directories of each target that runs tests. The test of the cluster ends `test-e2e`, in a session of its own."""


def recipe(target: str) -> list[str]:
    """Return the lines of a target's recipe."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, target
    return found[1].splitlines()


@pytest.mark.parametrize("target", sorted(DIRECTORIES.keys() - {"test-containers"}))
def test_target_runs_its_directory_with_the_tests_of_the_level(target: str) -> None:
    runs = [line for line in recipe(target) if "$(PYTEST)" in line and "test_cluster.py; fi" not in line]
    assert len(runs) == 1
    assert f" $(call unless_named,{DIRECTORIES[target]}) " in runs[0]
    assert runs[0].removesuffix("; \\").endswith("$(SELECTED) $(ARGS)")
    assert " -m " not in runs[0].partition("$(PYTEST)")[2], "only the level selects tests"


def test_container_tests_run_in_two_processes_each_directory_in_one_of_them() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "test-containers", "LEVEL=weekly"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    runs = [run for run in done.stdout.split(";") if "-m pytest" in run]
    assert all("--level weekly" in run and " -m " not in run.partition("-m pytest")[2] for run in runs)
    directories = [word for run in runs for word in run.split() if word.startswith("tests/")]
    assert sorted(directories) == sorted(
        str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob(DIRECTORIES["test-containers"])
    )
    assert len(runs) == 2


def test_files_that_are_named_replace_the_directories() -> None:
    command = ["make", "--dry-run", "test-unit", "ARGS=tests/redis/unit/test_plan.py -x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    [run] = [line for line in done.stdout.splitlines() if "-m pytest" in line]
    assert [word for word in run.split() if word.startswith("tests/")] == ["tests/redis/unit/test_plan.py"]


@pytest.mark.parametrize("target", ["test", "test-nightly", "test-weekly"])
def test_each_level_runs_every_target(target: str) -> None:
    lines = recipe(target)
    if target != "test":
        assert lines[0].endswith(f"test LEVEL={target.removeprefix('test-')}")
        lines = recipe("test")
    assert [line.split()[-1] for line in lines] == ["lint", *DIRECTORIES]


def test_each_word_of_the_tests_on_the_oldest_kubernetes_selects_something() -> None:
    found = re.search(r"^VERSIONED *:= (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    words = found[1].split(" or ")
    files = list(REPOSITORY.glob(f"{DIRECTORIES['test-api']}/**/test_*.py"))
    names = [node.name for path in files for node in ast.walk(ast.parse(path.read_text())) if _is_test(node)]
    assert [word for word in words if not any(word in name for name in [*names, *(path.name for path in files)])] == []
    assert all(re.fullmatch("test_[a-z_]+", word) for word in words)


def _is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
