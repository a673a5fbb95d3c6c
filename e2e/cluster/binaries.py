"""The programs of the cluster, built from the Go modules under go/ once per machine.

A build is keyed by a hash of what it is made from (go.mod, go.sum, main.go and the flags), so any clone of the same
sources finds it, and it appears in the cache by one rename: an interrupted build leaves nothing half.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.commands import run
from e2e.cluster.paths import CACHE

GO = Path(__file__).parent / "go"


@dataclass(frozen=True)
class Program:
    """One build: a directory under go/, the package to build there, and the names the result is called by.

    Several packages, with blanks between them, become a file each, named in their order.
    """

    module: str
    package: str
    names: tuple[str, ...]
    version_flag: str = ""
    """A linker flag with {version}, {major} and {minor} of the module's main requirement."""


KUBERNETES = Program(
    module="kubernetes",
    package=".",
    names=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"),
    version_flag=(
        "-X k8s.io/component-base/version.gitVersion={version}"
        " -X k8s.io/component-base/version.gitMajor={major} -X k8s.io/component-base/version.gitMinor={minor}"
    ),
)
COREDNS = Program(module="coredns", package=".", names=("coredns",))
PAUSE = Program(module="pause", package=".", names=("pause",))
HELM = Program(module="helm", package="helm.sh/helm/v4/cmd/helm", names=("helm",))
KUBECONFORM = Program(
    module="kubeconform", package="github.com/yannh/kubeconform/cmd/kubeconform", names=("kubeconform",)
)
ALL = (KUBERNETES, COREDNS, PAUSE, HELM, KUBECONFORM)

_ETCD = " ".join(f"go.etcd.io/etcd/{part}/v3" for part in ("server", "etcdutl", "etcdctl"))
_ETCD_3_4 = "go.etcd.io/etcd go.etcd.io/etcd/etcdctl"
ETCD = {
    "3.7.3": Program(module="etcd-3.7", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.6.16": Program(module="etcd-3.6", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.5.35": Program(module="etcd-3.5", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.5.21": Program(module="etcd-3.5.21", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.4.13": Program(module="etcd-3.4", package=_ETCD_3_4, names=("etcd", "etcdctl")),
}
"""The newest of each minor version; 3.5.21, too old for an upgrade to 3.6; 3.4.13, which the seed's manifest names."""


def is_built(program: Program) -> bool:
    """Whether the cache has it."""
    return place(program).exists()


def build(program: Program) -> Path:
    """The directory of a program's binaries, built now if the cache lacks it.

    Raises:
        ClusterError: Go is missing, or the build failed.
    """
    built = place(program)
    if built.exists():
        return built
    if shutil.which("go") is None:
        raise ClusterError(
            f"{program.module} must be built, but Go is not on the PATH",
            "install Go 1.26 or newer (Debian's older golang-go fetches the right one by itself)",
        )
    # One at a time: Go takes all cores by itself.
    with locked("go"), locked(built.name), tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        if not built.exists():
            _go_build(program, Path(scratch))
            Path(scratch).chmod(0o755)
            os.rename(scratch, built)  # noqa: PTH104 (TemporaryDirectory then finds nothing to remove)
            Path(scratch).mkdir()
    return built


def find(name: str) -> Path:
    """The path of one binary by its name, e.g. ``kube-apiserver`` or ``helm``."""
    program = next(program for program in ALL if name in program.names)
    return build(program) / name


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock in the cache: two test runs that need the same thing make it once."""
    (CACHE / "bin").mkdir(parents=True, exist_ok=True)
    with (CACHE / "bin" / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_build(program: Program, directory: Path) -> None:
    version = _version(program)
    major, minor = [*version.lstrip("v").split("."), "", ""][:2]
    stamp = program.version_flag.format(version=version, major=major, minor=minor)
    packages = program.package.split()
    output = f"{directory}/" if len(packages) > 1 else directory / program.module
    run(
        "nice", "go", "build", "-trimpath", "-mod=readonly", f"-ldflags=-s -w {stamp}".rstrip(),
        "-o", output, *packages,
        cwd=GO / program.module,
        env={**os.environ, "CGO_ENABLED": "0"},  # static: runs FROM scratch, and needs no C compiler
        log=CACHE / "bin" / f"{program.module}.log",
        timeout=3600,
        mend="the Go module proxy must be reachable and the disk hold 5 GB; then run it again, it goes on where it was",
    )  # fmt: skip
    if len(packages) > 1:
        for package, name in zip(packages, program.names, strict=True):
            (directory / Path(re.sub(r"/v\d+$", "", package)).name).rename(directory / name)
        return
    for name in program.names:
        if name != program.module:
            (directory / name).symlink_to(program.module)


def place(program: Program) -> Path:
    """Where a program's binaries are once it is built."""
    digest = hashlib.sha256(repr(program).encode())
    for path in sorted((GO / program.module).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return CACHE / "bin" / f"{program.module}-{digest.hexdigest()[:12]}"


def _version(program: Program) -> str:
    """The version of the module the program comes from, as its go.mod requires it."""
    wanted = "k8s.io/kubernetes" if program is KUBERNETES else program.package.partition("/cmd/")[0]
    found = re.search(rf"{re.escape(wanted)} (v\S+)", (GO / program.module / "go.mod").read_text())
    return found[1] if found else ""
