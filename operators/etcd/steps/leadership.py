"""Moving the leadership to another member. Pure."""

from __future__ import annotations

from operators.etcd import observe
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import MoveLeader
from operators.etcd.observe import Instance, Observed
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.runtime.plan import Step
from shared.status.verdict import Progress


def hand_over(resource: EtcdCluster, seen: Observed, leader: Instance, reason: str, why: str) -> Step:
    """The leadership moves to the lowest healthy voter that stays; only the leader itself can be asked."""
    others = [place for place in seen.healthy_voters if place is not leader]
    if not others:
        message = f"{why}, and there is nobody to lead instead."
        return Step((), Progress.WAITING, reason, message, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    to = min(others, key=lambda place: place.number)
    assert to.member is not None
    call = MoveLeader((observe.endpoint(resource, leader),), seen.secrets.access, to.member)
    return Step.wait(reason, f"{why}: {to.name} takes the lead.", call, requeue=MEMBERSHIP_POLL_SECONDS)
