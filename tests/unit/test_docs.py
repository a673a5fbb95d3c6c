"""What the documents promise is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import operators
from shared.runtime.operator import Operator
from shared.status.reasons import COMMON
from tests.support import paths

ROOT = paths.REPOSITORY
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("charts/*/README.md")])
SAYING = (
    "progressing",
    "wait",
    "blocked",
    "paused",
    "Step",
    "SecretProblem",
    "_Wrong",
    "Deadline",
    "Verdict",
    "about",
    "RollingUpdate",
)


SHARED = [
    *ROOT.glob("shared/steps/*.py"),
    ROOT / "shared/runtime/reconciler.py",
    ROOT / "shared/status/phases.py",
    ROOT / "shared/pki/secret_checks.py",
]
PHASES = {"Failed", "Running", "Pending", "Complete"}
KUBERNETES_OWN = {"OnRootMismatch", "Opaque", "AlwaysAllow", "IfHealthyBudget"}


def reasons(paths: Iterable[Path]) -> set[str]:
    """Every reason that modules give: CamelCase strings where a step, a verdict or a deadline takes one."""
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            said: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                said = node.args if name in SAYING else []
            elif isinstance(node, ast.Assign):
                said = [node.value, *(node.value.elts if isinstance(node.value, ast.Tuple) else [])]
                said += [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else []
            elif isinstance(node, ast.Dict) and path.name in ("plan.py", "reconciler.py"):
                said = node.values
            texts = [text.value for text in said if isinstance(text, ast.Constant) and isinstance(text.value, str)]
            found |= {text for text in texts if re.fullmatch(r"([A-Z][a-z]+){1,4}", text)}
    return found - PHASES - KUBERNETES_OWN


def test_the_shared_reasons_are_declared() -> None:
    assert {"InvalidSpec", "SecretMissing", "CreateTimeout", "Degraded"} <= reasons(SHARED), "the search finds reasons"
    assert reasons(SHARED) == COMMON


@pytest.mark.parametrize("operator", operators.installed(), ids=lambda operator: operator.name)
def test_an_operator_declares_its_reasons(operator: Operator) -> None:
    given = reasons(path for path in ROOT.glob(f"operators/{operator.name}/**/*.py") if path.name != "operator.py")
    assert given - COMMON == set(operator.reasons)


def test_every_reason_has_its_place_in_the_runbook() -> None:
    pages = [ROOT / "docs/runbook.md", *ROOT.glob("docs/runbook/*.md")]
    headings = {found for page in pages for found in re.findall(r"^### (\w+)$", page.read_text(), re.MULTILINE)}
    assert COMMON.union(*(operator.reasons for operator in operators.installed())) <= headings


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        place = (document.parent / path).resolve() if path else document
        assert place.exists(), f"{document.name}: {target}"
        if anchor:
            assert anchor in anchors(place / "README.md" if place.is_dir() else place), f"{document.name}: {target}"


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
