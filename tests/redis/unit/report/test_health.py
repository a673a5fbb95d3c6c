"""Health of RedisClusters: nodes and the kubelet show whether clients are served, not the operator's connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.redis.report.metrics import PRIMARIES, SLOT_COUNT, states
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status import conditions
from shared.status.health import Finding
from shared.status.resource_metrics import READY
from tests.redis.unit.steps.test_scaling import JOINED
from tests.redis.unit.world import JUST_NOW, NEW, At, cluster, formed, plan, planned, replica, seen, world

OUT_OF_REACH = [replace(node, up=False, ready=True) for node in formed()]
"""A healthy cluster that only the operator cannot reach."""


def available(made: Plan) -> Finding:
    assert made.health
    assert made.health.available
    return made.health.available


def observed(made: Plan) -> Finding:
    assert made.health
    assert made.health.observed
    return made.health.observed


def written(made: Plan) -> Obj:
    """Return the status that the reconciler writes, with its conditions."""
    return conditions.compose(cluster(*formed()).obj, made.status, made.verdict, JUST_NOW, health=made.health)


def with_status(first: Plan, *at: At) -> Plan:
    """Return a plan once the status of another one is written."""
    resource = cluster(*at, status=written(first))
    return plan(resource, seen(resource, *at))


def unchanged(status: Obj) -> Obj:
    """Fields that must not change while only the operator cannot reach the nodes."""
    roles = [
        {key: entry.get(key) for key in ("name", "role", "nodeId", "primaryId", "slots", "disk")}
        for entry in status["nodes"]
    ]
    kept = ("phase", "replicas", "readyReplicas", "masters", "endpoints", "shards", "version", "formed")
    return {key: status[key] for key in kept} | {"roles": roles}


def test_cluster_in_its_desired_state_is_available() -> None:
    made = planned(*formed())
    assert (available(made).holds, available(made).reason) == (True, "Served")
    assert (observed(made).holds, observed(made).reason) == (True, "Observed")
    assert made.health
    assert made.health.degraded
    assert (made.health.degraded.holds, made.health.degraded.reason) == (False, "Redundant")


def test_cluster_whose_primary_refuses_writes_is_not_available() -> None:
    """A primary whose volume is full answers MISCONF to writes; a full replica does not matter."""
    full = [replace(node, refuses_writes=number in (0, 3)) for number, node in enumerate(formed())]
    made = planned(*full)
    assert (made.verdict.reason, made.verdict.warning, made.status["phase"]) == ("WritesRefused", True, "Failed")
    found = available(made)
    assert (found.holds, found.reason) == (False, "WritesRefused")
    assert found.message == (
        "demo-0: refusing writes, because the last write to the log failed (aof_last_write_status in INFO). Check the "
        "space on the volume."
    )


def test_nothing_but_observed_changes_while_only_the_operator_cannot_reach_the_nodes() -> None:
    first = planned(*formed())
    made = with_status(first, *OUT_OF_REACH)
    assert unchanged(made.status) == unchanged(first.status)
    assert (available(made).holds, available(made).reason) == (True, "Served")
    assert (observed(made).holds, observed(made).reason) == (False, "NotAnswering")
    assert observed(made).message.startswith(
        "demo-0, demo-1, demo-2, demo-3, demo-4 and 1 more: ready according to the kubelet, but not answering the "
        "operator: no route to host."
    )
    assert made.health
    assert made.health.degraded is None, "the last report stays"


def serving_nothing(*at: At, status: Obj | None = None) -> Plan:
    """Return the plan while each node that the operator reaches rejects commands (cluster_state:fail)."""
    resource, found = world(*at, status=status)
    reported = (replace(each.report, state_ok=False) if each.report else None for each in found.instances)
    rejecting = (replace(each, report=report) for each, report in zip(found.instances, reported, strict=True))
    return plan(resource, replace(found, instances=tuple(rejecting)))


def test_readiness_alone_does_not_end_an_outage() -> None:
    """The probe only connects: a server that rejects commands passes it as well."""
    first = serving_nothing(*formed())
    assert (available(first).holds, available(first).reason) == (False, "SlotsUnserved")
    made = with_status(first, *OUT_OF_REACH)
    again = with_status(made, *OUT_OF_REACH)
    for each in (made, again):
        assert (available(each).holds, available(each).reason) == (None, "ServiceUnknown")
    reached = with_status(again, *formed())
    assert (available(reached).holds, available(reached).reason) == (True, "Served")


def test_readiness_alone_does_not_outweigh_nodes_that_reject_commands() -> None:
    """The operator reaches only replicas, which report that the cluster does not serve."""
    primaries, replicas = OUT_OF_REACH[:3], formed()[3:]
    first = planned(*formed())
    assert available(with_status(first, *primaries, *replicas)).holds is True
    made = serving_nothing(*primaries, *replicas, status=written(first))
    assert (available(made).holds, available(made).reason) == (None, "ServiceUnknown")


@pytest.mark.parametrize(
    "cut_off", [OUT_OF_REACH, [OUT_OF_REACH[0], *formed()[1:]], [*formed()[:3], *OUT_OF_REACH[3:]]]
)
def test_no_critical_metric_changes_while_only_the_operator_cannot_reach_nodes(cut_off: list[At]) -> None:
    status = with_status(planned(*formed()), *cut_off).status
    found = {(state, labels): value for state, value, labels in states({"spec": {"replicas": 6}, "status": status})}
    assert found[SLOT_COUNT, ("unserved",)] == 0
    assert (found[PRIMARIES, ()], found[READY, ()]) == (3, 6)


def test_unreachable_primary_serves_if_it_is_ready_and_not_failed() -> None:
    first, *others = formed()
    made = planned(replace(first, up=False, ready=True), *others)
    assert available(made).holds is True
    assert (observed(made).holds, "demo-0" in observed(made).message) == (False, True)


@pytest.mark.parametrize(
    "primary",
    [
        replace(formed()[0], up=False, ready=False),
        replace(formed()[0], up=False, ready=True, failed=True),
        replace(formed()[0], up=False, pod=False, failed=True),
        replace(formed()[0], loading=True),
    ],
    ids=["not ready", "failed for the other nodes", "without a pod", "loading"],
)
def test_slots_without_a_serving_primary_are_reported(primary: At) -> None:
    made = planned(primary, *formed()[1:])
    assert (available(made).holds, available(made).reason) == (False, "SlotsUnserved")
    assert available(made).message == "No primary serves slots 0-5460."


def test_cluster_without_a_ready_pod_is_not_available() -> None:
    made = planned(*(replace(node, up=False, ready=False) for node in formed()))
    assert (available(made).holds, available(made).reason) == (False, "SlotsUnserved")
    assert made.status["phase"] == "Failed"
    assert made.status["masters"] == made.status["readyReplicas"] == 0


def test_service_is_unknown_if_an_unreachable_replica_may_have_taken_over() -> None:
    primary, *others = OUT_OF_REACH
    made = planned(replace(primary, ready=False), *others)
    assert (available(made).holds, available(made).reason) == (None, "ServiceUnknown")
    assert available(made).message.startswith("It is unknown whether slots 0-5460 are served:")
    assert made.status["phase"] == "Running", "nothing shows a failure"


def test_node_that_lost_its_data_does_not_serve() -> None:
    made = planned(replace(OUT_OF_REACH[0], disk="another"), *formed()[1:])
    assert (available(made).holds, available(made).reason) == (False, "SlotsUnserved")


def test_cluster_that_is_being_created_is_not_available() -> None:
    made = planned(*[NEW] * 6, is_formed=False, phase="Creating")
    assert (available(made).holds, available(made).reason) == (False, "Creating")
    assert made.health
    assert made.health.degraded
    assert (made.health.degraded.holds, made.health.degraded.reason) == (False, "NotAvailable")


def test_new_node_that_does_not_answer_yet_serves_nothing() -> None:
    made = plan(*world(*formed(), replace(NEW, up=False, ready=True), replicas=7))
    assert made.status["readyReplicas"] == 6
    assert len(made.status["endpoints"]) == 6


def test_progress_counts_nodes_pods_and_slots() -> None:
    assert "progress" not in planned(*formed()).status
    added = planned(*formed(), JOINED, replica(6)).status
    slots = next(entry for entry in added["progress"] if entry["what"] == "Slots")
    assert (slots["done"], slots["total"]) == (0, 4096)
    rolling = planned(replace(formed()[0], old=True), *formed()[1:], replace(formed()[3], up=False)).status
    found = {entry["what"]: (entry["done"], entry["total"]) for entry in rolling["progress"]}
    assert found["Pods"] == (6, 7)
    assert found["Nodes"] == (6, 7)
