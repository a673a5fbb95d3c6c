"""Debian packages: installed if the cluster needs them, or only unpacked to use one of their programs."""

import os
import re
import shutil
import tempfile
from pathlib import Path

from tools.local import binaries
from tools.local.errors import ClusterError
from tools.local.machine.commands import run
from tools.local.paths import CACHE

_ARCHIVE_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def install(packages: list[str]) -> None:
    """Install packages without recommended ones.

    Raises:
        ClusterError: the machine has no apt-get, or apt-get failed.
    """
    _apt_get("install", "--no-install-recommends", "--yes", *packages, packages=packages)


def program(name: str, package: str) -> Path:
    """Return the path of a program on the PATH, or of the one in a Debian package unpacked in the cache.

    The package is only unpacked: an installation could start a service and pull in unneeded packages.

    Args:
        name: name of the program, such as ``promtool``.
        package: Debian package that contains it.

    Raises:
        ClusterError: the package cannot be downloaded, or does not contain the program.
    """
    if own := shutil.which(name):
        return Path(own)
    directory = CACHE / "debian" / package
    with binaries.locked(f"debian-{package}"):
        if not directory.exists():
            directory.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
                _apt_get("download", "--option=APT::Sandbox::User=root", package, packages=[package], cwd=Path(scratch))
                (archive,) = Path(scratch).glob("*.deb")
                run("dpkg-deb", "--extract", archive, Path(scratch) / "root")
                (Path(scratch) / "root").rename(directory)
    found = next((path for path in directory.glob(f"usr/*bin/{name}")), None)
    if found is None:
        raise ClusterError(
            f"Debian's package {package} does not contain {name}", f"list its programs: find {directory} -path '*bin*'"
        )
    return found


def unpacked(suite: str, package: str) -> Path:
    """Unpack a package of any suite and its dependencies in the cache; nothing is installed.

    apt resolves the dependencies against an empty package state, so packages of this machine are included too.

    Args:
        suite: Debian suite, such as ``trixie``; it may differ from the suite of this machine.
        package: name of the package, such as ``redis-tools``.

    Returns:
        The root directory of the unpacked files, with /bin and /lib merged into /usr for every suite.

    Raises:
        ClusterError: the package cannot be downloaded.
    """
    directory = unpacked_path(suite, package)
    with binaries.locked(f"debian-{directory.name}"):
        if not directory.exists():
            directory.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
                root = Path(scratch) / "root"
                for archive in _downloaded(suite, package, Path(scratch)):
                    run("dpkg-deb", "--extract", archive, root)
                _merge_into_usr(root)
                root.rename(directory)
    return directory


def unpacked_path(suite: str, package: str) -> Path:
    """Return the directory in which `unpacked` unpacks a package."""
    return CACHE / "debian" / f"{package}-{suite}"


def mirror(purpose: str) -> str:
    """Return the Debian mirror in this machine's apt sources; it has every suite.

    Args:
        purpose: reason for the error message, such as "build local images".

    Raises:
        ClusterError: the apt sources name no mirror.
    """
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(), flags=re.MULTILINE))
    lists = [*Path("/etc/apt").glob("sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    codename = release.get("VERSION_CODENAME", "")
    found = mirror_in("\n\n".join(path.read_text() for path in lists), codename)
    if found is None:
        raise ClusterError(
            f"cannot {purpose}: /etc/apt names no Debian mirror for {codename}",
            "use a Debian machine, or a cluster that can pull images: make up CLUSTER=kind or CLUSTER=current",
        )
    return found


def mirror_in(sources: str, codename: str) -> str | None:
    """Return the mirror that apt sources name for a release, or None.

    Args:
        sources: text of sources lists, in one-line or deb822 style.
        codename: codename of the release, such as ``trixie``.
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
    """Download a package of any suite and its dependencies, and return the archives."""
    for part in ("lists/partial", "cache/archives/partial"):
        (scratch / part).mkdir(parents=True)
    (scratch / "status").touch()
    signed = f"[signed-by={_ARCHIVE_KEYS}] " if _ARCHIVE_KEYS.exists() else ""
    origin = mirror("download packages of other suites")
    suites = [suite, *(["sid"] if suite == "experimental" else [])]  # experimental has only what differs from sid
    (scratch / "sources.list").write_text("".join(f"deb {signed}{origin} {each} main\n" for each in suites))
    state = {
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::Etc::Preferences": "-",
        "Dir::Etc::PreferencesParts": "-",
        "Dir::State::Lists": scratch / "lists",
        "Dir::State::Status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "APT::Default-Release": suite,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    options = [f"--option={name}={value}" for name, value in state.items()]
    fix = f"check that the machine's package mirror is reachable and that {suite} has {package}"
    run("apt-get", *options, "update", fix=fix)
    run(
        "apt-get", *options, "install", "--download-only", "--no-install-recommends", "--yes", package,
        fix=fix, timeout=900,
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


def _apt_get(*arguments: str, packages: list[str], cwd: Path | None = None) -> None:
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"this machine lacks {', '.join(packages)} and has no apt-get",
            "install them with the package manager of this machine and try again",
        )
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    fix = f"check that the machine's package mirror is reachable; run by hand: apt-get {' '.join(arguments)}"
    try:
        run("apt-get", *arguments, env=quietly, cwd=cwd, timeout=900)
    except ClusterError:  # the package lists may be missing or outdated
        run("apt-get", "update", fix=fix, env=quietly)
        run("apt-get", *arguments, fix=fix, env=quietly, cwd=cwd)
