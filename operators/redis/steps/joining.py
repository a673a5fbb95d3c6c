"""Makes new, empty nodes members of the cluster. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.commands import Meet
from operators.redis.instance import Instance, endpoint
from operators.redis.lifecycles import NODE, NodeEvent
from operators.redis.reasons import JOINING, NODE_NOT_EMPTY
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS
from shared.runtime.plan import PASS, Step


def join_nodes(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Make new nodes members, once it is recorded which nodes they are (`record_nodes`)."""
    if not resource.formed or not seen.view.masters:
        return PASS
    new = [place for place in seen.awaited if place.said and _is_recorded(place) and not place.leaving]
    if full := next((place for place in new if not place.is_blank), None):
        return _refuse(full)
    return _meet(resource, seen, new) if new else PASS


def _is_recorded(place: Instance) -> bool:
    return place.recorded is not None and place.recorded.node_id == place.id


def _refuse(place: Instance) -> Step:
    """A node with data of its own is neither joined nor emptied."""
    assert place.said is not None
    message = (
        f"{place.name} is no member of the cluster, and holds {place.said.keys} keys: it is neither joined nor "
        "emptied. If nobody needs them, delete its volume claim and its pod: an empty one takes its place."
    )
    return Step.wait(NODE_NOT_EMPTY, message, warning=True, requeue=BLOCKED_SECONDS)


def _meet(resource: RedisCluster, seen: Assessment, new: list[Instance]) -> Step:
    """Let all members meet the new nodes, except those whose address a member is meeting already."""
    for place in new:
        NODE.after(seen.node_state(place.id), NodeEvent.MEET)
    via = tuple(seen.at(voice.id) for voice in seen.view.reachable_nodes)
    met = {address for _, address in seen.view.being_met}
    calls = [
        Meet(seen.secrets.access, endpoint(resource, place), id=place.id, via=via)
        for place in new
        if place.pod and place.pod.address not in met
    ]
    names = ", ".join(place.name for place in new)
    return Step.wait(JOINING, f"New nodes join, which are empty: {names}.", *calls, requeue=GOSSIP_SECONDS)
