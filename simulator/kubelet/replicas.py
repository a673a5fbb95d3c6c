"""Functions shared by the controllers that create pods from a template."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.store import ByIdentity

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def reference(owner: Obj, kind: Kind) -> Obj:
    """Return the ownerReference of a controller."""
    metadata = owner["metadata"]
    identity = {"apiVersion": kind.api_version, "kind": kind.name, "name": metadata["name"], "uid": metadata["uid"]}
    return identity | {"controller": True, "blockOwnerDeletion": True}


def replica(owner: Obj, kind: Kind, name: str, labels: dict[str, str]) -> Obj:
    """Build a pod from the owner's template, with additional labels."""
    metadata, template = owner["metadata"], owner["spec"]["template"]
    template_metadata = template.get("metadata", {})
    return {
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": template_metadata.get("labels", {}) | labels,
            "annotations": template_metadata.get("annotations", {}),
            "ownerReferences": [reference(owner, kind)],
        },
        "spec": template["spec"],
    }


def is_owned_by(pod: Obj, owner: Obj) -> bool:
    """Whether the owner owns the pod."""
    references = pod["metadata"].get("ownerReferences", ())
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def is_terminating(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_available(pod: Obj, owner: Obj, now: str) -> bool:
    """Whether a pod has been ready for the owner's minReadySeconds."""
    if not is_ready(pod):
        return False
    since = accessors.condition(pod, "Ready")["lastTransitionTime"]
    ready_for = datetime.fromisoformat(now) - datetime.fromisoformat(since)
    return ready_for.total_seconds() >= (owner["spec"].get("minReadySeconds") or 0)


def is_ready(pod: Obj) -> bool:
    return accessors.is_true(pod, "Ready")


def template_hash(owner: Obj) -> str:
    """Hash the pod template of an owner, as it is stored: stored objects never change."""
    return _hashes.of(owner["spec"]["template"])


def _hash(template: Obj) -> str:
    text = json.dumps(template, sort_keys=True)
    return encode_name(int.from_bytes(hashlib.sha256(text.encode()).digest()[:5]), 9)


_hashes = ByIdentity(_hash)


def encode_name(number: int, length: int = 5) -> str:
    """Encode a number in the alphabet of generated names, which contains no vowels."""
    text = ""
    for _ in range(length):
        number, letter = divmod(number, len(_LETTERS))
        text = _LETTERS[letter] + text
    return text


def status_counts(counts: dict[str, Any]) -> Obj:
    """Convert counts to a patch of a status: null removes zeros, as Go omits them."""
    return {name: count or None for name, count in counts.items()}
