"""Disruption budgets from the spec to the PodDisruptionBudget."""

from __future__ import annotations

import pytest

from shared.api.podspec import PodDisruptionBudget
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
