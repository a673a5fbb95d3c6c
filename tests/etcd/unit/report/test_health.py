"""Health of EtcdClusters: members and the kubelet show whether clients are served, not the operator's connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.etcd.client.server import Alarm
from operators.etcd.objects.names import CLIENTS, SERVES
from operators.etcd.report.metrics import HAS_LEADER, cluster_states
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.health import Health
from shared.status.resource_metrics import READY
from tests.etcd.unit.world import DOWN, VOTER, At, cluster, member_id, plan, seen

OUT_OF_REACH = replace(DOWN, ready=True, runs=True)
"""A healthy member that only the operator cannot reach."""


def health(made: Plan) -> Health:
    assert made.health
    return made.health


def conditions(made: Plan) -> dict[str, tuple[bool | None, str]]:
    found = {
        "Available": health(made).available,
        "Degraded": health(made).degraded,
        "Observed": health(made).observed,
    }
    return {name: (each.holds, str(each.reason)) for name, each in found.items() if each}


def planned(*at: At, status: Obj | None = None, leader: int | None = 0, known: bool = True, size: int = 3) -> Plan:
    resource = cluster(size, status=status)
    return plan(resource, seen(resource, *at, leader=leader, known=known))


def test_complete_cluster_is_available() -> None:
    assert conditions(planned(VOTER, VOTER, VOTER)) == {
        "Available": (True, "Served"),
        "Degraded": (False, "Redundant"),
        "Observed": (True, "Observed"),
    }


def test_nothing_but_observed_changes_while_only_the_operator_cannot_reach_the_members() -> None:
    first = planned(VOTER, VOTER, VOTER).status
    made = planned(*[OUT_OF_REACH] * 3, status=first, leader=None, known=False)
    for field in ("readyMembers", "size", "endpoints", "version", "clusterID"):
        assert made.status[field] == first[field], field
    kept = ("name", "id", "healthy", "volume", "version", "dbSize")
    assert [{key: member.get(key) for key in kept} for member in made.status["members"]] == [
        {key: member.get(key) for key in kept} for member in first["members"]
    ]
    assert made.status["phase"] != "Failed"
    assert conditions(made) == {
        "Available": (True, "Served"),
        "Degraded": (False, "Redundant"),
        "Observed": (False, "NotAnswering"),
    }
    assert "demo-0, demo-1, demo-2: ready according to the kubelet" in str(health(made).observed)


@pytest.mark.parametrize("at", [[OUT_OF_REACH] * 3, [VOTER, VOTER, OUT_OF_REACH]], ids=["all", "one"])
def test_no_critical_metric_changes_while_only_the_operator_cannot_reach_members(at: list[At]) -> None:
    first = planned(VOTER, VOTER, VOTER).status
    up = any(each.up for each in at)
    status = planned(*at, status=first, leader=0 if up else None, known=up).status
    found = {state: value for state, value, _ in cluster_states({"spec": {"size": 3}, "status": status})}
    assert found[HAS_LEADER] in (True, None)
    assert found[READY] == 3


def test_member_that_only_the_operator_cannot_reach_reduces_no_redundancy() -> None:
    assert conditions(planned(VOTER, VOTER, OUT_OF_REACH)) == {
        "Available": (True, "Served"),
        "Degraded": (False, "Redundant"),
        "Observed": (False, "NotAnswering"),
    }


def test_members_of_another_cluster_do_not_make_this_one_available() -> None:
    first = planned(VOTER, VOTER, VOTER).status
    made = planned(VOTER, VOTER, VOTER, status={**first, "clusterID": "55f63a2002313cff"})
    assert conditions(made)["Available"] == (False, "AnotherCluster")


@pytest.mark.parametrize("at", [VOTER, OUT_OF_REACH], ids=["quorum", "kubelet"])
def test_cluster_whose_service_has_no_endpoints_is_not_available(at: At) -> None:
    """While a recovery keeps volumes, pods start without the label that the Service selects."""
    resource, is_reached = cluster(), at is VOTER
    found = seen(resource, at, at, at, leader=0 if is_reached else None, known=is_reached)
    for each in found.instances:
        assert each.pod_obj is not None
        each.pod_obj["metadata"]["labels"] = {}
    made = plan(resource, found)
    assert conditions(made)["Available"] == (False, "NoEndpoints")
    assert "Service demo-client" in str(health(made).available)
    (first, *_) = found.instances
    assert first.pod_obj is not None
    first.pod_obj["metadata"]["labels"] = {SERVES: CLIENTS}
    assert conditions(plan(resource, found))["Available"] == (True, "Served"), "one endpoint is enough"


def test_missing_voter_reduces_the_redundancy() -> None:
    made = planned(VOTER, VOTER, DOWN)
    assert conditions(made)["Degraded"] == (True, "RedundancyReduced")
    assert conditions(made)["Available"] == (True, "Served")
    assert "2 of 3 voters are healthy." in str(health(made).degraded)


@pytest.mark.parametrize("kind", ["NOSPACE", "CORRUPT"])
def test_cluster_with_an_alarm_is_not_available(kind: str) -> None:
    """Members refuse writes, or every request."""
    resource = cluster()
    world = replace(seen(resource, VOTER, VOTER, VOTER), alarms=(Alarm(member_id(0), kind),))
    made = plan(resource, world)
    assert conditions(made)["Available"] == (False, "AlarmRaised")
    assert conditions(made)["Degraded"] == (False, "NotAvailable")
    cut_off = planned(*[OUT_OF_REACH] * 3, status=made.status, leader=None, known=False)
    assert conditions(cut_off)["Available"] == (False, "AlarmRaised"), "as last reported"


@pytest.mark.parametrize(
    "at",
    [[DOWN] * 3, [VOTER, DOWN, DOWN], [replace(DOWN, pod=False)] * 3],
    ids=["no member is ready", "one member is left without a leader", "no pods"],
)
def test_cluster_without_a_quorum_is_not_available(at: list[At]) -> None:
    made = planned(*at, leader=None, known=False)
    assert conditions(made)["Available"] == (False, "NoQuorum")
    assert conditions(made)["Degraded"] == (False, "NotAvailable")
    assert conditions(made)["Observed"] == (True, "Observed"), "the kubelet reports these members as not ready, too"


def test_ready_members_are_evidence_against_a_reachable_member_without_a_leader() -> None:
    """The operator reaches only the member that is cut off from the others."""
    made = planned(replace(VOTER, ready=False), OUT_OF_REACH, OUT_OF_REACH, leader=None, known=False)
    assert conditions(made)["Available"] == (True, "Served")


def test_cluster_that_is_being_created_is_not_available() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, seen(resource, replace(DOWN, member=False), known=False))
    assert conditions(made)["Available"] == (False, "Creating")


def test_progress_counts_members_and_pods() -> None:
    assert "progress" not in planned(VOTER, VOTER, VOTER).status
    made = planned(VOTER, replace(VOTER, old=True), DOWN).status
    assert made["progress"] == [
        {"what": "Members", "done": 2, "total": 3},
        {"what": "Pods", "done": 2, "total": 3},
    ]
