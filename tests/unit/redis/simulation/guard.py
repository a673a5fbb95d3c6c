"""Detection of operations by the operator that may lose acknowledged writes or split a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.testing.api_server.requests import TargetedRequest, value_at
from shared.testing.harness.scenario import Unsafe
from tests.unit.redis.simulation.node import Node, slot_of
from tests.unit.redis.simulation.process import Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis


@dataclass
class Guard:
    """Checks every operation on servers and Kubernetes objects.

    Attributes:
        violations: unsafe operations so far, in order.
        formed: names of clusters whose status reports that they are formed.
        confirmed: whether the user allowed the recovery without the data of lost slots.
        disturbed: whether servers failed without the operator's doing, and have not all recovered. Until then, losses
            by asynchronous replication are no violation.
        disabled: whether nothing is a violation.
        stopping: pods that the operator stopped.
    """

    violations: list[str] = field(default_factory=list)
    formed: set[str] = field(default_factory=set)
    confirmed: bool = False
    disturbed: bool = False
    disabled: bool = False
    stopping: set[str] = field(default_factory=set)

    def fail(self, what: str) -> None:
        """Record a violation and raise Unsafe; the record survives callers that catch the exception."""
        if self.disabled:
            return
        self.violations.append(what)
        raise Unsafe(what)

    # Events of servers.

    def began(self, process: Process) -> None:
        self.stopping.discard(process.pod)

    def ended(self, process: Process) -> None:
        """Record that a server ended, hangs or resumed."""
        if process.pod not in self.stopping:
            self.disturbed = True

    def lost(self, redis: FakeRedis, node: Node) -> None:
        """Record that a disk was deleted."""
        if node.id not in redis.given_up:
            self.disturbed = True

    def may_join(self, redis: FakeRedis, one: Node, other: Node) -> None:
        """Check that two nodes that meet belong to one cluster."""
        names = {process.cluster for process in redis.processes.values() if process.node in (one, other)}
        if len(names) > 1:
            self.fail(f"{one.name} and {other.name} meet, which merges two clusters: {' and '.join(sorted(names))}")
        if one.family == other.family:
            return
        families = (one.family, other.family)
        owning = [
            family
            for family in families
            if any(node.family == family and node.me.slots for node in redis.disks.values() if node.id)
        ]
        if len(owning) > 1:
            self.fail(f"{one.name} and {other.name} meet, though each is of a cluster that owns slots")
        for node in redis.disks.values():
            if node.family in families:
                node.family = min(owning or families)

    def may_overwrite(self, redis: FakeRedis, replica: Node, primary: Node) -> None:
        """Check that a full resync discards no only copy."""
        missing = self._only_copies(redis, replica)
        if missing and not self.disturbed:
            self.fail(f"{replica.name} replicates {primary.name}, which discards the only copy of {_keys(missing)}")

    def inspect(self, redis: FakeRedis, action: str, keys: Iterable[bytes] | None = None) -> None:
        """Check that acknowledged writes can be read from the owner of their slot."""
        acknowledged = redis.client.acknowledged
        if self.disturbed:
            if self._is_healthy(redis):
                self.disturbed = False
                self._rebase(redis)
            return
        lost = [
            key
            for key in (acknowledged if keys is None else keys)
            if key in acknowledged and not self._readable(redis, key)
        ]
        if lost:
            self.fail(f"{action}: acknowledged writes are lost: {_keys(lost)}")

    def _readable(self, redis: FakeRedis, key: bytes) -> bool:
        return self._found(redis, key) >= redis.client.acknowledged[key]

    def _found(self, redis: FakeRedis, key: bytes) -> int:
        """Return the value that a client reads once all views have converged; 0 if there is none."""
        slot = slot_of(key)
        node = redis.node(redis.owner(slot, redis.client.home))
        if node is None:
            return 0
        if key not in node.keys and slot in node.migrating:
            node = redis.node(node.migrating[slot]) or node
        return int(node.keys.get(key, b"0"))

    def _is_healthy(self, redis: FakeRedis) -> bool:
        """Whether all servers have recovered."""
        running = redis.running
        return (
            len(running) == len(redis.processes)
            and not redis.lagging
            and not redis.partitions
            and all(process.serves and (process.linked or not process.node.me.primary) for process in running)
            and not any(process.election.manual > redis.now for process in running)
            and not self._disputed(running)
            and not any(known.flags for process in running for known in process.node.known.values())
        )

    def _disputed(self, running: Iterable[Process]) -> bool:
        """Whether two servers claim the same slot."""
        owned: dict[str, int] = {}
        for process in running:
            mine, others = process.node.me.slots, owned.get(process.cluster, 0)
            if mine & others:
                return True
            owned[process.cluster] = others | mine
        return False

    def _rebase(self, redis: FakeRedis) -> None:
        """Accept the current values as the acknowledged ones."""
        acknowledged = redis.client.acknowledged
        for key in acknowledged:
            acknowledged[key] = self._found(redis, key)

    def _only_copies(self, redis: FakeRedis, node: Node) -> list[bytes]:
        """Return the acknowledged keys of which no other disk has a value as recent."""
        others = [other for other in redis.disks.values() if other is not node]
        return [
            key
            for key, value in redis.client.acknowledged.items()
            if int(node.keys.get(key, b"0")) >= value
            and all(int(other.keys.get(key, b"0")) < value for other in others)
            and value
        ]

    # Commands of the operator.

    def may_replicate(self, redis: FakeRedis, process: Process, primary: str) -> None:
        """Check that a node that becomes a replica has no only copy."""
        if process.node.me.primary == primary:
            return
        if missing := self._only_copies(redis, process.node):
            self.fail(f"{process.pod} becomes a replica and discards the only copy of {_keys(missing)}")

    def may_add(self, redis: FakeRedis, process: Process, slots: int) -> None:
        """Check that slots are assigned once, and again only with the user's consent."""
        if process.cluster in self.formed and not self.confirmed:
            self.fail(f"{process.pod} is assigned slots again without consent, though the cluster is formed")
        for node_id, owned in redis.owners(process.cluster).items():
            if owned & slots and node_id != process.node.id and not self.confirmed:
                self.fail(f"{process.pod} is assigned slots that {redis.name(node_id)} owns")

    def may_own(self, redis: FakeRedis, process: Process, slot: int, to: str) -> None:
        """Check that a slot changes its owner only after all of its keys moved."""
        owner = redis.owner(slot, process.cluster)
        if owner in ("", to):
            return
        node = redis.node(owner)
        if node is None:
            if not self.confirmed:
                self.fail(f"slot {slot} of {redis.name(owner)}, which is lost, is reassigned without consent")
        elif left := node.in_slot(slot):
            self.fail(
                f"{process.pod} sets the owner of slot {slot} to {redis.name(to)}, while {redis.name(owner)} has "
                f"{len(left)} of its keys"
            )

    def may_forget(self, redis: FakeRedis, process: Process, node_id: str) -> None:
        """Check that a node that is forgotten owns no slots and has no only copy."""
        owned = redis.owners(process.cluster).get(node_id, 0)
        if owned and not self.confirmed:
            self.fail(f"{process.pod} forgets {redis.name(node_id)}, which owns {owned.bit_count()} slots")
        node = redis.node(node_id)
        if node is None:
            return
        if missing := self._only_copies(redis, node):
            self.fail(f"{process.pod} forgets {redis.name(node_id)}, which has the only copy of {_keys(missing)}")

    def may_promote(self, redis: FakeRedis, process: Process, mode: str) -> None:
        """Check that FORCE and TAKEOVER replace only a primary that no longer runs."""
        lead = process.node.lead
        if lead is None or not mode:
            return
        known = redis.node(lead.id)
        for primary in redis.processes.values():  # a hanging primary may have the newest writes
            if primary.node is known and not primary.exit_message:
                self.fail(f"{process.pod} takes over by {mode}, while its primary {primary.pod} runs")
        if known is not None and mode == "TAKEOVER" and not self.confirmed:
            self.fail(f"{process.pod} takes over without an election from {known.name}, whose disk still exists")
        for other in redis.running:
            if other.node.me.primary == lead.id and len(self._newer(redis, other.node, process.node)):
                self.fail(f"{process.pod} takes over by {mode}, though {other.pod} has newer writes")

    def _newer(self, redis: FakeRedis, one: Node, other: Node) -> list[bytes]:
        acknowledged = redis.client.acknowledged
        return [key for key in acknowledged if int(one.keys.get(key, b"0")) > int(other.keys.get(key, b"0"))]

    def may_reset(self, redis: FakeRedis, process: Process, *, hard: bool) -> None:
        """Check that only a node without keys and slots is reset, and not hard."""
        if hard:
            self.fail(f"{process.pod} is reset hard")
        if process.node.keys or redis.owners(process.cluster).get(process.node.id):
            self.fail(f"{process.pod} is reset with {len(process.node.keys)} keys")

    # Writes of the operator to Kubernetes.

    def check_write(self, redis: FakeRedis, target: TargetedRequest, live: Obj | None) -> None:
        body, name = target.request.body or {}, target.name
        if target.subresource == "status" and value_at(body, "status.formed"):
            self.formed.add(name)
        if target.verb == "DELETE" and target.kind == POD:
            self.may_stop(redis, name, f"the operator deletes pod {name}")
        elif target.verb == "DELETE" and target.kind == PERSISTENT_VOLUME_CLAIM and live is not None:
            self.may_destroy(redis, live, f"the operator deletes the volume {name}")
        elif target.verb == "DELETE" and target.kind == STATEFUL_SET and live is not None:
            if body.get("propagationPolicy") != "Orphan":
                self.may_shrink(redis, name, 0, f"the operator deletes the StatefulSet {name}")
        elif target.kind == STATEFUL_SET and value_at(body, "spec.replicas") is not None:
            replicas = value_at(body, "spec.replicas")
            self.may_shrink(redis, name, replicas, f"the operator scales the StatefulSet {name} to {replicas} replicas")

    def may_stop(self, redis: FakeRedis, pod: str, action: str) -> None:
        """Check that a primary hands over before it stops, and that a candidate for a failed primary keeps running."""
        self.stopping.add(pod)
        owners = redis.owners(pod.rpartition("-")[0])
        for process in redis.running:
            if process.pod != pod:
                continue
            owned = owners.get(process.node.id, 0)
            copied = any(known.primary == process.node.id for known in process.node.others)
            if owned and (copied or process.disk == process.uid):
                self.fail(f"{action}, a primary that owns {owned.bit_count()} slots and serves")
            primary = redis.node(process.node.me.primary)
            if owners.get(process.node.me.primary) and (primary is None or redis.process_of(primary) is None):
                self.fail(f"{action}, a replica whose primary is unreachable")

    def may_shrink(self, redis: FakeRedis, name: str, replicas: int, action: str) -> None:
        """Check that pods are deleted only after their slots and only copies moved."""
        owners = redis.owners(name)
        for process in redis.processes.values():
            stem, _, number = process.pod.rpartition("-")
            if stem != name or int(number) < replicas:
                continue
            self.stopping.add(process.pod)
            if owned := owners.get(process.node.id, 0):
                self.fail(f"{action}: {process.pod} owns {owned.bit_count()} slots")
            if missing := self._only_copies(redis, process.node):
                self.fail(f"{action}: {process.pod} has the only copy of {_keys(missing)}")

    def may_destroy(self, redis: FakeRedis, claim: Obj, action: str) -> None:
        """Check that the node of a deleted volume owns no slots and has no only copy."""
        node = redis.disks.get(claim["metadata"]["uid"])
        if node is None or not node.id:
            return
        redis.given_up.add(node.id)
        if owned := redis.owners(node.cluster).get(node.id, 0):
            self.fail(f"{action}: its node owns {owned.bit_count()} slots")
        if missing := self._only_copies(redis, node):
            self.fail(f"{action}, which has the only copy of {_keys(missing)}")


def _keys(keys: list[bytes]) -> str:
    return f"{len(keys)} writes ({', '.join(key.decode() for key in keys[:3])})"
