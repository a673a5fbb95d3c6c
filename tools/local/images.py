"""Images without a registry: debootstrap makes the base system, buildah builds ordinary Containerfiles on it.

Each image becomes one archive in the cache, named by a hash of its sources. An image with unchanged sources is not
rebuilt, and each node imports an archive once.
"""

import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

import operators
from shared.runtime.operator import Operator, load
from tools.local import binaries, debian, host
from tools.local.errors import ClusterError
from tools.local.machine.commands import run, succeeds
from tools.local.node import PAUSE_IMAGE
from tools.local.paths import CACHE, REPOSITORY

IMAGES = REPOSITORY / "tools" / "images"
COREDNS_IMAGE = "platform/coredns:1"
ARCHITECTURES = ("amd64", "arm64")
"""Architectures of a release, as the images' metadata name them."""
KEPT_ARCHIVES = 3  # archives to keep per image, so that switching between branches does not rebuild

_NOT_IN_IMAGES = frozenset({"__pycache__", "manifests"})
"""Directories of the sources that .dockerignore leaves out."""
_TOOLS = ("buildah", "debootstrap")
_BOOTSTRAP_SCRIPTS = Path("/usr/share/debootstrap/scripts")
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_LEFT_OUT = ("dev/*", "proc/*", "sys/*", "usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*",
             "var/cache/apt/*", "var/cache/debconf/*-old", "var/lib/apt/lists/*", "var/log/*")  # fmt: skip


@dataclass(frozen=True)
class Base:
    """A base system that debootstrap makes, under the name of the official image that a release is built from.

    Attributes:
        tag: name of the official image.
        suite: Debian suite.
        packages: packages in addition to the minimal system.
    """

    tag: str
    suite: str
    packages: tuple[str, ...] = ()


def debian_base(suite: str) -> Base:
    """Return the minimal system of a Debian suite."""
    return Base(f"docker.io/library/debian:{suite}-slim", suite)


PYTHON = Base("docker.io/library/python:3.13-slim-trixie", "trixie", ("ca-certificates", "python3", "python3-venv"))
"""Base of the operators' images, as in the Dockerfile."""


