"""The eviction of pods: the subresource that respects PodDisruptionBudgets.

Source: pkg/registry/core/pod/storage/eviction.go in kubernetes/kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.kubernetes import accessors
from shared.kubernetes.kinds import DISRUPTION_BUDGET, Obj
from simulator.api_server.clone import clone
from simulator.api_server.requests import Failure
from simulator.api_server.store import Store

VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


def claim(store: Store, pod: Obj) -> None:
    """Take one disruption from the budget of a pod, unless the budget does not apply to it.

    Raises:
        Failure: 429, the budget allows no disruption now; 500, several budgets select the pod.
    """
    metadata, phase = pod["metadata"], pod["status"].get("phase")
    if metadata.get("deletionTimestamp") or phase in ("Succeeded", "Failed", "Pending"):
        return
    budgets = [budget for budget in store.list(DISRUPTION_BUDGET, metadata["namespace"]) if selects(budget, pod)]
    if len(budgets) > 1:
        several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Failure(500, "", several)
    for budget in budgets:
        if accessors.is_true(pod, "Ready") or not _may_evict_unready(budget):
            _decrement(store, budget, metadata["name"])


def selects(budget: Obj, pod: Obj) -> bool:
    """Whether a budget selects a pod. A missing selector selects none, an empty one all of the namespace."""
    selector, labels = budget["spec"].get("selector"), pod["metadata"].get("labels") or {}
    if selector is None or budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    desired = selector.get("matchLabels") or {}
    return desired.items() <= labels.items() and all(
        _matches(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _matches(requirement: Obj, labels: Mapping[str, str]) -> bool:
    """Whether labels match a requirement. Source: Requirement.Matches in k8s.io/apimachinery/pkg/labels."""
    value, given = labels.get(requirement["key"]), requirement.get("values") or ()
    matches = {
        "In": value in given,
        "NotIn": value not in given,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return matches[requirement["operator"]]


def _may_evict_unready(budget: Obj) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _decrement(store: Store, budget: Obj, pod: str) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise _refusal(f"The disruption budget {name} is still being processed by the server.")
    if status["disruptionsAllowed"] == 0:
        needs = f"{status['desiredHealthy']} healthy pods and has {status['currentHealthy']} currently"
        raise _refusal(f"The disruption budget {name} needs {needs}")
    new = clone(budget)
    new["status"]["disruptionsAllowed"] -= 1
    new["status"].setdefault("disruptedPods", {})[pod] = store.now()
    store.keep(DISRUPTION_BUDGET, new)


def _refusal(cause: str) -> Failure:
    return Failure(429, "TooManyRequests", VIOLATION, [{"reason": "DisruptionBudget", "message": cause}])
