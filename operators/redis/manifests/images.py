"""The images of Redis and Valkey that the local cluster builds."""

from __future__ import annotations

from functools import partial

from tools.databases import redis_programs
from tools.local import debian
from tools.local.images import IMAGES, Image

TAGS = {
    (engine, version): f"{'valkey/valkey' if engine == 'valkey' else engine}:{version}"
    for engine, version in redis_programs.WITH_IMAGE
}
"""Names of the official images; container runtimes expand ``redis`` to ``docker.io/library/redis``."""


def images() -> list[Image]:
    """Return the images of Redis and Valkey, laid out like the official ones, and of the exporter sidecar."""
    exporter_suite, exporter, exporter_version = redis_programs.EXPORTER
    return [
        *(
            Image(
                tag=TAGS[engine, version],
                containerfile=IMAGES / engine / "Containerfile",
                context=redis_programs.root(engine, version),
                sources=(),
                first=partial(redis_programs.unpacked, engine, version),
            )
            for engine, version in redis_programs.WITH_IMAGE
        ),
        Image(
            tag=f"oliver006/redis_exporter:v{exporter_version}",
            containerfile=IMAGES / "redis-exporter" / "Containerfile",
            context=debian.unpacked_path(exporter_suite, exporter),
            sources=(),
            first=partial(debian.unpacked, exporter_suite, exporter),
        ),
    ]
