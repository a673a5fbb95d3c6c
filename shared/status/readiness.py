"""How long changes of specs take until resources are as they say (metrics.TIME_TO_READY)."""

from __future__ import annotations

from datetime import datetime

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Key, Obj
from shared.observability import metrics, tracing
from shared.status.verdict import Progress, Verdict


class Readiness:
    """Times the changes of one controller's resources; what is under way when the leader changes is not timed.

    A change begins when a reconcile first sees it, or with the resource itself if it is new. If the spec changes again
    meanwhile, that is one change: somebody has waited since the first.

    Args:
        controller: its name.
    """

    def __init__(self, controller: str) -> None:
        self._times = metrics.TIME_TO_READY.labels(controller=controller)
        self._since: dict[Key, tuple[str, datetime]] = {}  # with the UID: another of the same name is another

    def look(self, key: Key, resource: Obj, now: datetime) -> None:
        """A resource is about to be reconciled."""
        metadata = resource["metadata"]
        known = self._since.get(key)
        if known is not None and known[0] != metadata["uid"]:
            self.forget(key)
        if not accessors.is_current(resource):
            is_new = "observedGeneration" not in (resource.get("status") or {})
            since = datetime.fromisoformat(metadata["creationTimestamp"]) if is_new else now
            self._since.setdefault(key, (metadata["uid"], since))

    def told(self, key: Key, verdict: Verdict, now: datetime) -> None:
        """A resource's status says this; a change ends when nothing is left to do, or a person asks us to keep off."""
        if verdict.progress in (Progress.DONE, Progress.PAUSED):
            known = self._since.pop(key, None)
            if known is not None and verdict.done:
                self._times.observe(max((now - known[1]).total_seconds(), 0.0), tracing.exemplar())

    def forget(self, key: Key) -> None:
        """A resource is gone."""
        self._since.pop(key, None)

    def clear(self) -> None:
        """Another may have led meanwhile: what is known may have ended long ago."""
        self._since.clear()
