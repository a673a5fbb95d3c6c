"""What the documents promise is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

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


def reasons() -> set[str]:
    """Every reason that a plan, a reconcile or a deadline gives: CamelCase strings where reasons are said."""
    found = set()
    for path in [
        *ROOT.glob("operators/**/*.py"),
        *ROOT.glob("shared/steps/*.py"),
        ROOT / "shared/runtime/reconciler.py",
        ROOT / "shared/status/phases.py",
        ROOT / "shared/pki/secret_checks.py",
        ROOT / "shared/status/phases.py",
        *ROOT.glob("shared/steps/*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            said: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                said = node.args if name in SAYING else []
            elif isinstance(node, ast.Assign):
                said = [node.value, *(node.value.elts if isinstance(node.value, ast.Tuple) else [])]
            elif isinstance(node, ast.Dict) and path.name in ("plan.py", "reconciler.py"):
                said = node.values
            texts = [text.value for text in said if isinstance(text, ast.Constant) and isinstance(text.value, str)]
            found |= {text for text in texts if re.fullmatch(r"([A-Z][a-z]+){1,4}", text)}
    return found - {"Failed", "Running", "Pending", "Complete"} - {"OnRootMismatch"}  # phases, and Kubernetes' own


def test_every_reason_has_its_place_in_the_runbook() -> None:
    pages = [ROOT / "docs/runbook.md", *ROOT.glob("docs/runbook/*.md")]
    headings = {found for page in pages for found in re.findall(r"^### (\w+)$", page.read_text(), re.MULTILINE)}
    assert {"InvalidSpec", "SecretMissing", "CreateTimeout", "Degraded"} <= reasons(), "the search finds reasons"
    assert reasons() <= headings


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
