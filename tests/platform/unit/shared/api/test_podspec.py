"""Disruption budgets from the spec to the PodDisruptionBudget."""

from __future__ import annotations

import pytest

from shared.api.crd import structural
from shared.api.pod_extensions import PodExtensions
from shared.api.podspec import PodDisruptionBudget
from shared.api.spec import broken, parse
from shared.kubernetes.kinds import Obj


def budget(**given: int | str) -> PodDisruptionBudget:
    return PodDisruptionBudget.model_validate(given)


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"minAvailable": 0}, {"minAvailable": 0}),
        ({"minAvailable": "50%"}, {"minAvailable": "50%"}),
        ({"maxUnavailable": 2}, {"maxUnavailable": 2}),
    ],
)
def test_budget_is_the_given_one_or_one_pod(given: Obj, allowed: Obj) -> None:
    made = budget(**given).disruption_budget({"app": "it"})
    assert made == {
        **allowed,
        "selector": {"matchLabels": {"app": "it"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


@pytest.mark.parametrize(
    ("given", "size", "keeps"),
    [
        ({}, 1, False),
        ({"minAvailable": 1}, 1, True),
        ({"minAvailable": 1}, 2, False),
        ({"minAvailable": "50%"}, 1, True),
        ({"minAvailable": "50%"}, 2, False),
        ({"minAvailable": "100%"}, 5, True),
        ({"minAvailable": 1}, 0, False),
        ({"maxUnavailable": 0}, 3, True),
        ({"maxUnavailable": "0%"}, 3, True),
        ({"maxUnavailable": "1%"}, 3, False),
    ],
)
def test_budget_that_never_allows_an_eviction_is_detected(given: Obj, size: int, keeps: bool) -> None:
    assert budget(**given).blocks_every_eviction(size) is keeps


@pytest.mark.parametrize(
    ("given", "size", "evictable"),
    [
        ({}, 3, 1),
        ({}, 0, 0),
        ({"minAvailable": 1}, 3, 2),
        ({"minAvailable": 5}, 3, 0),
        ({"minAvailable": "50%"}, 3, 1),
        ({"maxUnavailable": 2}, 3, 2),
        ({"maxUnavailable": 9}, 3, 3),
        ({"maxUnavailable": "34%"}, 3, 2),
    ],
)
def test_evictable_pods_are_counted_as_kubernetes_does(given: Obj, size: int, evictable: int) -> None:
    assert budget(**given).evictable(size) == evictable


@pytest.mark.parametrize("field", ["extraContainers", "extraInitContainers"])
def test_request_of_an_extra_container_above_its_limit_is_refused(field: str) -> None:
    """The CRD cannot have this rule for each item of a list: Kubernetes before 1.34 estimates too high a cost."""
    resources = {"limits": {"cpu": "100m"}, "requests": {"cpu": 1}}
    given = {field: [{"name": "a", "image": "a:1", "resources": resources}]}
    assert broken(parse(PodExtensions, given, at="spec"), "spec") == [
        f"spec.{field}[0].resources.requests: a request is above its limit; lower the request, or raise the limit."
    ]
    assert "a request is above" not in str(structural(PodExtensions)["properties"][field])
