"""Images for the Docker daemon of the tests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import docker
from docker.errors import APIError

from tools.local import archives, images


def provide(required: Iterable[images.Image], *, own_daemon: bool) -> None:
    """Load the images that the daemon lacks.

    Args:
        required: images that the tests start.
        own_daemon: whether daemon.py runs the daemon; it always gets the images of tools/images. Another daemon uses
            official images if it has them or can pull them.
    """
    with closing(docker.from_env()) as client:
        for image in required:
            if own_daemon or not _has(client, image.tag):
                _load(client, image)


def _has(client: docker.DockerClient, tag: str) -> bool:
    """Return whether a daemon has an image or can pull it."""
    if client.images.list(tag):
        return True
    try:
        client.images.pull(tag)
    except APIError:
        return False
    return True


def _load(client: docker.DockerClient, image: images.Image) -> None:
    """Build an image of tools/images and load it, unless the daemon has the same build."""
    archive = images.build(image)
    (content,) = archives.contents(archive)
    if any(found.id == content.identity for found in client.images.list(image.tag)):
        return
    with archive.open("rb") as file:
        client.images.load(file)
    client.images.prune()  # removes the previous build, which is now untagged
