"""The catalogues of reasons: complete, used, and explained in the runbook."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import operators
from shared.kubernetes.errors import KubeError
from shared.runtime import reconciler
from shared.runtime.errors import DatabaseError
from shared.runtime.operator import Operator
from shared.status.reasons import COMMON, Catalogue, Reason, Severity
from tests.support.paths import REPOSITORY

CATALOGUES = {"shared": COMMON, **{operator.name: operator.reasons for operator in operators.installed()}}


def constants(catalogue: Catalogue, module: Path) -> dict[str, Reason]:
    """Names of the constants in `module` that declare reasons."""
    found = re.findall(r'^(\w+) = \w+\["(\w+)"\]$', module.read_text(), re.MULTILINE)
    return {constant: catalogue.reasons[name] for constant, name in found}


@pytest.mark.parametrize("name", CATALOGUES)
def test_every_declared_reason_is_used(name: str) -> None:
    module = REPOSITORY / ("shared/status/reasons.py" if name == "shared" else f"operators/{name}/reasons.py")
    declared = constants(CATALOGUES[name], module)
    sources = [path for folder in ("shared", "operators") for path in product(folder) if path != module]
    words = frozenset().union(*(words_in(path) for path in sources))
    assert {constant for constant in declared if constant not in words} == set()
    of_errors = {error.__name__ for error in subclasses(DatabaseError)}
    by_name = {"MemberRefused", "MemberUnreachable", "NoResult"} if name == "etcd" else set()  # backup/program.py
    assert set(CATALOGUES[name]) - set(declared.values()) - of_errors == by_name


@pytest.mark.parametrize("name", CATALOGUES)
def test_a_reason_has_a_meaning(name: str) -> None:
    for reason in CATALOGUES[name]:
        assert reason.meaning.endswith("."), reason


@pytest.mark.parametrize("name", CATALOGUES)
def test_constant_has_the_name_of_its_reason(name: str) -> None:
    module = REPOSITORY / ("shared/status/reasons.py" if name == "shared" else f"operators/{name}/reasons.py")
    for constant, reason in constants(CATALOGUES[name], module).items():
        assert constant.replace("_", "").lower() == reason.lower()


def subclasses(error: type[Exception]) -> Iterator[type[Exception]]:
    for each in error.__subclasses__():
        yield from (each, *subclasses(each))


def test_each_error_has_the_reason_of_its_name() -> None:
    abstract = {"EtcdError", "RedisError", "BackupError", "StoreError"}
    for error in subclasses(DatabaseError):
        if error.__name__ not in abstract and not error.__module__.startswith("tests."):
            assert vars(error)["reason"] == error.__name__


@pytest.mark.parametrize("error", list(subclasses(KubeError)), ids=lambda error: error.__name__)
def test_each_error_of_the_api_server_has_a_declared_reason(error: type[KubeError]) -> None:
    assert reconciler._reason(error("it fails")) in COMMON.reasons


@pytest.mark.parametrize("operator", operators.installed(), ids=lambda operator: operator.name)
def test_an_operator_does_not_redeclare_a_common_reason(operator: Operator) -> None:
    assert not set(operator.reasons.reasons) & set(COMMON.reasons)


@pytest.mark.parametrize("name", CATALOGUES)
def test_every_reason_has_a_runbook_entry(name: str) -> None:
    page = (REPOSITORY / "docs" / CATALOGUES[name].page).read_text()
    given = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    headings = set(given)
    assert len(given) == len(headings), "a link leads to the first of several"
    if name == "shared":  # an operator's page may explain a common reason in its own terms
        for operator in operators.installed():
            headings |= set(
                re.findall(r"^### (\w+)$", (REPOSITORY / f"docs/runbook/{operator.name}.md").read_text(), re.MULTILINE)
            )
    assert {str(reason) for reason in CATALOGUES[name]} <= headings


def test_a_reason_cannot_be_declared_twice(tmp_path: Path) -> None:
    file = tmp_path / "reasons.toml"
    file.write_text('[normal]\nScaling = "The size changes."\n')
    assert Catalogue.read("runbook.md", file)["Scaling"].severity is Severity.NORMAL
    file.write_text('[normal]\nScaling = "The size changes."\n[action]\nScaling = "The size changes."\n')
    with pytest.raises(ValueError, match="Scaling"):
        Catalogue.read("runbook.md", file)


def product(folder: str) -> list[Path]:
    return [*(REPOSITORY / folder).rglob("*.py")]


@functools.cache
def words_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", path.read_text()))
