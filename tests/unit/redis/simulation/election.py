"""How nodes of `FakeRedis` find out who fails, who follows, and whether the cluster is well.

Source: clusterCron, clusterHandleSlaveFailover, clusterSendFailoverAuthIfNeeded, clusterUpdateState in cluster.c of
Redis 7.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.redis.simulation.atomic_migration import proceed
from tests.unit.redis.simulation.bus import condemn, converse, majority
from tests.unit.redis.simulation.node import ALL, NOADDR, SUSPECTED, Known
from tests.unit.redis.simulation.process import BOOT, Election, Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis

EVERY = 4
"""Turns in which everybody is pinged once."""

MANUAL = 5.0
"""Seconds within which a failover that somebody asked for must come about."""

PAUSE = 2 * MANUAL
"""Seconds for which a master waits for it."""

REPLICATION_PING = 10.0


def live(redis: FakeRedis, process: Process) -> None:
    """What a node does by itself, ten times a second in truth."""
    node = process.node
    for known in node.others:
        if known.shakes and redis.now - known.heard > max(process.timeout, 1.0):
            del node.known[known.id]
    node.banned = {node_id: until for node_id, until in node.banned.items() if until > redis.now}
    news, process.news = process.news, False
    for place, known in enumerate(node.others):
        if known.id in node.known and (known.shakes or news or (redis.turn + place) % EVERY == 0):
            converse(redis, process, known)
    for known in node.others:
        if not known.flags & {NOADDR} and not known.shakes and redis.now - known.heard > process.timeout:
            if not known.doubted:
                known.flags.add(SUSPECTED)
            condemn(redis, process, known)
    stand(redis, process)
    proceed(redis, process)
    process.serves = is_well(redis, process)


def is_well(redis: FakeRedis, process: Process) -> bool:
    """Whether clients are served (cluster_state:ok)."""
    node = process.node
    if not node.me.primary and redis.now - process.began < BOOT and not process.serves:
        return False
    if process.says("cluster-require-full-coverage") == "yes":
        covered = 0
        for known in node.known.values():
            covered |= 0 if known.fails else known.slots
        if covered != ALL:
            return False
    there = sum(known.votes and not known.doubted for known in node.known.values())
    if there < majority(node):
        process.alone = redis.now
        return False
    waits = not node.me.primary and not process.serves  # others may have been chosen while it was away
    return not (waits and redis.now - process.alone < min(max(process.timeout, 0.5), 5.0))


def stand(redis: FakeRedis, process: Process) -> None:
    """A replica whose master fails, or that was asked to, wants to become master."""
    node, election = process.node, process.election
    if election.manual and election.manual <= redis.now:
        process.election = election = Election()
    lead = node.lead
    if lead is None or not lead.slots:
        return
    if election.manual and not election.forced and not election.caught_up:
        election.caught_up = _caught_up(redis, process, lead)
    asked = bool(election.manual) and (election.forced or election.caught_up)
    if not asked and (not lead.fails or not _fresh(redis, process)):
        return
    if not election.at or redis.now - election.at > 4 * process.timeout:
        kept = (election.manual, election.forced, election.caught_up)
        delay = 0.0 if asked else 0.5 + _rank(process, lead)
        process.election = election = Election(redis.now + delay)
        election.manual, election.forced, election.caught_up = kept
    if redis.now < election.at or redis.now - election.at > 2 * process.timeout:
        return
    if not election.asked:
        node.epoch += 1
        election.asked, election.epoch = True, node.epoch
        for known in node.others:
            if _grants(redis, process, known, lead, forced=asked):
                election.votes.add(known.id)
    if len(election.votes) >= majority(node):
        redis.take_over(process, election.epoch, f"{process.pod} is elected")


def _caught_up(redis: FakeRedis, process: Process, lead: Known) -> bool:
    """Whether a replica holds what its master has, which stops to take writes for that."""
    primary = redis.reached(process, lead.address, lead.port)
    if primary is None or primary.node.id != lead.id:
        return False
    primary.paused = max(primary.paused, process.election.manual - MANUAL + PAUSE)
    redis.replicate(process)
    return process.linked and process.node.offset >= primary.node.offset


def _fresh(redis: FakeRedis, process: Process) -> bool:
    """Whether its data is young enough to be let."""
    factor = int(process.says("cluster-replica-validity-factor"))
    if not factor or process.linked:
        return True
    if process.since is None:
        return False  # it never was connected, since its start
    age = redis.now - process.since
    return min(age, max(age - process.timeout, process.timeout)) <= REPLICATION_PING + factor * process.timeout


def _rank(process: Process, lead: Known) -> int:
    """How many other replicas hold more, as far as it knows."""
    return sum(known.primary == lead.id and known.offset > process.node.offset for known in process.node.others)


def _grants(redis: FakeRedis, process: Process, known: Known, lead: Known, *, forced: bool) -> bool:
    """Whether a master gives a replica its vote."""
    voter = redis.reached(process, known.address, known.port)
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
