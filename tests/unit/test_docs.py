"""What the documents promise is there."""

from __future__ import annotations

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


SHARED = [
    *ROOT.glob("shared/steps/*.py"),
    ROOT / "shared/runtime/reconciler.py",
    ROOT / "shared/status/phases.py",
    ROOT / "shared/pki/secret_checks.py",
]
PHASES = {"Failed", "Running", "Pending", "Complete"}
KUBERNETES_OWN = {"OnRootMismatch", "Opaque", "AlwaysAllow", "IfHealthyBudget"}


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
