"""A learner becomes a voter, or is given up. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import Promote, Remove
from operators.etcd.observe import Instance, Observed, endpoints
from operators.etcd.steps.intervals import MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import PASS, Step, announced
from shared.status.verdict import Progress

CAUGHT_UP = 0.9
"""Part of the leader's log that a learner must have for etcd to give it a vote (readyPercentThreshold in server.go)."""


def promote_learner(resource: EtcdCluster, seen: Observed, now: datetime, *, patience: float) -> Step:
    """Make a learner that has caught up a voter; give up one that does not come.

    etcd refuses while the learner's log is behind (Raft's thesis, §4.2.1), so a refusal is no failure: it is asked
    again. A learner has no vote, so that removing it costs nobody anything.

    Args:
        patience: seconds that it may take.
    """
    learner = seen.learner
    place = seen.place_of(learner) if learner else None
    if learner is None or place is None:
        return PASS
    remove = Remove(endpoints(resource, seen), seen.secrets.access, learner)
    if place.number >= resource.spec.size:
        return Step.wait(
            "Scaling", f"{place.name} is not wanted any more: it is removed before it gets a vote.", remove
        )
    if learner.name and seen.healthy(place) and _caught_up(seen, place):
        promote = Promote(endpoints(resource, seen), seen.secrets.access, learner)
        return Step((promote,), Progress.WAITING, "Promoting", f"{place.name} has caught up: it gets its vote.")
    since = _awaited_since(place)
    if since is not None and now - since >= timedelta(seconds=patience):
        message = (
            f"{place.name} did not catch up within {patience:g} s (--create-timeout): it is removed, and joins "
            f"anew with an empty disk. {_hindrance(place)}"
        )
        stuck = Step((remove,), Progress.WAITING, "LearnerStuck", message.strip(), warning=True)
        return announced(resource.obj, stuck)
    message = f"{place.name} joins: {_standing(seen, place)}"
    return Step(
        (), Progress.WAITING, "Joining", message, warning=bool(_hindrance(place)), requeue=MEMBERSHIP_POLL_SECONDS
    )


def _caught_up(seen: Observed, place: Instance) -> bool:
    ahead = seen.leader.status if seen.leader else None
    return bool(ahead and place.status and place.status.raft_applied >= CAUGHT_UP * ahead.raft_index)


def _standing(seen: Observed, place: Instance) -> str:
    ahead = seen.leader.status if seen.leader else None
    if hindrance := _hindrance(place):
        return hindrance
    if place.status and ahead:
        return f"it has {place.status.raft_applied} of {ahead.raft_index} entries."
    if place.pod is None:
        return "its pod is not there yet."
    return "its server does not answer yet."


def _hindrance(place: Instance) -> str:
    return f"It does not start: {place.pod.trouble}" if place.pod and place.pod.trouble else ""


def _awaited_since(place: Instance) -> datetime | None:
    """Since when a learner could have come: since its pod or its volume was made; None before it has any.

    Without a pod it could not, and would not come sooner if it was added anew.
    """
    made = [obj["metadata"].get("creationTimestamp") for obj in (place.pod_obj, place.volume) if obj]
    return max((datetime.fromisoformat(time) for time in made if time), default=None)
