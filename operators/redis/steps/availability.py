"""Waits until every node serves, and derives the phase of a cluster that is not ready. Pure."""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import NODE_FAILING, WRITES_REFUSED
from operators.redis.state.instance import Instance
from operators.redis.steps.rolling_update import outdated
from operators.redis.steps.scale_down import why_needed
from operators.redis.topology.view_conflicts import brief
from shared.runtime.plan import PASS, Step
from shared.status.health import listed
from shared.status.messages import grouped
from shared.status.phases import CREATING, DEGRADED, FAILED, RUNNING, SCALING, UPGRADING
from shared.status.reasons import IMAGE_PULL_FAILED, NO_REASON, WAKING_UP, Reason
from shared.status.verdict import Progress, Verdict

POLL_SECONDS = 30.0
"""Interval at which a complete cluster is observed: no watch reports roles and replication."""

BUSY_SECONDS = 2.0
"""Interval at which an incomplete cluster is observed if no step sets one."""

MAX_LISTED_ITEMS = 5
"""Maximum number of missing items listed in the status message."""


def await_nodes(seen: Assessment) -> Step:
    """Wait until every node is a member, in sync and ready, and no removed instance is left."""
    missing = _missing(seen)
    if not missing:
        return PASS
    movement = _movement(seen)
    reason = failure(seen) or (DEGRADED if movement in (RUNNING, FAILED) else movement)
    more = len(missing) - MAX_LISTED_ITEMS
    message = " ".join([f"{_count(seen)}.", *missing[:MAX_LISTED_ITEMS], *([f"And {more} more."] if more > 0 else [])])
    warning = reason in (IMAGE_PULL_FAILED, NODE_FAILING, DEGRADED)
    return Step.progressing(reason, message, warning=warning, poll=BUSY_SECONDS)


def failure(seen: Assessment) -> Reason:
    """Return the reason of a pod that fails; empty if none does."""
    failing = [instance.pod for instance in seen.staying if instance.pod and instance.pod.is_failing(seen.now)]
    if any(pod.lacks_image for pod in failing):
        return IMAGE_PULL_FAILED
    return NODE_FAILING if failing else NO_REASON


def report_refused_writes(seen: Assessment) -> Step:
    """Report primaries that refuse all writes: the cluster matches its spec, and yet clients are not served."""
    refusing = seen.refusing_writes
    if not refusing:
        return PASS
    message = (
        f"{listed(refusing)}: refusing writes, because the last write to the log failed "
        "(aof_last_write_status in INFO). Check the space on the volume."
    )
    return Step.progressing(WRITES_REFUSED, message, warning=True, poll=BUSY_SECONDS)


def complete(seen: Assessment) -> bool:
    """Return whether the cluster matches the spec."""
    return not _missing(seen)


def _missing(seen: Assessment) -> list[str]:
    """Return a sentence for each difference between the cluster and the spec."""
    resource = seen.resource
    if not resource.formed:
        return ["The cluster is not created yet."]
    unserved = [f"No node serves {brief(seen.view.unserved)}."] if seen.view.unserved else []
    unfit = {instance.name: why for instance in seen.staying if (why := _why_unfit(seen, instance))}
    extra = {
        instance.name: why_needed(seen, instance) or "is being removed"
        for instance in seen.instances
        if instance.number >= resource.spec.replicas and (instance.pod or instance.volume)
    }
    return unserved + grouped(unfit, resource.spec.replicas) + grouped(extra, len(extra))


def _why_unfit(seen: Assessment, instance: Instance) -> str:
    """Return why a node does not match the spec, as a predicate without a period; empty if it does."""
    if instance.report is None:
        return instance.why_away
    if not serves(seen, instance) and not _is_idle(seen, instance):
        return f"is {'not in sync' if instance.ready else 'not ready'} yet"
    if not seen.view.unserved and any(node.id == instance.id for node in seen.view.refusing):
        return "does not accept commands yet (cluster_state:fail)"  # for 2 s after a primary starts
    if outdated(seen, instance) and seen.resource.spec.rolls:
        return "does not run the current spec yet"
    return ""


def serves(seen: Assessment, instance: Instance) -> bool:
    """Return whether a node serves clients: a ready member that owns slots or is a synced replica.

    A replica whose primary only the operator cannot reach serves as before, unless another node is at that address.
    """
    node = seen.view.nodes.get(instance.id)
    if node is None or not instance.ready or node.report is None or node.report.loading:
        return False
    is_linked = node.connected and not (node.primary_at or node.astray or seen.lost(node.primary))
    return bool(seen.view.slots_of(node.id)) or node.synced or is_linked


def _is_idle(seen: Assessment, instance: Instance) -> bool:
    """Return whether a primary owns no slots because the spec assigns it none (AssignReceive)."""
    by_hand = seen.resource.spec.update_strategy.type == "AssignReceive"
    return by_hand and instance.ready and instance.id in seen.primaries


def _count(seen: Assessment) -> str:
    """Return how many nodes serve."""
    serving = sum(1 for instance in seen.staying if serves(seen, instance))
    return f"{serving} of {seen.resource.spec.replicas} nodes serve, {len(seen.view.primaries)} of them primaries"


def summary(seen: Assessment) -> str:
    """Return the message of a complete cluster."""
    return f"{_count(seen)}."


def phase(seen: Assessment, verdict: Verdict) -> str:
    """Return the phase of the cluster; a paused cluster keeps its phase."""
    if verdict.reason == WRITES_REFUSED:
        return FAILED
    settled = {Progress.DONE: RUNNING, Progress.PAUSED: seen.resource.phase, Progress.BLOCKED: FAILED}
    return settled[verdict.progress] if verdict.progress in settled else _movement(seen)


def _movement(seen: Assessment) -> Reason:
    """Return the phase of an incomplete cluster. Creating, Scaling and Upgrading last until the cluster is complete."""
    resource = seen.resource
    before = resource.phase
    if resource.formed and seen.view.unserved & seen.service.unserved and before != CREATING:
        return FAILED
    if not resource.formed or before == CREATING:
        return CREATING
    if before == UPGRADING or any(outdated(seen, instance) for instance in seen.instances):
        return UPGRADING
    left_over = any(instance.number >= resource.spec.replicas and instance.pod for instance in seen.instances)
    resized = (resource.changed or before == WAKING_UP) and len(seen.view.members) != resource.spec.replicas
    moves = resource.formed and bool(seen.slot_plan.moves)
    return SCALING if before == SCALING or left_over or resized or moves else RUNNING
