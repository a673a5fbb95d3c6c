"""A healthy EtcdCluster or RedisCluster with authentication and TLS causes no requests, however often it is queried."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from operators.etcd import plan as etcd_plan
from operators.etcd.steps import scaling
from operators.redis import plan as redis_plan
from shared.kubernetes.accessors import is_true
from shared.pki.issuing import make
from shared.runtime import dependencies
from shared.runtime import operator as process_operator
from shared.status.conditions import READY
from tests.harness.scenario import ScenarioStep, Stage
from tests.platform.api.crash import test_etcd, test_redis
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import Operator
from tests.platform.api.support.scenario_runner import Cast
from tests.platform.api.support.world import World
from tests.support.etcd import scenarios as etcd
from tests.support.redis import scenarios as redis
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly

QUERY_SECONDS, POLL_SECONDS = 0.5, 2.0
"""Seconds between two queries of a cluster, and two reads of a Secret that cannot be watched; 30 and 10 otherwise."""

IDLE_SECONDS, READY_SECONDS = 8.0, 90.0

RETRIED_WATCHES = 4
"""Number of times that a refused watch of Secrets is tried again while idle; the Secrets are read again then."""

ETCD = (etcd.given_password(), etcd.cluster(3, **etcd.AUTH, tls={"mode": "self"}))
REDIS = (redis.password_given(), redis.cluster(6, **redis.AUTH, tls={"mode": "self"}))
UNPROTECTED_REDIS = (redis.cluster(6),)


def issuing(cast: Cast, database: Any) -> process_operator.Operator:
    """Return the operator with certificates that are valid now, other than those of the simulations."""
    assert cast.operator is not None
    of = cast.operator(database)
    (served,) = of.kinds
    return replace(
        of, kinds=(replace(served, controller=lambda options: replace(served.controller(options), issue=make)),)
    )


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "CONNECTED_SECONDS", 0.0)
    monkeypatch.setattr(dependencies, "POLL_SECONDS", POLL_SECONDS)
    for planner in (etcd_plan.Planner, redis_plan.Planner):
        monkeypatch.setattr(planner, "poll_seconds", QUERY_SECONDS)


@pytest.fixture(params=["watched", "polled"])
def access(request: pytest.FixtureRequest, gate: Gate) -> Iterator[str]:
    """Grant the right to watch Secrets, or not."""
    if request.param == "watched":
        yield request.param
        return
    with gate.refused("/secrets$", 403):
        yield request.param


@pytest.mark.parametrize(
    ("cast", "steps"),
    [(test_etcd.CAST, ETCD), (test_redis.CAST, REDIS), (test_redis.CAST, UNPROTECTED_REDIS)],
    ids=["etcd", "redis", "redis without authentication and TLS"],
)
def test_healthy_cluster_causes_no_requests(
    plane: ControlPlane, gate: Gate, access: str, cast: Cast, steps: tuple[ScenarioStep, ...]
) -> None:
    database = cast.database()
    if cast is test_etcd.CAST:
        database.clock = lambda: datetime.now(UTC)  # members verify certificates, which are valid now
    world = World(plane, kinds=cast.kinds, processes=database, nodes=cast.nodes)
    assert world.workloads is not None
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url, of=issuing(cast, database))
    operator.start()
    try:
        for step in steps:
            step.act(Stage(cast.kind, world.namespace, world.user_client, world.workloads, database))
        world.eventually(lambda: all(is_true(found, READY) for found in world.listed(cast.kind)), READY_SECONDS)
        time.sleep(4 * QUERY_SECONDS)
        operator.wire.sent.clear()
        time.sleep(IDLE_SECONDS)
        reads = Counter(f"{each.method} {each.path}" for each in operator.wire.sent)
    finally:
        operator.stop()
        world.close()
    assert [each for each in reads if access == "watched" or not re.match("GET .*/secrets/", each)] == []
    polls = IDLE_SECONDS / POLL_SECONDS + RETRIED_WATCHES
    assert max(reads.values(), default=0) <= polls < IDLE_SECONDS / QUERY_SECONDS, (
        "queries of the cluster read no Secret"
    )
