"""The images of etcd that the local cluster builds, under the names of upstream's images."""

from __future__ import annotations

from functools import partial

from operators.etcd.api.catalogue import ETCD
from tools.local import binaries
from tools.local.images import IMAGES, Image

TAGS = {version: f"{ETCD.image}:v{version}" for version in binaries.ETCD} | {
    "3.4.13": "cnych/etcd:v3.4.13"  # the seed's name for it
}


def images() -> list[Image]:
    """Return the images of etcd; like the official ones, they contain only etcd's programs."""
    return [
        Image(
            tag=TAGS[version],
            containerfile=IMAGES / "etcd" / "Containerfile",
            context=binaries.cache_path(program),
            sources=(program.directory,),
            first=partial(binaries.build, program),
        )
        for version, program in binaries.ETCD.items()
    ]
