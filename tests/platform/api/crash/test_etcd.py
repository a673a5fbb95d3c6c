"""Scenarios of the crash harness for etcd on a real API server, with the members of `FakeEtcd`.

One scenario runs each night, the others each week. The in-memory suite has many more
(`tests/etcd/simulation/test_crash.py`); this one verifies the behaviour of a real API server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any, cast

import pytest

from operators.etcd.api import resource
from operators.etcd.client.server import Access, Endpoint, Server
from operators.etcd.operator import OPERATOR, clusters
from operators.etcd.steps import scaling
from shared.kubernetes.kinds import (
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
from shared.runtime.operator import Operator, ServedKind
from simulator.etcd import database as simulated
from simulator.kubelet.kubelet import ProcessStatus
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import Scenario
from tests.harness.scoreboard import Scoreboard
from tests.platform.api.support.locked import Locked
from tests.platform.api.support.scenario_runner import Cast, LiveReferenceRun
from tests.platform.api.support.world import ETCD_BACKUP, ETCD_CLUSTER
from tests.support.etcd.scenarios import ETCD, SCENARIOS
from tests.support.issuing import issued
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly

SELECTED = {
    "create one member",
    "create",
    "scale up and down",
    "a later member lost with its volume",
    "a member lost without an operator",
    "upgrade",
    "owned objects deleted",
    "the StatefulSet orphans its pods",
    "restore",
    "lost quorum and recovery",
}
OF_EACH_NIGHT = "create one member"
DISTURBANCES = ("crash after a write", "lost response", "409")


@dataclass
class LockedFake(FakeEtcd):
    """A FakeEtcd for two threads: the operator's and the kubelet's."""

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

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        return cast("Server", Locked(super().connect(endpoint, access), self.lock))


def operator(etcd: LockedFake) -> Operator:
    served = ServedKind(resource.API, lambda options: replace(clusters(options, etcd.connect), issue=issued))
    return replace(OPERATOR, kinds=(served,))


CAST = Cast(
    "etcd",
    ETCD_CLUSTER,
    (ETCD_CLUSTER, ETCD_BACKUP, STATEFUL_SET, SERVICE, DISRUPTION_BUDGET, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD),
    database=LockedFake,
    operator=operator,
    patience=6.5,
    unstable=ETCD.unstable,
    uncounted=frozenset({"lost quorum and recovery"}),
)

CASES = [
    pytest.param(
        scenario,
        disturbance,
        id=f"{scenario}-{disturbance}",
        marks=() if scenario.name == OF_EACH_NIGHT and disturbance == DISTURBANCES[0] else pytest.mark.weekly,
    )
    for scenario in SCENARIOS
    if scenario.name in SELECTED
    for disturbance in DISTURBANCES
]

learn = cache(LiveReferenceRun.record)


@pytest.fixture(autouse=True)
def skip_connection_time() -> Iterator[None]:
    """Skip the time after which a member is added, and a version is raised: the fake servers have no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "CONNECTED_SECONDS", 0.0)
        patch.setattr(simulated, "MONITORED", timedelta())
        yield


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
def test_disturbed_run_ends_as_the_undisturbed_one(
    plane: ControlPlane, scenario: Scenario, disturbance: str, scoreboard: Scoreboard
) -> None:
    scoreboard.require(learn(plane, scenario, CAST).sweep(disturbance))
