"""Inspection of an OCI layout: the images in it are complete and contain programs of their own architecture."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ELF_MACHINES = {"amd64": 62, "arm64": 183}
"""Field e_machine of ELF files (System V ABI), by the architecture of an image."""


def problems(layout: Path, architectures: Sequence[str]) -> list[str]:
    """Return a sentence for each image of an OCI layout that is incomplete or has programs of another architecture.

    Args:
        layout: directory with index.json.
        architectures: architectures that each index must have.
    """
    indexes = json.loads((layout / "index.json").read_text())["manifests"]
    return [problem for index in indexes for problem in _of_index(layout, index, architectures)]


def _of_index(layout: Path, index: dict[str, Any], architectures: Sequence[str]) -> Iterator[str]:
    name = index["annotations"]["org.opencontainers.image.ref.name"]
    images = {each["platform"]["architecture"]: each for each in _json(layout, index["digest"])["manifests"]}
    for architecture in architectures:
        if architecture not in images:
            yield f"{name} has no image for {architecture}"
            continue
        manifest = _json(layout, images[architecture]["digest"])
        for layer in manifest["layers"]:
            blob = _blob(layout, layer["digest"])
            with blob.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if f"sha256:{found}" != layer["digest"]:
                yield f"{name} for {architecture}: the content of layer {layer['digest']} has the digest {found}"
            else:
                yield from (f"{name} for {architecture}: {each}" for each in _foreign(blob, architecture))


def _foreign(layer: Path, architecture: str) -> Iterator[str]:
    """Yield a sentence for each program or library in a layer that another architecture executes."""
    with tarfile.open(layer) as files:
        for each in files:
            content = files.extractfile(each) if each.isfile() else None
            head = content.read(20) if content else b""
            if head.startswith(b"\x7fELF"):
                machine = int.from_bytes(head[18:20], "little")
                if machine != ELF_MACHINES[architecture]:
                    yield f"{each.name} is for machine {machine} of ELF, not {ELF_MACHINES[architecture]}"


def _json(layout: Path, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_blob(layout, digest).read_text())
    return found


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / Path(*digest.split(":"))
