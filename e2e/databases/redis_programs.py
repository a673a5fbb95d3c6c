"""Servers of Redis and of Valkey out of Debian's packages, to be run on this machine and to make images of.

Each is unpacked in the cache with the libraries of its suite, and started by that suite's own loader: so any Debian, as
whoever, runs them all, and nothing is installed.
"""

from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import debian
from e2e.cluster.machine.commands import run

SUITES = {
    ("redis", "7.0.15"): "bookworm",
    ("redis", "8.0.2"): "trixie",
    ("valkey", "8.1.1"): "trixie",
    ("valkey", "9.1"): "forky",
}
"""The suite that has an engine's version. Of a suite that still moves, only the minor version is promised."""

VERSIONS = tuple(SUITES)
"""Every engine and version that there is, as (engine, version)."""

EXPORTER = ("trixie", "prometheus-redis-exporter", "1.69.0")
"""oliver006's exporter: a suite, its package there, and its version."""


def server(engine: str, version: str) -> list[str]:
    """How a server is started; its arguments come after.

    Args:
        engine: ``redis`` or ``valkey``.
        version: one of `VERSIONS`, or the beginning of one: ``7.0`` is 7.0.15.

    Raises:
        ClusterError: no suite has it, or it cannot be had.
    """
    return _program(engine, version, "server")


def cli(engine: str, version: str) -> list[str]:
    """How ``redis-cli`` or ``valkey-cli`` is started; arguments and errors as `server`."""
    return _program(engine, version, "cli")


def exact(engine: str, version: str) -> str:
    """The version of `VERSIONS` that is meant by one or by its beginning.

    Raises:
        ClusterError: there is none.
    """
    for known, full in VERSIONS:
        if known == engine and f"{full}.".startswith(f"{version}."):
            return full
    had = ", ".join(" ".join(each) for each in VERSIONS)
    raise ClusterError(f"no suite is known to have {engine} {version}", f"one of: {had}")


def root(engine: str, version: str) -> Path:
    """Where `unpacked` puts an engine's programs and their libraries."""
    return debian.place_of(SUITES[engine, version], _package(engine))


def unpacked(engine: str, version: str) -> Path:
    """An engine's programs and their libraries, as a root for images.

    Raises:
        ClusterError: they cannot be had, or the suite has another version by now.
    """
    suite = SUITES[engine, version]
    found = debian.unpacked(suite, _package(engine))
    says = run(*_started(found, engine, "cli"), "--version").split()[1]
    if not f"{says}.".startswith(f"{version}."):
        raise ClusterError(
            f"Debian's {suite} has {engine} {says}, not {version}",
            "name that version in e2e/databases/redis_programs.py",
        )
    return found


def _program(engine: str, version: str, part: str) -> list[str]:
    suite = SUITES[engine, exact(engine, version)]
    return _started(debian.unpacked(suite, _package(engine)), engine, part)


def _package(engine: str) -> str:
    # The program itself: the package of the server brings a service, a user and a name for this program.
    return f"{engine}-tools"


def _started(root: Path, engine: str, part: str) -> list[str]:
    # The server and the checks of its files are one program, which looks at the name that it is called by.
    program = root / "usr/bin" / f"{engine}-{'check-rdb' if part == 'server' else part}"
    [libraries] = root.glob("usr/lib/*-linux-gnu*")
    [loader] = libraries.glob("ld-linux-*.so.*")
    # A locale that only this machine's own libraries know would keep a server from starting.
    return [
        "env",
        "LC_ALL=C",
        str(loader),
        "--library-path",
        str(libraries),
        "--argv0",
        f"{engine}-{part}",
        str(program),
    ]
