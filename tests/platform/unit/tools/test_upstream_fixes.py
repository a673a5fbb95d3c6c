"""Commits between two releases of an engine that look like security fixes, from a copy of its repository."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from operators.memcached.api.catalogue import MEMCACHED
from tools import upstream_fixes


def git(directory: Path, *arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *author, "-C", str(directory), *arguments], check=True, capture_output=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with two releases, and commits between them."""
    git(tmp_path, "init", "--quiet")
    for message, tag in (
        ("first", "1.6.42"),
        ("binprot: avoid item refcount overflows", ""),
        ("proxy: new option", ""),
        ("network: rework\n\nFixes a use-after-free.", ""),
        ("docs", "1.6.43"),
        ("crash after the release", ""),
    ):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", message)
        if tag:
            git(tmp_path, "tag", tag)
    return tmp_path


def test_commits_with_words_of_fixes_are_listed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream_fixes.main(["memcached", "1.6.42", "1.6.43", "--copy", str(copy)]) == 0
    first, *commits = capsys.readouterr().out.splitlines()
    assert first == "2 commits of memcached between 1.6.42 and 1.6.43 look like fixes; decide on each:"
    found = [commit.partition(" ")[2] for commit in commits]
    assert found == ["network: rework", "binprot: avoid item refcount overflows"]


def test_unknown_release_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream_fixes.main(["memcached", "1.6.42", "1.6.99", "--copy", str(copy)]) == 1
    assert "has no tag of 1.6.42 or of 1.6.99" in capsys.readouterr().err


def test_without_network_the_message_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(upstream_fixes, "CACHE", tmp_path / "cache")
    offline = replace(MEMCACHED, repository=f"file://{tmp_path}/none")
    with pytest.raises(upstream_fixes.Unavailable, match="name a copy of the repository with --copy DIR"):
        upstream_fixes.copy_of(offline)
    assert capsys.readouterr().out == ""


def test_releases_are_those_after_the_one_that_the_catalogue_calls_safe() -> None:
    assert upstream_fixes.span(MEMCACHED) == ("1.6.45", "1.6.45")
