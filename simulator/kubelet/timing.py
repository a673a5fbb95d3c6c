"""The time that pods take to start and to stop. It passes at once, when nothing else happens before it is over.

Pods that start or stop together do so at the same time, so that the time passes once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import POD, Obj
from simulator.clock import Clock
from simulator.durations import Durations

if TYPE_CHECKING:
    from simulator.api_server.server import ApiServer


class PodTiming:
    """Moves the clock of a simulation as pods start and stop.

    Args:
        server: API server of the simulation, whose objects have whole seconds only.
    """

    def __init__(self, server: ApiServer, clock: Clock, durations: Durations) -> None:
        self._clock, self._durations = clock, durations
        self._created: dict[str, datetime] = {}
        self._deleted: dict[str, datetime] = {}
        self._order: dict[str, int] = {}
        server.subscribe(self._note, POD)

    def _note(self, event: Obj) -> None:
        metadata = event["object"]["metadata"]
        is_new, uid = event["type"] == "ADDED", metadata["uid"]
        if is_new or (metadata.get("deletionTimestamp") and uid not in self._deleted):
            (self._created if is_new else self._deleted)[uid] = self._clock.now
            self._order[uid] = len(self._created) + len(self._deleted)

    def due(self, pod: Obj) -> tuple[datetime, int]:
        """Return when a pod that starts or stops is ready or removed, and its rank among those of the same time."""
        moment = self.removed(pod) if pod["metadata"].get("deletionTimestamp") else self.ready(pod)
        return moment, self._order.get(pod["metadata"]["uid"], 0)

    def ready(self, pod: Obj) -> datetime:
        """Return when a new pod is ready."""
        return self._started(pod) + timedelta(seconds=self._durations.ready)

    def removed(self, pod: Obj) -> datetime:
        """Return when a deleted pod is removed."""
        deleted = self._deleted.get(pod["metadata"]["uid"], self._clock.now)
        return deleted + timedelta(seconds=delay(pod) + self._durations.stop)

    def start(self, pod: Obj) -> str:
        """Let the time pass until a new pod is ready; return when its containers started."""
        self._pass_until(self.ready(pod))
        return rfc3339(self._started(pod))

    def stop(self, pod: Obj) -> None:
        """Let the time pass until a deleted pod is removed."""
        self._pass_until(self.removed(pod))

    def _started(self, pod: Obj) -> datetime:
        created = self._created.get(pod["metadata"]["uid"], self._clock.now)
        return created + timedelta(seconds=self._durations.start)

    def _pass_until(self, moment: datetime) -> None:
        self._clock.wait(max(0.0, (moment - self._clock.now).total_seconds()))


def delay(pod: Obj) -> float:
    """Return the seconds for which the preStop hooks of a pod sleep."""
    hooks = ((each.get("lifecycle") or {}).get("preStop") or {} for each in pod["spec"]["containers"])
    return float(max((hook["sleep"]["seconds"] for hook in hooks if "sleep" in hook), default=0))
