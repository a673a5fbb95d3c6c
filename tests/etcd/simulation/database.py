"""The simulated etcd of the tests: an action that may lose an acknowledged write is a violation, which names it."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.etcd.database import SimulatedEtcd
from tests.etcd.simulation.guard import Guard


@dataclass
class FakeEtcd(SimulatedEtcd):
    """A database of the crash harness."""

    guard: Guard = field(default_factory=Guard)
