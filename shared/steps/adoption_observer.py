"""Reads live what the adoption of volumes depends on: the cache may be stale, and may lack restored claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.api.spec import CustomResource
from shared.kubernetes.accessors import label
from shared.kubernetes.client import Kube
from shared.kubernetes.encoding import memory
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Kind, Obj
from shared.kubernetes.managed_fields import trim
from shared.kubernetes.ownership import INSTANCE, NAME, require_small, selector_text
from shared.runtime.cache import Cache


def is_adopting(resource: CustomResource[Any], claims: Iterable[Obj], uid_label: str) -> bool:
    """Whether volumes are still to be adopted: some have another owner, or none is known."""
    found = [label(claim, uid_label) for claim in claims]
    return bool(resource.adopts_from) and (not found or any(uid != resource.uid for uid in found))


async def adopted_volumes(
    resource: CustomResource[Any], kind: Kind, application: str, uid_label: str, cache: Cache, kube: Kube
) -> tuple[list[Obj], str]:
    """Return all volume claims of this name, and NAMESPACE/NAME of a resource with the UID of the deleted one.

    A resource of another namespace, to which the claims were copied, is known from the cache if the operator watches
    that namespace. The own namespace is listed only once there are claims to adopt: every resource can name any UID.

    Args:
        kind: kind of the resource.
        application: value of app.kubernetes.io/name on the claims.
        uid_label: label of claims: UID of the resource that owns the data.
    """
    labels, uid = selector_text({INSTANCE: resource.name, NAME: application}), resource.adopts_from
    pages = kube.pages(PERSISTENT_VOLUME_CLAIM, resource.namespace, labels=labels)
    claims, size = list[Obj](), 0
    async for page in pages:
        for claim in page.pop("items"):
            size += memory(claim)
            require_small(size, f"One is PersistentVolumeClaim {claim['metadata']['name']}: remove its annotations.")
            claims.append(trim(claim, kube.manager))
    if (known := cache.key_of_uid(uid)) is not None:
        return claims, str(known)
    if any(label(claim, uid_label) == uid for claim in claims):
        async for page in kube.pages(kind, resource.namespace):
            found = [each["metadata"] for each in page.pop("items") if each["metadata"]["uid"] == uid]
            if found:
                return claims, f"{resource.namespace}/{found[0]['name']}"
    return claims, ""
