"""The images of memcached that the local cluster builds."""

from __future__ import annotations

from tools.local.images import IMAGES, Image, debian_base

VERSIONS = {"forky": "1.6.45", "trixie": "1.6.38", "bookworm": "1.6.18"}
"""Versions of memcached, by the Debian suite that packages them."""


def images() -> list[Image]:
    """Return the images of memcached, built from Debian's packages."""
    directory = IMAGES / "memcached"
    return [
        Image(
            tag=f"memcached:{version}",
            containerfile=directory / "Containerfile",
            context=directory,
            sources=(),
            arguments={"SUITE": suite, "VERSION": version},
            base=debian_base(suite),
        )
        for suite, version in VERSIONS.items()
    ]