@dataclass(frozen=True)
class Image:
    """An image to build.

    Attributes:
        tag: image reference in the cluster.
        containerfile: path of the Containerfile.
        context: build context.
        sources: files and directories whose content decides whether the image must be rebuilt.
        arguments: build arguments.
        base: base image; None for an image FROM scratch.
        first: called before the build to create the context; None if the context exists.
        architecture: architecture of the image; empty for that of this machine.
        shared_stages: stages of the Containerfile whose layers the builds of other images use too.
    """

    tag: str
    containerfile: Path
    context: Path
    sources: tuple[Path, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    base: Base | None = None
    first: Callable[[], object] | None = None
    architecture: str = ""
    shared_stages: tuple[str, ...] = ()

    @property
    def archive(self) -> Path:
        """Path of the archive in the cache."""
        hashed = digest([self.containerfile, *self.sources], salt=repr((self.tag, sorted(self.arguments.items()))))
        return CACHE / "images" / f"{re.sub('[/:]', '_', self.tag)}-{hashed}.tar"

    @property
    def built_as(self) -> str:
        """Name in buildah's storage; the same for every version of the sources, so that only the latest is kept."""
        return re.sub(r":dev-\w+$", ":dev", self.tag)


def cluster_images() -> list[Image]:
    """Return the images that every cluster runs: pod sandboxes and DNS."""
    return [_program(PAUSE_IMAGE, binaries.PAUSE), _program(COREDNS_IMAGE, binaries.COREDNS)]


def operand_images() -> list[Image]:
    """Return the images of the databases in every version that the tests need."""
    return [image for operator in operators.installed() if operator.images for image in load(operator.images)()]


def required_by(text: str) -> list[Image]:
    """Return the operand images that a text needs.

    These are the images whose version the text contains, and those of the default versions of resources in it that name
    neither a version nor an image.

    Args:
        text: manifests, arguments of a command, or a list of versions.
    """
    names = [text]
    for operator in operators.installed():
        kind = operator.main.kind.name
        new = [each for each in (_documents(text) if kind in text else ()) if _runs_default(each, kind)]
        names += [local_default(operator, _engine_of(operator, document)) for document in new]
    named = "\n".join(names)
    return [
        image
        for image in operand_images()
        if re.search(rf"(?<![\w.])v?{re.escape(image.tag.rpartition(':')[2].removeprefix('v'))}(?![\w.])", named)
    ]


def local_default(operator: Operator, engine: str) -> str:
    """Return the version that a new resource without one gets on the local cluster."""
    defaults = {catalogue.engine: catalogue.default_version for catalogue in operator.catalogues}
    return {**defaults, **operator.local_versions}[engine]


def _engine_of(operator: Operator, document: Any) -> str:
    """Return the engine that a resource names anywhere; the first one of the operator if it names none."""
    first, *others = [catalogue.engine for catalogue in operator.catalogues]
    return next((engine for engine in others if engine in str(document)), first)


def _documents(text: str) -> list[Any]:
    """Return the YAML or JSON documents of a text; none if it is something else, such as arguments of a command."""
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return []


def _runs_default(document: Any, kind: str) -> bool:
    """Return whether a document is a resource of a kind that names neither a version nor an image."""
    if not isinstance(document, dict) or document.get("kind") != kind:
        return False
    spec = document.get("spec") or {}
    return not any(spec.get(name) for name in ("version", "image", "pod"))


def operator_image(operator: str, tag: str | None = None) -> Image:
    """Return the image of an operator, built from the Dockerfile of the project.

    Args:
        operator: name of the operator's package.
        tag: image reference; the default contains a hash of the sources, so that only a changed operator rolls out.
    """
    sources = (
        REPOSITORY / "Dockerfile",
        REPOSITORY / "shared",
        REPOSITORY / "operators" / "__init__.py",
        REPOSITORY / "operators" / operator,
        *(REPOSITORY / "locks" / name for name in ("build.txt", "common.txt", "install.sh", f"{operator}.txt")),
    )
    return Image(
        tag=tag or f"platform/{operator}-operator:dev-{digest(sources)}",
        containerfile=REPOSITORY / "Dockerfile",
        context=REPOSITORY,
        sources=sources,
        arguments={"OPERATOR": operator},
        base=PYTHON,
        shared_stages=("common",),
    )


def build(image: Image) -> Path:
    """Return the archive of an image; build it if the cache lacks it.

    Raises:
        ClusterError: the build failed; the error names the log.
    """
    archive = image.archive
    if archive.exists():
        return archive
    if image.first:
        image.first()
    with binaries.locked("images"):  # one build at a time: builds share buildah's storage and two cores
        if not archive.exists():
            host.provide(_TOOLS)
            if image.base:
                build_base(image.base)
            _build(image)
            _push(image, archive)
            _prune(archive)
    return archive


def native_architecture() -> str:
    """Return the architecture of this machine, as the images' metadata name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def build_index(operator: str, version: str, revision: str, architectures: Iterable[str]) -> str:
    """Build an operator's image for several architectures; return the name of their index in buildah's storage.

    Args:
        operator: name of the operator's package.
        version: version of the release, for the labels.
        revision: commit, for the labels.
        architectures: some of `ARCHITECTURES`; nothing is emulated.
    """
    index = f"platform/{operator}-operator:index"
    with binaries.locked("images"):
        host.provide(_TOOLS)
        with suppress(ClusterError):
            _buildah("manifest", "rm", index)
        for architecture in architectures:
            foreign = "" if architecture == native_architecture() else architecture
            build_base(PYTHON)
            build_base(PYTHON, foreign)
            image = operator_image(operator, f"platform/{operator}-operator:{version}-{architecture}")
            base = {"BASE": f"{PYTHON.tag}-{foreign}", "BUILD_BASE": PYTHON.tag} if foreign else {}
            labels = {"VERSION": version, "REVISION": revision}
            _build(
                replace(image, arguments={**image.arguments, **base, **labels}, architecture=architecture), index=index
            )
    return index


def push_index(index: str, destination: str, *, tls: bool = True) -> str:
    """Push an index and its images; return its digest.

    Args:
        index: name from `build_index`.
        destination: `docker://REPOSITORY:TAG`, or `oci:DIRECTORY:TAG` for an OCI layout.
        tls: False for a registry without TLS on this machine.
    """
    with tempfile.NamedTemporaryFile("r") as digest_file:
        _buildah(
            "manifest", "push", "--all", "--format=oci", f"--digestfile={digest_file.name}",
            *([] if tls else ["--tls-verify=false"]), index, destination,
            fix="check that the registry is reachable and that you may push (buildah login)",
        )  # fmt: skip
        return digest_file.read().strip()


def push(tag: str) -> None:
    """Push an image that `build` built to the registry in its name."""
    fix = "build it first (make docker-build IMG=…), log in (buildah login), and begin the name with the registry"
    _buildah("push", tag, f"docker://{tag}", fix=fix)


def digest(sources: Iterable[Path], *, salt: str = "") -> str:
    """Return a short hash of files and directories, by path and content; ignores caches and test helpers."""
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
        sources=(directory / program.name,),
        arguments={"PROGRAM": program.name},
    )


def _script(suite: str) -> list[Path]:
    """Return the script of debootstrap for a suite that is newer than the machine's debootstrap."""
    return [] if (_BOOTSTRAP_SCRIPTS / suite).exists() else [_BOOTSTRAP_SCRIPTS / "sid"]


def build_base(base: Base, architecture: str = "") -> None:
    """Create a base image in buildah's storage unless it exists.

    Args:
        base: image to create.
        architecture: architecture of Debian; empty for that of this machine. Packages of another one are unpacked, but
            not configured, because this machine cannot run their scripts.
    """
    tag = f"{base.tag}-{architecture}" if architecture else base.tag
    if _has(tag):
        return
    mirror = debian.mirror("build local images")
    included = [f"--include={','.join(base.packages)}"] if base.packages else []
    foreign = [f"--arch={architecture}", "--foreign"] if architecture else []
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        root = Path(scratch) / "root"
        run(
            "unshare", "--mount", "debootstrap", "--variant=minbase", *included, *foreign, base.suite, root, mirror,
            *_script(base.suite),
            log=CACHE / "images" / f"debian-{Path(tag).name}.log",
            fix=f"check that {mirror} is reachable; a newer suite may need a newer debian-archive-keyring",
        )  # fmt: skip
        if foreign:
            for archive in sorted((root / "var/cache/apt/archives").glob("*.deb")):
                run("dpkg-deb", "--extract", archive, root)
            shutil.rmtree(root / "debootstrap")
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
        _build(Image(tag, IMAGES / "debian" / "Containerfile", Path(scratch), (), architecture=architecture))


def _build(image: Image, index: str = "") -> None:
    """Build an image in buildah's storage, and add it to an index if one is given."""
    arguments = [f"--build-arg={name}={value}" for name, value in image.arguments.items()]
    if "PIP_INDEX_URL" in os.environ:  # a machine with its own package index
        arguments.append("--build-arg=PIP_INDEX_URL")
    if _CA_BUNDLE.exists():
        arguments.append(f"--secret=id=ca,src={_CA_BUNDLE}")
    if image.architecture and image.base:
        # buildah 1.28 looks up every FROM with the platform of the result, so the bases are given by name instead.
        arguments.append(f"--build-arg=TARGETARCH={image.architecture}")
    elif image.architecture:
        arguments.append(f"--platform=linux/{image.architecture}")
    log = CACHE / "images" / f"{image.archive.stem}.log"
    # A shared stage gets a tag of its own: `rmi --prune` deletes the layers of stages without one.
    stages = [
        ([f"--target={stage}"], f"platform/stage-{stage}:dev{image.architecture}") for stage in image.shared_stages
    ]
    for options, tag in (*stages, ([f"--manifest={index}"] if index else [], image.built_as)):
        _buildah(
            "build", "--isolation=chroot", "--network=host", "--pull-never", "--layers", "--force-rm",
            f"--file={image.containerfile}", *options, f"--tag={tag}", *arguments, image.context,
            log=log,
            fix="read in the log which instruction failed; check that package mirrors and indexes are reachable",
        )  # fmt: skip


def _push(image: Image, archive: Path) -> None:
    unfinished = archive.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    _buildah(
        "push", image.built_as, f"docker-archive:{unfinished}:{image.tag}", fix="check that the disk is not full (df)"
    )
    unfinished.rename(archive)
    _buildah("rmi", "--prune", "--force")


def _prune(archive: Path) -> None:
    """Delete the oldest archives of an image, so that a changing operator does not fill the disk."""
    name = re.sub(r"(dev-\w+)?-\w+$", "", archive.stem)
    same = [path for path in archive.parent.glob("*.tar") if re.sub(r"(dev-\w+)?-\w+$", "", path.stem) == name]
    for old in sorted(same, key=lambda path: path.stat().st_mtime)[:-KEPT_ARCHIVES]:
        old.unlink()


def _has(tag: str) -> bool:
    try:
        _buildah("inspect", "--type=image", tag)
    except ClusterError:
        return False
    return True


def _buildah(*arguments: str | Path, fix: str = "", log: Path | None = None) -> str:
    """Run buildah with a storage in the cache, in a separate mount namespace so that it leaves no mounts."""
    (CACHE / "images").mkdir(parents=True, exist_ok=True)
    driver = "overlay" if succeeds("grep", "-qw", "overlay", "/proc/filesystems") else "vfs"
    with tempfile.TemporaryDirectory(prefix="platform-buildah-") as runroot:
        storage = ["--root", str(CACHE / "buildah"), "--runroot", runroot, "--storage-driver", driver]
        return run("nice", "unshare", "--mount", "buildah", *storage, *arguments, fix=fix, log=log)
