"""Names of members and their places, and what surrounds them."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd import observe
from operators.etcd.objects import disruption_budget, names
from operators.etcd.objects import stateful_set as builder
from operators.etcd.observe import Instance
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.steps import provisioning
from tests.unit.etcd.world import SETTINGS, cluster


def stateful_set(existing: Obj | None = None, **spec: Any) -> Obj:
    resource = cluster(**spec)
    return builder.stateful_set(resource, names.owner(resource, SETTINGS.operator), {}, 3, existing)


@pytest.mark.parametrize("tls", [{}, {"tls": {"mode": "self"}}])
def test_a_place_is_known_by_its_name_and_by_its_url(tls: Obj) -> None:
    resource = cluster(**tls)
    for number in (0, 2, 10, 123):
        assert names.number_of(resource, names.member_name(resource, number)) == number
        assert names.number_of(resource, names.peer_url(resource, number)) == number


@pytest.mark.parametrize(
    "strange",
    [
        "",
        "demo",
        "demo-",
        "demo-01",
        "demo--1",
        "demo-1x",
        "demo-x-1",
        "other-1",
        "http://demo-1.demo.default.svc:2379",
        "http://demo-1.demo.other.svc:2380",
        "http://demo-1.demox.default.svc:2380",
        "http://demo-1:2380",
        "http://10.0.0.1:2380",
        "demo-1.demo.default.svc.evil:2380",
    ],
)
def test_what_is_not_of_this_cluster_has_no_place(strange: str) -> None:
    assert names.number_of(cluster(), strange) is None


def test_a_member_is_asked_at_its_pods_address_under_its_name() -> None:
    pod = Pod("demo-1", "10.0.0.7", "StatefulSet", ready=True, leaving=False, ended=False, trouble="")
    endpoint = observe.endpoint(cluster(), Instance(1, "demo-1", pod=pod))
    assert (endpoint.name, endpoint.address, endpoint.host, endpoint.port) == (
        "demo-1",
        "10.0.0.7",
        "demo-1.demo.default.svc",
        2379,
    )


@pytest.mark.parametrize(
    ("size", "spec", "allowed"),
    [
        (1, {}, None),
        (2, {}, None),
        (3, {}, {"maxUnavailable": 1}),
        (5, {}, {"maxUnavailable": 1}),
        (5, {"podDisruptionBudget": {"maxUnavailable": 2}}, {"maxUnavailable": 2}),
        (1, {"podDisruptionBudget": {"minAvailable": "50%"}}, {"minAvailable": "50%"}),
    ],
)
def test_a_drain_takes_one_member_at_a_time_where_that_can_be(size: int, spec: Obj, allowed: Obj | None) -> None:
    resource = cluster(size, **spec)
    budget = disruption_budget.disruption_budget(resource, names.owner(resource, SETTINGS.operator))
    found = {key: value for key, value in (budget or {"spec": {}})["spec"].items() if "vailable" in key}
    assert (found or None) == allowed


def test_a_member_that_is_not_ready_may_be_evicted_unless_its_data_goes_with_it() -> None:
    def policy(**spec: Any) -> str:
        resource = cluster(**spec)
        budget = disruption_budget.disruption_budget(resource, names.owner(resource, SETTINGS.operator))
        assert budget is not None
        return str(budget["spec"]["unhealthyPodEvictionPolicy"])

    assert policy() == "AlwaysAllow"
    assert policy(storage={"medium": "Memory", "size": "1Gi"}) == "IfHealthyBudget"


def test_what_a_stateful_set_cannot_change_stays_as_it_is() -> None:
    before = stateful_set(storage={"size": "1Gi"})
    assert provisioning.template_size(stateful_set(before, storage={"size": "2Gi"})) == "1Gi"
    assert provisioning.template_size(stateful_set(None, storage={"size": "2Gi"})) == "2Gi"


def test_volumes_stay_with_the_resource_unless_it_says_otherwise() -> None:
    def kept(**storage: Any) -> Obj:
        found: Obj = stateful_set(storage={"size": "1Gi", **storage})["spec"]["persistentVolumeClaimRetentionPolicy"]
        return found

    assert kept() == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert kept(retain=False) == {"whenDeleted": "Delete", "whenScaled": "Retain"}


def test_a_volume_says_whose_data_it_holds() -> None:
    (claim,) = stateful_set()["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["labels"][names.CLUSTER_UID] == "u-1"
    assert "volumeClaimTemplates" not in stateful_set(storage={"medium": "Memory", "size": "1Gi"})["spec"]
