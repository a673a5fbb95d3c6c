"""The state that is healed while the spec is not applied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.redis.api.spec import MAX_REPLICAS
from operators.redis.objects.names import CLUSTER_UID
from operators.redis.running_cluster import as_it_runs
from tests.redis.unit.world import acts, assess, cluster, formed, plan, seen

P0, P1, P2, R0, R1, R2 = formed()


@pytest.mark.parametrize(
    ("spec", "made", "size", "primaries"),
    [
        ({"replicas": 6}, 6, 6, 3),
        ({"replicas": 10}, 6, 6, 3),  # pods that are not created yet
        ({"replicas": 6, "replicasPerMaster": 0}, 6, 6, 3),
        ({"replicas": 4}, 6, 6, 3),  # an invalid size
        ({"replicas": 6}, 7, 7, 3),  # a pod that was to be removed
        ({"replicas": 6}, 2**31 - 1, MAX_REPLICAS, 3),  # scaled by hand
        ({"replicas": 6}, 0, 6, 3),  # scaled by hand: nodes that are recorded are not removed
    ],
)
def test_size_is_that_of_the_stateful_set_and_of_the_recorded_nodes(
    spec: dict[str, int], made: int, size: int, primaries: int
) -> None:
    resource = cluster(*formed(), **spec)  # type: ignore[arg-type]
    observed = seen(resource, *formed(), replicas=made)
    running = as_it_runs(assess(resource, observed)).resource
    assert (running.spec.replicas, running.primaries) == (size, primaries)


def test_node_whose_pod_was_removed_by_hand_is_not_forgotten_while_paused() -> None:
    away = replace(R2, up=False, pod=False, failed=True)
    resource = cluster(P0, P1, P2, R0, R1, away, replicas=3, replicasPerMaster=0, pause=True)
    observed = seen(resource, P0, P1, P2, R0, R1, away, replicas=5)
    facts = as_it_runs(assess(resource, observed))
    assert not facts.is_scaled_away(observed.instances[5].recorded.node_id)  # type: ignore[union-attr]


def test_new_cluster_has_the_size_of_its_spec() -> None:
    resource = cluster(replicas=6, is_formed=False)
    observed = seen(resource, stateful_set=False)
    assert as_it_runs(assess(resource, observed)).resource is resource


def test_stateful_set_of_another_cluster_does_not_count() -> None:
    resource = cluster(*formed(), replicas=6, storage=None)
    observed = seen(resource, *formed(), replicas=9)
    assert observed.stateful_set
    observed.stateful_set["metadata"]["labels"][CLUSTER_UID] = "another"
    facts = as_it_runs(assess(resource, observed))
    assert facts.stateful_set is None
    assert facts.resource.spec.replicas == 6
    assert not facts.reachable, "pods without volumes belong to their StatefulSet"
    assert [instance.recorded for instance in facts.instances] == [each.recorded for each in observed.instances]


def test_phase_of_a_paused_cluster_does_not_follow_its_spec() -> None:
    moved = replace(R0, address="10.9.0.1", stale_address="10.0.0.4")
    resource = cluster(P0, P1, P2, moved, R1, R2, replicas=8, pause=True, generation=2)
    made = plan(resource, seen(resource, P0, P1, P2, moved, R1, R2, replicas=6))
    assert len(acts(made.actions)) == 1
    assert made.status["phase"] == "Running"
