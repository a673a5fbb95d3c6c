"""Time from a change of a spec until the resource matches it (metrics.TIME_TO_READY)."""

from __future__ import annotations

from datetime import datetime

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Key, Obj
from shared.observability import metrics, tracing
from shared.status.verdict import Progress, Verdict


class Readiness:
    """Times the changes of the resources of one controller. A change during which the leader changes is not timed.

    A change begins when a reconcile first observes it, or with the creation of the resource. Further changes of the
    spec before it completes count as the same change, because the user has been waiting since the first.

    Args:
        controller: name of the controller.
    """

    def __init__(self, controller: str) -> None:
        self._times = metrics.TIME_TO_READY.labels(controller=controller)
        self._since: dict[Key, tuple[str, datetime]] = {}  # with the UID: a recreated resource is a new one

    def begin(self, key: Key, resource: Obj, now: datetime) -> None:
        """Start timing a resource that is about to be reconciled, if its spec has changed."""
        metadata = resource["metadata"]
        known = self._since.get(key)
        if known is not None and known[0] != metadata["uid"]:
            self.forget(key)
        if not accessors.is_current(resource):
            is_new = "observedGeneration" not in (resource.get("status") or {})
            since = datetime.fromisoformat(metadata["creationTimestamp"]) if is_new else now
            self._since.setdefault(key, (metadata["uid"], since))

    def report(self, key: Key, verdict: Verdict, now: datetime) -> None:
        """Record the reported verdict. A change ends when the resource is done or paused; only done is measured."""
        if verdict.progress in (Progress.DONE, Progress.PAUSED):
            known = self._since.pop(key, None)
            if known is not None and verdict.done:
                self._times.observe(max((now - known[1]).total_seconds(), 0.0), tracing.exemplar())

    def forget(self, key: Key) -> None:
        """Drop a resource that was deleted."""
        self._since.pop(key, None)

    def clear(self) -> None:
        """Drop all running measurements: they may have ended while another replica was the leader."""
        self._since.clear()
