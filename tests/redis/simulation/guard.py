"""Detection of operations that may lose acknowledged writes or split a cluster, and the judge of every key.

`ledger` defines the states that clients may find; here are the events that extend a budget, and the checks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING

from operators.redis.api.resource import API
from operators.redis.objects.names import CLUSTER_UID
from shared.kubernetes.accessors import label
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.steps import hibernation
from simulator.api_server.requests import TargetedRequest, value_at
from simulator.redis.client import Entry
from simulator.redis.election import REPLICATION_PING_SECONDS, has_majority, is_electable
from simulator.redis.invariants import Invariants
from simulator.redis.node import ALL, Node, slot_of
from simulator.redis.process import BOOT, Process
from tests.harness.scenario import Unsafe
from tests.redis.simulation.ledger import Branch, Record, State, alive
from tests.support.hibernating import Hibernations, is_requested

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis


@dataclass(frozen=True)
class Loss:
    """A loss that the user allowed with one token.

    Attributes:
        slots: mask of the slots whose keys may be given up.
        older: ids of the nodes whose older keys may be served instead.
    """

    slots: int
    older: frozenset[str] = frozenset()


@dataclass
class Guard(Invariants):
    """Checks every operation on servers and Kubernetes objects, and every key after every event.

    A key is judged as soon as its slot has an owner that serves clients. Meanwhile some disk must have it.

    Attributes:
        violations: unsafe operations so far, in order.
        formed: names of clusters whose status reports that they are formed.
        agreed: losses that the user allowed, by token. The consent to a loss ends with it: when the owner of a slot
            runs, with its keys, or without them after the recovery. A spec confirms one token: another one withdraws
            the first.
        user_failovers: whether a user triggered a failover at the same time as other changes. Redis itself may lose
            writes then (`test_random_worlds.fails_over`).
        may_split: whether servers that have restarted and the others may reject each other's certificates: the keys of
            the authority that running servers trust are lost.
        disabled: whether nothing is a violation.
        records: acknowledged states, by key.
        lowered: keys whose budget of allowed loss is not used up.
        unconfirmed: keys that moved to a node and that no replica of it has yet, by node id: each batch of commands
            with its keys. Only those of the last batch may be lost with the node: the operator waits for a replica
            (WAIT) after each batch.
        readopted: ids of nodes that have all keys of an owner that no longer exists, and so may become the owner.
        copies: id of the primary that each replica was in sync with last. A node that becomes a primary is no copy.
        linked: time at which each replica was last connected to that primary, by node id.
        served: time of the last write that a client got acknowledged, by the id of the node that served it.
        replaced: pod of each node whose disk was replaced while its pod kept its address, by node id.
        deposed: time at which a replica was elected instead of a running primary, by the id of the primary: it learns
            that with the next tick, and what clients write to it until then is lost.
        hibernations: records of the hibernations that the operator has begun.
    """

    violations: list[str] = field(default_factory=list)
    formed: set[str] = field(default_factory=set)
    agreed: dict[str, Loss] = field(default_factory=dict)
    user_failovers: bool = False
    may_split: bool = False
    disabled: bool = False
    records: dict[bytes, Record] = field(default_factory=dict)
    lowered: set[bytes] = field(default_factory=set)
    unconfirmed: dict[str, dict[int, set[bytes]]] = field(default_factory=dict)
    readopted: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)
    linked: dict[str, float] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    deposed: dict[str, float] = field(default_factory=dict)
    hibernations: Hibernations = field(default_factory=Hibernations)

    def fail(self, what: str) -> None:
        """Record a violation and raise Unsafe; the record survives callers that catch the exception."""
        if self.disabled:
            return
        self.violations.append(what)
        raise Unsafe(what)

    def rejected(self, one: str, other: str) -> None:
        """Require that every handshake between servers of a cluster succeeds."""
        if not self.may_split:
            self.fail(f"{one} and {other} reject each other's certificates")

    # Events of servers.

    def ended(self, redis: SimulatedRedis, process: Process) -> None:
        """Extend the budget by what is lost with a process that ends or hangs."""
        node, had = process.node, process.node.keys
        if not process.persistent and not process.hangs:
            node.keys = dict(node.saved) if process.saves else {}
        self._extend(redis, node, had, _candidates(redis, process))

    def ends_log(self, redis: SimulatedRedis, process: Process) -> None:
        """Require a snapshot from a server that switches its log off, unless its user wants no file at all."""
        if not process.node.covered and any(spec.get("save") != "" for spec in _configs(redis, process)):
            self.fail(f"{process.pod} switches its log off, and has no snapshot of its data")

    def unloaded(
        self, redis: SimulatedRedis, process: Process, had: Mapping[bytes, Entry], *, is_covered: bool
    ) -> None:
        """Extend the budget by what a server does not load from its disk, if its user has switched the log off.

        A server that begins a log ignores its snapshot (loadDataFromDisk in server.c), which no user wants; nor that it
        ignores a log of which it has no snapshot.

        Args:
            is_covered: whether its disk has no log, or also a snapshot that may replace it.
        """
        if process.persistent:
            self.fail(f"{process.pod} starts without the keys on its disk: it begins a log, which hides its snapshot")
        if not all(spec.get("appendonly") == "no" for spec in _configs(redis, process)):
            self.fail(f"{process.pod} starts without the keys on its disk, though its spec has a log")
        if not is_covered:
            self.fail(f"{process.pod} starts without the keys in its log, of which it has no snapshot")
        self._extend(redis, process.node, had, _candidates(redis, process))

    def takes_over(self, redis: SimulatedRedis, successor: Process) -> None:
        """Extend the budget by what a primary has that was cut off when its replica was elected."""
        lead, election = successor.node.lead, successor.election
        primary = redis.node(lead.id) if lead else None
        self.copies.pop(successor.node.id, None)
        coordinated = election.caught_up and not election.forced
        if primary is not None and redis.process_of(primary) is not None and not coordinated:
            self._extend(redis, primary, primary.keys, [successor.node])
            self.deposed[primary.id] = redis.now

    def outbid(self, redis: SimulatedRedis, node: Node) -> None:
        """Extend the budget by what a primary has that loses its slots to a newer claim, after a user's failover."""
        if self.user_failovers:
            self._extend(redis, node, node.keys, _disks(redis, node))

    def lost(self, redis: SimulatedRedis, node: Node) -> None:
        """Extend the budget by what is lost with a disk, which is deleted already."""
        self._extend(redis, node, node.keys, [], deleted=True)

    def rolled_back(self, redis: SimulatedRedis, node: Node, had: Mapping[bytes, Entry]) -> None:
        """Extend the budget by what a disk no longer has of the slots that its node owns. It is no copy any more."""
        self.copies.pop(node.id, None)
        self._extend(redis, node, had, [node])

    def _extend(
        self,
        redis: SimulatedRedis,
        node: Node,
        had: Mapping[bytes, Entry],
        copies: list[Node],
        *,
        deleted: bool = False,
    ) -> None:
        """Extend the budgets of the keys that clients find at a node, down to the newest of some copies.

        Args:
            had: keys of the node before.
            copies: nodes that may serve the keys from now on; without any, all other disks, and that of the node.
                A node of another shard that lacks a key has not deleted it, if a disk of this shard is left. A snapshot
                of a disk that no pod of the cluster uses keeps nothing.
            deleted: whether the node's disk no longer exists.
        """
        if self.disabled:
            return
        exposed: set[bytes] = set()
        for keys in list(self.unconfirmed.get(node.id, {}).values())[:-1]:
            exposed |= keys
        owned = redis.owners(node.cluster).get(node.id, 0)
        everywhere = [each for each in _disks(redis, node) if each.cluster == node.cluster]
        if not deleted:
            everywhere.insert(0, node)
        shard = [each for each in everywhere if each is node or self._is_copy(each, node)]
        for key, record in self.records.items():
            slot = slot_of(key)
            if key in exposed:
                continue
            if owned >> slot & 1 and slot in node.migrating and self._is_kept(redis, key, node.migrating[slot]):
                record.revived |= {copy.keys[key].number for copy in copies if key in copy.keys}
            elif owned >> slot & 1 or (slot in node.importing and not self._is_at_owner(redis, key, node)):
                self._lower(
                    redis,
                    key,
                    copies or [each for each in everywhere if not shard or each in shard or key in each.keys],
                )
            elif key in had and not any(self._holds(redis, key, other) for other in everywhere):
                self._lower(redis, key, everywhere)

    def _is_copy(self, node: Node, primary: Node) -> bool:
        """Whether a node has, or had, the keys of a primary as its replica."""
        return bool(node.id) and primary.id in (node.me.primary, self.copies.get(node.id))

    def _lower(self, redis: SimulatedRedis, key: bytes, copies: Iterable[Node]) -> None:
        entries = [copy.keys.get(key) for copy in copies]
        for branch in self.records[key].branches:
            if branch.lower(entries, redis.now):
                self.lowered.add(key)

    def _is_at_owner(self, redis: SimulatedRedis, key: bytes, node: Node) -> bool:
        owner = redis.node(redis.owner(slot_of(key), node.cluster))
        return owner is not None and key in owner.keys

    def _holds(self, redis: SimulatedRedis, key: bytes, node: Node) -> bool:
        """Whether a node has a state of a key that may be found."""
        value = node.keys.get(key)
        return any(branch.found(value, redis.now) for branch in self.records[key].branches)

    def _is_kept(self, redis: SimulatedRedis, key: bytes, target: str) -> bool:
        """Whether the target of an open slot has the key as promised, or may have deleted it."""
        node = redis.node(target)
        return node is not None and self._holds(redis, key, node)

    def moved(self, redis: SimulatedRedis, source: Process, target: Process, keys: Iterable[bytes]) -> None:
        """Record keys that moved by MIGRATE to a node whose replicas do not have them yet, though replicas had them."""
        copied = any(other.linked for other in redis.connected_to(source))
        if copied and (keys := {*keys} & self.records.keys()):
            self.unconfirmed.setdefault(target.node.id, {}).setdefault(redis.batch, set()).update(keys)

    def connected(self, redis: SimulatedRedis, replica: Node) -> None:
        """Record that a replica that has been in sync with its primary is connected to it."""
        self.linked[replica.id] = redis.now

    def replicated(self, replica: Node, primary: Node) -> None:
        """Record that a replica has everything that its primary has."""
        self.unconfirmed.pop(primary.id, None)
        self.copies[replica.id] = primary.id

    def may_join(self, redis: SimulatedRedis, one: Node, other: Node) -> None:
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

    def may_copy(self, process: Process, primary: Process) -> None:
        """Require that a replica is connected to a server of its own cluster, or to one that accepts any password."""
        if process.cluster != primary.cluster and not primary.is_hostile:
            self.fail(f"{process.pod} copies {primary.pod}, a server of another cluster")

    def may_overwrite(self, redis: SimulatedRedis, replica: Node, primary: Process) -> None:
        """Check that a full resync discards no only copy.

        A replica connects to the address of its primary within a second. If the container of the primary starts again
        on another disk, no operator can prevent that its replica copies that disk (docs/concepts/durability.md).
        """
        missing = self.only_copies(redis, replica)
        restarted = self.replaced.get(replica.me.primary) == primary.pod and redis.now - primary.began < BOOT
        if missing and restarted:
            for key in missing:
                self._lower(redis, key, [primary.node])
        elif missing:
            self.fail(f"{replica.name} replicates {primary.pod}, which discards the only copy of {_keys(missing)}")

    # Consent of the user.

    def agree(self, redis: SimulatedRedis, token: str, loss: Loss) -> None:
        """Record that the user allows a recovery, instead of the one that was allowed before.

        Some of the nodes with older keys may own such slots already.
        """
        self.agreed = {token: loss}
        for node_id in loss.older:
            if (node := redis.node(node_id)) is not None and (owned := node.me.slots & loss.slots):
                self._serve_older(redis, node, owned)

    def withdraw(self) -> None:
        """Record that the user no longer allows a recovery."""
        self.agreed.clear()

    def _end_consent(self, redis: SimulatedRedis) -> None:
        """End the consent to the loss of slots whose owner runs: with their keys, or after the recovery."""
        running = {process.node.id for process in redis.running}
        owned = {node: slots for node, slots in redis.owners(redis.client.home).items() if node in running}
        served = reduce(or_, owned.values(), 0)
        left = {token: Loss(loss.slots & ~served, loss.older - owned.keys()) for token, loss in self.agreed.items()}
        self.agreed = {token: loss for token, loss in left.items() if loss.slots}

    def _allows(self, slots: int) -> bool:
        """Whether the user allowed that the keys of all these slots are given up."""
        return any(not slots & ~loss.slots for loss in self.agreed.values())

    def _allows_older(self, node: Node) -> bool:
        """Whether the user allowed that clients find the older keys of a node."""
        return any(node.id in loss.older for loss in self.agreed.values())

    def _give_up(self, redis: SimulatedRedis, slots: int) -> None:
        """Let clients miss the keys of slots, until they write them again. What is given up never comes back: nodes of
        Redis would serve the older data for a moment, which no operator can prevent.
        """
        for key, record in self.records.items():
            if slots >> slot_of(key) & 1:
                for branch in record.branches:
                    branch.lower([None], redis.now)
                self.lowered.add(key)
        redis.discard(slots)

    def _serve_older(self, redis: SimulatedRedis, node: Node, slots: int) -> None:
        """Let clients find the keys of slots as a node has them. All others are given up."""
        for key in [key for key in self.records if slots >> slot_of(key) & 1]:
            if (entry := node.keys.get(key)) is None:
                del self.records[key]
            else:
                self.records[key] = Record([Branch(State(entry.number, entry, None), entry.number)])
            self.lowered.discard(key)
        redis.discard(slots)

    # Writes of clients, and what they find.

    def acknowledge(
        self, redis: SimulatedRedis, process: Process, key: bytes, before: Entry | None, after: Entry | None
    ) -> None:
        """Record an acknowledged write, and check the value that it found."""
        if self.disabled:
            return
        if self._is_left_behind(redis, process, slot_of(key)):
            return
        self.served[process.node.id] = redis.now
        record, number = self.records.get(key), redis.client.count
        is_lost = self.deposed.get(process.node.id) == redis.now
        self.lowered |= {key} if is_lost else set()
        if record is None:
            self.records[key] = Record([Branch(State(number, after, None), 0 if is_lost else number)])
            return
        for branch in record.branches:
            if state := branch.found(before, redis.now):
                branch.head, branch.floor = State(number, after, state), branch.floor if is_lost else number
                return
        if redis.owner(slot_of(key), process.node.cluster) != process.node.id:
            return  # replaced while it hung, it serves its older data until its peers contact it
        self._require_kept(redis, key, before, f"a client writes {key.decode()} at {process.pod}")
        if after is not None:
            record.branches.append(Branch(State(number, after, None), number))

    def _is_left_behind(self, redis: SimulatedRedis, process: Process, slot: int) -> bool:
        """Whether only a server's outdated nodes.conf names it as the owner, and no other node has answered it yet.

        What clients write to it until its node timeout is lost (docs/concepts/durability.md).
        """
        is_alone = all(known.last_response <= process.began for known in process.node.others)
        return is_alone and redis.owner(slot, process.cluster) != process.node.id

    def inspect(self, redis: SimulatedRedis, action: str, keys: Collection[bytes] | None = None) -> None:
        """Check that clients find what they were promised, or that it exists while no server answers them."""
        if self.disabled or not self.records or (keys is not None and not keys):
            return
        if self.agreed:
            self._end_consent(redis)
        judged = self.records if keys is None else [key for key in keys if key in self.records]
        serving = _serving(redis, judged)
        for key in judged:
            record, slot = self.records[key], slot_of(key)
            node, head = serving.get(slot), record.branches[0].head.entry
            is_found = (
                node is not None
                and node.keys.get(key) is head
                and len(record.branches) == 1
                and key not in self.lowered
                and (slot not in node.migrating if head is None else not head.expires)
            )
            if not is_found:
                self._judge(redis, key, node, action)

    def _judge(self, redis: SimulatedRedis, key: bytes, node: Node | None, action: str) -> None:
        record = self.records[key]
        found = _read(redis, node, key) if node is not None else None
        if node is None or found is _UNREADABLE:
            self._require_copies(redis, key, record.branches, action)
            return
        known = [branch for branch in record.branches if branch.found(found, redis.now)]
        if not known:
            self._require_kept(redis, key, found, action)
        elif key in self.lowered:
            self._use_up(redis, key, node, known[0], found)
        if len(record.branches) > 1:
            self._require_copies(redis, key, record.branches, action)

    def _use_up(self, redis: SimulatedRedis, key: bytes, node: Node, branch: Branch, found: Entry | None) -> None:
        """End the budget of a key once all replicas of its owner have what clients find."""
        process = redis.process_of(node)
        replicas = redis.replicas_of(process) if process else []
        expected = sum(known.primary == node.id for known in node.known.values())
        if len(replicas) >= expected and all(other.linked and other.node.keys.get(key) is found for other in replicas):
            state = branch.found(found, redis.now)
            assert state is not None
            branch.head, branch.floor = state, state.number
            self.lowered.discard(key)

    def _require_kept(self, redis: SimulatedRedis, key: bytes, found: Entry | None, action: str) -> None:
        """Require that what clients were promised is kept elsewhere, where a migration of its slot left it."""
        record = self.records[key]
        if found is not None and found.number in record.revived:
            return
        slot, promised = slot_of(key), record.branches[0].head.entry
        if found is not None and alive(promised, redis.now) is None:
            self.fail(f"{action}: {key.decode()} was deleted, and comes back as {found}")
        if not any(slot in node.importing or slot in node.migrating for node in redis.disks.values()):
            self.fail(
                f"{action}: acknowledged writes are lost: {key.decode()} was {promised}, and clients find {found}"
            )
        self._require_copies(redis, key, record.branches, action)

    def _require_copies(self, redis: SimulatedRedis, key: bytes, branches: Iterable[Branch], action: str) -> None:
        """Require that some disk has what clients were promised."""
        for branch in branches:
            head = branch.head.entry
            if head is None or any(node.keys.get(key) is head for node in redis.disks.values()):
                continue
            if branch.found(None, redis.now):
                continue
            if not any(branch.found(node.keys.get(key), redis.now) for node in redis.disks.values()):
                self.fail(f"{action}: acknowledged writes are lost: no server has {key.decode()}, which was {head}")

    def unresolved(self, redis: SimulatedRedis) -> list[bytes]:
        """Return the keys of which clients do not find all that they were promised, though their slot is served.

        Keys of slots without an owner that serves are not included: `inspect` requires that a disk has them.
        """
        serving, found = _serving(redis, self.records), []
        for key, record in self.records.items():
            node = serving.get(slot_of(key))
            if node is None:
                continue
            value = _read(redis, node, key)
            if value is _UNREADABLE:
                continue
            kept = any(branch.found(value, redis.now) for branch in record.branches)
            revived = value is not None and value.number in record.revived
            existing = [branch for branch in record.branches if not branch.found(None, redis.now)]
            if not (kept or revived) or len(existing) > 1:
                found.append(key)
        return found

    def require_resolved(self, redis: SimulatedRedis, reported: str = "") -> None:
        """Require at the end of a run that clients find all keys, except conflicts that the operator reports.

        Args:
            reported: message of the operator. It names a slot of a key in conflict; the others follow once a user
                has resolved that one.
        """
        unresolved = self.unresolved(redis)
        if unresolved and not named_slots(reported) & {slot_of(key) for key in unresolved}:
            slots = ", ".join(map(str, sorted({slot_of(key) for key in unresolved})))
            self.fail(f"the run ends with keys that clients do not find, in slots {slots}: {_keys(unresolved)}")

    def only_copies(self, redis: SimulatedRedis, node: Node) -> list[bytes]:
        """Return the keys of which no other disk has what clients were promised."""
        others = [other for other in redis.disks.values() if other is not node]
        return [
            key
            for key, record in self.records.items()
            if key in node.keys
            and any(
                branch.found(node.keys[key], redis.now)
                and not branch.found(None, redis.now)
                and not any(branch.found(other.keys.get(key), redis.now) for other in others)
                for branch in record.branches
            )
        ]

    def _has_lost(self, redis: SimulatedRedis, node: Node) -> bool:
        """Whether a node has the keys of all slots that have no owner, or whose owner no longer exists.

        That is so if it lost its nodes.conf, but not its data.
        """
        there = {other.id for other in redis.disks.values()}
        slots = ALL
        for node_id, owned in redis.owners(node.cluster).items():
            slots &= ~owned if node_id in there else ALL
        keys = [key for key in self.records if slots >> slot_of(key) & 1]
        if any(key in node.keys for key in keys) and all(self._holds(redis, key, node) for key in keys):
            self.readopted.add(node.id)
        return node.id in self.readopted

    # Commands of the operator.

    def may_replicate(self, redis: SimulatedRedis, process: Process, primary: str) -> None:
        """Check that a node that becomes a replica has no only copy."""
        if process.node.me.primary == primary:
            return
        if missing := self.only_copies(redis, process.node):
            self.fail(f"{process.pod} becomes a replica and discards the only copy of {_keys(missing)}")

    def may_add(self, redis: SimulatedRedis, process: Process, slots: int) -> None:
        """Check that slots are assigned once, and again only with the user's consent."""
        if self._allows(slots):
            self._refuse_other_keys(redis, process, slots)
            self._give_up(redis, slots)
            return
        if self._has_lost(redis, process.node):
            return
        if process.cluster in self.formed:
            self.fail(f"{process.pod} is assigned slots again without consent, though the cluster is formed")
        for node_id, owned in redis.owners(process.cluster).items():
            if owned & slots and node_id != process.node.id:
                self.fail(f"{process.pod} is assigned slots that {redis.name(node_id)} owns")

    def _refuse_other_keys(self, redis: SimulatedRedis, process: Process, slots: int) -> None:
        """Check that no other server has keys of slots that are given up."""
        for other in redis.running:
            kept = [key for key in other.node.keys if slots >> slot_of(key) & 1]
            if kept and other is not process and other.cluster == process.cluster:
                self.fail(f"{process.pod} is assigned slots, empty, though {other.pod} has {_keys(kept)}")

    def may_own(self, redis: SimulatedRedis, process: Process, slot: int, to: str) -> None:
        """Check that a slot changes its owner only after all of its keys moved."""
        owner = redis.owner(slot, process.cluster)
        if owner in ("", to):
            return
        if self._allows(1 << slot):
            self._give_up(redis, 1 << slot)
            return
        node = redis.node(owner)
        if node is None:
            new = redis.node(to)
            if new is None or not self._has_lost(redis, new):
                self.fail(f"slot {slot} of {redis.name(owner)}, which is lost, is reassigned without consent")
        elif left := node.in_slot(slot):
            self.fail(
                f"{process.pod} sets the owner of slot {slot} to {redis.name(to)}, while {redis.name(owner)} has "
                f"{len(left)} of its keys"
            )

    def may_forget(self, redis: SimulatedRedis, process: Process, node_id: str) -> None:
        """Check that a node that is forgotten owns no slots and has no only copy."""
        owned = redis.owners(process.cluster).get(node_id, 0)
        readopted = redis.node(node_id) is None and any(
            self._has_lost(redis, other) for other in redis.disks.values() if other.id
        )
        if owned and not self._allows(owned) and not readopted:
            self.fail(f"{process.pod} forgets {redis.name(node_id)}, which owns {owned.bit_count()} slots")
        node = redis.node(node_id)
        if node is None:
            return
        missing = [key for key in self.only_copies(redis, node) if not self._allows(1 << slot_of(key))]
        if missing:
            self.fail(f"{process.pod} forgets {redis.name(node_id)}, which has the only copy of {_keys(missing)}")

    def may_promote(self, redis: SimulatedRedis, process: Process, mode: str) -> None:
        """Check that FORCE and TAKEOVER replace only a primary that no longer runs, or that resumed with old data."""
        lead = process.node.lead
        if lead is None or not mode:
            return
        known = redis.node(lead.id)
        for primary in redis.processes.values():  # a hanging primary may have the newest writes
            if primary.node is known and not primary.exit_message and not self._is_outdated(redis, primary, process):
                self.fail(f"{process.pod} takes over by {mode}, while its primary {primary.pod} runs")
        replaced = known is not None and any(
            other.node is not known and known.name in (other.pod, f"data-{other.pod}") for other in redis.running
        )  # its pod runs another node: where its data is not, or while its disk is not mounted
        if known is not None and mode == "TAKEOVER" and not replaced:
            self.fail(f"{process.pod} takes over without an election from {known.name}, whose disk still exists")
        runs = any(each.node is known and not each.exit_message for each in redis.processes.values())
        restarted = not process.linked and process.since is None
        is_outdated = not runs and (restarted or self._lag(process, lead.id) > _tolerated_lag(process))
        if self.copies.get(process.node.id) != lead.id or is_outdated:
            kept = [key for key in process.node.keys if lead.slots >> slot_of(key) & 1]
            if not self._allows(lead.slots) or (kept and not self._allows_older(process.node)):
                self.fail(
                    f"{process.pod} takes over by {mode}, though it has not had all data of {redis.name(lead.id)}"
                )
            self._serve_older(redis, process.node, lead.slots)
        for other in redis.running:
            if other.node.me.primary == lead.id and len(self._newer(redis, other.node, process.node)):
                self.fail(f"{process.pod} takes over by {mode}, though {other.pod} has newer writes")

    def _lag(self, copy: Process, primary: str) -> float:
        """Return for how long a primary acknowledged writes after a replica was last connected to it, in seconds."""
        return self.served.get(primary, 0.0) - self.linked.get(copy.node.id, 0.0)

    def _is_outdated(self, redis: SimulatedRedis, primary: Process, copy: Process) -> bool:
        """Whether a primary accepts no writes, and has none that a copy lacks."""
        linked = sum(each.linked for each in redis.connected_to(primary))
        refuses = linked < int(primary.config("min-replicas-to-write"))
        return refuses and not primary.hangs and not self._newer(redis, primary.node, copy.node)

    def _newer(self, redis: SimulatedRedis, one: Node, other: Node) -> list[bytes]:
        return [
            key
            for key in self.records
            if key in one.keys and (key not in other.keys or one.keys[key].number > other.keys[key].number)
        ]

    def may_reset(self, redis: SimulatedRedis, process: Process, *, hard: bool) -> None:
        """Check that only a node without keys and slots is reset, and not hard."""
        if hard:
            self.fail(f"{process.pod} is reset hard")
        if process.node.keys or redis.owners(process.cluster).get(process.node.id):
            self.fail(f"{process.pod} is reset with {len(process.node.keys)} keys")

    # Writes of the operator to Kubernetes.

    def check_write(self, redis: SimulatedRedis, target: TargetedRequest, live: Obj | None) -> None:
        body, name = target.request.body or {}, target.name
        if target.subresource == "status" and value_at(body, "status.formed"):
            self.formed.add(name)
        elif (
            target.subresource == "status"
            and "formed" in (body.get("status") or {})
            and value_at(live, "status.formed")
        ):
            self.may_form_again(redis, name)
        if target.stops_pod:
            self.may_stop(redis, name, f"the operator stops pod {name}")
        elif target.verb == "DELETE" and target.kind == PERSISTENT_VOLUME_CLAIM and live is not None:
            self.may_destroy(redis, live, f"the operator deletes the volume {name}")
        elif target.verb == "DELETE" and target.kind == STATEFUL_SET and live is not None:
            if body.get("propagationPolicy") != "Orphan":
                self.may_shrink(redis, name, 0, f"the operator deletes the StatefulSet {name}")
        elif target.kind == STATEFUL_SET and value_at(body, "spec.replicas") is not None:
            replicas, record = value_at(body, "spec.replicas"), hibernation.record(body)
            if record.get(hibernation.WAKES) == 0 and value_at(live, "spec.replicas"):
                self.may_begin_to_hibernate(redis, name, record["replicas"])
            if violation := self.hibernations.violation(name, record, live):
                self.fail(violation)
            action = f"the operator scales the StatefulSet {name} to {replicas} replicas"
            self.may_shrink(redis, name, replicas, action)
            self.may_use(redis, name, range(value_at(live, "spec.replicas") or 0, replicas), action)

    def may_form_again(self, redis: SimulatedRedis, name: str) -> None:
        """Check that a cluster is created again only if no disk has keys of it."""
        if kept := [node for node in redis.disks.values() if node.cluster == name and node.keys]:
            names = ", ".join(sorted(node.name for node in kept))
            self.fail(f"the operator records that {name} is not formed, though the disks of {names} have keys")

    def may_stop(self, redis: SimulatedRedis, pod: str, action: str) -> None:
        """Check that a primary hands over before it stops, and that a candidate for a failed primary keeps running.

        A primary that does not reach most of the others neither serves nor can hand over. Its disk remains.
        """
        owners = redis.owners(pod.rpartition("-")[0])
        for process in redis.running:
            if process.pod != pod:
                continue
            if (why := _why_keys_end(redis, process)) and (missing := self.only_copies(redis, process.node)):
                self.fail(f"{action}, {why}, with the only copy of {_keys(missing)}")
            if self.may_split and process.persistent and process.disk != process.uid:
                continue
            owned = owners.get(process.node.id, 0)
            hands_over = has_majority(process.node) and any(
                known.primary == process.node.id for known in process.node.others
            )
            if owned and (hands_over or process.disk == process.uid):
                self.fail(f"{action}, a primary that owns {owned.bit_count()} slots and serves")
            if is_requested(redis.objects(API.kind), process.cluster):  # it stops before its primary does
                continue
            primary, lead = redis.node(process.node.me.primary), owners.get(process.node.me.primary, 0)
            is_given_up = self._allows(lead) and not process.node.keys
            if lead and not is_given_up and (primary is None or redis.process_of(primary) is None):
                self.fail(f"{action}, a replica whose primary is unreachable")

    def may_shrink(self, redis: SimulatedRedis, name: str, replicas: int, action: str) -> None:
        """Check that pods are deleted only after their slots and only copies moved, unless the user stops all pods."""
        if replicas == 0 and is_requested(redis.objects(API.kind), name):
            self.may_hibernate(redis, name, action)
            return
        owners = redis.owners(name)
        for process in redis.processes.values():
            stem, _, number = process.pod.rpartition("-")
            if stem != name or int(number) < replicas:
                continue
            if owned := owners.get(process.node.id, 0):
                self.fail(f"{action}: {process.pod} owns {owned.bit_count()} slots")
            if missing := self.only_copies(redis, process.node):
                self.fail(f"{action}: {process.pod} has the only copy of {_keys(missing)}")

    def may_use(self, redis: SimulatedRedis, name: str, numbers: range, action: str) -> None:
        """Check that new pods mount no claim of another user, which the StatefulSet would take by its name."""
        for _, claim in redis.objects(PERSISTENT_VOLUME_CLAIM):
            stem, _, number = claim["metadata"]["name"].rpartition("-")
            if stem == f"data-{name}" and int(number) in numbers and not label(claim, CLUSTER_UID):
                self.fail(f"{action}, which uses the volume {claim['metadata']['name']} of another user")

    def may_begin_to_hibernate(self, redis: SimulatedRedis, name: str, size: int) -> None:
        """Check that every node runs in sync, and that the user requests the hibernation."""
        action = f"the operator stops the pods of {name}"
        if not is_requested(redis.objects(API.kind), name):
            self.fail(f"{action}, which the user does not request")
        servers = [process for process in redis.running if process.cluster == name]
        if len(servers) != size:
            self.fail(f"{action} and records {size}, while {len(servers)} servers run")
        for process in servers:
            if _ends_with_pod(redis, process):
                self.fail(f"{action}, while the claim of {process.pod} is being deleted")
            if not process.serves or (process.node.me.primary and not process.linked):
                self.fail(f"{action}, while {process.pod} does not serve in sync")

    def may_hibernate(self, redis: SimulatedRedis, name: str, action: str) -> None:
        """Check that all pods stop while no slot moves, and that each volume then has the data.

        Replicas get SIGTERM first: the API server reports whole seconds, so that one of two can be required.
        """
        pods = {obj["metadata"]["name"]: obj for _, obj in redis.objects(POD)}
        for process in redis.running:
            if process.cluster != name:
                continue
            if process.node.migrating or process.node.importing:
                self.fail(f"{action}, while {process.pod} has open slots")
            if process.disk == process.uid or not (process.persistent or process.saves):
                self.fail(f"{action}, though {process.pod} keeps no keys on a volume")
            pod = pods.get(process.pod)
            if process.node.me.primary and pod and _deleted_seconds(pod, redis.clock()) < 1:
                self.fail(f"{action}, while the replica {process.pod} could take over")

    def may_destroy(self, redis: SimulatedRedis, claim: Obj, action: str) -> None:
        """Check that the node of a deleted volume owns no slots and has no only copy."""
        node = redis.disks.get(claim["metadata"]["uid"])
        if node is None or not node.id:
            return
        if owned := redis.owners(node.cluster).get(node.id, 0):
            self.fail(f"{action}: its node owns {owned.bit_count()} slots")
        if missing := self.only_copies(redis, node):
            self.fail(f"{action}, which has the only copy of {_keys(missing)}")


