"""The simulated Redis Cluster of the tests: an action that may lose an acknowledged write is a violation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from operators.redis.api.resource import API
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Kind, Obj
from shared.status import conditions
from simulator.redis.database import SimulatedRedis
from tests.redis.simulation.guard import Guard
from tests.redis.simulation.judges import judge_owners, judge_status


@dataclass
class FakeRedis(SimulatedRedis):
    """A database of the crash harness, which also judges what a status claims."""

    guard: Guard = field(default_factory=Guard)

    def judge(self, objects: Sequence[tuple[Kind, Obj]]) -> None:
        """Judge the status of each cluster, and the owners of the objects of one that is ready."""
        for kind, found in () if self.guard.disabled else objects:
            if kind != API.kind or "deletionTimestamp" in found["metadata"]:
                continue
            try:
                judge_status(self, found)
                if accessors.is_true(found, conditions.READY):
                    judge_owners(found, objects)
            except AssertionError as error:
                self.guard.fail(f"{found['metadata']['name']}: {error}")
