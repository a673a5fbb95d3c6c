"""docs/redis-facts.md has each fact that a step takes from a server or from Kubernetes, and what it names exists."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache

import pytest

from e2e.cluster.paths import REPOSITORY
from operators.redis.api.status import RecordedNode
from operators.redis.client.responses import Follower, Node, NodeReport
from operators.redis.instance import Instance
from operators.redis.observe import Observed
from operators.redis.reasons import REASONS
from operators.redis.volume_record import VolumeRecord
from shared.status.reasons import COMMON

TYPES = (Observed, Instance, NodeReport, Node, Follower, RecordedNode, VolumeRecord)
"""Everything that the plan is given, but the resource itself."""

PAGE = (REPOSITORY / "docs/redis-facts.md").read_text()


def rows_of(type_: type) -> list[list[str]]:
    """Return the cells of the rows in the section of a type."""
    [section] = [part for part in PAGE.split("\n## ") if re.search(rf"^`{type_.__name__}` in", part, re.MULTILINE)]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def names() -> dict[str, set[str]]:
    """Return the functions, classes, methods and assigned names of each module of the product, by its short name."""
    found: dict[str, set[str]] = {}
    for path in (*REPOSITORY.glob("operators/redis/**/*.py"), *REPOSITORY.glob("shared/**/*.py")):
        defined = found.setdefault(path.stem, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
    return found


@pytest.mark.parametrize("type_", TYPES)
def test_each_field_has_one_row_and_each_row_a_field(type_: type) -> None:
    assert dataclasses.is_dataclass(type_)
    rows = [cells[0].strip("`") for cells in rows_of(type_)]
    assert sorted(rows) == sorted(field.name for field in dataclasses.fields(type_))


@pytest.mark.parametrize("type_", TYPES)
def test_each_row_states_the_owner_the_proof_and_the_lack_of_it(type_: type) -> None:
    for cells in rows_of(type_):
        assert len(cells) == 4, cells
        assert all(cells), cells


def test_code_that_the_page_names_exists() -> None:
    named = re.findall(r"`([a-z_]+)\.([A-Za-z_]+)`", PAGE)
    assert len(named) > 60
    assert {f"{module}.{name}" for module, name in named if name not in names().get(module, set())} - {
        "spec.adopt"
    } == set()


def test_reasons_that_the_page_names_exist() -> None:
    found = {
        word for word in re.findall(r"`([A-Z][a-z]+[A-Za-z]*)`", PAGE) if word not in {each.__name__ for each in TYPES}
    }
    known = {str(reason) for catalogue in (REASONS, COMMON) for reason in catalogue}
    assert not found - known
