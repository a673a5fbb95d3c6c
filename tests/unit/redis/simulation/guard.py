"""What may cost acknowledged writes, or split a cluster, though nobody but the operator did it: each is a violation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.testing.api_server.requests import Aimed, value_at
from shared.testing.harness.scenario import Unsafe
from tests.unit.redis.simulation.node import Node, slot_of
from tests.unit.redis.simulation.process import Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis


@dataclass
class Guard:
    """Watches over every server.

    Attributes:
        violations: what happened that must not, in order.
        formed: names of clusters whose status has told that they are formed.
        confirmed: whether a person allowed to go on without what lost slots held.
        shaken: whether something was done to servers by others than the operator, and all is not well again: what
            asynchronous replication loses meanwhile is nobody's fault.
        asleep: whether nothing is a violation.
        stopping: pods that the operator has ended.
    """

    violations: list[str] = field(default_factory=list)
    formed: set[str] = field(default_factory=set)
    confirmed: bool = False
    shaken: bool = False
    asleep: bool = False
    stopping: set[str] = field(default_factory=set)

    def fail(self, what: str) -> None:
        """Raises Unsafe, and remembers it for those who swallow that."""
        if self.asleep:
            return
        self.violations.append(what)
        raise Unsafe(what)

    # What servers do.

    def began(self, process: Process) -> None:
        self.stopping.discard(process.pod)

    def ended(self, process: Process) -> None:
        """A server is gone, or hangs, or is back."""
        if process.pod not in self.stopping:
            self.shaken = True

    def lost(self, redis: FakeRedis, node: Node) -> None:
        """A disk is gone."""
        if node.id not in redis.given_up:
            self.shaken = True

    def may_join(self, redis: FakeRedis, one: Node, other: Node) -> None:
        """Two nodes meet: they are of one cluster."""
        names = {process.cluster for process in redis.processes.values() if process.node in (one, other)}
        if len(names) > 1:
            self.fail(f"{one.place} and {other.place} meet, and two clusters become one: {' and '.join(sorted(names))}")
        if one.family == other.family:
            return
        families = (one.family, other.family)
        owning = [
            family
            for family in families
            if any(node.family == family and node.me.slots for node in redis.disks.values() if node.id)
        ]
        if len(owning) > 1:
            self.fail(f"{one.place} and {other.place} meet, though each is of a cluster that owns slots")
        for node in redis.disks.values():
            if node.family in families:
                node.family = min(owning or families)

    def may_overwrite(self, redis: FakeRedis, mine: Node, theirs: Node) -> None:
        """A replica throws away what it had, for what its master has."""
        missing = self._only_copies(redis, mine)
        if missing and not self.shaken:
            self.fail(
                f"{mine.place} becomes a copy of {theirs.place}, and {_keys(missing)} that it alone held are gone"
            )

    def inspect(self, redis: FakeRedis, action: str, keys: Iterable[bytes] | None = None) -> None:
        """Whatever was acknowledged can be read where it should be."""
        said = redis.client.acknowledged
        if self.shaken:
            if self._is_calm(redis):
                self.shaken = False
                self._rebase(redis)
            return
        lost = [key for key in (said if keys is None else keys) if key in said and not self._readable(redis, key)]
        if lost:
            self.fail(f"{action}: {_keys(lost)} acknowledged are lost")

    def _readable(self, redis: FakeRedis, key: bytes) -> bool:
        return self._found(redis, key) >= redis.client.acknowledged[key]

    def _found(self, redis: FakeRedis, key: bytes) -> int:
        """What a client would read, if all were told what there is to tell; 0 for nothing."""
        slot = slot_of(key)
        node = redis.node(redis.owner(slot, redis.client.home))
        if node is None:
            return 0
        if key not in node.keys and slot in node.migrating:
            node = redis.node(node.migrating[slot]) or node
        return int(node.keys.get(key, b"0"))

    def _is_calm(self, redis: FakeRedis) -> bool:
        """Whether nothing of what was done to servers is left to be mended."""
        there = redis.running
        return (
            len(there) == len(redis.processes)
            and not redis.lagging
            and not redis.islands
            and all(process.serves and (process.linked or not process.node.me.primary) for process in there)
            and not any(process.election.manual > redis.now for process in there)
            and not self._disputed(there)
            and not any(known.flags for process in there for known in process.node.known.values())
        )

    def _disputed(self, there: Iterable[Process]) -> bool:
        """Whether two servers own the same slot by their own word."""
        owned: dict[str, int] = {}
        for process in there:
            mine, others = process.node.me.slots, owned.get(process.cluster, 0)
            if mine & others:
                return True
            owned[process.cluster] = others | mine
        return False

    def _rebase(self, redis: FakeRedis) -> None:
        """From here on, what there is by now counts."""
        said = redis.client.acknowledged
        for key in said:
            said[key] = self._found(redis, key)

    def _only_copies(self, redis: FakeRedis, node: Node) -> list[bytes]:
        """Acknowledged keys that are on no other disk as new."""
        others = [other for other in redis.disks.values() if other is not node]
        return [
            key
            for key, value in redis.client.acknowledged.items()
            if int(node.keys.get(key, b"0")) >= value
            and all(int(other.keys.get(key, b"0")) < value for other in others)
            and value
        ]

    # What the operator asks servers for.

    def may_replicate(self, redis: FakeRedis, process: Process, primary: str) -> None:
        """Who becomes a replica loses what it had."""
        if process.node.me.primary == primary:
            return
        if missing := self._only_copies(redis, process.node):
            self.fail(f"{process.pod} is made a replica, and it alone holds {_keys(missing)}")

    def may_add(self, redis: FakeRedis, process: Process, slots: int) -> None:
        """Slots are given once; later only by a person's leave."""
        if process.cluster in self.formed and not self.confirmed:
            self.fail(f"{process.pod} is given slots anew, though the cluster is formed, and nobody allowed it")
        for node_id, owned in redis.owners(process.cluster).items():
            if owned & slots and node_id != process.node.id and not self.confirmed:
                self.fail(f"{process.pod} is given slots that {redis.name(node_id)} owns")

    def may_own(self, redis: FakeRedis, process: Process, slot: int, to: str) -> None:
        """A slot goes to another only once all of its keys have."""
        owner = redis.owner(slot, process.cluster)
        if owner in ("", to):
            return
        node = redis.node(owner)
        if node is None:
            if not self.confirmed:
                self.fail(f"slot {slot} of {redis.name(owner)}, which is lost, is given away, and nobody allowed it")
        elif left := node.in_slot(slot):
            self.fail(
                f"{process.pod} hears that slot {slot} is {redis.name(to)}'s, while {redis.name(owner)} holds "
                f"{len(left)} of its keys"
            )

    def may_forget(self, redis: FakeRedis, process: Process, node_id: str) -> None:
        """Nobody is forgotten who owns slots, or holds what nobody else does."""
        owned = redis.owners(process.cluster).get(node_id, 0)
        if owned and not self.confirmed:
            self.fail(f"{process.pod} forgets {redis.name(node_id)}, which owns {owned.bit_count()} slots")
        node = redis.node(node_id)
        if node is None:
            return
        if missing := self._only_copies(redis, node):
            self.fail(f"{process.pod} forgets {redis.name(node_id)}, which alone holds {_keys(missing)}")

    def may_promote(self, redis: FakeRedis, process: Process, mode: str) -> None:
        """Without the master's part in it, a replica takes over only from one that is gone."""
        lead = process.node.lead
        if lead is None or not mode:
            return
        known = redis.node(lead.id)
        for primary in redis.processes.values():  # one that hangs may have what nobody else has
            if primary.node is known and not primary.said:
                self.fail(f"{process.pod} takes over by {mode}, while its master {primary.pod} runs")
        if known is not None and mode == "TAKEOVER" and not self.confirmed:
            self.fail(f"{process.pod} takes over from {known.place}, whose disk is there still, and nobody votes")
        for other in redis.running:
            if other.node.me.primary == lead.id and len(self._newer(redis, other.node, process.node)):
                self.fail(f"{process.pod} takes over by {mode}, though {other.pod} has more")

    def _newer(self, redis: FakeRedis, one: Node, other: Node) -> list[bytes]:
        said = redis.client.acknowledged
        return [key for key in said if int(one.keys.get(key, b"0")) > int(other.keys.get(key, b"0"))]

    def may_reset(self, redis: FakeRedis, process: Process, *, hard: bool) -> None:
        """Only who has nothing, and softly."""
        if hard:
            self.fail(f"{process.pod} is reset hard")
        if process.node.keys or redis.owners(process.cluster).get(process.node.id):
            self.fail(f"{process.pod} is reset, and it has {len(process.node.keys)} keys")

    # What the operator does in Kubernetes.

    def witness(self, redis: FakeRedis, asked: Aimed, live: Obj | None) -> None:
        body, name = asked.request.body or {}, asked.name
        if asked.subresource == "status" and value_at(body, "status.formed"):
            self.formed.add(name)
        if asked.verb == "DELETE" and asked.kind == POD:
            self.may_stop(redis, name, f"the operator deletes pod {name}")
        elif asked.verb == "DELETE" and asked.kind == PERSISTENT_VOLUME_CLAIM and live is not None:
            self.may_destroy(redis, live, f"the operator deletes the volume {name}")
        elif asked.verb == "DELETE" and asked.kind == STATEFUL_SET and live is not None:
            if body.get("propagationPolicy") != "Orphan":
                self.may_shrink(redis, name, 0, f"the operator deletes the StatefulSet {name}")
        elif asked.kind == STATEFUL_SET and value_at(body, "spec.replicas") is not None:
            replicas = value_at(body, "spec.replicas")
            self.may_shrink(redis, name, replicas, f"the operator gives the StatefulSet {name} {replicas} replicas")

    def may_stop(self, redis: FakeRedis, pod: str, action: str) -> None:
        """A master hands over first; and who may be chosen in the place of one that is gone stays."""
        self.stopping.add(pod)
        owners = redis.owners(pod.rpartition("-")[0])
        for process in redis.running:
            if process.pod != pod:
                continue
            owned = owners.get(process.node.id, 0)
            copied = any(known.primary == process.node.id for known in process.node.others)
            if owned and (copied or process.disk == process.uid):
                self.fail(f"{action}, a master that owns {owned.bit_count()} slots and serves")
            primary = redis.node(process.node.me.primary)
            if owners.get(process.node.me.primary) and (primary is None or redis.process_of(primary) is None):
                self.fail(f"{action}, a replica whose master is away")

    def may_shrink(self, redis: FakeRedis, name: str, replicas: int, action: str) -> None:
        """Pods go only after their slots, and what they alone hold."""
        owners = redis.owners(name)
        for process in redis.processes.values():
            stem, _, number = process.pod.rpartition("-")
            if stem != name or int(number) < replicas:
                continue
            self.stopping.add(process.pod)
            if owned := owners.get(process.node.id, 0):
                self.fail(f"{action}: {process.pod} owns {owned.bit_count()} slots")
            if missing := self._only_copies(redis, process.node):
                self.fail(f"{action}: {process.pod} alone holds {_keys(missing)}")

    def may_destroy(self, redis: FakeRedis, claim: Obj, action: str) -> None:
        """Nobody's slots, and no only copy."""
        node = redis.disks.get(claim["metadata"]["uid"])
        if node is None or not node.id:
            return
        redis.given_up.add(node.id)
        if owned := redis.owners(node.cluster).get(node.id, 0):
            self.fail(f"{action}: its node owns {owned.bit_count()} slots")
        if missing := self._only_copies(redis, node):
            self.fail(f"{action}, which alone holds {_keys(missing)}")


def _keys(keys: list[bytes]) -> str:
    return f"{len(keys)} writes ({', '.join(key.decode() for key in keys[:3])})"
