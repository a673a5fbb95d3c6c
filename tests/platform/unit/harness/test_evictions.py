"""Evictions in the in-memory cluster: a budget allows one disruption at a time, of any client."""

from __future__ import annotations

from typing import Any

import pytest

from shared.kubernetes.errors import Conflict, KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import DISRUPTION_BUDGET, POD, STATEFUL_SET, Obj
from simulator.api_server.evictions import selects
from tests.harness import ApiServer, Workloads
from tests.support.api_server_scenarios import stateful_set

NAMESPACE = "cache"


def cluster(replicas: int = 3, **budget: Any) -> tuple[ApiServer, Workloads]:
    """Return a settled cluster with pods it-0, it-1, … and a budget."""
    server = ApiServer()
    workloads = Workloads(server)
    operator = server.actor("operator")
    obj = stateful_set()
    obj["metadata"]["namespace"] = NAMESPACE
    obj["spec"] |= {"replicas": replicas, "podManagementPolicy": "Parallel"}
    operator.apply(STATEFUL_SET, obj, force=True)
    apply_budget(server, **budget)
    workloads.settle()
    return server, workloads


def apply_budget(server: ApiServer, name: str = "it", **spec: Any) -> None:
    limit = {} if "minAvailable" in spec else {"maxUnavailable": 1}
    spec = limit | {"selector": {"matchLabels": {"app": "it"}}} | spec
    metadata = {"name": name, "namespace": NAMESPACE}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    server.actor("operator").apply(DISRUPTION_BUDGET, body, force=True)


def status(server: ApiServer) -> Obj:
    found: Obj = server.actor("kubectl").get(DISRUPTION_BUDGET, NAMESPACE, "it")["status"]
    return found


def names(server: ApiServer) -> list[str]:
    """Return the pods that are not terminating."""
    return [pod["metadata"]["name"] for _, pod in server.objects(POD) if not pod["metadata"].get("deletionTimestamp")]


def test_status_of_a_budget_follows_the_pods() -> None:
    server, _ = cluster()
    counts = {"expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 3, "disruptionsAllowed": 1}
    assert status(server) == counts | {"observedGeneration": 1}


def test_second_eviction_is_rejected_until_the_first_pod_is_back() -> None:
    server, workloads = cluster()
    user = server.actor("kubectl")
    user.evict(NAMESPACE, "it-0")
    assert names(server) == ["it-1", "it-2"]
    with pytest.raises(Unavailable, match="budget it needs 2 healthy pods and has 3 currently") as refused:
        user.evict(NAMESPACE, "it-1")
    assert refused.value.status == 429
    workloads.settle()
    user.evict(NAMESPACE, "it-1")


def test_deletion_ignores_the_budget() -> None:
    server, _ = cluster()
    server.actor("kubectl").delete(POD, NAMESPACE, "it-0")
    server.actor("kubectl").evict(NAMESPACE, "it-1")
    assert names(server) == ["it-2"], "the controller has not seen the deletion yet"


def test_budget_that_the_controller_has_not_seen_allows_nothing() -> None:
    server, _ = cluster()
    apply_budget(server, maxUnavailable=2)
    with pytest.raises(Unavailable):
        server.actor("kubectl").evict(NAMESPACE, "it-0")


@pytest.mark.parametrize(("policy", "evicted"), [("AlwaysAllow", True), ("IfHealthyBudget", False)])
def test_eviction_of_an_unready_pod_follows_the_policy(policy: str, evicted: bool) -> None:
    server, workloads = cluster(unhealthyPodEvictionPolicy=policy)
    workloads.pod_problem = lambda pod: "Unready" if pod["metadata"]["name"] != "it-0" else ""
    workloads.settle()
    if evicted:
        server.actor("kubectl").evict(NAMESPACE, "it-1")
    else:
        with pytest.raises(Unavailable):
            server.actor("kubectl").evict(NAMESPACE, "it-1")
    with pytest.raises(Unavailable):
        server.actor("kubectl").evict(NAMESPACE, "it-0")


def test_two_budgets_of_a_pod_are_an_error() -> None:
    server, _ = cluster()
    apply_budget(server, "second")
    with pytest.raises(KubeError, match="more than one PodDisruptionBudget") as refused:
        server.actor("kubectl").evict(NAMESPACE, "it-0")
    assert refused.value.status == 500


def test_another_pod_of_the_same_name_is_not_evicted() -> None:
    server, _ = cluster()
    with pytest.raises(Conflict):
        server.actor("kubectl").evict(NAMESPACE, "it-0", preconditions={"uid": "another"})
    with pytest.raises(NotFound):
        server.actor("kubectl").evict(NAMESPACE, "it-9")


@pytest.mark.parametrize(
    ("limit", "allowed"), [({"minAvailable": 2}, 1), ({"minAvailable": "50%"}, 1), ({"maxUnavailable": "34%"}, 2)]
)
def test_limits_are_counted_as_kubernetes_does(limit: Obj, allowed: int) -> None:
    server, _ = cluster(**limit)
    assert status(server)["disruptionsAllowed"] == allowed


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "it"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["it", "other"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["other"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["it"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["it"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "it"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
    ],
)
def test_selectors_of_budgets(selector: Obj | None, *, selected: bool) -> None:
    """The rule of labels.Selector of k8s.io/apimachinery: a missing selector selects no pod, an empty one all."""
    budget = {"metadata": {"namespace": NAMESPACE}, "spec": {"selector": selector}}
    pod = {"metadata": {"namespace": NAMESPACE, "labels": {"app": "it"}}}
    assert selects(budget, pod) == selected
    assert not selects(budget, {"metadata": {"namespace": "other", "labels": {"app": "it"}}})
