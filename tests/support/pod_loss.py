"""Scenario steps in which pods are lost together with their volumes."""

from __future__ import annotations

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Kind
from tests.harness.scenario import ScenarioStep, at_once, delete


def delete_now(kind: Kind, name: str) -> ScenarioStep:
    """Delete an object as a user; a pod without a grace period."""
    options = {"gracePeriodSeconds": 0} if kind == POD else {}
    return delete(kind, name, **options)


def pods_and_volumes_lost(cluster: str, *numbers: int) -> tuple[ScenarioStep, ...]:
    """Lose pods of a cluster together with their volumes, as when a node with local disks fails."""
    steps = []
    for number in numbers:
        pod = f"{cluster}-{number}"
        steps += [delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{pod}"), delete_now(POD, pod)]
    return at_once(*steps)
