"""Invariants of each action on simulated servers: none here. Those of the tests require that no write is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.kubernetes.kinds import Obj
from simulator.api_server.requests import TargetedRequest
from simulator.redis.client import Entry
from simulator.redis.node import Node

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis
    from simulator.redis.process import Process


@dataclass
class Invariants:
    """Called before or after what happens. A subclass records a violation and raises an error.

    Attributes:
        violations: violations so far, in order.
        records: acknowledged states, by key.
        replaced: pod of each node whose disk was replaced while its pod kept its address, by node id.
    """

    violations: list[str] = field(default_factory=list)
    records: dict[bytes, Any] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    def fail(self, what: str) -> None:
        """Handle a violation."""

    def rejected(self, one: str, other: str) -> None:
        """When two servers reject each other's certificates."""

    # Events of servers.

    def ended(self, redis: SimulatedRedis, process: Process) -> None:
        """When a process has ended or hangs. Without persistence, its keys are lost."""
        if not process.persistent and not process.hangs:
            process.node.keys = dict(process.node.saved) if process.saves else {}

    def ends_log(self, redis: SimulatedRedis, process: Process) -> None:
        """When a server switches its log off."""

    def unloaded(
        self, redis: SimulatedRedis, process: Process, had: Mapping[bytes, Entry], *, is_covered: bool
    ) -> None:
        """When a server has started without the keys on its disk."""

    def takes_over(self, redis: SimulatedRedis, successor: Process) -> None:
        """Before a replica becomes the primary of its shard."""

    def outbid(self, redis: SimulatedRedis, node: Node) -> None:
        """When a primary loses slots to a newer claim."""

    def lost(self, redis: SimulatedRedis, node: Node) -> None:
        """When a disk has been deleted."""

    def rolled_back(self, redis: SimulatedRedis, node: Node, had: Mapping[bytes, Entry]) -> None:
        """When a disk has an earlier state."""

    def moved(self, redis: SimulatedRedis, source: Process, target: Process, keys: Iterable[bytes]) -> None:
        """When keys have moved to another node."""

    def connected(self, redis: SimulatedRedis, replica: Node) -> None:
        """When a replica that has been in sync with its primary is connected to it."""

    def replicated(self, replica: Node, primary: Node) -> None:
        """When a replica has everything that its primary has."""

    def may_join(self, redis: SimulatedRedis, one: Node, other: Node) -> None:
        """Before two nodes meet."""

    def may_copy(self, process: Process, primary: Process) -> None:
        """Before a server copies another one."""

    def may_overwrite(self, redis: SimulatedRedis, replica: Node, primary: Process) -> None:
        """Before a full resync discards the keys of a replica."""

    # Writes of clients.

    def acknowledge(
        self, redis: SimulatedRedis, process: Process, key: bytes, before: Entry | None, after: Entry | None
    ) -> None:
        """After the write of a client."""

    def inspect(self, redis: SimulatedRedis, action: str, keys: Collection[bytes] | None = None) -> None:
        """After anything has happened."""

    def unresolved(self, redis: SimulatedRedis) -> list[bytes]:
        """Return the keys of which clients do not find what was acknowledged."""
        return []

    def only_copies(self, redis: SimulatedRedis, node: Node) -> list[bytes]:
        """Return the keys that no other disk has."""
        return []

    # Actions of the operator.

    def check_write(self, redis: SimulatedRedis, target: TargetedRequest, live: Obj | None) -> None:
        """After a write to the API server."""

    def may_replicate(self, redis: SimulatedRedis, process: Process, primary: str) -> None:
        """Before a node becomes a replica."""

    def may_add(self, redis: SimulatedRedis, process: Process, slots: int) -> None:
        """Before slots are assigned to a node."""

    def may_own(self, redis: SimulatedRedis, process: Process, slot: int, to: str) -> None:
        """Before a slot is handed over."""

    def may_forget(self, redis: SimulatedRedis, process: Process, node_id: str) -> None:
        """Before a node is forgotten."""

    def may_promote(self, redis: SimulatedRedis, process: Process, mode: str) -> None:
        """Before a replica is promoted."""

    def may_reset(self, redis: SimulatedRedis, process: Process, *, hard: bool) -> None:
        """Before a node is reset."""
