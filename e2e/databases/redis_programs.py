"""Redis and Valkey servers from Debian packages, to run on this machine and to build images.

Each package is unpacked in the cache with the libraries of its suite and started with the dynamic loader of that suite.
So every Debian release can run all versions, without root, and nothing is installed.
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
"""Debian suite of each engine and version. A suite that is not released yet guarantees only the minor version."""

VERSIONS = tuple(SUITES)
"""All available versions, as (engine, version)."""

EXPORTER = ("trixie", "prometheus-redis-exporter", "1.69.0")
"""oliver006/redis_exporter: suite, name of the package, and version."""


def server(engine: str, version: str) -> list[str]:
    """Return the command that starts a server, without arguments of the server.

    Args:
        engine: ``redis`` or ``valkey``.
        version: a version in `VERSIONS` or a prefix of one: ``7.0`` selects 7.0.15.

    Raises:
        ClusterError: no suite has the version, or the package cannot be downloaded.
    """
    return _program(engine, version, "server")


def cli(engine: str, version: str) -> list[str]:
    """Return the command that starts ``redis-cli`` or ``valkey-cli``; arguments and errors as in `server`."""
    return _program(engine, version, "cli")


def exact(engine: str, version: str) -> str:
    """Return the version in `VERSIONS` that equals `version` or begins with it.

    Raises:
        ClusterError: no version matches.
    """
    for known, full in VERSIONS:
        if known == engine and f"{full}.".startswith(f"{version}."):
            return full
    available = ", ".join(" ".join(each) for each in VERSIONS)
    raise ClusterError(f"{engine} {version} is not available", f"use one of {available}")


def root(engine: str, version: str) -> Path:
    """Return the directory in which `unpacked` unpacks an engine's programs and libraries."""
    return debian.unpacked_path(SUITES[engine, version], _package(engine))


def unpacked(engine: str, version: str) -> Path:
    """Unpack an engine's programs and libraries and return their root directory, for images.

    Raises:
        ClusterError: the package cannot be downloaded, or the suite now has another version.
    """
    suite = SUITES[engine, version]
    found = debian.unpacked(suite, _package(engine))
    packaged = run(*_command(found, engine, "cli"), "--version").split()[1]
    if not f"{packaged}.".startswith(f"{version}."):
        raise ClusterError(
            f"Debian {suite} has {engine} {packaged}, not {version}",
            f"set the version to {packaged} in e2e/databases/redis_programs.py",
        )
    return found


def _program(engine: str, version: str, part: str) -> list[str]:
    suite = SUITES[engine, exact(engine, version)]
    return _command(debian.unpacked(suite, _package(engine)), engine, part)


def _package(engine: str) -> str:
    # The tools package contains the program; the server package adds only a service, a user and a symlink.
    return f"{engine}-tools"


def _command(root: Path, engine: str, part: str) -> list[str]:
    # The server and the check tools are one program, which selects its function by argv[0].
    program = root / "usr/bin" / f"{engine}-{'check-rdb' if part == 'server' else part}"
    [libraries] = root.glob("usr/lib/*-linux-gnu*")
    [loader] = libraries.glob("ld-linux-*.so.*")
    # LC_ALL=C: a server does not start with a locale that its own libraries do not have.
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
