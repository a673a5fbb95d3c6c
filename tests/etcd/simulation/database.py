"""The simulated etcd of the tests: an action that may lose an acknowledged write is a violation, which names it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.etcd.simulation.guard import Guard
from tests.etcd.simulation.unguarded import SimulatedEtcd


@dataclass
class FakeEtcd(SimulatedEtcd):
    """A database of the crash harness."""

    guard: Guard = field(default_factory=Guard)
