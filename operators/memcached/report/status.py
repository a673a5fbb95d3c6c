"""Status of a Memcached, from its observed state. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from operators.memcached.api.catalogue import lowest
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import owner
from operators.memcached.objects.pod import COMPONENT
from operators.memcached.steps import connection_secret
from shared.api.image import Image
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import selector_text
from shared.status.progress import Work
from shared.steps import connection

MAX_IMAGES = 32
"""Maximum number of running images in the status; more than two run only if nodes have pulled different ones."""


def report(seen: Assessment, phase: str) -> Obj:
    """Return the whole status, without conditions."""
    resource = seen.resource
    workload, image = seen.serving_workload, resource.spec.image_reference(seen.settings.image_repository)
    own = owner(resource, seen.settings.operator)
    found: Obj = {
        "phase": phase,
        "replicas": len(workload.current),
        "readyReplicas": len(workload.ready),
        "selector": selector_text(own.selector(COMPONENT)),
        "image": image,
        "version": _version(image),
        "nodes": [pod.name for pod in workload.current],
        "servers": list(seen.servers),
        # The one that clients use: a spec that sets none again before the new one is ready cancels the change.
        "workload": (workload if resource.spec.workload else seen.workload).kind.name,
    }
    images = dict(sorted(seen.server_images.items())[:MAX_IMAGES])
    checked = {
        "serverVersion": lowest(images.values()),
        "serverImages": images,
        "certificate": seen.served_fingerprint,
        "users": seen.loaded_users,
    }
    present = connection_secret.connection(seen)
    found |= connection.status(own, COMPONENT, present, seen.connection, resource.reported)
    return found | {name: value for name, value in checked.items() if value}


def work(seen: Assessment) -> Iterator[Work]:
    """Yield the servers that are not ready yet, and those of an earlier template."""
    workload, size = seen.workload, seen.resource.spec.size
    yield Work("Servers", len(workload.ready), size)
    yield Work("Pods", workload.updated, workload.updated + max(workload.outdated, 0))


def _version(image: str) -> str:
    try:
        return Image.parse(image).version
    except ValueError:  # the image is invalid, and the spec is rejected
        return ""
