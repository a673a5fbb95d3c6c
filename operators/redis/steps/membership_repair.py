"""What nodes cannot mend by themselves: who does not find the others, masters that no election replaces, and who is
gone for good. Pure.

Nothing is concluded from silence. A node's data is gone only by evidence (`Observed.lost`). Who merely does not answer
is waited for, and the nodes' own election replaces a master of whom a majority finds that it does not answer.

Everything here may be old when it is carried out, and may be repeated: each call looks first who is at the address, and
does nothing where it is so already (calls.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import FailOver, Forget, Meet
from operators.redis.client.server import Endpoint
from operators.redis.instance import Instance, endpoint
from operators.redis.observe import Observed
from operators.redis.steps.bootstrap import SOON
from operators.redis.topology.cluster_view import ClusterView, Seen
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

TURNING = 1.5
"""Seconds within which a failover that was asked for has come about, as a rule."""

AGREEING = 1.0
"""Seconds until nodes are asked again whether they agree."""

HELD = 10.0
"""Seconds until a step that is held for something that is away is judged again."""


def await_redis(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """While no node answers though the kubelet finds some ready, it is the way that is cut, not the cluster."""
    ready = [place for place in seen.places if place.ready]
    if not resource.formed or seen.reachable or not ready:
        return PASS
    names, error = ", ".join(place.name for place in ready), next((place.error for place in ready if place.error), "")
    message = (
        f"{names}: ready, says Kubernetes, and yet no node answers the operator{': ' if error else ''}"
        f"{error.rstrip('.')}. Nothing is changed meanwhile. Look whether a NetworkPolicy lets the operator's pods "
        "reach port 6379 of theirs."
    )
    return Step((), Progress.WAITING, "RedisUnreachable", message, warning=True, requeue=HELD)


def refuse_strangers(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A member that is of no pod of ours may be somebody's: it is neither used nor forgotten."""
    if not resource.formed or not seen.unknown_nodes:
        return PASS
    them = ", ".join(f"{stranger.name} ({stranger.id})" for stranger in seen.unknown_nodes)
    return Step.blocked(
        "StrangerInCluster",
        f"The cluster has a member that is of none of its pods: {them}. Somebody added it, or an address was given to "
        "another cluster's pod. Nothing was changed. If nobody needs it, take its slots away and let every node forget "
        "it (CLUSTER FORGET).",
    )


