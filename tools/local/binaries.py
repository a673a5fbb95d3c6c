"""Programs of the cluster, built once per machine from the Go modules under go/.

A build is keyed by a hash of its sources (go.mod, go.sum, main.go and the flags), so every clone of the same sources
shares it. It enters the cache with one rename, so an interrupted build leaves no partial result.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tools.local.errors import ClusterError
from tools.local.machine.commands import run
from tools.local.paths import CACHE

GO = Path(__file__).parent / "go"


@dataclass(frozen=True)
class Program:
    """One build: a Go module, the package to build there, and the names of the resulting programs.

    Attributes:
        name: name of the build in the cache and in messages, and of the directory of its module unless that is given.
        package: package to build, or several, separated by blanks; each becomes one file, named in the same order.
        names: names of the programs; if one package has several, it is called by each of them.
        module: directory of the module.
    """

    name: str
    package: str
    names: tuple[str, ...]
    module: str = ""
    version_flag: str = ""
    """Linker flags; {version}, {major} and {minor} are those of the module's main requirement."""
    root: Path = field(default=GO, repr=False)
    """Directory that contains the directory of the module."""

    @property
    def directory(self) -> Path:
        """Directory of the module."""
        return self.root / (self.module or self.name)


CLUSTER = "cluster"
"""Module of the programs that `make up` needs: packages that they share are in the same version, so compiled once."""


def _kubernetes(name: str, module: str = "", package: str = ".") -> Program:
    return Program(
        name=name,
        module=module,
        package=package,
        names=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"),
        version_flag=(
            "-X k8s.io/component-base/version.gitVersion={version}"
            " -X k8s.io/component-base/version.gitMajor={major} -X k8s.io/component-base/version.gitMinor={minor}"
        ),
    )


KUBERNETES = {"1.36": _kubernetes("kubernetes", CLUSTER, "./kubernetes"), "1.30": _kubernetes("kubernetes-1.30")}
"""Newest version of Kubernetes, which is the default, and the oldest one that the charts accept."""

KUBERNETES_SETTING = "KUBERNETES"
"""Environment variable, and setting of `make`, that chooses the version of Kubernetes."""

COREDNS = Program(name="coredns", module=CLUSTER, package="./coredns", names=("coredns",))
PAUSE = Program(name="pause", package=".", names=("pause",))
HELM = Program(name="helm", module=CLUSTER, package="helm.sh/helm/v4/cmd/helm", names=("helm",))
HELM3 = Program(name="helm3", package="helm.sh/helm/v3/cmd/helm", names=("helm3",))
"""The former major version of Helm, with which the charts must work too; built when a test first needs it."""
KUBECONFORM = Program(
    name="kubeconform", package="github.com/yannh/kubeconform/cmd/kubeconform", names=("kubeconform",)
)
ACTIONLINT = Program(name="actionlint", package="github.com/rhysd/actionlint/cmd/actionlint", names=("actionlint",))
"""Checks the workflows of GitHub Actions (.github/workflows)."""
REGISTRY = Program(name="registry", package="github.com/distribution/distribution/v3/cmd/registry", names=("registry",))
JUDGE = Program(name="judge", package=".", names=("judge",))
"""etcd's own robustness tests, as a program that judges an operated cluster; built when a test first needs it."""
ALL = (*KUBERNETES.values(), COREDNS, PAUSE, HELM, HELM3, KUBECONFORM, ACTIONLINT, REGISTRY, JUDGE)

