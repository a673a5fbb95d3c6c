"""Archives of images, as `docker save` writes them."""

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Content:
    """An image in an archive.

    Attributes:
        identity: ID of the image: the digest of its configuration.
        tags: names under which the image is loaded.
    """

    identity: str
    tags: Sequence[str]


def contents(archive: Path) -> list[Content]:
    """Return the images in an archive.

    Raises:
        KeyError: the archive has no manifest, so `docker save` did not write it.
    """
    with tarfile.open(archive) as files:
        manifest = files.extractfile("manifest.json")
        assert manifest is not None, "a regular file"
        images = json.load(manifest)
    return [Content(f"sha256:{each['Config'].removesuffix('.json')}", each["RepoTags"]) for each in images]
