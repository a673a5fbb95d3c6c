"""Metrics of the state of a Greeter. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shared.kubernetes.kinds import Obj
from shared.status.resource_metrics import DESIRED, PAUSED, READY, Sample


def states(obj: Obj) -> Iterator[Sample]:
    """Yield the samples that are specific to the kind."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    yield DESIRED(spec.get("replicas", 1))
    yield READY(status.get("readyReplicas") or 0)
    yield PAUSED(bool(spec.get("paused")))