_ETCD = " ".join(f"go.etcd.io/etcd/{part}/v3" for part in ("server", "etcdutl", "etcdctl"))
_ETCD_3_4 = "go.etcd.io/etcd go.etcd.io/etcd/etcdctl"
ETCD = {
    "3.7.3": Program(name="etcd-3.7", module=CLUSTER, package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.6.16": Program(name="etcd-3.6", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.5.35": Program(name="etcd-3.5", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.5.21": Program(name="etcd-3.5.21", package=_ETCD, names=("etcd", "etcdutl", "etcdctl")),
    "3.4.13": Program(name="etcd-3.4", package=_ETCD_3_4, names=("etcd", "etcdctl")),
}
"""Latest patch of each minor version; 3.5.21, which is too old to upgrade to 3.6; 3.4.13, from the seed's manifest."""


def kubernetes(version: str = "") -> Program:
    """Return the build of a version of Kubernetes.

    Args:
        version: `newest`, `oldest` or a minor version; if empty, the environment variable KUBERNETES, or else `newest`.

    Raises:
        ClusterError: no such version can be built; the error lists the versions.
    """
    chosen = version or os.environ.get(KUBERNETES_SETTING) or "newest"
    newest, *_, oldest = KUBERNETES
    found = KUBERNETES.get({"newest": newest, "oldest": oldest}.get(chosen, chosen))
    if found is None:
        raise ClusterError(
            f"{KUBERNETES_SETTING}={chosen} is not available",
            f"use one of newest, oldest, {', '.join(KUBERNETES)}",
        )
    return found


def minor_version(program: Program) -> int:
    """Return the minor version of a build of Kubernetes, such as 36."""
    return int(version(program).split(".")[1])


def is_built(program: Program) -> bool:
    """Return whether the cache contains a program."""
    return cache_path(program).exists()


def build(program: Program) -> Path:
    """Return the directory of a program's binaries; build it if the cache lacks it.

    Raises:
        ClusterError: Go is missing, or the build failed.
    """
    built = cache_path(program)
    if not built.exists():
        build_module([program])
    return built


def build_module(programs: Sequence[Program]) -> None:
    """Build the programs that the cache lacks with one command, so that no core waits while one program is linked.

    Args:
        programs: programs of one module.

    Raises:
        ClusterError: Go is missing, or the build failed.
    """
    if all(map(is_built, programs)):
        return
    names = ", ".join(program.name for program in programs)
    if shutil.which("go") is None:
        raise ClusterError(
            f"cannot build {names}: Go is not on the PATH",
            "install Go 1.26 or newer (Debian's older golang-go downloads the right version)",
        )
    directory = programs[0].directory
    # Builds of one module have packages in common, which two at the same time would both compile.
    with locked(f"go-{directory.name}"), tempfile.TemporaryDirectory(dir=CACHE / "bin") as scratch:
        missing = [program for program in programs if not is_built(program)]
        if missing:
            _go_build(missing, directory, Path(scratch))
        for program in missing:
            (Path(scratch) / program.name).rename(cache_path(program))


def find(name: str) -> Path:
    """Return the path of a binary such as ``kube-apiserver`` or ``helm``; build it if the cache lacks it."""
    return build(program_of(name)) / name


def program_of(name: str) -> Program:
    """Return the build that makes a binary such as ``helm``; for one of Kubernetes, in the chosen version."""
    return next(program for program in (kubernetes(), *ALL) if name in program.names)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock in the cache, so that two test runs that need the same file build it once."""
    (CACHE / "bin").mkdir(parents=True, exist_ok=True)
    with (CACHE / "bin" / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_build(programs: Sequence[Program], module: Path, scratch: Path) -> None:
    """Build programs of one module, each into a directory with its name."""
    output = scratch / "output"
    output.mkdir()
    run(
        "nice", "go", "build", "-trimpath", "-mod=readonly", "-gcflags=all=-dwarf=false", "-ldflags=-s -w",
        *(f"-ldflags={program.package}=-s -w {_stamp(program)}" for program in programs if program.version_flag),
        "-o", f"{output}/", *(package for program in programs for package in program.package.split()),
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0"},  # static: runs FROM scratch, and needs no C compiler
        log=CACHE / "bin" / f"{module.name}.log",
        timeout=3600,
        fix="check that the Go module proxy is reachable and 5 GB of disk are free, then run it again; it resumes",
    )  # fmt: skip
    for program in programs:
        (scratch / program.name).mkdir()
        packages = program.package.split()
        files = program.names if len(packages) > 1 else [program.name]
        for package, name in zip(packages, files, strict=True):
            made = module.name if package == "." else PurePosixPath(re.sub(r"/v\d+$", "", package)).name
            (output / made).rename(scratch / program.name / name)
        for name in program.names:
            if name not in files:
                (scratch / program.name / name).symlink_to(program.name)


def _stamp(program: Program) -> str:
    """Return the linker flags that give a program its version."""
    built = version(program)
    major, minor = [*built.lstrip("v").split("."), "", ""][:2]
    return program.version_flag.format(version=built, major=major, minor=minor)


def cache_path(program: Program) -> Path:
    """Where a program's binaries are once it is built."""
    digest = hashlib.sha256(repr(program).encode())
    for path in sorted(path for path in program.directory.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(program.directory)).encode() + b"\0" + path.read_bytes())
    return CACHE / "bin" / f"{program.name}-{digest.hexdigest()[:12]}"


def version(program: Program) -> str:
    """Return the version of the program's main module, as its go.mod requires it."""
    module = "k8s.io/kubernetes" if program in KUBERNETES.values() else program.package.partition("/cmd/")[0]
    found = re.search(rf"{re.escape(module)} (v\S+)", (program.directory / "go.mod").read_text())
    return found[1] if found else ""
