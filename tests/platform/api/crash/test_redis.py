"""Scenarios of the crash harness for redis on a real API server, with the nodes of `FakeRedis`.

One scenario runs each night, the others each week. The in-memory suite has many more
(`tests/redis/simulation/test_crash.py`); this one verifies the behaviour of a real API server.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast

import pytest

from operators.redis.api import resource
from operators.redis.client.server import Access, Connect, Endpoint, Server
from operators.redis.operator import OPERATOR, clusters
from shared.kubernetes.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
from shared.runtime.operator import Operator, ServedKind
from simulator.kubelet.kubelet import ProcessStatus
from tests.harness.scenario import Scenario
from tests.harness.scoreboard import Scoreboard
from tests.platform.api.support.locked import Locked
from tests.platform.api.support.scenario_runner import Cast, LiveReferenceRun
from tests.platform.api.support.world import REDIS_CLUSTER
from tests.redis.simulation.database import FakeRedis
from tests.support.issuing import issued
from tests.support.redis.scenarios import REDIS, SCENARIOS
from tools.local.controlplane import ControlPlane

SELECTED = {
    "create",
    "create without replicas",
    "scale out and in",
    "add and remove a replica",
    "upgrade without volumes",
    "change settings at runtime",
    "delete all pods",
    "lose a primary without volumes",
    "scale in while a pod is lost",
    "lose slots and recover",
    "delete owned objects",
    "delete the StatefulSet and orphan its pods",
    "password Secret appears after creation",
}
OF_EACH_NIGHT = "create without replicas"
DISTURBANCES = ("crash after a write", "lost response", "409")

FAST = 4
"""Speed of the fake servers' clock relative to real time, so that elections and gossip take less time."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def accelerated_time() -> datetime:
    return EPOCH + timedelta(seconds=FAST * (datetime.now(UTC) - EPOCH).total_seconds())


@dataclass
class LockedFake(FakeRedis):
    """A FakeRedis for two threads: the operator's and the kubelet's."""

    clock: Any = accelerated_time
    lock: Any = field(default_factory=threading.RLock)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        with self.lock:
            return super().run(pod, claims)

    def end(self, uid: str) -> None:
        with self.lock:
            super().end(uid)

    def state(self) -> Any:
        with self.lock:
            return super().state()

    @property
    def connect(self) -> Connect:
        to = super().connect

        def connect(endpoint: Endpoint, access: Access) -> Server:
            return cast("Server", Locked(to(endpoint, access), self.lock))

        return connect


def operator(redis: LockedFake) -> Operator:
    served = ServedKind(resource.API, lambda options: replace(clusters(options, redis.connect), issue=issued))
    return replace(OPERATOR, kinds=(served,))


CAST = Cast(
    "redis",
    REDIS_CLUSTER,
    (
        REDIS_CLUSTER,
        STATEFUL_SET,
        SERVICE,
        CONFIG_MAP,
        DISRUPTION_BUDGET,
        NETWORK_POLICY,
        PERSISTENT_VOLUME_CLAIM,
        POD,
    ),
    database=LockedFake,
    operator=operator,
    patience=6.5,
    unstable=REDIS.unstable,
    nodes=REDIS.nodes,
)

CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=(
            pytest.mark.nightly
            if scenario.name == OF_EACH_NIGHT and disturbance == DISTURBANCES[0]
            else pytest.mark.weekly
        ),
    )
    for scenario in SCENARIOS
    if scenario.name in SELECTED
    for disturbance in DISTURBANCES
]

learn = cache(LiveReferenceRun.record)


def test_selected_scenarios_exist() -> None:
    assert {scenario.name for scenario in SCENARIOS} >= SELECTED


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
def test_disturbed_run_ends_as_the_undisturbed_one(
    plane: ControlPlane, scenario: Scenario, disturbance: str, scoreboard: Scoreboard
) -> None:
    scoreboard.require(learn(plane, scenario, CAST).sweep(disturbance))
