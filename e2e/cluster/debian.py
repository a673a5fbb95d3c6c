"""Debian's packages: installed where the cluster needs them, or only unpacked for one program of theirs."""

import os
import shutil
import tempfile
from pathlib import Path

from e2e.cluster import binaries
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import CACHE


def install(packages: list[str]) -> None:
    """Install packages, as few others as they can do with.

    Raises:
        ClusterError: the machine has no apt-get, or that failed.
    """
    _apt_get("install", "--no-install-recommends", "--yes", *packages, wanted=packages)


def program(name: str, package: str) -> Path:
    """A program: the machine's own, else of Debian's package, unpacked in the cache.

    It is not installed: a package may bring a service that starts by itself, and dozens of others that the program
    itself does without.

    Args:
        name: of the program, such as ``promtool``.
        package: the one that holds it.

    Raises:
        ClusterError: the package cannot be had, or does not hold it.
    """
    if own := shutil.which(name):
        return Path(own)
    place = CACHE / "debian" / package
    with binaries.locked(f"debian-{package}"):
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
                _apt_get("download", "--option=APT::Sandbox::User=root", package, wanted=[package], cwd=Path(scratch))
                (archive,) = Path(scratch).glob("*.deb")
                run("dpkg-deb", "--extract", archive, Path(scratch) / "root")
                (Path(scratch) / "root").rename(place)
    found = next((path for path in place.glob(f"usr/*bin/{name}")), None)
    if found is None:
        raise ClusterError(f"Debian's package {package} holds no {name}", f"look at: find {place} -path '*bin*'")
    return found


def _apt_get(*arguments: str, wanted: list[str], cwd: Path | None = None) -> None:
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"this machine lacks {', '.join(wanted)} and has no apt-get", "install them by its own means, then again"
        )
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    mend = f"the machine's package mirror must be reachable; try by hand: apt-get {' '.join(arguments)}"
    try:
        run("apt-get", *arguments, env=quietly, cwd=cwd, timeout=900)
    except ClusterError:  # the lists may be missing or old
        run("apt-get", "update", mend=mend, env=quietly)
        run("apt-get", *arguments, mend=mend, env=quietly, cwd=cwd)