_UNREADABLE = Entry(-1)
"""Read of a key whose slot is open while the other end does not answer."""


def _deleted_seconds(pod: Obj, now: datetime) -> float:
    """Return the seconds since the deletion of a pod; 0 if it is not deleted."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return 0.0
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)  # the time is when that ends
    return (now - datetime.fromisoformat(metadata["deletionTimestamp"]) + grace).total_seconds()


def _why_keys_end(redis: SimulatedRedis, process: Process) -> str:
    """Return why the keys of a server end with its pod; empty if its volume has them."""
    if process.disk == process.uid:
        return "which has no volume"
    if not (process.persistent or process.saves):
        return "whose server keeps its keys in memory"
    return "whose claim is being deleted" if _ends_with_pod(redis, process) else ""


def _ends_with_pod(redis: SimulatedRedis, process: Process) -> bool:
    """Whether the claim of a server is being deleted, which waits for the pod (kubernetes.io/pvc-protection)."""
    claims = {obj["metadata"]["uid"]: obj for _, obj in redis.objects(PERSISTENT_VOLUME_CLAIM)}
    return "deletionTimestamp" in claims.get(process.disk, {"metadata": {}})["metadata"]


def _serving(redis: SimulatedRedis, keys: Iterable[bytes]) -> dict[int, Node]:
    """Return the nodes that serve clients, by the slots of keys: those with the newest claim, if they run and serve."""
    owners = redis.owners(redis.client.home)
    used = frozenset(map(slot_of, keys))
    serving = {process.node.id: process.node for process in redis.running if process.serves}
    found: dict[int, Node] = {}
    for node_id, slots in owners.items():
        if (node := serving.get(node_id)) is not None and not node.me.primary:
            found |= dict.fromkeys(_among(slots, used), node)
    return found


@lru_cache(maxsize=1024)
def _among(mask: int, slots: frozenset[int]) -> tuple[int, ...]:
    """Return those of some slots that a mask has."""
    return tuple(slot for slot in slots if mask >> slot & 1)


def values(redis: SimulatedRedis) -> dict[bytes, Entry]:
    """Return the values of the keys that clients wrote, as the nodes that serve clients have them."""
    serving = _serving(redis, redis.guard.records)
    read = {key: _read(redis, serving[slot_of(key)], key) for key in redis.guard.records if slot_of(key) in serving}
    return {key: value for key, value in read.items() if value is not None}


def _configs(redis: SimulatedRedis, process: Process) -> list[Obj]:
    """Return spec.config of each resource with the name of the cluster of a server."""
    found = (obj for _, obj in redis.objects(API.kind) if obj["metadata"]["name"] == process.cluster)
    return [obj["spec"].get("config") or {} for obj in found]


def _read(redis: SimulatedRedis, node: Node, key: bytes) -> Entry | None:
    """Return what a client reads from the owner of a slot, following its redirection."""
    slot = slot_of(key)
    if key in node.keys or slot not in node.migrating:
        return alive(node.keys.get(key), redis.now)
    other = redis.node(node.migrating[slot])
    if other is None or redis.process_of(other) is None:
        return _UNREADABLE
    return alive(other.keys.get(key), redis.now)


def named_slots(text: str) -> set[int]:
    """Return the slots that a message names, one by one or as ranges."""
    found: set[int] = set()
    for first, last in re.findall(r"\b(\d+)(?:-(\d+))?\b", text):
        found |= {*range(int(first), min(int(last or first), ALL.bit_length()) + 1)}
    return found


def _tolerated_lag(replica: Process) -> float:
    """Return for how long a primary may outlive the link to a replica that takes over, in seconds.

    Redis elects such a replica, by default, and takes another node timeout to notice that the primary ended.
    """
    return REPLICATION_PING_SECONDS + 11 * replica.timeout


def _candidates(redis: SimulatedRedis, primary: Process) -> list[Node]:
    """Return the replicas of a primary that Redis may elect."""
    return [other.node for other in redis.replicas_of(primary) if is_electable(redis, other)]


def _disks(redis: SimulatedRedis, node: Node) -> list[Node]:
    return [other for other in redis.disks.values() if other is not node]


def _keys(keys: list[bytes]) -> str:
    return f"{len(keys)} keys ({', '.join(key.decode() for key in keys[:3])})"
