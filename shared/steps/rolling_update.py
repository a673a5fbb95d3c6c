"""The policy of a rolling update: outdated pods are recreated one at a time, and stop at the first that fails. Pure.

StatefulSets do not replace pods by themselves here (OnDelete): their order knows no roles. A pod is outdated if the
digest of its template differs from the StatefulSet's. Each goes only when the one before is back, so that a change that
breaks the first pod stops there and can be reverted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import Delete, Step
from shared.status.reasons import Reason
from shared.steps.instance import Instance

RETURN_TIMEOUT = timedelta(minutes=2)
"""Time a recreated pod may take to serve again before the update is reported as held by it."""


Place = TypeVar("Place", bound=Instance)


@dataclass(frozen=True)
class RollingUpdate(Generic[Place]):
    """One round of a rolling update.

    Attributes:
        places: all places of the database.
        is_outdated: whether a place's pod runs otherwise than the StatefulSet now says.
        stale: the places whose pods are to be recreated.
        reason: while the update goes on.
        held_reason: while it cannot.
        held_seconds: time after which a held update is looked at again.
    """

    places: Sequence[Place]
    is_outdated: Callable[[Place], bool]
    stale: Sequence[Place]
    reason: Reason
    held_reason: Reason
    held_seconds: float

    @property
    def goal(self) -> str:
        return f"{len(self.stale)} of {len(self.places)} pods still run as before the change"

    def next(self, rank: Callable[[Place], Any], gates: Sequence[Callable[[Place], Step | None]]) -> Step:
        """Recreate the pod of the lowest rank, unless a gate answers something else.

        Args:
            rank: orders the outdated pods.
            gates: questions that must be settled first, in order; None settles one.
        """
        place = min(self.stale, key=rank)
        for gate in gates:
            if (answer := gate(place)) is not None:
                return answer
        return self.recreate(place)

    def recreate(self, place: Place, how: str = " is made anew.") -> Step:
        return Step.wait(self.reason, f"{self.goal}: {place.name}{how}", restart(place))

    def wait(self, why: str, *, requeue: float | None = None) -> Step:
        """Wait for something that passes by itself."""
        return Step.wait(self.reason, f"{self.goal}. {why}", requeue=requeue)

    def hold(self, place: Place, why: str, *, with_trouble: bool = False) -> Step:
        """Report what keeps a pod from being recreated, and a current pod that fails, if there is one.

        Args:
            with_trouble: whether the failing pod's trouble is quoted.
        """
        message = f"{self.goal}. {place.name} is not made anew yet: {why}"
        for other in self.places:
            if other.pod and other.pod.trouble and not self.is_outdated(other):
                quoted = f", and does not start: {other.pod.trouble}" if with_trouble else "."
                message += (
                    f" {other.name} already runs as the spec says{quoted} "
                    "Mend the spec, or take the change back: the others stay as they are."
                )
                break
        return Step.wait(self.held_reason, message, warning=True, requeue=self.held_seconds)


def restart(place: Instance) -> Delete:
    """Delete a pod, for the StatefulSet to recreate it."""
    assert place.pod_obj is not None
    return Delete(POD, place.pod_obj)


def broken(places: Sequence[Place], is_outdated: Callable[[Place], bool]) -> list[Place]:
    """Outdated pods in which the server does not even run: what a change broke, the next one repairs."""
    return [place for place in places if place.pod and not place.pod.leaving and not place.runs and is_outdated(place)]


def is_returning(place: Instance, now: datetime) -> bool:
    """Whether a pod was just created, and nothing is wrong with it."""
    if place.pod and place.pod.trouble:
        return False
    created = place.pod_obj["metadata"].get("creationTimestamp") if place.pod_obj else None
    return not created or now - datetime.fromisoformat(created) <= RETURN_TIMEOUT


def template_image(stateful_set: Obj, container: str) -> str:
    """The image that a StatefulSet's template gives to a container."""
    containers = stateful_set["spec"]["template"]["spec"]["containers"]
    return next(str(given["image"]) for given in containers if given["name"] == container)
