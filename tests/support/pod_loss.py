"""Steps of crash scenarios in which pods and their volumes are lost."""

from __future__ import annotations

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Kind
from shared.testing.harness.scenario import ScenarioStep, at_once, delete


def gone(kind: Kind, name: str) -> ScenarioStep:
    """A person deletes an object; a pod without a grace period."""
    options = {"gracePeriodSeconds": 0} if kind == POD else {}
    return delete(kind, name, **options)


def pods_and_volumes_lost(cluster: str, *numbers: int) -> tuple[ScenarioStep, ...]:
    """Pods of a cluster are lost together with their volumes, as with a node and its disks."""
    steps = []
    for number in numbers:
        pod = f"{cluster}-{number}"
        steps += [gone(PERSISTENT_VOLUME_CLAIM, f"data-{pod}"), gone(POD, pod)]
    return at_once(*steps)
