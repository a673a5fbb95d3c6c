"""Primaries and replicas are spread over hosts and zones, carefully, and the condition Degraded reports what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.kubernetes.accessors import condition_in
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.conditions import compose
from tests.redis.unit.world import JUST_NOW, At, acts, formed, node_id, of, planned, replica

THREE = {"a": "x", "b": "y", "c": "z"}


def on(hosts: str, at: list[At] | None = None, zones: dict[str, str] | None = None) -> list[At]:
    """A cluster in its desired state on these hosts, one letter for each pod."""
    return [
        replace(each, host=host.strip(), zone=(zones or {}).get(host, ""))
        for each, host in zip(at or formed(), hosts, strict=True)
    ]


def recorded(made: Plan) -> dict[str, Any]:
    return {"status": {name: made.status[name] for name in ("placement", "moves") if name in made.status}}


def degraded(made: Plan) -> Obj:
    """The condition Degraded of a plan."""
    assert made.health
    assert made.health.degraded
    return {"status": made.health.degraded.status, "reason": made.health.degraded.reason} | {
        "message": made.health.degraded.message
    }


def reported(made: Plan, before: Obj, now: str = "2026-01-01T12:00:00Z") -> Obj:
    """The condition Degraded in the status that follows a plan."""
    resource = {"metadata": {"generation": 1}, "status": before}
    composed = compose(resource, made.status, made.verdict, now, health=made.health)
    return condition_in(composed["conditions"], "Degraded")


def failover(*at: At, **more: Any) -> list[str]:
    """Ids of the nodes that take over, once the failover is recorded in the status."""
    made = planned(*at, **more)
    if "placement" not in made.status:
        assert acts(made.actions) == []
        return []
    assert of(made.actions, "FailOver") == [], "recorded first"
    again = planned(*at, **recorded(made), **more)
    return [call.id for call in of(again.actions, "FailOver")]


TOGETHER = "aabbcc"
"""Two of three primaries share a host: a, a, b; the replicas of the former are on b and c."""


def test_primary_on_a_crowded_host_is_failed_over() -> None:
    """Losing host a would stop the cluster, although each replica is on another host than its primary."""
    made = planned(*on(TOGETHER))
    assert degraded(made)["status"] == "True"
    assert degraded(made)["reason"] == "PrimariesTogether"
    assert degraded(made)["message"] == (
        "2 of 3 primaries (demo-0, demo-1) run on host a: its loss would stop the whole cluster, because no majority "
        "of primaries would be left. The operator lets demo-4 take over from demo-1."
    )
    assert failover(*on(TOGETHER)) == [node_id(4)]


def test_cluster_stays_ready_while_primaries_are_spread() -> None:
    made = planned(*on(TOGETHER))
    assert (made.verdict.reason, made.verdict.ready) == ("Spreading", True)


def test_cluster_with_a_good_placement_is_not_changed() -> None:
    made = planned(*on("abcbca"))
    assert acts(made.actions) == []
    assert made.verdict.done
    assert "placement" not in made.status
    assert (degraded(made)["status"], degraded(made)["reason"]) == ("False", "Redundant")


def test_too_few_hosts_are_reported_with_a_remedy() -> None:
    made = planned(*on("aabbba"))
    assert made.verdict.done
    assert degraded(made)["message"].endswith(
        "The present pods allow no better placement: add Kubernetes nodes, or spread the pods with spec.topologySpread "
        "and delete pods that share a host, one at a time, so that they are scheduled again."
    )


def test_replica_on_the_host_of_its_primary_is_paired_with_another() -> None:
    made = planned(*on("abcabc"))
    assert degraded(made)["reason"] == "ReplicaTogether"
    assert degraded(made)["message"].startswith("demo-3 runs on the same host (a) as its primary demo-0.")
    assert len(of(made.actions, "Replicate")) == 1, "one at a time"


def test_second_half_of_an_exchange_of_replicas_follows_at_once() -> None:
    """After demo-3 has left its primary on host a, that one has no replica, and demo-1 has two."""
    half = on("abcaba", [*formed()[:3], replica(1), replica(1), replica(2)])
    half[3] = replace(half[3], since=JUST_NOW)
    (call,) = of(planned(*half).actions, "Replicate")
    assert (call.id, call.primary) == (node_id(4), node_id(0))


def test_single_host_for_all_pods_is_reported_and_nothing_changes() -> None:
    made = planned(*on("aaaaaa"))
    assert made.verdict.done
    assert acts(made.actions) == []
    assert degraded(made)["message"].count("demo-3 runs on the same host (a) as its primary demo-0.") == 1


def test_replicas_are_in_other_zones_than_their_primaries_if_there_are_several() -> None:
    zones = {"a": "x", "b": "y", "c": "z", "d": "x", "e": "y", "f": "z"}
    together = planned(*on("abcdef", zones=zones))
    assert degraded(together)["message"].startswith("demo-3 runs on the same zone (x) as its primary demo-0.")
    assert len(of(together.actions, "Replicate")) == 1
    assert planned(*on("abcefd", zones=zones)).verdict.done


def test_zone_with_a_majority_of_primaries_gives_one_away() -> None:
    zones = {"a": "x", "d": "x", "b": "y", "e": "y", "c": "z", "f": "z"}
    made = planned(*on("adbecf", zones=zones))
    assert "2 of 3 primaries (demo-0, demo-1) run on zone x" in degraded(made)["message"]
    assert failover(*on("adbecf", zones=zones)) == [node_id(4)]


UNREST: dict[str, tuple[int, dict[str, Any]]] = {
    "a replica lags": (5, {"synced": False}),
    "a replica is away": (5, {"up": False}),
    "a pod is being deleted": (5, {"leaving": True}),
    "a pod is not ready": (5, {"ready": False}),
    "a pod is outdated": (5, {"old": True}),
    "a role changed just now": (5, {"since": "2026-01-01T11:59:31Z"}),
    "a slot is open": (0, {"open_slots": {7: (">", 1)}}),
    "a zone could not be read": (5, {"zone": None}),
}


@pytest.mark.parametrize(("number", "change"), UNREST.values(), ids=UNREST)
def test_placement_stays_while_anything_changes(number: int, change: dict[str, Any]) -> None:
    for hosts in (TOGETHER, "abcabc"):
        at = on(hosts)
        at[number] = replace(at[number], **change)
        status: Obj = {"placement": {"from": node_id(1), "to": node_id(4), "since": "2026-01-01T12:00:00Z"}}
        made = planned(*at, status=status)
        assert not {call.id for call in of(made.actions, "FailOver")} & {node_id(4), node_id(3)}
        assert of(made.actions, "Replicate") == []


def test_placement_stays_while_slots_move() -> None:
    at = on(TOGETHER + "de", [*formed(), At(epoch=0), replica(6)])
    first = planned(*at, **recorded(planned(*on(TOGETHER))))
    made = planned(*at, **recorded(first))  # the moves are recorded before they begin
    assert of(made.actions, "MoveSlots")
    assert of(made.actions, "FailOver") == []


def test_pod_that_is_away_keeps_its_location() -> None:
    """A drained pod is pending. Its last host counts, so that nothing changes when it returns."""
    at = on("abcbca")
    first = planned(*at).status
    away = [*at[:5], replace(at[5], up=False, host="")]
    made = planned(*away, status=first)
    assert made.status["nodes"][5]["host"] == "a"
    assert of(made.actions, "Replicate") == of(made.actions, "FailOver") == []
    assert (degraded(made)["status"], degraded(made)["reason"]) == ("True", "RedundancyReduced")
    assert degraded(made)["message"] == "demo-2 has 0 of 1 replicas in sync."


def test_missing_copy_is_reported_before_a_placement_that_was_bad_already() -> None:
    """Alerts go by the reason, and a bad placement does not hide that a primary has no copy."""
    at = on("aabbba")
    away = [*at[:5], replace(at[5], up=False, host="")]
    made = planned(*away, status=planned(*at).status)
    assert degraded(made)["reason"] == "RedundancyReduced"
    assert degraded(made)["message"].startswith(
        "demo-2 has 0 of 1 replicas in sync. 2 of 3 primaries (demo-0, demo-1) run"
    )
    assert degraded(made)["message"].endswith("once all nodes are in sync and no other change is in progress.")


@pytest.mark.parametrize(
    ("since", "sent", "attempt"),
    [
        ("12:00:00", True, "12:00:00"),
        ("11:59:51", True, "11:59:51"),
        ("11:59:50", False, "11:59:50"),
        ("11:50:01", False, "11:50:01"),
        ("11:50:00", False, "12:00:00"),
    ],
    ids=["recorded", "not complete yet", "without effect", "not repeated yet", "recorded again"],
)
def test_failover_without_effect_is_not_repeated_for_ten_minutes(since: str, sent: bool, attempt: str) -> None:
    """Each attempt makes clients wait."""
    status: Obj = {"placement": {"from": node_id(1), "to": node_id(4), "since": f"2026-01-01T{since}Z"}}
    made = planned(*on(TOGETHER), status=status)
    assert bool(of(made.actions, "FailOver")) == sent
    assert made.status["placement"]["since"] == f"2026-01-01T{attempt}Z"


def test_transition_time_of_the_condition_changes_with_its_status_only() -> None:
    first = {"conditions": [reported(planned(*on("aaaaaa")), {}, "2025-12-24T00:00:00Z")]}
    assert reported(planned(*on("aabbba")), first)["lastTransitionTime"] == "2025-12-24T00:00:00Z"
    assert reported(planned(*on("abcbca")), first)["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_condition_stays_while_no_node_is_reachable() -> None:
    first = reported(planned(*on(TOGETHER)), {}, "2025-12-24T00:00:00Z")
    made = planned(*(replace(at, up=False) for at in on(TOGETHER)), status={"conditions": [first]})
    assert reported(made, {"conditions": [first]}) == first


def test_clusters_without_replicas_report_no_missing_ones() -> None:
    assert degraded(planned(*formed(3, 0), replicasPerMaster=0))["status"] == "False"
