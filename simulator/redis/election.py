"""Failure detection, failover and cluster state of `SimulatedRedis`.

Source: clusterCron, clusterHandleSlaveFailover, clusterSendFailoverAuthIfNeeded, clusterUpdateState in cluster.c of
Redis 7.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.redis.atomic_migration import proceed
from simulator.redis.bus import majority, mark_failed_by_majority, meet_again, ping
from simulator.redis.node import ALL, NOADDR, SUSPECTED, Known, Node
from simulator.redis.process import BOOT, Election, Process

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis

PING_TURNS = 4
"""Turns in which every node is pinged once."""

MANUAL_FAILOVER_SECONDS = 5.0
"""Timeout of a manual failover, in seconds."""

PAUSE_SECONDS = 2 * MANUAL_FAILOVER_SECONDS
"""Seconds for which the primary pauses writes for a manual failover."""

REPLICATION_PING_SECONDS = 10.0


def tick(redis: SimulatedRedis, process: Process) -> None:
    """Run the cluster cron of a node once. Redis runs it ten times a second."""
    node = process.node
    if process.rewrites_until and process.rewrites_until <= redis.now:
        process.rewrites_until, node.logged = 0.0, True
    if process.snapshot and process.snapshot[0] <= redis.now:
        (_, node.saved, node.saved_at), node.covered = process.snapshot, True
        process.saved, process.snapshot = redis.now, None
    for known in node.others:
        if known.in_handshake and redis.now - known.last_response > max(process.timeout, 1.0):
            del node.known[known.id]
    if node.banned:
        node.banned = {node_id: until for node_id, until in node.banned.items() if until > redis.now}
    broadcast, process.broadcast_pending = process.broadcast_pending, False
    for index, known in enumerate(node.others):
        if known.id in node.known and (known.in_handshake or broadcast or (redis.turn + index) % PING_TURNS == 0):
            ping(redis, process, known)
    meet_again(redis, process)
    now, timeout = redis.now, process.timeout
    for known in node.others:
        is_overdue = now - known.last_response > timeout and now - known.last_data > timeout
        if is_overdue and NOADDR not in known.flags and not known.in_handshake:
            if not known.unhealthy:
                known.flags.add(SUSPECTED)
            mark_failed_by_majority(redis, process, known)
    run_election(redis, process)
    proceed(redis, process)
    process.serves = is_healthy(redis, process)


def is_healthy(redis: SimulatedRedis, process: Process) -> bool:
    """Whether clients are served (cluster_state:ok)."""
    node = process.node
    if not node.me.primary and redis.now - process.began < BOOT and not process.serves:
        return False
    if process.config("cluster-require-full-coverage") == "yes":
        covered = 0
        for known in node.known.values():
            if known.slots and not known.fails:
                covered |= known.slots
        if covered != ALL:
            return False
    if not has_majority(node):
        process.alone = redis.now
        return False
    rejoining = not node.me.primary and not process.serves  # others may have been elected while it was away
    return not (rejoining and redis.now - process.alone < min(max(process.timeout, 0.5), 5.0))


def has_majority(node: Node) -> bool:
    """Whether a node reaches most of the primaries, without which it serves no client, and no replica is elected."""
    voters = [known for known in node.known.values() if known.votes]
    return sum(not known.unhealthy for known in voters) >= len(voters) // 2 + 1


def run_election(redis: SimulatedRedis, process: Process) -> None:
    """Run the election of a replica whose primary failed, or that received CLUSTER FAILOVER."""
    node, election = process.node, process.election
    if election.manual and election.manual <= redis.now:
        process.election = election = Election()
    lead = node.lead
    if lead is None or not lead.slots:
        return
    if election.manual and not election.forced and not election.caught_up:
        election.caught_up = _caught_up(redis, process, lead)
    by_request = bool(election.manual) and (election.forced or election.caught_up)
    if not by_request and (not lead.fails or not is_electable(redis, process)):
        return
    if not election.at or redis.now - election.at > 4 * process.timeout:
        manual_failover = (election.manual, election.forced, election.caught_up)
        delay = 0.0 if by_request else 0.5 + _rank(process, lead)
        process.election = election = Election(redis.now + delay)
        election.manual, election.forced, election.caught_up = manual_failover
    if redis.now < election.at or redis.now - election.at > 2 * process.timeout:
        return
    if not election.requested:
        node.epoch += 1
        election.requested, election.epoch = True, node.epoch
        for known in node.others:
            if _grants(redis, process, known, lead, forced=by_request):
                election.votes.add(known.id)
    if len(election.votes) >= majority(node):
        redis.take_over(process, election.epoch, f"{process.pod} is elected")


def _caught_up(redis: SimulatedRedis, process: Process, lead: Known) -> bool:
    """Whether a replica has caught up with its primary, which pauses writes for that."""
    primary = redis.peer(process, lead.address, lead.bus)
    if primary is None or primary.node.id != lead.id:
        return False
    primary.paused = max(primary.paused, process.election.manual - MANUAL_FAILOVER_SECONDS + PAUSE_SECONDS)
    redis.replicate(process)
    return process.linked and process.node.offset >= primary.node.offset


def is_electable(redis: SimulatedRedis, process: Process) -> bool:
    """Whether the data of a replica is recent enough for an election (cluster-replica-validity-factor)."""
    factor = int(process.config("cluster-replica-validity-factor"))
    if not factor or process.linked:
        return True
    if process.since is None:
        return False  # never connected since its start
    age = redis.now - process.since
    return min(age, max(age - process.timeout, process.timeout)) <= REPLICATION_PING_SECONDS + factor * process.timeout


def _rank(process: Process, lead: Known) -> int:
    """Return the number of other replicas with a higher known offset."""
    return sum(known.primary == lead.id and known.offset > process.node.offset for known in process.node.others)


def _grants(redis: SimulatedRedis, process: Process, known: Known, lead: Known, *, forced: bool) -> bool:
    """Whether a primary votes for a replica."""
    voter = redis.peer(process, known.address, known.bus)
    if voter is None or voter.node.id != known.id:
        return False
    node = voter.node
    candidate = node.known.get(process.node.id)
    if candidate is None:
        return False
    node.epoch = max(node.epoch, process.node.epoch)
    if not node.me.votes or process.node.epoch < node.epoch or node.voted == node.epoch:
        return False
    failed = node.known.get(candidate.primary)
    if failed is None or not (failed.fails or forced):
        return False
    if redis.now - voter.voted.get(failed.id, -1e9) < 2 * voter.timeout:
        return False
    if any(other.slots & lead.slots and other.epoch > lead.epoch for other in node.known.values()):
        return False
    node.voted = node.epoch
    voter.voted[failed.id] = redis.now
    return True
