"""Names of nodes, and the Services, disruption budget and StatefulSet of a cluster."""

from __future__ import annotations

from operators.redis.database import DATABASE
from operators.redis.objects import names
from operators.redis.objects import stateful_set as builder
from operators.redis.objects.names import CLIENTS, CLUSTER_UID, SERVES
from operators.redis.state.instance import Instance, endpoint
from operators.redis.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Apply
from tests.redis.unit.security.rotation import wished
from tests.redis.unit.world import UID, assess


def stateful_set(existing: Obj | None = None, **spec: object) -> Obj:
    resource = wished(**spec)
    return builder.stateful_set(resource, names.owner(resource, "op"), {"metadata": {}}, 6, existing)


def test_numbers_and_names_of_claims_convert_both_ways() -> None:
    resource = wished()
    for number in (0, 7, 123):
        assert names.volume_number(resource, names.volume_name(resource, number)) == number


def test_endpoint_has_the_address_of_the_pod_and_its_host_name() -> None:
    pod = Pod.of({"metadata": {"name": "demo-2"}, "status": {"podIP": "10.0.0.3"}})
    found = endpoint(wished(), Instance(2, "demo-2", pod))
    assert (found.address, found.host, found.port, found.id) == ("10.0.0.3", "demo-2.demo.default.svc", 6379, "")


def test_client_service_selects_only_serving_nodes() -> None:
    actions = DATABASE.ensure_services(assess(wished(), Observed())).actions
    headless, built = (action.obj for action in actions if isinstance(action, Apply))
    assert built["spec"]["selector"][SERVES] == CLIENTS
    assert SERVES not in headless["spec"]["selector"], "nodes must find each other before they serve"
    assert headless["spec"]["publishNotReadyAddresses"] is True


def test_disruption_budget_counts_only_serving_nodes() -> None:
    for spec in ({}, {"podDisruptionBudget": {"minAvailable": 4}}):
        resource = wished(**spec)
        built = DATABASE.disruption_budget(resource, names.owner(resource, "op"))
        assert built is not None
        assert built["spec"]["selector"]["matchLabels"][SERVES] == CLIENTS


def test_unready_node_without_volume_may_not_be_drained() -> None:
    given: tuple[tuple[Obj, str], ...] = (({"storage": {}}, "AlwaysAllow"), ({}, "IfHealthyBudget"))
    for storage, policy in given:
        resource = wished(**storage)
        built = DATABASE.disruption_budget(resource, names.owner(resource, "op"))
        assert built is not None
        spec = built["spec"]
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, policy)


def test_stateful_set_replaces_no_pod_and_keeps_volumes_after_scale_in() -> None:
    spec = stateful_set(storage={"size": "1Gi"})["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    policy = stateful_set(storage={"retain": False})["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy["whenDeleted"] == "Delete"


def test_volumes_are_kept_if_objects_outlive_the_resource() -> None:
    built = stateful_set(storage={"retain": False}, finalizers="")
    assert built["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    assert "ownerReferences" not in built["metadata"]


def test_existing_volume_claim_template_is_not_changed() -> None:
    before = stateful_set(storage={"size": "1Gi"})
    before["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"][CLUSTER_UID] = "another"
    (claim,) = stateful_set(before, storage={"size": "2Gi"})["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert claim["metadata"]["labels"][CLUSTER_UID] == "another"
    (claim,) = stateful_set(storage={"size": "2Gi"})["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["labels"][CLUSTER_UID] == UID


def test_cluster_without_storage_has_no_volume_claim_template() -> None:
    assert "volumeClaimTemplates" not in stateful_set()["spec"]


def test_stateful_set_has_the_cluster_uid_label() -> None:
    assert stateful_set()["metadata"]["labels"][CLUSTER_UID] == UID
