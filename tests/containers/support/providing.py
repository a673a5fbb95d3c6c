"""Sees to it that a Docker daemon has the images that tests start."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from contextlib import closing

import docker
from docker.errors import APIError

from e2e.cluster import images


def provide(wanted: Iterable[images.Image], *, ours: bool) -> None:
    """Give the daemon images that it lacks.

    Args:
        ours: whether it is that of daemon.py, which gets those of e2e/images; another may have or pull official ones.
    """
    with closing(docker.from_env()) as client:
        for image in wanted:
            if ours or not _has(client, image.tag):
                _load(client, image)


def _has(client: docker.DockerClient, tag: str) -> bool:
    """Whether a daemon has an image, or can pull it."""
    if client.images.list(tag):
        return True
    try:
        client.images.pull(tag)
    except APIError:
        return False
    return True


def _load(client: docker.DockerClient, image: images.Image) -> None:
    """Give a daemon an image of ours, unless it has this very one."""
    archive = images.build(image)
    with tarfile.open(archive) as parts:
        manifest = parts.extractfile("manifest.json")
        assert manifest is not None
        (made,) = json.load(manifest)
    if any(found.id == f"sha256:{made['Config'].removesuffix('.json')}" for found in client.images.list(image.tag)):
        return
    with archive.open("rb") as file:
        client.images.load(file)
    client.images.prune()  # an earlier one has lost its name
