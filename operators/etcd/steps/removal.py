"""Members that leave: one whose data is lost is removed, and what a removed member leaves is deleted. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import Remove
from operators.etcd.membership.layout import layout
from operators.etcd.membership.quorum import removal_refusal
from operators.etcd.observe import Observed, endpoints
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress
from shared.steps import volumes


def replace_lost_member(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A member whose data is gone is removed; `grow_by_one` brings it back as a learner.

    It must not come back as the voter it was: it has forgotten what it voted for, and what it told others to have
    stored.
    """
    for place in seen.places:
        if place.member is None or not seen.lost(place):
            continue
        found = (
            f"its disk was {place.recorded}, and now is {place.disk}" if place.recorded != place.disk else "it is empty"
        )
        told = f"{place.name} has lost its data ({found})"
        if refusal := removal_refusal(seen, place.member):
            message = f"{told}. It is not replaced yet: {refusal}."
            return Step((), Progress.WAITING, "ReplacementHeld", message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
        return Step.wait(
            "Replacing",
            f"{told}: it is removed, and joins again with an empty disk.",
            Remove(endpoints(resource, seen), seen.secrets.access, place.member),
        )
    return PASS


def drop_leavings(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Where a member was removed, its pod and then its volume go."""
    if seen.members is None:
        return PASS
    replicas = layout(resource, seen).replicas
    waiting: list[str] = []
    for place in seen.places:
        if place.member is not None or not (place.volume or place.pod_obj):
            continue
        if place.number < replicas:
            if place.vacated or place.volume_leaving:
                actions = volumes.replace_disk(place, in_use=place.member is not None)
                message = f"{place.name} is no member any more: its volume goes, and a new one takes its place."
                return Step.wait("Removing", message, *actions, requeue=None if actions else MEMBERSHIP_POLL_SECONDS)
        elif place.pod_obj is not None:
            waiting.append(place.name)
        elif place.volume and not place.volume_leaving:
            message = f"{place.name} is no member any more: its volume goes."
            return Step.wait("Removing", message, volumes.delete(place.volume, in_use=place.member is not None))
        elif place.volume:
            waiting.append(place.name)
    if waiting:
        return Step.progressing("Removing", f"{', '.join(waiting)}: no member any more, on the way out.")
    return PASS
