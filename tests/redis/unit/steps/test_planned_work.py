"""During planned work the status names the planned step, and then the pod or the conflict that it waits for."""

from __future__ import annotations

from dataclasses import replace

from tests.redis.unit.world import NEW_RECORDED, At, acts, formed, planned

P0, P1, P2, R0, R1, R2 = formed()
OLD = [replace(at, old=True) for at in formed()]


def test_rolling_update_names_the_pod_that_restarts() -> None:
    starting = replace(R0, up=False, runs=True)
    made = planned(*OLD[:3], starting, *OLD[4:], phase="Upgrading")
    assert (made.verdict.reason, made.verdict.message) == (
        "Upgrading",
        "Rolling update: restarting demo-3 (1 of 6). Waiting for all nodes to report the same cluster view. demo-3 is "
        "starting.",
    )


def test_rolling_update_names_the_pod_whose_address_changed() -> None:
    moved = replace(R0, address="10.9.0.1", stale_address="10.0.0.4", ready=False)
    made = planned(*OLD[:3], moved, *OLD[4:], phase="Upgrading")
    assert acts(made.actions) == ["let demo-0, demo-1, demo-2, demo-4, demo-5 meet demo-3 at 10.9.0.1"]
    assert (made.verdict.reason, made.verdict.message) == (
        "Upgrading",
        "Rolling update: restarting demo-3 (1 of 6). Updating the address of demo-3 on the other nodes (CLUSTER MEET).",
    )


def test_rolling_update_counts_the_outdated_pods_between_restarts() -> None:
    made = planned(*OLD[:2], replace(OLD[2], up=False, ready=True), R0, R1, R2, phase="Upgrading")
    assert made.verdict.message == (
        "Rolling update: 3 of 6 pods are outdated. Waiting for all nodes to report the same cluster view. demo-2 is "
        "unreachable: no route to host."
    )


def test_scaling_names_the_slots_that_move() -> None:
    at = [*formed(), At(epoch=0), replace(NEW_RECORDED, member=True, up=False)]
    made = planned(*at, phase="Scaling", replicas=8)
    assert made.verdict.reason == "Scaling"
    assert made.verdict.message.startswith("Scaling to 4 primaries: ")
    assert made.verdict.message.endswith("demo-7 is starting.")


def test_conflict_that_no_missing_pod_explains_is_described_during_planned_work() -> None:
    """The conflict may not end by itself, and no later step runs while it lasts."""
    made = planned(replace(P0, slots="0-5461"), P1, P2, R0, R1, R2, phase="Scaling")
    assert made.verdict.message.startswith(
        "Scaling to 6 nodes. Waiting for all nodes to report the same cluster view. demo-1 and demo-0 both claim slot "
        "5461: demo-1 will keep it, by config epoch (2 against 1)."
    )


def test_disagreement_without_planned_work_is_described() -> None:
    made = planned(P0, P1, replace(P2, up=False, runs=True, ready=True), R0, R1, R2)
    assert made.verdict.reason == "Settling"
    assert "demo-2" in made.verdict.message
