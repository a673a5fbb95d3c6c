"""Spreads primaries and replicas over hosts and zones, and reports what a better placement still lacks. Pure.

A pod keeps its location while it is away. Nothing is changed while a node is not in sync, or during a rolling update or
a migration (`Assessment.is_at_rest`). A failover moves no data; clients wait for it for some milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from operators.redis.api.status import PlacementAttempt
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import PRIMARIES_TOGETHER, REPLICA_TOGETHER, SPREADING
from operators.redis.slots.improvement import Failover
from operators.redis.slots.placement import SharedLocation, primaries_together, replicas_together
from operators.redis.steps.failover import take_over
from operators.redis.steps.replication import change_primary
from operators.redis.steps.waiting import FAILOVER_SECONDS
from shared.runtime.plan import PASS, Step
from shared.status.health import Finding
from shared.status.reasons import REDUNDANCY_REDUCED, REDUNDANT

STABLE = timedelta(seconds=30)
"""Time without a change of a node's role or readiness before the placement changes, as while hosts are drained."""

ATTEMPT = timedelta(seconds=10)
"""Time in which a requested failover takes effect; each attempt may make clients of the primary wait for 5 s."""

RETRY = timedelta(minutes=10)
"""Time until a failover that had no effect is requested again."""

MAX_LISTED_ITEMS = 3
"""Maximum number of shared hosts and zones in the message of a condition."""


def improve_placement(seen: Assessment) -> Step:
    """Fail over a primary, or let a replica replicate another one, for a better placement; one change at a time."""
    change = seen.improvement
    if change is None:
        return PASS
    if _is_even(seen) and (wait := _unstable(seen)):
        return Step(requeue=wait.total_seconds())
    if not isinstance(change, Failover):
        return change_primary(seen, change.replica, change.primary)
    recorded = attempt(seen)
    primary, replica = seen.name_of(change.primary), seen.name_of(change.replica)
    if recorded != seen.resource.placement_attempt:
        message = f"Recording in status that {replica} is to take over from {primary}."
        return Step.wait(SPREADING, message, requeue=0)
    if recorded is None or seen.now - recorded.since >= ATTEMPT:
        return PASS
    message = f"{replica} is taking over from {primary}, so that fewer primaries share a host or zone."
    return Step.wait(SPREADING, message, take_over(seen, change.replica), requeue=FAILOVER_SECONDS)


def attempt(seen: Assessment) -> PlacementAttempt | None:
    """Return the attempt to record in the status, before the failover is requested."""
    change, known = seen.improvement, seen.resource.placement_attempt
    if not isinstance(change, Failover) or (_is_even(seen) and _unstable(seen)):
        return None
    same = known is not None and (known.source, known.target) == (change.primary, change.replica)
    if known is not None and same and seen.now - known.since < RETRY:
        return known
    return PlacementAttempt(change.primary, change.replica, seen.now.replace(microsecond=0))


def _unstable(seen: Assessment) -> timedelta:
    """Return the time until all roles have been stable for long enough; zero if they have."""
    changes = [instance.recorded.since for instance in seen.staying if instance.recorded and instance.recorded.since]
    latest = max(changes, default=None)
    return max(latest + STABLE - seen.now, timedelta()) if latest else timedelta()


def _is_even(seen: Assessment) -> bool:
    """Return whether each primary has its share of replicas; if not, a change of replicas may be half done."""
    loads = [len(replicas) for replicas in seen.shards.values()]
    return not loads or min(loads) >= sum(loads) // len(loads)


# The condition.


def degraded(seen: Assessment) -> Finding:
    """Return the condition Degraded of a cluster with a reachable node."""
    pairs = {replica: primary for primary, replicas in seen.shards.items() for replica in replicas}
    together = [location for location in replicas_together(pairs, seen.locations) if location.kind == "host"]
    crowded = list(primaries_together(tuple(seen.shards), seen.locations))
    zones = [location for location in replicas_together(pairs, seen.locations) if location.kind == "zone"]
    lacking = _lacking(seen)
    found = (  # the first reason counts: alerts about a missing copy are sooner due than those about a placement
        (REDUNDANCY_REDUCED, lacking),
        (PRIMARIES_TOGETHER, [_crowd(seen, location) for location in crowded]),
        (REPLICA_TOGETHER, [_copies(seen, location) for location in (*together, *zones)]),
    )
    problems = [(reason, sentences) for reason, sentences in found if sentences]
    if not problems:
        return Finding(False, REDUNDANT, "Each primary has its replicas in sync, on other hosts.")
    sentences = [sentence for _, some in problems for sentence in _listed(some)]
    if problems[-1][0] != REDUNDANCY_REDUCED:
        sentences.append(_remedy(seen))
    return Finding(True, problems[0][0], " ".join(sentences))


def _lacking(seen: Assessment) -> list[str]:
    """Return a sentence for each primary with fewer replicas in sync than the spec requests."""
    requested, view = seen.resource.spec.replicas_per_master, seen.view
    return [
        f"{primary.name} has {count} of {requested} replicas in sync."
        for primary in view.primaries
        if (count := sum(replica.synced for replica in view.replicas_of(primary.id))) < requested
    ]


def _crowd(seen: Assessment, location: SharedLocation) -> str:
    names = ", ".join(seen.name_of(node) for node in location.nodes)
    return (
        f"{len(location.nodes)} of {len(seen.shards)} primaries ({names}) run on {location.kind} {location.name}: its "
        "loss would stop the whole cluster, because no majority of primaries would be left."
    )


def _copies(seen: Assessment, location: SharedLocation) -> str:
    primary, replica = (seen.name_of(node) for node in location.nodes)
    return f"{replica} runs on the same {location.kind} ({location.name}) as its primary {primary}."


def _remedy(seen: Assessment) -> str:
    change = seen.improvement
    if isinstance(change, Failover):
        return f"The operator lets {seen.name_of(change.replica)} take over from {seen.name_of(change.primary)}."
    if change is not None:
        return f"The operator lets {seen.name_of(change.replica)} replicate {seen.name_of(change.primary)}."
    if not seen.is_at_rest:
        return "The operator improves this once all nodes are in sync and no other change is in progress."
    return (
        "The present pods allow no better placement: add Kubernetes nodes, or spread the pods with "
        "spec.topologySpread and delete pods that share a host, one at a time, so that they are scheduled again."
    )


def _listed(sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - MAX_LISTED_ITEMS
    return [*sentences[:MAX_LISTED_ITEMS], *([f"And {more} more."] if more > 0 else [])]
