"""The objects of a resource that a plan begins with, read with the user's rights. Nothing of a Secret is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from plugin.databases import BACKUP, ETCD, STORAGE_CLASS, Database
from plugin.session import Session
from shared.kubernetes.errors import Forbidden, NotFound
from shared.kubernetes.kinds import (
    AUTOSCALER,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY

if TYPE_CHECKING:
    from datetime import datetime

    from simulator.plan import Live

OWNED = (
    STATEFUL_SET,
    DEPLOYMENT,
    REPLICA_SET,
    SERVICE,
    CONFIG_MAP,
    POD,
    PERSISTENT_VOLUME_CLAIM,
    NETWORK_POLICY,
    AUTOSCALER,
)
"""Kinds of the objects that operators own or read."""

MIN_RESIZING_MINOR = 33
"""First minor version of Kubernetes that resizes running pods."""


class Reader:
    """Reads the objects of one resource.

    Attributes:
        assumptions: assumptions instead of objects that the user may not read.
        unreadable_classes: StorageClasses that the user may not read.
    """

    def __init__(self, session: Session, database: Database, namespace: str) -> None:
        self._session, self._database, self._namespace = session, database, namespace
        self.assumptions: list[str] = []
        self.unreadable_classes: set[str] = set()

    async def live(self, resource: Obj | None, change: Obj | None, now: datetime) -> Live:
        """Return the resource with its objects, and the Secrets and ConfigMaps that its pods and spec name.

        Raises:
            KubeError: an object cannot be read.
        """
        from simulator.plan import Live

        budgets = await self._session.objects(DISRUPTION_BUDGET, self._namespace)  # also of users, for its pods
        objects = [(DISRUPTION_BUDGET, _typed(DISRUPTION_BUDGET, each)) for each in budgets]
        if resource is not None:
            objects.append((self._database.kind, resource))
            name = resource["metadata"]["name"]
            labels = f"{INSTANCE}={name},{MANAGED_BY}={self._database.operator}-operator"
            for kind in (*OWNED, *([BACKUP.kind] if self._database == ETCD else [])):
                with contextlib.suppress(NotFound):
                    found = await self._session.objects(kind, self._namespace, labels)
                    objects += [(kind, _typed(kind, each)) for each in found]
        known = {(kind, obj["metadata"]["name"]) for kind, obj in objects}
        for kind, name in sorted({*_mounted(objects), *_named(resource), *_named(change)}, key=str):
            if (kind, name) not in known and (obj := await self.find(kind, self._namespace, name)) is not None:
                objects.append((kind, obj))
        claims = [obj for kind, obj in objects if kind == PERSISTENT_VOLUME_CLAIM]
        classes = {str(claim["spec"].get("storageClassName") or "") for claim in claims}
        for storage_class in sorted(classes - {""}):
            if (obj := await self.find(STORAGE_CLASS, "", storage_class)) is not None:
                objects.append((STORAGE_CLASS, obj))
        unreadable = frozenset(self.unreadable_classes)
        return Live(resource, objects, now, resizes=await self._resizes(), unreadable_classes=unreadable)

    async def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return an object; None if it does not exist.

        Raises:
            KubeError: the object cannot be read.
        """
        try:
            found = await self._session.kube.find(kind, namespace or None, name)
        except Forbidden:
            if kind == NODE:
                self.assumptions.append(f"Node {name}, which you may not read, has no label of a zone.")
                return None
            if kind == STORAGE_CLASS:
                self.unreadable_classes.add(name)  # a plan in which its volumes grow ends as unknown
                return _typed(kind, {"metadata": {"name": name, "uid": name}, "allowVolumeExpansion": True})
            raise
        return None if found is None else _typed(kind, found)

    async def _resizes(self) -> bool:
        version: Any = await self._session.raw("/version")
        minor = "".join(filter(str.isdigit, str(version.get("minor") or ""))) if isinstance(version, dict) else ""
        return int(minor or 0) >= MIN_RESIZING_MINOR


def _typed(kind: Kind, obj: Obj) -> Obj:
    """Return an object with its type, which items of lists do not have."""
    return {"apiVersion": kind.api_version, "kind": kind.name} | obj


def _mounted(objects: list[tuple[Kind, Obj]]) -> Iterator[tuple[Kind, str]]:
    """Yield the Secrets and ConfigMaps that pods mount."""
    for kind, obj in objects:
        if kind not in (POD, STATEFUL_SET, DEPLOYMENT):
            continue
        spec = obj["spec"] if kind == POD else obj["spec"]["template"]["spec"]
        for volume in spec.get("volumes") or ():
            if name := (volume.get("secret") or {}).get("secretName"):
                yield SECRET, name
            if name := (volume.get("configMap") or {}).get("name"):
                yield CONFIG_MAP, name


def _named(resource: Obj | None) -> Iterator[tuple[Kind, str]]:
    """Yield the Secrets that a resource names in its spec, or has according to its status."""
    if resource is None:
        return
    name = resource["metadata"]["name"]
    yield from ((SECRET, each) for each in (resource.get("status") or {}).get("secrets") or ())
    yield SECRET, f"{name}-connection"
    yield from ((SECRET, each) for each in _secrets_in(resource.get("spec") or {}))


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key.lower().endswith("secretname") and isinstance(inner, str) and inner:
                yield inner
            elif key == "passwordSecret" and isinstance(inner, Mapping) and inner.get("name"):
                yield str(inner["name"])
            else:
                yield from _secrets_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets_in(inner)
