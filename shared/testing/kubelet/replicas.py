"""What controllers that make pods of a template have in common."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Kind, Obj

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def reference(owner: Obj, kind: Kind) -> Obj:
    """What makes an object the owner's."""
    metadata = owner["metadata"]
    named = {"apiVersion": kind.api_version, "kind": kind.name, "name": metadata["name"], "uid": metadata["uid"]}
    return named | {"controller": True, "blockOwnerDeletion": True}


def replica(owner: Obj, kind: Kind, name: str, labels: dict[str, str]) -> Obj:
    """A pod of an owner's template, with further labels."""
    metadata, template = owner["metadata"], owner["spec"]["template"]
    about = template.get("metadata", {})
    return {
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": about.get("labels", {}) | labels,
            "annotations": about.get("annotations", {}),
            "ownerReferences": [reference(owner, kind)],
        },
        "spec": template["spec"],
    }


def is_of(pod: Obj, owner: Obj) -> bool:
    """Whether a pod belongs to an owner."""
    references = pod["metadata"].get("ownerReferences", ())
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def is_leaving(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Obj) -> bool:
    return accessors.is_true(pod, "Ready")


def template_hash(owner: Obj) -> str:
    """What tells pods of one template from those of another."""
    template = json.dumps(owner["spec"]["template"], sort_keys=True)
    return word(int.from_bytes(hashlib.sha256(template.encode()).digest()[:5]), 9)


def word(number: int, length: int = 5) -> str:
    """A number in the letters of generated names, which spell nothing."""
    text = ""
    for _ in range(length):
        number, letter = divmod(number, len(_LETTERS))
        text = _LETTERS[letter] + text
    return text


def counted(counts: dict[str, Any]) -> Obj:
    """Counts as the API shows them: zeros that Go omits are null in a patch."""
    return {name: count or None for name, count in counts.items()}
