"""List commits of an engine that look like security fixes: `python -m tools.upstream_fixes ENGINE [FROM [TO]]`.

Engines fix weaknesses in releases whose notes do not name them, so that the catalogue calls a release safe that is not.
A person reads each listed commit, and decides whether it becomes an advisory in operators/*/api/catalogue*.toml. By
default the commits are those after the release that the catalogue calls safe, up to the newest one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import operators
from shared.api.catalogue import Catalogue, dotted
from tools.local.environment import forget_clusters

CACHE = Path.home() / ".cache" / "platform" / "upstream"
"""Directory of copies of the engines' repositories: commits without files."""

SUSPICIOUS = re.compile(
    r"over(flow|run|read)|over-read|out.of.bounds|\boob\b|off.by.one|use.after.free|double.free|refcount|uninit|"
    r"crash|segfault|corrupt|\bleak|null (pointer|deref)|\bcve-|secur|vulnerab|\bauth|permission|bypass|privilege|"
    r"sanitiz|\bhang|deadlock|infinite loop|denial|\bdos\b|unlocked|race|assert",
    re.IGNORECASE,
)
"""Words of commits that fix a weakness; most commits with them fix none."""

_SEPARATOR = "\x1e"


class Unavailable(Exception):
    """The commits cannot be listed; the message states why and what to do."""


def span(catalogue: Catalogue) -> tuple[str, str]:
    """Return the release that the catalogue calls safe and the newest release, of the line of the default version."""
    line = next(line for line in catalogue.lines if dotted(line.series) == catalogue.default)
    return dotted(catalogue.least_safe(line.series) or (*line.series, 0)), line.newest


def suspicious(log: str) -> list[str]:
    """Return the commits of a log that look like fixes of a weakness, as hash and subject."""
    commits = (each.strip() for each in log.split(_SEPARATOR))
    return [commit.splitlines()[0] for commit in commits if SUSPICIOUS.search(commit.partition(" ")[2])]


def log_between(copy: Path, begin: str, end: str) -> str:
    """Return the log of a copy between two releases.

    Raises:
        Unavailable: the copy does not have them.
    """
    tags = _git(copy, "tag").split()
    named = [next((tag for tag in (version, f"v{version}") if tag in tags), "") for version in (begin, end)]
    if not all(named):
        raise Unavailable(f"{copy} has no tag of {begin} or of {end}: name releases of this engine, or a newer copy.")
    return _git(copy, "log", f"--format={_SEPARATOR}%h %s%n%b", f"{named[0]}..{named[1]}")


def copy_of(catalogue: Catalogue) -> Path:
    """Return the updated copy of the repository of an engine.

    Raises:
        Unavailable: the repository cannot be reached.
    """
    copy = CACHE / catalogue.engine
    try:
        if copy.exists():
            _git(copy, "fetch", "--quiet", "--tags", "origin")
        else:
            CACHE.mkdir(parents=True, exist_ok=True)
            _git(CACHE, "clone", "--quiet", "--bare", "--filter=blob:none", catalogue.repository, str(copy))
    except Unavailable as error:
        raise Unavailable(
            f"{catalogue.engine}: the commits are not known, because {catalogue.repository} cannot be read: {error} "
            "Run this with access to it, or name a copy of the repository with --copy DIR."
        ) from None
    return copy


def _git(directory: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments], capture_output=True, text=True, errors="replace", timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git failed: {error}.") from None
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["git failed"])[-1].rstrip(".") + ".")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Print the commits; return the exit code."""
    forget_clusters()
    known = {each.engine: each for operator in operators.installed() for each in operator.catalogues}
    parser = argparse.ArgumentParser(prog="upstream_fixes", description="List commits that look like security fixes.")
    parser.add_argument("engine", choices=sorted(known))
    parser.add_argument("begin", nargs="?", help="release before the first commit (default: the one called safe)")
    parser.add_argument("end", nargs="?", help="release of the last commit (default: the newest in the catalogue)")
    parser.add_argument("--copy", type=Path, help="copy of the repository (default: one that is fetched)")
    given = parser.parse_args(arguments)
    catalogue = known[given.engine]
    safe, newest = span(catalogue)
    begin, end = given.begin or safe, given.end or newest
    try:
        found = suspicious(log_between(given.copy or copy_of(catalogue), begin, end))
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    lines = [
        f"{len(found)} commits of {given.engine} between {begin} and {end} look like fixes; decide on each:",
        *found,
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
