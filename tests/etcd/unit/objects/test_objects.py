"""Names of members and their ordinals, disruption budgets and StatefulSets."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd.api.spec import MAX_SIZE
from operators.etcd.database import DATABASE
from operators.etcd.objects import names
from operators.etcd.objects import stateful_set as builder
from operators.etcd.state import observed
from operators.etcd.state.observed import Instance
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.steps import provisioning
from tests.etcd.unit.world import SETTINGS, cluster


def stateful_set(existing: Obj | None = None, **spec: Any) -> Obj:
    resource = cluster(**spec)
    return builder.stateful_set(resource, names.owner(resource, SETTINGS.operator), {}, 3, existing)


@pytest.mark.parametrize("tls", [{}, {"tls": {"mode": "self"}}])
def test_ordinal_is_parsed_from_the_member_name_and_the_peer_url(tls: Obj) -> None:
    resource = cluster(**tls)
    for number in (0, 2, MAX_SIZE - 1):
        assert names.number_of(resource, names.member_name(resource, number)) == number
        assert names.number_of(resource, names.peer_url(resource, number)) == number


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "demo",
        "demo-",
        "demo-01",
        "demo--1",
        "demo-1x",
        "demo-x-1",
        "other-1",
        f"demo-{MAX_SIZE}",
        f"http://demo-{MAX_SIZE}.demo.default.svc:2380",
        "http://demo-1.demo.default.svc:2379",
        "http://demo-1.demo.other.svc:2380",
        "http://demo-1.demox.default.svc:2380",
        "http://demo-1:2380",
        "http://10.0.0.1:2380",
        "demo-1.demo.default.svc.evil:2380",
    ],
)
def test_foreign_name_or_url_has_no_ordinal(foreign: str) -> None:
    assert names.number_of(cluster(), foreign) is None


def test_endpoint_has_the_pods_address_and_the_members_name() -> None:
    pod = Pod("demo-1", "10.0.0.7", "StatefulSet", ready=True, leaving=False, ended=False, problem="")
    endpoint = observed.endpoint(cluster(), Instance(1, "demo-1", pod=pod))
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
def test_disruption_budget_allows_one_member_where_a_quorum_remains(size: int, spec: Obj, allowed: Obj | None) -> None:
    resource = cluster(size, **spec)
    budget = DATABASE.disruption_budget(resource, names.owner(resource, SETTINGS.operator))
    found = {key: value for key, value in (budget or {"spec": {}})["spec"].items() if "vailable" in key}
    assert (found or None) == allowed


def test_unready_member_may_be_evicted_unless_its_data_is_in_memory() -> None:
    def policy(**spec: Any) -> str:
        resource = cluster(**spec)
        budget = DATABASE.disruption_budget(resource, names.owner(resource, SETTINGS.operator))
        assert budget is not None
        return str(budget["spec"]["unhealthyPodEvictionPolicy"])

    assert policy() == "AlwaysAllow"
    assert policy(storage={"medium": "Memory", "size": "1Gi"}) == "IfHealthyBudget"


def test_immutable_claim_template_keeps_its_size() -> None:
    before = stateful_set(storage={"size": "1Gi"})
    assert provisioning.template_size(stateful_set(before, storage={"size": "2Gi"})) == "1Gi"
    assert provisioning.template_size(stateful_set(None, storage={"size": "2Gi"})) == "2Gi"


def test_volumes_are_retained_unless_the_spec_disables_it() -> None:
    def kept(**storage: Any) -> Obj:
        found: Obj = stateful_set(storage={"size": "1Gi", **storage})["spec"]["persistentVolumeClaimRetentionPolicy"]
        return found

    assert kept() == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert kept(retain=False) == {"whenDeleted": "Delete", "whenScaled": "Retain"}


def test_claim_is_labelled_with_the_uid_of_its_cluster() -> None:
    (claim,) = stateful_set()["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["labels"][names.CLUSTER_UID] == "u-1"
    assert "volumeClaimTemplates" not in stateful_set(storage={"medium": "Memory", "size": "1Gi"})["spec"]
