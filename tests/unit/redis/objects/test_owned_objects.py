"""Names of nodes, and the objects around them."""

from __future__ import annotations

import pytest

from operators.redis.instance import Instance, endpoint
from operators.redis.objects import disruption_budget, names, services
from operators.redis.objects import stateful_set as builder
from operators.redis.objects.names import CLIENTS, CLUSTER_UID, SERVES
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from tests.unit.redis.security.rotation import wished
from tests.unit.redis.world import UID


def stateful_set(existing: Obj | None = None, **spec: object) -> Obj:
    resource = wished(**spec)
    return builder.stateful_set(resource, names.owner(resource, "op"), {"metadata": {}}, 6, existing)


def test_a_place_has_a_name_and_a_name_has_a_place() -> None:
    resource = wished()
    for number in (0, 7, 123):
        assert names.number_of(resource, names.node_name(resource, number)) == number
        assert names.volume_number(resource, names.volume_name(resource, number)) == number


@pytest.mark.parametrize(
    "name", ["demo", "demo-", "demo-01", "demo-x", "demo-1-2", "other-1", "xdemo-1", "data-demo-1"]
)
def test_what_is_no_pod_of_ours_has_no_place(name: str) -> None:
    assert names.number_of(wished(), name) is None


def test_a_node_is_asked_at_its_pods_address_and_known_by_its_name() -> None:
    pod = Pod.of({"metadata": {"name": "demo-2"}, "status": {"podIP": "10.0.0.3"}})
    found = endpoint(wished(), Instance(2, "demo-2", pod))
    assert (found.address, found.host, found.port, found.id) == ("10.0.0.3", "demo-2.demo.default.svc", 6379, "")


def test_clients_are_sent_to_who_was_admitted_alone() -> None:
    resource = wished()
    made = services.client_service(resource, names.owner(resource, "op"))
    assert made["spec"]["selector"][SERVES] == CLIENTS
    headless = services.headless_service(resource, names.owner(resource, "op"))
    assert SERVES not in headless["spec"]["selector"], "nodes find each other before"
    assert headless["spec"]["publishNotReadyAddresses"] is True


def test_a_drain_counts_on_those_alone_that_clients_are_sent_to() -> None:
    for spec in ({}, {"podDisruptionBudget": {"minAvailable": 4}}):
        resource = wished(**spec)
        made = disruption_budget.disruption_budget(resource, names.owner(resource, "op"))
        assert made["spec"]["selector"]["matchLabels"][SERVES] == CLIENTS


def test_one_node_may_be_drained_at_a_time_and_none_that_takes_its_data_along_unready() -> None:
    given: tuple[tuple[Obj, str], ...] = (({"storage": {}}, "AlwaysAllow"), ({}, "IfHealthyBudget"))
    for storage, policy in given:
        resource = wished(**storage)
        spec = disruption_budget.disruption_budget(resource, names.owner(resource, "op"))["spec"]
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, policy)


def test_a_stateful_set_replaces_no_pod_and_keeps_volumes_of_places_that_went() -> None:
    spec = stateful_set(storage={"size": "1Gi"})["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    policy = stateful_set(storage={"retain": False})["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy["whenDeleted"] == "Delete"


def test_what_outlives_its_resource_keeps_its_volumes_whatever_storage_says() -> None:
    made = stateful_set(storage={"retain": False}, finalizers="")
    assert made["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    assert "ownerReferences" not in made["metadata"]


def test_the_template_of_volumes_stays_as_it_was_made() -> None:
    before = stateful_set(storage={"size": "1Gi"})
    before["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"][CLUSTER_UID] = "another"
    (claim,) = stateful_set(before, storage={"size": "2Gi"})["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert claim["metadata"]["labels"][CLUSTER_UID] == "another"
    (claim,) = stateful_set(storage={"size": "2Gi"})["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["labels"][CLUSTER_UID] == UID


def test_without_storage_there_are_no_volumes() -> None:
    assert "volumeClaimTemplates" not in stateful_set()["spec"]


def test_whose_data_it_is_stands_on_it() -> None:
    assert stateful_set()["metadata"]["labels"][CLUSTER_UID] == UID
