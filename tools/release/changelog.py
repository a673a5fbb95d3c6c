"""Release notes: the section of a version in CHANGELOG.md."""

from __future__ import annotations

import re

from tools.local.errors import ClusterError

UNRELEASED = "Unreleased"


def section(changelog: str, version: str) -> str:
    """Return the text of a version's section, without its heading.

    Args:
        changelog: text of CHANGELOG.md, in the format of Keep a Changelog.
        version: version without a leading v, or `Unreleased`.

    Raises:
        ClusterError: the changelog has no such section, or the section is empty.
    """
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    text = found[1].strip() if found else ""
    if not text:
        problem = "is empty in" if found else "is missing in"
        raise ClusterError(
            f"the section [{version}] {problem} CHANGELOG.md",
            f"rename [{UNRELEASED}] to [{version}] with the day of the release, and begin a new [{UNRELEASED}]",
        )
    return text + "\n"


def entries(text: str) -> list[str]:
    """Return the entries of a section, each as one line without Markdown links to files of the tree."""
    found = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    return [" ".join(each.split()) for each in map(without_links, found)]


def without_links(text: str) -> str:
    """Return a text with the title of each Markdown link instead of the link."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def with_absolute_links(text: str, root: str) -> str:
    """Return a text whose links to files of the tree are URLs, because a page of notes is not a file of the tree.

    Args:
        text: Markdown.
        root: URL of the tree at the version.
    """
    return re.sub(r"\]\((?!https?://|#)([^)]+)\)", rf"]({root}/\1)", text)
