"""Ordinals of the pods of a StatefulSet. Any client may set or name any number: one beyond any spec is not expanded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shared.kubernetes.kinds import Obj

MAX_SURPLUS = 16  # existing ordinals beyond any spec that are observed at a time


def ordinal(name: str, prefix: str) -> int | None:
    """Return the ordinal in a name PREFIX-ORDINAL; None if the name has another form."""
    found = re.fullmatch(rf"{re.escape(prefix)}-(0|[1-9][0-9]{{0,8}})", name)
    return int(found[1]) if found else None


def replicas(stateful_set: Obj | None, most: int) -> int:
    """Return the replicas of a StatefulSet, at most as many as a spec permits; 0 without a StatefulSet."""
    return min(int(stateful_set["spec"]["replicas"]), most) if stateful_set else 0


def to_observe(count: int, present: Iterable[int], most: int) -> list[int]:
    """Return the first `count` ordinals, and those of objects; of those from `most` on, the lowest, which go first."""
    return sorted({*range(min(count, most)), *present})[: most + MAX_SURPLUS]