def record_nodes(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Which node is on which disk is written down before anything rests on it: it tells a loss from a silence."""
    if not resource.formed:
        return PASS
    moved = [place for place in seen.places if recorded_node(resource, seen, place) != _as_recorded(place)]
    if not moved:
        return PASS
    names = ", ".join(place.name for place in moved)
    message = f"Which node is on which disk at {names} is written down."
    return Step.wait(meanwhile(resource, "Recording"), message, requeue=0)


def meanwhile(resource: RedisCluster, reason: str) -> str:
    """The reason to tell of what belongs to a greater movement: that one's, for it is no turn in the story."""
    return resource.phase if resource.phase in ("Creating", "Scaling", "Upgrading") else reason


def recorded_node(resource: RedisCluster, seen: Observed, place: Instance) -> tuple[str, str] | None:
    """The node and the disk to write down for a place; None for a place that has none.

    A former node stays written down until no member knows it any more: by that alone its loss is known. A view in which
    masters are missing cannot tell that.
    """
    known = _as_recorded(place)
    if place.said is None:
        vacant = place.pod_obj is None and place.volume is None and place.number >= resource.spec.replicas
        return None if vacant and known and forgotten(resource, seen, known[0]) else known
    if known is None or known[0] == place.id:
        return place.id, place.disk
    return (place.id, place.disk) if forgotten(resource, seen, known[0]) else known


def _as_recorded(place: Instance) -> tuple[str, str] | None:
    return (place.recorded.node_id, place.recorded.disk) if place.recorded else None


def forgotten(resource: RedisCluster, seen: Observed, node_id: str) -> bool:
    """Whether no member knows a node, as far as a majority of masters can tell; before there are any, anybody."""
    view = seen.view
    return node_id not in view.nodes and (not resource.formed or len(view.voters) >= view.majority)


def meet_again(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Members find each other again at their present addresses, by node id, whoever got new ones.

    Nodes look for each other at the addresses that they were last met at. Before anything is forgotten: a node that
    others have forgotten could not tell them where it is.
    """
    if not resource.formed:
        return PASS
    view = seen.view
    members = {
        node.id: seen.reachable[node.id] for node in view.reachable_nodes if _stays(resource, seen.reachable[node.id])
    }
    at = {node_id: place.pod.address for node_id, place in members.items() if place.pod}
    unaware, mistaken = view.missing(at), view.misplaced(at)
    calls = []
    for node_id, address in at.items():
        askers = dict.fromkeys((*unaware.get(node_id, ()), *mistaken.get(node_id, ())))
        via = [asker for asker in askers if asker in members and (asker, address) not in view.being_met]
        if via:
            calls.append(
                Meet(seen.secrets.access, _at(resource, seen, node_id), id=node_id, via=_all_at(resource, seen, via))
            )
    if not calls:
        return PASS
    names = ", ".join(seen.name_of(call.id) for call in calls)
    return Step.wait(
        "Meeting", f"{names}: others look for them elsewhere, and are told where they are.", *calls, requeue=SOON
    )


def _stays(resource: RedisCluster, place: Instance) -> bool:
    """Whether a place is one of those that the spec asks for, and its pod does not go."""
    return place.number < resource.spec.replicas or bool(place.said and place.said.me.slots)


def replace_failed(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A master that has lost its data is replaced by the replica that has most of it.

    Where a majority of masters is there, they vote; so nothing can come of it that they do not agree on. Only where so
    many have lost theirs that the rest is no majority, a replica takes over without a vote: by evidence nobody is left
    who could vote otherwise.
    """
    if not resource.formed:
        return PASS
    view = seen.view
    lost = [master for master in view.masters if seen.lost(master.id)]
    for master in lost:
        heirs = [
            heir
            for heir in view.heirs(master.id)
            if seen.has_data_of(heir.id, master.id) and not seen.reachable[heir.id].leaving
        ]
        if not heirs:
            continue
        told = f"{master.name} has lost its data, and owns {len(view.slots_of(master.id))} slots"
        if awaited := [copy for copy in view.replicas_of(master.id) if not copy.answers and _may_answer(seen, copy)]:
            names = ", ".join(copy.name for copy in awaited)
            message = f"{told}. Before a replica takes its place, {names} may tell how much it has."
            return Step((), Progress.WAITING, "TakingOver", message, warning=True, requeue=SOON)
        remain = len(view.masters) - len(lost)
        mode: Literal["FORCE", "TAKEOVER"] = "FORCE" if remain >= view.majority else "TAKEOVER"
        heir = heirs[0]
        call = FailOver(seen.secrets.access, _at(resource, seen, heir.id), heir.id, mode)
        return Step(
            (call,), Progress.WAITING, "TakingOver", f"{told}: {heir.name} takes its place.", True, requeue=TURNING
        )
    return PASS


def _may_answer(seen: Observed, copy: Seen) -> bool:
    """Whether a silent replica is about to answer: its pod starts, and nothing is wrong with it."""
    place = seen.place_of(copy.id)
    if place is None or place.pod is None or seen.lost(copy.id):
        return False
    return not place.leaving and not place.pod.trouble


def forget_gone(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """A node that never comes back is forgotten, by every member that knows it; so its name stands in nobody's way.

    Never one that owns slots: a replica may yet be elected in its place. Nor one that members replicate, who would
    refuse it, nor one that may hold the only copy of anything.
    """
    if not resource.formed:
        return PASS
    view = seen.view
    gone = [node for node in view.members if _forgettable(resource, seen, node)]
    if not gone:
        return PASS
    # Of a master that is lost, too, a new node never hears what it owned.
    lost = [master.id for master in view.masters if seen.lost(master.id)]
    if told := view.without((*lost, *(node.id for node in gone))).settled:
        names = ", ".join(node.name for node in gone)
        return Step.wait("Forgetting", f"{names} can be forgotten once the others agree. {told}", requeue=SOON)
    calls = [
        Forget(
            seen.secrets.access,
            node.id,
            _all_at(resource, seen, (voice.id for voice in view.reachable_nodes if voice.id in node.told)),
        )
        for node in gone
    ]
    names = ", ".join(node.name for node in gone)
    return Step.wait(
        "Forgetting", f"{names}: gone for good, and holds nothing that counts; all forget it.", *calls, requeue=SOON
    )


def _forgettable(resource: RedisCluster, seen: Observed, node: Seen) -> bool:
    view = seen.view
    if node.answers or view.slots_of(node.id) or view.replicas_of(node.id) or node in view.awaiting_election:
        return False
    return seen.lost(node.id) or (dismissed(resource, seen, node.id) and not needed(view, node.id))


def needed(view: ClusterView, node_id: str) -> bool:
    """Whether keys of slots that are served may be lost with a node: it has them, and nobody else surely has."""
    node = view.nodes.get(node_id)
    if node is None or (node.is_replica and not view.slots_of(node.master)):
        return False
    return view.holds_only_copy(node_id)


def dismissed(resource: RedisCluster, seen: Observed, node_id: str) -> bool:
    """Whether the place of a node was taken away, and its pod is gone: it was let go with nothing that counts."""
    place, stateful_set = seen.place_of(node_id), seen.stateful_set
    if place is None or place.pod_obj is not None or stateful_set is None:
        return False
    return place.number >= max(resource.spec.replicas, int(stateful_set["spec"]["replicas"]))


def await_agreement(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Nothing that could lose data is done while nodes disagree about who is who: gossip needs a second, as a rule."""
    if not resource.formed:
        return PASS
    told = agreement(resource, seen).settled
    if not told:
        return PASS
    message = f"Nodes do not agree yet, and nothing is changed until they do. {told}"
    return Step.wait(meanwhile(resource, "Settling"), message, requeue=AGREEING)


def agreement(resource: RedisCluster, seen: Observed) -> ClusterView:
    """The view of those that count: without who was let go, of whom members learn one by one that it is gone."""
    view = seen.view
    return view.without(
        node.id
        for node in view.members
        if not view.slots_of(node.id) and not node.answers and dismissed(resource, seen, node.id)
    )


def _at(resource: RedisCluster, seen: Observed, node_id: str) -> Endpoint:
    return endpoint(resource, seen.reachable[node_id])


def _all_at(resource: RedisCluster, seen: Observed, ids: Iterable[str]) -> tuple[Endpoint, ...]:
    return tuple(_at(resource, seen, node_id) for node_id in ids)
