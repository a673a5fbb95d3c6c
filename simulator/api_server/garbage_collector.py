"""Kubernetes' garbage collector: handles dependents of deleted owners."""

from __future__ import annotations

from typing import Protocol

from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.actor import Actor

COLLECTOR = "generic-garbage-collector"


class Collected(Protocol):
    """The part of a server that the garbage collector needs."""

    def objects(self, kind: Kind | None = None) -> list[tuple[Kind, Obj]]:
        """Return every object, or those of a kind."""

    def actor(self, name: str) -> Actor:
        """Return a client of the server with a field manager of that name."""


def collect(server: Collected) -> int:
    """Orphan, await and delete dependents until nothing is left to do; return the number of objects processed.

    An object is deleted once none of its owners exists; until then, references to missing owners are removed. An owner
    is cluster-scoped or in the namespace of the object: a reference across namespaces counts as one to a missing owner.
    """
    done = 0
    while _step(server):
        done += 1
    return done


def _step(server: Collected) -> bool:
    everything = server.objects()
    by_uid = {obj["metadata"]["uid"]: obj for _, obj in everything}
    for kind, obj in everything:
        waits_for = obj["metadata"].get("finalizers") or []
        if "orphan" in waits_for:
            for dependent_kind, dependent in _dependents(obj, everything):
                references = [ref for ref in dependent["metadata"]["ownerReferences"] if ref["uid"] != _uid(obj)]
                _merge(server, dependent_kind, dependent, {"ownerReferences": references})
            _merge(server, kind, obj, {"finalizers": [name for name in waits_for if name != "orphan"]})
            return True
        if "foregroundDeletion" in waits_for and not _blocked(obj, everything):
            _merge(server, kind, obj, {"finalizers": [name for name in waits_for if name != "foregroundDeletion"]})
            return True
        if not obj["metadata"].get("deletionTimestamp") and _lacks_owners(obj, by_uid):
            has_dependents = any(True for _ in _dependents(obj, everything))
            policy = "Foreground" if has_dependents and _blocks_an_owner(obj, by_uid) else "Background"
            metadata = obj["metadata"]
            options = {"propagationPolicy": policy, "preconditions": {"uid": metadata["uid"]}}
            server.actor(COLLECTOR).delete(kind, metadata.get("namespace"), metadata["name"], **options)
            return True
        present = [ref for ref in _owners(obj) if _owner(ref, obj, by_uid) is not None]
        if 0 < len(present) < len(_owners(obj)):
            _merge(server, kind, obj, {"ownerReferences": present})
            return True
    return False


def _dependents(owner: Obj, everything: list[tuple[Kind, Obj]]) -> list[tuple[Kind, Obj]]:
    return [(kind, obj) for kind, obj in everything if _uid(owner) in {ref["uid"] for ref in _owners(obj)}]


def _blocked(owner: Obj, everything: list[tuple[Kind, Obj]]) -> bool:
    blocking = {
        ref["uid"] for _, obj in _dependents(owner, everything) for ref in _owners(obj) if ref.get("blockOwnerDeletion")
    }
    return _uid(owner) in blocking


def _lacks_owners(obj: Obj, by_uid: dict[str, Obj]) -> bool:
    """Whether every owner is missing, or is in foreground deletion and waits for this object."""
    owners = [_owner(ref, obj, by_uid) for ref in _owners(obj)]
    return bool(owners) and all(owner is None or _in_foreground_deletion(owner) for owner in owners)


def _owner(reference: Obj, obj: Obj, by_uid: dict[str, Obj]) -> Obj | None:
    """Return the owner to which a reference of an object refers; None if it does not exist."""
    owner = by_uid.get(reference["uid"])
    return None if owner is None or _in_other_namespace(owner, obj) else owner


def _blocks_an_owner(obj: Obj, by_uid: dict[str, Obj]) -> bool:
    return any(_in_foreground_deletion(by_uid[ref["uid"]]) for ref in _owners(obj) if ref["uid"] in by_uid)


def _in_other_namespace(owner: Obj, obj: Obj) -> bool:
    return owner["metadata"].get("namespace") not in (None, obj["metadata"].get("namespace"))


def _in_foreground_deletion(owner: Obj) -> bool:
    return "foregroundDeletion" in (owner["metadata"].get("finalizers") or [])


def _owners(obj: Obj) -> list[Obj]:
    references: list[Obj] = obj["metadata"].get("ownerReferences") or []
    return references


def _uid(obj: Obj) -> str:
    uid: str = obj["metadata"]["uid"]
    return uid


def _merge(server: Collected, kind: Kind, obj: Obj, metadata: Obj) -> None:
    live = obj["metadata"]
    server.actor(COLLECTOR).merge(kind, live.get("namespace"), live["name"], {"metadata": metadata})
