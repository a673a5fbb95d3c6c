"""Metrics of the state of Memcacheds. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from operators.memcached.api.resource import default
from shared.kubernetes.kinds import Obj
from shared.status.resource_metrics import DESIRED, PAUSED, READY, Sample, State

STATES: tuple[State, ...] = ()
"""State metrics that only this operator has."""


def states(obj: Obj) -> Iterator[Sample]:
    """Return the samples that depend on the kind."""
    spec, status = default(obj).get("spec") or {}, obj.get("status") or {}
    yield DESIRED(spec.get("size"))
    yield READY(status.get("readyReplicas") or 0)
    yield PAUSED(bool(spec.get("paused")))
