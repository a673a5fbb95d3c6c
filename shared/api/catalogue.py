"""Catalogue of an engine's versions: maintained lines, newest patches, advisories and bugs.

Each operator has one in TOML: data with its sources and the date on which they were looked up. The default version,
the warnings at apply, the condition `Vulnerable`, a metric and the tables of docs/reference/versions.md come from it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

Release = tuple[int, int, int]
"""Major, minor and patch version."""

Series = tuple[int, int]
"""Major and minor version."""

_LAST_PATCH = 9999

_FORM = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[-+_].*)?", re.DOTALL)


@lru_cache(maxsize=1024)
def release_of(text: str) -> Release | None:
    """Return the release in a version or an image tag, such as v3.6.16 or 8.0-alpine; None if it is no version.

    Any text after the patch names a build, and is ignored. A build can contain fixes of later releases.
    """
    found = _FORM.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def releases(text: str) -> tuple[Release, ...]:
    """Return the releases in a text, such as "3.5.28 3.6.9".

    Raises:
        ValueError: a word is not a version.
    """
    found = tuple(release_of(word) for word in text.split())
    if None in found:
        raise ValueError(f"{text!r} contains a word that is not a version")
    return tuple(each for each in found if each is not None)


def dotted(version: Release | Series) -> str:
    """Return a release or a series as text, such as 3.6.16 or 3.6."""
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class Advisory:
    """A published weakness of some versions.

    Attributes:
        id: identifier of the project's own advisory or of its release notes, such as CVE-2026-33413.
        impact: abilities of an attacker, as a clause.
        source: address of the advisory or of the release notes.
        fixed: first release with the fix, at most one per line, separated by spaces. A line below the newest of them
            that has none stays affected; so do earlier lines.
        introduced: first affected release.
        needs: features without which a resource is not affected, such as `tls`.
        unknown: lines, separated by spaces, for which the sources that were read name no release with the fix; they
            count as not affected.
    """

    id: str
    impact: str
    source: str
    fixed: str
    introduced: str = "0.0.0"
    needs: str = ""
    unknown: str = ""

    def fixed_in(self, series: Series) -> Release | None:
        """Return the first release of a line with the fix; None if there is none, or the line was never affected."""
        return next((found for found in releases(self.fixed) if found[:2] == series), None)

    def affects(self, version: Release) -> bool:
        """Whether a version is affected in some configuration."""
        if version < max(releases(self.introduced)) or dotted(version[:2]) in self.unknown.split():
            return False
        return version < (self.fixed_in(version[:2]) or max(releases(self.fixed)))


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of some versions that makes one of the operator's own steps unsafe or unreliable.

    Attributes:
        first, last: first and last affected release, of one line or of several in a row.
        effect: consequence, as a clause.
        avoided: behaviour of the operator because of it; empty if it can do nothing.
        source: address of the issue.
        fixed: first recommended release without it; empty if the sources name none.
        needs: features without which a resource is not affected, as in `Advisory.needs`.
        prevents: step that the operator does not take with these versions; empty for none.
    """

    first: str
    last: str
    effect: str
    source: str
    fixed: str = ""
    avoided: str = ""
    needs: str = ""
    prevents: str = ""

    def affects(self, version: Release) -> bool:
        """Whether a version has the bug."""
        return max(releases(self.first)) <= version <= max(releases(self.last))

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Weaknesses(NamedTuple):
    """Advisories that apply to what a resource runs: their identifiers, with a message for its user."""

    ids: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of releases that get the same fixes, such as 3.6.

    Attributes:
        newest: newest release known at `Catalogue.looked_up`.
        maintained: whether the project still publishes fixes for it.
        source: address of the release notes.
    """

    newest: str
    source: str
    maintained: bool = True

    @property
    def series(self) -> Series:
        return max(releases(self.newest))[:2]


@dataclass(frozen=True)
class Catalogue:
    """Knowledge of the versions of an engine.

    Attributes:
        engine: name of the engine, such as etcd.
        looked_up: day on which the sources were read.
        image: upstream's own image repository.
        default: line of the default version.
        lines: known lines, newest first.
        repository: address of the project's git repository, for `make upstream-fixes`.
    """

    engine: str
    looked_up: date
    image: str
    default: str
    lines: tuple[Line, ...]
    advisories: tuple[Advisory, ...]
    bugs: tuple[Bug, ...] = ()
    repository: str = ""

    @classmethod
    def read(cls, file: Path) -> Catalogue:
        """Return the catalogue in a TOML file, whose fields are the attributes."""
        known = tomllib.loads(file.read_text("utf-8"))
        for name, made in {"lines": Line, "advisories": Advisory, "bugs": Bug}.items():
            known[name] = tuple(made(**each) for each in known.get(name, ()))
        return cls(**known)

    @cached_property
    def default_version(self) -> str:
        """Version of a new resource that names none: the newest patch of the default line."""
        return next(line.newest for line in self.lines if dotted(line.series) == self.default)

    def applying(self, version: str, features: Collection[str]) -> tuple[Advisory, ...]:
        """Return the advisories that apply to a version in a configuration, newest first.

        Args:
            version: version or image tag. Nothing is known of one that is not a version.
            features: features that the configuration uses, in the words of `Advisory.needs`.
        """
        found = release_of(version)
        if found is None:
            return ()
        return tuple(
            each for each in self.advisories if each.affects(found) and set(each.needs.split()) <= set(features)
        )

    def least_safe(self, series: Series) -> Release | None:
        """Return the release of a line from which on no advisory applies at all; None if there is none."""
        if any(each.affects((*series, _LAST_PATCH)) for each in self.advisories):
            return None
        fixed = (each.fixed_in(series) for each in self.advisories)
        return max((release for release in fixed if release), default=(*series, 0))

    def warnings(self, version: str, features: Collection[str]) -> list[str]:
        """Return the warnings of `kubectl apply` about a version: the bugs that concern a step of the operator."""
        return [f"spec.version: {_of_bug(bug)}" for bug in self.bugs_of(version, features)]

    def notes(self, version: str, features: Collection[str]) -> list[str]:
        """Return a clause about the advisories of a version, which the condition Vulnerable describes."""
        count = len(self.weaknesses(version, features).ids)
        weaknesses = f"{count} known weakness{'es' * (count > 1)}, fixed in {self._fixed_version(version)}"
        return [f"{self.engine} {version} has {weaknesses} (version)"] if count else []

    def bugs_of(self, version: str, features: Collection[str]) -> tuple[Bug, ...]:
        """Return the bugs of a version in a configuration; arguments as in `applying`."""
        found = release_of(version)
        if found is None:
            return ()
        return tuple(each for each in self.bugs if each.affects(found) and set(each.needs.split()) <= set(features))

    def weaknesses(self, version: str, features: Collection[str]) -> Weaknesses:
        """Return the advisories that apply, with a message about them; arguments as in `applying`."""
        found = self.applying(version, features)
        if not found:
            return Weaknesses()
        ids, first = tuple(each.id for each in found), found[0]
        message = (
            f"{self.engine} {version} has known weaknesses that apply to this configuration: {', '.join(ids)}. "
            f"{first.id}: {first.impact} ({first.source}). {self.advice(version)}"
        )
        return Weaknesses(ids, message)

    def advice(self, version: str) -> str:
        """Return which version to use instead."""
        fixed, found = self._fixed_version(version), release_of(version)
        if found and max(releases(fixed))[:2] == found[:2]:
            return f"Set {fixed} or a later {dotted(found[:2])}."
        return f"No release of its line has the fixes. Upgrade to {fixed} or later."

    def _fixed_version(self, version: str) -> str:
        """Return the newest release of the same line if that has all fixes, otherwise the default version."""
        found = release_of(version)
        own = next((line for line in self.lines if found and line.series == found[:2]), None)
        return own.newest if own is not None and self.least_safe(own.series) is not None else self.default_version


def _of_bug(bug: Bug) -> str:
    advice = f"Set {bug.fixed} or later." if bug.fixed else ""
    avoided = f"{bug.avoided}." if bug.avoided else ""
    return " ".join(filter(None, (f"with {bug}, {bug.effect} ({bug.source}).", avoided, advice)))
