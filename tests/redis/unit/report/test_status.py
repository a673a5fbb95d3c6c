"""Status of a RedisCluster: compatible with the seed, and stable while nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from tests.redis.unit.world import ABSENT, NEW, At, cluster, formed, node_id, plan, replica, seen, world
from tests.support.redis.scenarios import REDIS

P0, P1, P2, R0, R1, R2 = formed()


def test_entries_of_nodes_show_role_slots_location_and_state() -> None:
    nodes = plan(*world(*formed())).status["nodes"]
    assert nodes[0] == {
        "name": "demo-0",
        "role": "primary",
        "status": "True",
        "reason": "Serving",
        "message": "",
        "lastTransitionTime": "2026-01-01T11:00:00Z",
        "nodeId": node_id(0),
        "slots": "0-5460",
        "address": "10.0.0.1:6379",
        "domainName": "demo-0.demo.default.svc.cluster.local",
        "host": "host-0",
        "hostIP": "192.0.2.1",
        "disk": "disk-0",
        "version": "redis 8.0.2",
    }
    assert (nodes[3]["role"], nodes[3]["primaryId"], "slots" in nodes[3]) == ("replica", node_id(0), False)
    assert nodes[3]["copyOf"] == node_id(0)


def test_flags_that_most_nodes_report_are_shown() -> None:
    failed = replace(R2, up=False, failed=True)
    nodes = plan(*world(*formed()[:5], failed)).status["nodes"]
    assert nodes[5]["flags"] == ["fail"]
    assert not any("flags" in node for node in nodes[:5])


def test_scenarios_compare_no_field_that_only_one_role_has() -> None:
    """Which pods are primaries is a matter of chance: such a field would differ between two runs that end alike."""
    primary, copy = (plan(*world(*formed())).status["nodes"][number].keys() for number in (0, 3))
    assert {"slots", "primaryId", "inSync"} <= primary ^ copy <= {*REDIS.unstable}


def test_copy_of_is_the_last_primary_that_the_replica_was_in_sync_with() -> None:
    first = plan(*world(*formed())).status
    changed = [*formed()[:5], replica(1, synced=False)]
    resource = cluster(*changed, status=first)
    made = plan(resource, seen(resource, *changed))
    assert [made.status["nodes"][5][key] for key in ("primaryId", "copyOf")] == [node_id(1), node_id(2)]
    fresh = [*formed()[:5], replica(2, synced=False, incarnation=1, recorded=None)]
    resource = cluster(*fresh, status=first | {"nodes": first["nodes"][:5]})
    assert "copyOf" not in plan(resource, seen(resource, *fresh)).status["nodes"][5]


def test_primary_that_was_replaced_has_its_own_data_until_it_is_in_sync() -> None:
    """The record of a primary names the one that it took over from: that it had all data of that one is long ago."""
    status = plan(*world(*formed())).status

    def next_status(*at: At) -> list[dict[str, Any]]:
        nonlocal status
        resource = cluster(*at, status=status)
        status = plan(resource, seen(resource, *at)).status
        return list(status["nodes"])

    owner = replace(formed()[0], epoch=9)
    assert next_status(replace(P0, up=False, failed=True, slots=""), *formed()[1:3], owner, R1, R2)[3]["copyOf"] == (
        node_id(0)
    )
    behind = replace(R0, of=3, synced=False)
    assert next_status(behind, *formed()[1:3], owner, R1, R2)[0]["copyOf"] == node_id(0)
    assert next_status(behind, *formed()[1:3], owner, R1, R2)[0]["copyOf"] == node_id(0)
    assert "copyOf" not in next_status(replace(behind, syncing=True), *formed()[1:3], owner, R1, R2)[0]
    assert next_status(replace(R0, of=3), *formed()[1:3], owner, R1, R2)[0]["copyOf"] == node_id(3)
    again = replace(R0, of=0, synced=False)
    assert next_status(formed()[0], *formed()[1:3], again, R1, R2)[3]["copyOf"] == node_id(3)
    assert status["nodes"][0]["copyOf"] == node_id(3), "it took over from it"


def test_status_has_totals_shards_and_endpoints() -> None:
    made = plan(*world(*formed())).status
    assert (made["phase"], made["reason"], made["formed"]) == ("Running", "", True)
    assert (made["replicas"], made["readyReplicas"], made["masters"]) == (6, 6, 3)
    assert made["version"] == "redis 8.0.2"
    assert made["shards"][1] == {"master": "demo-1", "slots": "5461-10922", "replicas": ["demo-4"]}
    assert made["endpoints"] == [f"demo-{n}.demo.default.svc:6379" for n in range(6)]
    assert made["selector"] == (
        "app.kubernetes.io/component=node,app.kubernetes.io/instance=demo,app.kubernetes.io/name=redis"
    )
    assert "migration" not in made
    assert "recovery" not in made


def test_status_of_an_unchanged_cluster_is_stable() -> None:
    resource, found = world(*formed())
    first = plan(resource, found).status
    busy = [replace(at, keys=at.keys + 99, offset=5000, memory=10**6) for at in formed()]
    again = cluster(*formed(), status=first)
    assert plan(again, seen(again, *busy)).status == first


@pytest.mark.parametrize(
    ("at", "reason", "message"),
    [
        (replace(R2, up=False, ready=True), "NotAnswering", "no route to host"),
        (replace(R2, up=False), "Starting", ""),
        (replace(R2, loading=True), "Starting", "Loading data."),
        (replace(R2, synced=False), "Syncing", "Syncing with demo-2."),
        (replace(R2, ready=False), "Starting", "The kubelet does not report the pod as ready."),
        (
            At(up=False, problem="ErrImagePull: no such image"),
            "ImagePullFailed",
            "cannot pull its image: no such image",
        ),
        (replace(R2, up=False, pod=False), "NoPod", "The pod does not exist."),
        (NEW, "Joining", "The node owns no slots."),
    ],
)
def test_entry_of_an_unready_node_has_a_reason(at: At, reason: str, message: str) -> None:
    entry = plan(*world(*formed()[:5], at)).status["nodes"][5]
    status = "Unknown" if reason == "NotAnswering" else "False"  # only the operator cannot reach it
    assert (entry["status"], entry["reason"], entry["message"]) == (status, reason, message)


def test_entry_of_an_unreachable_node_keeps_its_last_known_values() -> None:
    first = plan(*world(*formed())).status
    away = [*formed()[:5], replace(R2, up=False, pod=False)]
    resource = cluster(*away, status=first)
    entry = plan(resource, seen(resource, *away)).status["nodes"][5]
    kept = ("nodeId", "primaryId", "role", "disk", "version")
    assert {key: entry[key] for key in kept} == {key: first["nodes"][5][key] for key in kept}
    all_unreachable = [replace(at, up=False) for at in formed()]
    resource = cluster(*all_unreachable, status=first)
    unreachable = plan(resource, seen(resource, *all_unreachable)).status
    assert [entry["nodeId"] for entry in unreachable["nodes"]] == [node_id(n) for n in range(6)]
    assert (unreachable["shards"], unreachable["version"], unreachable["formed"]) == (
        first["shards"],
        first["version"],
        True,
    )


def test_transition_time_changes_only_with_the_status() -> None:
    first = plan(*world(*formed())).status
    first["nodes"][5]["lastTransitionTime"] = "2025-12-24T00:00:00Z"
    resource = cluster(*formed(), status=first)
    assert plan(resource, seen(resource, *formed())).status == first
    changed = [*formed()[:5], replace(R2, synced=False)]
    assert plan(resource, seen(resource, *changed)).status["nodes"][5]["lastTransitionTime"].startswith("2026")


@pytest.mark.parametrize(("answers", "kept"), [(False, "2025-12-24T00:00:00Z"), (True, None)])
def test_time_without_sync_stays_while_it_is_unknown_whether_a_replica_serves(
    *, answers: bool, kept: str | None
) -> None:
    """Since then it may lack writes of its primary."""
    first = plan(*world(*formed())).status
    first["nodes"][5] |= {"status": "False", "outOfSyncSince": "2025-12-24T00:00:00Z"}
    at = [*formed()[:5], R2 if answers else replace(R2, up=False, ready=True)]
    entry = plan(cluster(*at, status=first), seen(cluster(*at, status=first), *at)).status["nodes"][5]
    assert (entry["status"], entry.get("outOfSyncSince")) == ("True" if answers else "Unknown", kept)


def test_removed_pod_has_an_entry_until_its_node_is_forgotten() -> None:
    removed = At(up=False, pod=False, failed=True)
    assert len(plan(*world(*formed(), removed, replicas=6)).status["nodes"]) == 7
    forgotten = replace(ABSENT, recorded=0)
    assert len(plan(*world(*formed(), forgotten, replicas=6)).status["nodes"]) == 6


def test_only_ready_nodes_are_endpoints() -> None:
    made = plan(*world(*formed()[:4], replace(R1, synced=False), replace(R2, ready=False)))
    assert made.status["endpoints"] == [f"demo-{n}.demo.default.svc:6379" for n in range(4)]
    assert made.status["readyReplicas"] == 4


def test_shards_are_in_the_order_of_their_primaries() -> None:
    slots = [f"{n * 1365}-{n * 1365 + 1364}" for n in range(11)] + ["15015-16383"]
    made = plan(*world(*(At(each) for each in slots), *(replica(n) for n in range(12))))
    assert [shard["master"] for shard in made.status["shards"]] == [f"demo-{n}" for n in range(12)]


def test_endpoints_stay_while_only_the_operator_cannot_reach_the_nodes() -> None:
    first = plan(*world(*formed())).status
    blind = [replace(node, up=False, ready=True) for node in formed()]
    resource = cluster(*blind, status=first)
    made = plan(resource, seen(resource, *blind)).status
    assert made["endpoints"] == first["endpoints"]
    assert {entry["status"] for entry in made["nodes"]} == {"Unknown"}
    blind[1] = replace(blind[1], ready=False)
    made = plan(resource, seen(resource, *blind)).status
    assert "demo-1.demo.default.svc:6379" not in made["endpoints"]
    assert len(made["endpoints"]) == 5


@pytest.mark.parametrize(("address", "expected"), [("10.0.0.1", "10.0.0.1:6379"), ("fd00::1", "[fd00::1]:6379")])
def test_address_of_a_node_can_be_used_by_a_client(address: str, expected: str) -> None:
    nodes = plan(*world(replace(P0, address=address), P1, P2, R0, R1, R2)).status["nodes"]
    assert nodes[0]["address"] == expected


@pytest.mark.parametrize("answering", [True, False])
def test_node_with_another_role_than_the_recorded_one_is_unknown_while_no_majority_answers(*, answering: bool) -> None:
    """A reachable node may be outdated then, and the recorded role stays."""
    away = [P0, replace(P1, up=answering, ready=True, runs=True), replace(P2, up=answering, ready=True, runs=True)]
    resource, observed = world(*away, R0, R1, R2)
    status = resource.obj["status"]
    recorded = [
        entry | ({"primaryId": node_id(1), "copyOf": node_id(1)} if entry["name"] == "demo-3" else {})
        for entry in status["nodes"]
    ]
    resource = RedisCluster.parse({**resource.obj, "status": status | {"nodes": recorded}})
    entry = plan(resource, observed).status["nodes"][3]
    expected = ("True", node_id(0)) if answering else ("Unknown", node_id(1))
    assert (entry["status"], entry["primaryId"]) == expected
