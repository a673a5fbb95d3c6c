"""An in-memory API server that begins with the objects of a real one, and reads more of them as they are needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import DEPLOYMENT, EVENT, NODE, POD, REPLICA_SET, STATEFUL_SET, Kind, Obj
from simulator.api_server.kinds import BUILT_IN, Served
from simulator.api_server.requests import Failure, TargetedRequest
from simulator.api_server.server import ApiServer
from simulator.kubelet.replicas import is_owned_by, template_hash

Find = Callable[[Kind, str, str], Awaitable[Obj | None]]
"""Reads an object of the real API server by namespace and name; None if there is none. It raises KubeError."""

HASH, REVISION, ROLLOUT = "pod-template-hash", "controller-revision-hash", "deployment.kubernetes.io/revision"
SET_BY_SERVER = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"})
"""Fields of metadata that the API server sets."""

SERVER_OWN = frozenset({EVENT})
"""Kinds whose objects the simulation makes itself."""


class Mirror(ApiServer):
    """An API server that reads objects that it does not have from a real one, once. It writes nothing there.

    Args:
        find: reads an object of the real API server.

    Attributes:
        unreadable: why an object that the operator reads could not be read; empty if all could.
        read: UIDs of the objects of the real API server.
    """

    def __init__(self, kinds: Iterable[Kind | Served], clock: Callable[[], datetime], find: Find) -> None:
        nodes = Served(NODE, built_in=True, schema=BUILT_IN, generation=False)
        super().__init__([nodes, *kinds], clock=clock)
        self.unreadable = ""
        self.read: set[str] = set()
        self._find = find
        self._known: set[tuple[Kind, str, str]] = set()

    def load(self, objects: Iterable[tuple[Kind, Obj]]) -> None:
        """Store objects of the real API server."""
        found = list(objects)
        super().load(found)
        self._known |= {(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for kind, obj in found}
        self.read |= {obj["metadata"]["uid"] for _, obj in found}

    def put(self, kind: Kind, obj: Obj) -> None:
        """Create or replace an object as a user, regardless of what the real API server has."""
        user, metadata = self.actor("kubectl"), obj["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        self._known.add(key)
        given = {name: value for name, value in metadata.items() if name not in SET_BY_SERVER}
        (user.update if self.stored(*key) else user.create)(kind, {**obj, "metadata": given})

    async def request(self, request: Request) -> Response:
        """Handle a request of the operator, after reading the object at its path from the real API server."""
        await self._read_real(request)
        return await super().request(request)

    async def _read_real(self, request: Request) -> None:
        try:
            target = TargetedRequest.at(self._by_path, request)
        except Failure:
            return
        body: Mapping[str, Any] = request.body if isinstance(request.body, dict) else {}
        name = target.name or (body.get("metadata") or {}).get("name") or ""
        key = (target.kind, target.namespace, name)
        if not name or target.kind in SERVER_OWN or key in self._known:
            return
        self._known.add(key)
        try:
            found = await self._find(*key)
        except KubeError as error:
            self.unreadable = self.unreadable or f"{target.kind} {name} cannot be read: {error}"
            return
        if found is not None:
            self.load([(target.kind, found)])


def adapted(objects: Iterable[tuple[Kind, Obj]]) -> list[tuple[Kind, Obj]]:
    """Return objects with the names of revisions that the simulated controllers compute.

    Kubernetes names the revision of a template by a hash, which a simulation cannot repeat.
    """
    found = [(kind, obj) for kind, obj in objects]
    renamed: dict[str, tuple[str, str]] = {}  # label and value of pods, by UID of their controller and former value
    result: list[tuple[Kind, Obj]] = []
    for kind, obj in found:
        if kind == STATEFUL_SET and (revision := (obj.get("status") or {}).get("updateRevision")):
            own = f"{obj['metadata']['name']}-{template_hash(obj)}"
            renamed[f"{obj['metadata']['uid']} {revision}"] = REVISION, own
            status = {key: own if value == revision else value for key, value in obj["status"].items()}
            obj = {**obj, "status": status}
        result.append((kind, obj))
    sets = {obj["metadata"]["uid"]: obj for kind, obj in found if kind == REPLICA_SET}
    names: dict[str, str] = {}
    for kind, obj in found:
        if kind != DEPLOYMENT:
            continue
        current = (obj["metadata"].get("annotations") or {}).get(ROLLOUT)
        for uid, each in sets.items():
            if is_owned_by(each, obj) and (each["metadata"].get("annotations") or {}).get(ROLLOUT) == current:
                digest = template_hash(obj)
                names[uid] = f"{obj['metadata']['name']}-{digest}"
                renamed[f"{uid} {accessors.label(each, HASH)}"] = HASH, digest
    return [(kind, _renamed(kind, obj, renamed, names)) for kind, obj in result]


def _renamed(kind: Kind, obj: Obj, renamed: Mapping[str, tuple[str, str]], names: Mapping[str, str]) -> Obj:
    metadata: Obj = obj["metadata"]
    if kind == REPLICA_SET and metadata["uid"] in names:
        _, digest = renamed[f"{metadata['uid']} {accessors.label(obj, HASH)}"]
        labels = metadata["labels"] | {HASH: digest}
        return {**obj, "metadata": metadata | {"name": names[metadata["uid"]], "labels": labels}}
    if kind != POD:
        return obj
    labels, owners = dict(metadata.get("labels") or {}), list(metadata.get("ownerReferences") or ())
    for number, owner in enumerate(owners):
        for label in (REVISION, HASH):
            found = renamed.get(f"{owner['uid']} {labels.get(label)}")
            if found is not None and found[0] == label:
                labels[label] = found[1]
        if owner["uid"] in names:
            owners[number] = owner | {"name": names[owner["uid"]]}
    return {**obj, "metadata": metadata | {"labels": labels, "ownerReferences": owners}}
