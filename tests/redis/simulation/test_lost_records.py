"""The records of the nodes survive an older CRD and an earlier build of the operator, which do not know status.nodes.

Each begins at any point of a scenario and ends later. The run must end as the undisturbed one: no node counts as new,
unknown or lost, and no acknowledged write is lost.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.runtime.controller import Controller
from shared.runtime.plan import Plan
from tests.harness.disturbance import Disturbance
from tests.harness.outage import Change, Outage, disturbance, every, sample
from tests.harness.scenario import Scenario, Stage, Subject
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import REDIS, all_pods_deleted, cluster, in_memory, lost, primary_lost

PRESENT, OLDER_CRD, EARLIER_BUILD = "present", "an older CRD", "an earlier build of the operator"

NIGHTLY_SHARE = 24
"""Points of a scenario for each one that runs each night; all run each week."""


def _without_nodes(status: Obj) -> Obj:
    return {key: value for key, value in status.items() if key not in ("nodes", "nodesInConditions")}


def _build(redis: FakeRedis) -> str:
    return str(getattr(redis, "build", PRESENT))


def _controller(redis: FakeRedis) -> Controller[Any, Any]:
    """Return the controller of the build that runs: an earlier one neither reads nor writes status.nodes.

    Fields that the CRD does not have are removed from what is written, which a status without them does as well.
    """
    present = REDIS.controller(redis)

    def parse(obj: Obj) -> Any:
        if _build(redis) == EARLIER_BUILD and obj.get("status"):
            obj = obj | {"status": _without_nodes(obj["status"])}
        return present.parse(obj)

    def plan(resource: RedisCluster, seen: Observed, now: datetime) -> Plan:
        made = present.plan(resource, seen, now)
        return made if _build(redis) == PRESENT else dataclasses.replace(made, status=_without_nodes(made.status))

    return dataclasses.replace(present, parse=parse, plan=plan)


def _runs(build: str) -> Change:
    def change(stage: Stage) -> None:
        stage.database.build = build
        stage.database.unknown_fields = set() if build == PRESENT else {"nodes"}

    return change


def _remove_nodes(stage: Stage) -> None:
    """Remove what an older CRD does not have from every resource."""
    for found in stage.find():
        patch = {"status": dict.fromkeys(("nodes", "nodesInConditions"))}
        stage.user_client.merge(stage.kind, stage.namespace, found["metadata"]["name"], patch, subresource="status")


BUILDS: Subject = dataclasses.replace(REDIS, controller=_controller)
MARK = "nodesInConditions"

REMOVED = disturbance("status.nodes is removed once", Outage(_remove_nodes, every()), unstable=(MARK, "conditions"))
DOWNGRADED_CRD = disturbance(
    OLDER_CRD, Outage(every(_runs(OLDER_CRD), _remove_nodes), _runs(PRESENT)), unstable=(MARK, "conditions")
)
ROLLED_BACK = disturbance(EARLIER_BUILD, Outage(_runs(EARLIER_BUILD), _runs(PRESENT)), unstable=(MARK,))

SWITCHED_ON: Obj = {"nodesInConditions": True}

WITH_VOLUMES = (
    Scenario("delete all pods", all_pods_deleted(), given=(cluster(6),), exact_counts=False),
    Scenario("lose a replica", lost(5), given=(cluster(6),), exact_counts=False),
    Scenario("lose a primary", (primary_lost(),), given=(cluster(6),), exact_counts=False),
    Scenario("scale out and in", (cluster(8), cluster(6)), given=(cluster(6),), exact_counts=False),
)
"""The volume claims have the records as well."""

IN_CONDITIONS = (
    Scenario(
        "lose a primary without volumes",
        (primary_lost(),),
        given=(in_memory(6, **SWITCHED_ON),),
        exact_counts=False,
    ),
    Scenario("lose a replica", lost(5), given=(cluster(6, **SWITCHED_ON),), exact_counts=False),
    Scenario(
        "scale out and in", (cluster(8, **SWITCHED_ON), cluster(6, **SWITCHED_ON)), given=(cluster(6, **SWITCHED_ON),)
    ),
)
"""The conditions have the records as well."""

CASES = [
    *((scenario, failure) for scenario in WITH_VOLUMES for failure in (REMOVED, DOWNGRADED_CRD)),
    *((scenario, failure) for scenario in IN_CONDITIONS for failure in (DOWNGRADED_CRD, ROLLED_BACK)),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("scenario", "failure"), CASES, ids=str)
async def test_records_survive_at_some_points(scenario: Scenario, failure: Disturbance, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(BUILDS, scenario, sample(failure, NIGHTLY_SHARE)))


@pytest.mark.weekly
@pytest.mark.parametrize(("scenario", "failure"), CASES, ids=str)
async def test_records_survive_at_all_points(scenario: Scenario, failure: Disturbance, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(BUILDS, scenario, failure))
