"""Keeps a primary that resumed with an old snapshot from replacing newer copies. Pure.

Without an append-only file, a server that is killed and restarts has its last snapshot. If it is back within the node
timeout, nothing is elected: it resumes as a primary, and its replicas would copy the snapshot over keys that only they
have. A fresh identity, as without persistence (`fresh_identity`), does not serve here: after a restart of all pods,
nodes without an identity would not continue with their snapshots, and each planned restart would need a full sync.

So each process starts with settings that keep its replicas waiting (`redis_conf.DELAYED_SYNC`), and that refuse writes
until a replica is in sync (`redis_conf.AWAITED_REPLICA`): otherwise both would have writes that the other lacks. After
a shutdown its snapshot is complete, the replicas continue (partial resynchronization), and it serves at once. Otherwise
the operator promotes the replica; if none has newer keys, it applies the desired settings (`live_config`). A replica
that lost its link before the snapshot was saved has older ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from operators.redis.client.responses import NodeReport
from operators.redis.facts.assessment import Assessment
from operators.redis.objects.redis_conf import DELAY, DELAYED_SYNC, writes_log
from operators.redis.reasons import TAKING_OVER
from operators.redis.state.instance import Instance
from operators.redis.steps.configuration import live_settings
from operators.redis.steps.failover import may_answer, take_over, unelectable
from operators.redis.steps.waiting import BLOCKED_SECONDS, FAILOVER_SECONDS, GOSSIP_SECONDS
from operators.redis.topology.cluster_view import Seen
from shared.runtime.plan import Step
from shared.steps.view import once


def replace_outdated(seen: Assessment) -> Iterator[Step]:
    """Promote the replica with the newest keys of each primary that resumed with an older snapshot."""
    for primary in seen.view.primaries:
        if awaited := _awaited(seen, primary.id):
            names = ", ".join(copy.name for copy in awaited)
            message = f"{_resumed(seen, primary)}. Waiting for {names}, which may have newer keys."
            yield Step.wait(TAKING_OVER, message, warning=True, requeue=GOSSIP_SECONDS)
        elif newer := _newer(seen, primary.id):
            yield _replace(seen, primary, newer[0])


def _replace(seen: Assessment, primary: Seen, candidate: Seen) -> Step:
    outdated = _resumed(seen, primary)
    call = take_over(seen, candidate.id, "FORCE", resumed=True)
    if why := unelectable(seen, call):
        return Step.wait(TAKING_OVER, f"{outdated}. {why}", warning=True, requeue=BLOCKED_SECONDS)
    message = f"{outdated}, and {candidate.name} has newer keys; {candidate.name} is taking over."
    return Step.wait(TAKING_OVER, message, call, warning=True, requeue=FAILOVER_SECONDS)


def _resumed(seen: Assessment, primary: Seen) -> str:
    file = "append-only file" if _has_log(seen.reachable[primary.id]) else "snapshot"
    return f"{primary.name} restarted with its last {file}"


def may_serve_replicas(seen: Assessment, instance: Instance) -> bool:
    """Return whether no replica would replace data by older or other data, if a node served it.

    A former node stays recorded until no member knows it, so that none replicates it any more.
    """
    known, node = instance.recorded, seen.view.nodes.get(instance.id)
    if known is None or node is None or known.node_id != instance.id or instance.id not in seen.view.cluster:
        return False
    if node.is_replica:  # once it serves replicas, its process counts as one that has all data of its primary
        return node.synced
    return not _awaited(seen, node.id) and not _newer(seen, node.id)


def _newer(seen: Assessment, primary: str) -> Sequence[Seen]:
    """Return replicas that have kept all data of a primary since before it restarted; the most advanced first."""
    if not is_undecided(seen, primary):
        return ()
    found = [
        copy
        for copy in seen.view.replicas_of(primary)
        if copy.report
        and _delay(seen.reachable[copy.id]) not in ("", DELAYED_SYNC[DELAY])  # it had all data (may_serve_replicas)
        and not (copy.report.link_up or copy.report.syncing or copy.report.loading)
        and seen.may_replace(copy.id, primary)
        and not _is_older(copy.report, seen.reachable[primary].report)
    ]
    return sorted(found, key=lambda copy: (seen.reachable[copy.id].leaving, -copy.report.offset if copy.report else 0))


def _is_older(copy: NodeReport, primary: NodeReport | None) -> bool:
    """Return whether a replica lacks writes that the snapshot of its primary has.

    A primary continues the replication history of the snapshot that it loads (loadDataFromDisk in server.c, since Redis
    7.0). Nothing follows from another history, nor from offset 1, which INFO has for a replica that does not know its.
    """
    if primary is None or copy.history != primary.former_history:
        return False
    return 1 < copy.offset < primary.forked_at - 1


def _awaited(seen: Assessment, primary: str) -> Sequence[Seen]:
    """Return unreachable replicas that may have newer keys than a primary, and are about to respond."""
    if not is_undecided(seen, primary):
        return ()
    return [
        copy
        for copy in seen.view.replicas_of(primary)
        if not copy.answers and seen.has_data_of(copy.id, primary) and may_answer(seen, copy)
    ]


def is_undecided(seen: Assessment, primary: str) -> bool:
    """Return whether a primary resumed with its slots and older data, and still has the settings of its start.

    One that started with its log has all its data. The log is not switched on or off before this is decided.
    """
    instance = seen.reachable.get(primary)
    if instance is None or _delay(instance) != DELAYED_SYNC[DELAY] or not seen.view.slots_of(primary):
        return False
    return not (_has_log(instance) and _wrote_logs(seen))


@once
def _wrote_logs(seen: Assessment) -> bool:
    """Return whether servers wrote their append-only files until they ended.

    A client may have switched one off: a server that starts with redis.conf then loads a log that ended earlier.
    """
    desired = live_settings(seen).get("appendonly") == "yes"
    return desired and writes_log(seen.persistence) and all(map(_has_log, seen.reachable.values()))


def _has_log(instance: Instance) -> bool:
    return instance.report is not None and instance.report.settings.get("appendonly") == "yes"


def _delay(instance: Instance) -> str:
    return instance.report.settings.get(DELAY, "") if instance.report else ""
