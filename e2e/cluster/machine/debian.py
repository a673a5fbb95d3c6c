"""Debian's packages: installed where the cluster needs them, or only unpacked for one program of theirs."""

import os
import re
import shutil
import tempfile
from pathlib import Path

from e2e.cluster import binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.commands import run
from e2e.cluster.paths import CACHE

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


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


def unpacked(suite: str, package: str) -> Path:
    """A package of any suite with all that it depends on, unpacked in the cache; nothing is installed.

    apt resolves it in a state of its own, in which nothing is installed: so what this machine has is not left out.

    Args:
        suite: such as ``trixie``; this machine's own or another.
        package: such as ``redis-tools``.

    Returns:
        The directory that is the root of what they hold, with /bin, /lib and the like in /usr, whatever the suite.

    Raises:
        ClusterError: it cannot be had.
    """
    place = place_of(suite, package)
    with binaries.locked(f"debian-{place.name}"):
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
                root = Path(scratch) / "root"
                for archive in _downloaded(suite, package, Path(scratch)):
                    run("dpkg-deb", "--extract", archive, root)
                _merge_into_usr(root)
                root.rename(place)
    return place


def place_of(suite: str, package: str) -> Path:
    """Where `unpacked` puts a package."""
    return CACHE / "debian" / f"{package}-{suite}"


def mirror(wanted: str) -> str:
    """The mirror that this machine's apt sources name: every suite is there.

    Args:
        wanted: for what, as the error shall say it.

    Raises:
        ClusterError: they name none.
    """
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(), flags=re.MULTILINE))
    lists = [*Path("/etc/apt").glob("sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    codename = release.get("VERSION_CODENAME", "")
    found = mirror_in("\n\n".join(path.read_text() for path in lists), codename)
    if found is None:
        raise ClusterError(
            f"no Debian mirror for {codename} in /etc/apt, and {wanted} are made from one",
            "use a Debian machine, or a cluster that can pull: make up CLUSTER=kind or CLUSTER=current",
        )
    return found


def mirror_in(sources: str, codename: str) -> str | None:
    """The mirror that apt sources name for a release.

    Args:
        sources: the text of sources lists, one-line or deb822 style.
        codename: of the release.
    """
    for line in sources.splitlines():
        if found := re.match(rf"deb\s+(?:\[.*?\]\s+)?(\S+)\s+{codename}\s(?:.*\s)?main\b", line):
            return found[1]
    for stanza in re.split(r"\n\s*\n", sources):
        fields = dict(re.findall(r"^(\w[\w-]*):\s*(.*)$", stanza, flags=re.MULTILINE))
        if codename in fields.get("Suites", "").split() and "main" in fields.get("Components", "").split():
            return str(fields["URIs"].split()[0])
    return None


def _downloaded(suite: str, package: str, scratch: Path) -> list[Path]:
    """The archives of a package of any suite and of all that it depends on."""
    for part in ("lists/partial", "cache/archives/partial"):
        (scratch / part).mkdir(parents=True)
    (scratch / "status").touch()
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    (scratch / "sources.list").write_text(f"deb {signed}{mirror('programs of other suites')} {suite} main\n")
    state = {
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::Etc::Preferences": "-",
        "Dir::Etc::PreferencesParts": "-",
        "Dir::State::Lists": scratch / "lists",
        "Dir::State::Status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    options = [f"--option={name}={value}" for name, value in state.items()]
    mend = f"the machine's package mirror must be reachable, and {suite} hold {package}"
    run("apt-get", *options, "update", mend=mend)
    run(
        "apt-get", *options, "install", "--download-only", "--no-install-recommends", "--yes", package,
        mend=mend, timeout=900,
    )  # fmt: skip
    return sorted((scratch / "cache" / "archives").glob("*.deb"))


def _merge_into_usr(root: Path) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):
        own, merged = root / name, root / "usr" / name
        if own.exists():
            shutil.copytree(own, merged, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(own)
        if merged.exists():
            own.symlink_to(f"usr/{name}")


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
