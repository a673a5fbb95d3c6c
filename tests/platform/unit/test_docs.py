"""Documents: links and anchors resolve, commands and manifests are valid, README and changelog are short."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import operators
from tests.support import documents
from tests.support.paths import REPOSITORY

DOCUMENTS = documents.documents()
GUIDES = [path for path in DOCUMENTS if "reference" not in path.parts and path.name != "performance.md"]
README_LINES = 150
CHANGELOG_BYTES = 8192
ADMISSIONS = {
    kind.resource.kind.name: kind.admission
    for operator in operators.installed()
    for kind in operator.kinds
    if kind.admission is not None
}


def name_of(document: Path) -> str:
    return str(document.relative_to(REPOSITORY))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_within_the_repository_resolve(document: Path) -> None:
    assert documents.broken_links(document) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_are_valid(document: Path) -> None:
    problems = [
        f"{command}: {problem}"
        for command in documents.commands(document.read_text())
        for problem in documents.problems_of(command)
    ]
    assert problems == []


@pytest.mark.parametrize("document", GUIDES, ids=name_of)
def test_flags_exist(document: Path) -> None:
    assert documents.unknown_flags(document.read_text()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_manifests_cause_neither_errors_nor_warnings(document: Path) -> None:
    for block in documents.yaml_blocks(document.read_text()):
        for manifest in yaml.safe_load_all(block):
            if manifest.get("kind") in ADMISSIONS:
                review = ADMISSIONS[manifest["kind"]].review(manifest, None)
                assert (review.errors, review.warnings, review.notes) == ((), (), ()), manifest["metadata"]["name"]


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= README_LINES


def test_the_changelog_is_short() -> None:
    """A user reads it before an upgrade: it compares releases, and is no log of the development."""
    assert len((REPOSITORY / "CHANGELOG.md").read_bytes()) <= CHANGELOG_BYTES


def test_documents_have_commands_manifests_and_links() -> None:
    """The checks above find something to check."""
    texts = [document.read_text() for document in DOCUMENTS]
    assert sum(len(list(documents.commands(text))) for text in texts) > 100
    assert sum(len(documents.yaml_blocks(text)) for text in texts) >= 3
    assert {REPOSITORY / "README.md", REPOSITORY / "docs/runbook/README.md"} <= set(DOCUMENTS)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("make upp", "make: no target upp"),
        ("make up NODE=2", "make: no variable NODE"),
        ("export KUBECONFIG=$(make -s kubeconf)", "make: no target kubeconf"),
        ('make run ARGS="--logging debug"', "the memcached operator has no flag --logging"),
        ("make test-unit ARGS=tests/rediss/unit", "no such file: tests/rediss/unit"),
        ("kubectl get memcachds", "kubectl: unknown kind memcachds"),
        ("kubectl --namespace x fetch pods", "kubectl: unknown verb fetch"),
        ("kubectl get pods --everywhere", "kubectl: unknown option --everywhere"),
        ("kubectl platform state -A", "kubectl platform: unknown command state"),
        ("kubectl platform status --all", "kubectl platform status: unknown option --all"),
        ("kubectl apply -f samples/redis/tiny.yaml", "no such file: samples/redis/tiny.yaml"),
        (
            "kubectl logs deployment/platform-reddis-operator",
            "kubectl: no operator is deployed as platform-reddis-operator",
        ),
        ("helm upgrade platform charts/plattform --set redis.x=1", "no such file: charts/plattform"),
        (
            "helm upgrade platform charts/platform --set redis.imag.tag=1",
            "helm: charts/redis-operator has no value imag.tag",
        ),
        ("helm upgrade platform charts/platform --reset", "helm: unknown option --reset"),
        (".venv/bin/python -m operators.mongo", "python: no module operators.mongo"),
        (".venv/bin/python -m operators.etcd --password-overlap 5", "the etcd operator has no flag --password-overlap"),
    ],
    ids=lambda value: value.partition(":")[0][:40],
)
def test_a_wrong_command_is_found(command: str, problem: str) -> None:
    assert problem in documents.problems_of(command)


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[x](nowhere.md)", "nowhere.md: no such file"),
        ("[x](#missing)", "#missing: no such heading"),
        ("[x](other.md#missing)", "other.md#missing: no such heading"),
        ("[x](folder#missing)", "folder#missing: no such heading"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, link: str, problem: str) -> None:
    (tmp_path / "other.md").write_text("# Other\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/README.md").write_text("# Folder\n\n```console\n# missing\n```\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{link}\n\n[well](#page), [there](other.md#other), [index](folder#folder)\n")
    assert documents.broken_links(page) == [problem]


def test_repeated_headings_have_numbered_anchors() -> None:
    assert documents.anchors("# A b\n\n## `A b`!\n") == {"a-b", "a-b-1"}


def test_an_unknown_flag_is_found() -> None:
    assert documents.unknown_flags("`--create-timeout`, `--set` and `--creat-timeout`") == ["no flag --creat-timeout"]
