"""Images without a registry: a base system by debootstrap, and what ordinary Containerfiles make of it by buildah.

Each image becomes one archive in the cache, named by a hash of what it is made from: what is there is never built
again, and nodes import an archive once.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import operators
from e2e.cluster import binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import debian
from e2e.cluster.machine.commands import run, succeeds
from e2e.cluster.node import PAUSE_IMAGE
from e2e.cluster.paths import CACHE, REPOSITORY
from shared.runtime.operator import load

IMAGES = REPOSITORY / "e2e" / "images"
COREDNS_IMAGE = "platform/coredns:1"
KEPT = 3  # archives kept of one image: switching between branches builds nothing anew

_NOT_IN_IMAGES = frozenset({"__pycache__", "testing", "manifests"})
"""Directories of the sources that .dockerignore leaves out."""
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_LEFT_OUT = ("dev/*", "proc/*", "sys/*", "usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*",
             "var/cache/apt/*", "var/cache/debconf/*-old", "var/lib/apt/lists/*", "var/log/*")  # fmt: skip


@dataclass(frozen=True)
class Image:
    """An image to build.

    Attributes:
        tag: its name in the cluster.
        containerfile: how it is made.
        context: the directory it is made from.
        sources: files and directories whose content decides whether it must be made anew.
        arguments: build arguments.
        suite: the Debian suite it is FROM; None for one from scratch.
        first: what must be done before, for it makes the context; None for nothing.
    """

    tag: str
    containerfile: Path
    context: Path
    sources: tuple[Path, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    suite: str | None = None
    first: Callable[[], object] | None = None

    @property
    def archive(self) -> Path:
        """Its archive in the cache."""
        made_from = digest([self.containerfile, *self.sources], salt=repr((self.tag, sorted(self.arguments.items()))))
        return CACHE / "images" / f"{re.sub('[/:]', '_', self.tag)}-{made_from}.tar"

    @property
    def built_as(self) -> str:
        """Its name in buildah's storage: one for all states of the sources, so that only the newest is kept."""
        return re.sub(r":dev-\w+$", ":dev", self.tag)


def cluster_images() -> list[Image]:
    """What any cluster runs: pods' sandboxes and DNS."""
    return [_program(PAUSE_IMAGE, binaries.PAUSE), _program(COREDNS_IMAGE, binaries.COREDNS)]


def operand_images() -> list[Image]:
    """The databases, in every version the tests need."""
    return [image for operator in operators.installed() if operator.images for image in load(operator.images)()]


def operator_image(operator: str, tag: str | None = None) -> Image:
    """An operator's image, by the project's Dockerfile.

    Args:
        operator: its package's name.
        tag: by default one that changes with the sources, so that a changed operator rolls out and an unchanged stays.
    """
    sources = (
        REPOSITORY / "Dockerfile",
        REPOSITORY / "shared",
        REPOSITORY / "operators" / "__init__.py",
        REPOSITORY / "operators" / operator,
        REPOSITORY / "locks" / f"{operator}.txt",
    )
    return Image(
        tag=tag or f"platform/{operator}-operator:dev-{digest(sources)}",
        containerfile=REPOSITORY / "Dockerfile",
        context=REPOSITORY,
        sources=sources,
        arguments={"OPERATOR": operator},
        suite="trixie",
    )


def build(image: Image) -> Path:
    """The archive of an image, built now if the cache lacks it.

    Raises:
        ClusterError: the build failed; the error names its log.
    """
    archive = image.archive
    if archive.exists():
        return archive
    if image.first:
        image.first()
    with binaries.locked("images"):  # one build at a time: buildah's storage and two cores are shared
        if not archive.exists():
            if image.suite:
                _base(image.suite)
            _build(image)
            _push(image, archive)
            _prune(archive)
    return archive


def push(tag: str) -> None:
    """Push an image that `build` made to the registry it names."""
    mend = "build it first (make docker-build IMG=…) and log in (buildah login); the name begins with the registry"
    _buildah("push", tag, f"docker://{tag}", mend=mend)


