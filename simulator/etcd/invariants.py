"""Invariants of each action in a simulated etcd: none here. Those of the tests require that no write is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from operators.etcd.api.versions import Version
from shared.kubernetes.kinds import Obj
from simulator.api_server.requests import TargetedRequest
from simulator.etcd.raft import Cluster, Disk, MemberRecord

if TYPE_CHECKING:
    from simulator.etcd.command_line import Command
    from simulator.etcd.database import SimulatedEtcd


@dataclass
class Invariants:
    """Called before or after what happens. A subclass records a violation and raises an error.

    Attributes:
        violations: violations so far, in order.
        released: tokens of the recoveries of which the user released the data that they did not use.
    """

    violations: list[str] = field(default_factory=list)
    released: set[str] = field(default_factory=set)

    def fail(self, violation: str) -> None:
        """Handle a violation."""

    # Actions of etcd.

    def require_first(self, etcd: SimulatedEtcd, command: Command) -> None:
        """Before a member bootstraps a cluster."""

    def require_no_amnesia(self, cluster: Cluster, record: MemberRecord, command: Command) -> None:
        """Before a member starts on an empty disk."""

    def require_upgrade(self, etcd: SimulatedEtcd, cluster: Cluster, version: Version) -> None:
        """Before a member starts with a version."""

    def require_no_panic(self, disk: Disk, command: Command) -> None:
        """When a member cannot read its log."""

    def require_complete(self, cluster: Cluster, leader: Disk) -> None:
        """When a leader is elected."""

    def inspect(self, etcd: SimulatedEtcd, action: str) -> None:
        """After anything has happened."""

    def rejected(self, one: str, other: str) -> None:
        """When two members reject each other's certificates."""

    # Actions of the operator.

    def check_write(self, etcd: SimulatedEtcd, target: TargetedRequest, live: Obj | None) -> None:
        """After a write to the API server."""

    def may_remove(self, etcd: SimulatedEtcd, cluster: Cluster, member: int) -> None:
        """Before a member is removed."""

    def may_change(self, cluster: Cluster, name: str) -> None:
        """Before anything in a cluster is changed, at the address of a pod."""

    def may_restore(self, disk: Disk, token: str) -> None:
        """Before a snapshot is restored."""

    def may_recover(self, etcd: SimulatedEtcd, disk: Disk) -> None:
        """Before a member becomes the only one of a new cluster."""
