"""The plugin for krew, the plugin manager of kubectl: an archive with the plugin, and the manifest that names it.

The archive has the wheel of this project, the locked packages that it needs, with hashes, and a script. With the first
run, the script installs them into a virtual environment: wheels for each platform would make it fifty times as large.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.local.errors import ClusterError
from tools.local.machine.commands import run
from tools.local.paths import REPOSITORY

NAME = "platform"
"""Name of the plugin: `kubectl platform`."""

BINARY = "kubectl-platform"
SCRIPT = Path(__file__).with_name("kubectl-platform.sh")
LOCK = REPOSITORY / "locks" / "kubectl.txt"

API_VERSION = "krew.googlecontainertools.github.com/v1alpha2"

SHORT_DESCRIPTION = "See and operate memcached, etcd and Redis clusters"
DESCRIPTION = """\
Shows and operates the Memcacheds, EtcdClusters and RedisClusters of the platform. It shows the status of each server
and volume, why a resource waits or a pod restarted, and the steps of a change before it is made. It confirms
recoveries, takes backups, restarts servers, opens shells of the databases, and checks whether the cluster is fit for
the operators.
"""
CAVEATS = """\
The first run installs the plugin into a virtual environment below ~/.cache/kubectl-platform. It needs Python 3.11 or
later, and a package index, as pip is configured to use it.
"""

_SAFE_NAME = re.compile(r"[\w-]+", re.ASCII)
_VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_SHA256 = re.compile(r"[a-f0-9]{64}")


def build(version: str, home: str, output: Path, seconds: int) -> list[Path]:
    """Build the archive and the manifest, and return their paths.

    Args:
        version: version without a leading v.
        home: URL of the project, whose releases have the archive.
        output: directory of the files; created if missing.
        seconds: time of the files in the archive, which makes it reproducible.

    Raises:
        ClusterError: the wheel cannot be built, or krew would refuse the manifest.
    """
    output.mkdir(parents=True, exist_ok=True)
    archive = output / f"{BINARY}-{version}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(sys.executable).with_name("uv"), "build", "--quiet", "--wheel", "--out-dir", scratch, REPOSITORY)
        [wheel] = Path(scratch).glob("*.whl")
        archive.write_bytes(pack(version, wheel, seconds))
    made = manifest(version, f"{home}/releases/download/v{version}/{archive.name}", archive.read_bytes(), home)
    if found := list(problems(NAME, made)):
        raise ClusterError("krew would refuse the manifest:\n  " + "\n  ".join(found), "correct tools/release/krew.py")
    path = output / f"{NAME}.yaml"
    path.write_text(_yaml(made))
    return [archive, path]


def pack(version: str, wheel: Path, seconds: int) -> bytes:
    """Return the archive with the script, the wheel, the lock and the license."""
    files = {
        BINARY: (SCRIPT.read_bytes(), 0o755),
        "VERSION": (f"{version}\n".encode(), 0o644),
        "requirements.txt": (LOCK.read_bytes(), 0o644),
        wheel.name: (wheel.read_bytes(), 0o644),
        "LICENSE": ((REPOSITORY / "LICENSE").read_bytes(), 0o644),
    }
    written = io.BytesIO()
    with gzip.GzipFile(fileobj=written, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, seconds
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def manifest(version: str, uri: str, archive: bytes, home: str) -> dict[str, Any]:
    """Return the manifest of the plugin for an index of krew.

    Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
    """
    systems = {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{version}",
            "homepage": home,
            "shortDescription": SHORT_DESCRIPTION,
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [systems]},
                    "uri": uri,
                    "sha256": hashlib.sha256(archive).hexdigest(),
                    "bin": BINARY,
                }
            ],
        },
    }


def problems(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each rule of krew that a manifest breaks.

    `kubectl krew search` cuts the short description after 50 characters; a longer one is refused here.

    Source: ValidatePlugin in internal/index/validation/validate.go of sigs.k8s.io/krew, and Parse in
    internal/installation/semver.
    """
    spec = found.get("spec") or {}
    if found.get("apiVersion") != API_VERSION:
        yield f"apiVersion is {found.get('apiVersion')!r}, not {API_VERSION!r}"
    if found.get("kind") != "Plugin":
        yield f"kind is {found.get('kind')!r}, not 'Plugin'"
    if not _SAFE_NAME.fullmatch(name):
        yield f"the name {name!r} does not match [\\w-]+"
    if (found.get("metadata") or {}).get("name") != name:
        yield f"metadata.name is {(found.get('metadata') or {}).get('name')!r}, not {name!r}"
    short = spec.get("shortDescription") or ""
    if not short or "\n" in short or "\r" in short or len(short) > 50:
        yield f"spec.shortDescription is {short!r}: one line of 1 to 50 characters is required"
    if not _VERSION.fullmatch(spec.get("version") or ""):
        yield f"spec.version is {spec.get('version')!r}: a semantic version with a leading v is required"
    if not spec.get("platforms"):
        yield "spec.platforms is empty"
    for number, platform in enumerate(spec.get("platforms") or ()):
        yield from (f"spec.platforms[{number}].{each}" for each in _of_platform(platform))


def _of_platform(platform: Mapping[str, Any]) -> Iterator[str]:
    if not platform.get("uri"):
        yield "uri is missing"
    if not _SHA256.fullmatch(platform.get("sha256") or ""):
        yield f"sha256 is {platform.get('sha256')!r}, not 64 hexadecimal digits in lower case"
    if not platform.get("bin"):
        yield "bin is missing"
    if "files" in platform and not platform["files"]:
        yield "files is empty: leave it out"
    for operation in platform.get("files") or ():
        if not operation.get("from") or not operation.get("to"):
            yield "files has an operation without from or to"
    selector = platform.get("selector") or {}
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    if not labels and not expressions:
        yield "selector is empty"
    for key in (*labels, *(each.get("key") for each in expressions)):
        if key not in ("os", "arch"):
            yield f"selector has the key {key!r}, not os or arch"


def _yaml(made: Mapping[str, Any]) -> str:
    """Return a manifest as YAML with texts of several lines as blocks."""

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(dict(made), Dumper=Dumper, sort_keys=False, width=1000)