def digest(sources: Iterable[Path], *, salt: str = "") -> str:
    """A short hash of files and of directories' files, by path and content; caches and test helpers do not count."""
    found = hashlib.sha256(salt.encode())
    for source in sources:
        files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
        for path in files:
            if not _NOT_IN_IMAGES.intersection(path.relative_to(source.parent).parts):
                found.update(f"{path.relative_to(source.parent)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _program(tag: str, program: binaries.Program) -> Image:
    directory = binaries.build(program)
    return Image(
        tag=tag,
        containerfile=IMAGES / "program" / "Containerfile",
        context=directory,
        sources=(directory / program.module,),
        arguments={"PROGRAM": program.module},
    )


def _base(suite: str) -> None:
    """Make ``debian:<suite>-slim`` in buildah's storage, once."""
    tag = f"docker.io/library/debian:{suite}-slim"
    if _has(tag):
        return
    mirror = debian.mirror("local images")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        root = Path(scratch) / "root"
        run(
            "unshare", "--mount", "debootstrap", "--variant=minbase", suite, root, mirror,
            log=CACHE / "images" / f"debian-{suite}.log",
            mend=f"{mirror} must be reachable; the keys of a newer suite may need a newer debian-archive-keyring",
        )  # fmt: skip
        (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(
            "".join(f"path-exclude=/usr/share/{name}/*\n" for name in ("doc", "man", "info", "locale"))
        )
        (root / "etc/apt/apt.conf.d/slim").write_text(
            'Acquire::Languages "none";\nDpkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n'
            'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
        )
        excluded = [f"--exclude=./{pattern}" for pattern in _LEFT_OUT]
        run("tar", "--directory", root, *excluded, "--create", "--file", Path(scratch) / "rootfs.tar", ".")
        shutil.rmtree(root)
        _build(Image(tag, IMAGES / "debian" / "Containerfile", Path(scratch), ()))


def _build(image: Image) -> None:
    arguments = [f"--build-arg={name}={value}" for name, value in image.arguments.items()]
    if "PIP_INDEX_URL" in os.environ:  # a machine with an index of its own
        arguments.append("--build-arg=PIP_INDEX_URL")
    if _CA_BUNDLE.exists():
        arguments.append(f"--secret=id=ca,src={_CA_BUNDLE}")
    log = CACHE / "images" / f"{image.archive.stem}.log"
    _buildah(
        "build", "--isolation=chroot", "--network=host", "--pull-never", "--layers", "--force-rm",
        f"--file={image.containerfile}", f"--tag={image.built_as}", *arguments, image.context,
        log=log,
        mend="the log says which instruction failed; package mirrors and indexes must be reachable",
    )  # fmt: skip


def _push(image: Image, archive: Path) -> None:
    unfinished = archive.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    _buildah("push", image.built_as, f"docker-archive:{unfinished}:{image.tag}", mend="the disk may be full: df")
    unfinished.rename(archive)
    _buildah("rmi", "--prune", "--force")


def _prune(archive: Path) -> None:
    """Drop the oldest archives of an image; a changing operator would fill the disk."""
    name = re.sub(r"(dev-\w+)?-\w+$", "", archive.stem)
    same = [path for path in archive.parent.glob("*.tar") if re.sub(r"(dev-\w+)?-\w+$", "", path.stem) == name]
    for old in sorted(same, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        old.unlink()


def _has(tag: str) -> bool:
    try:
        _buildah("inspect", "--type=image", tag)
    except ClusterError:
        return False
    return True


def _buildah(*arguments: str | Path, mend: str = "", log: Path | None = None) -> str:
    """Run buildah on a storage of our own, in a mount namespace of its own so that no mount of it stays."""
    (CACHE / "images").mkdir(parents=True, exist_ok=True)
    driver = "overlay" if succeeds("grep", "-qw", "overlay", "/proc/filesystems") else "vfs"
    with tempfile.TemporaryDirectory(prefix="platform-buildah-") as runroot:
        storage = ["--root", str(CACHE / "buildah"), "--runroot", runroot, "--storage-driver", driver]
        return run("nice", "unshare", "--mount", "buildah", *storage, *arguments, mend=mend, log=log)
