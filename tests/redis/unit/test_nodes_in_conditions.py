"""Nodes are in status.nodes; v1alpha1's readers find them in status.conditions, and no record of a node is ever lost.

The API server is one that keeps status.nodes, or one with an older CRD, which removes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.node_entries import as_conditions, is_node, recorded_entries
from operators.redis.api.resource import API, RedisCluster
from operators.redis.report.metrics import states
from operators.redis.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.status import conditions
from tests.redis.unit.world import NEW, NOW, At, acts, cluster, formed, node_id, plan, seen, world
from tests.support.schema import broken_constraints, root_schema

PODS: Obj = {"pod": [{"labels": {"a": "b"}}]}
ASSIGNED: Obj = {"updateStrategy": {"type": "AssignReceive"}}
SWITCHED_ON: Obj = {"nodesInConditions": True}
SWITCHED_OFF: Obj = {"nodesInConditions": False}
FIRST_FIELDS = [
    "name", "instance", "type", "masterNodeId", "nodeId", "domainName", "slots", "hostname", "hostIP", "status",
    "reason", "message", "lastTransitionTime",
]  # fmt: skip
"""Fields of an entry in the first manifests (samples/redis/seed.yaml)."""

Stored = Callable[[Obj], Obj]


def kept(status: Obj) -> Obj:
    """Return the status as the present CRD stores it."""
    return status


def pruned(status: Obj) -> Obj:
    """Return the status as an older CRD stores it."""
    return {key: value for key, value in status.items() if key not in ("nodes", "nodesInConditions")}


def reported(resource: RedisCluster, found: Observed) -> Obj:
    """Return the whole status that the operator writes."""
    made = plan(resource, found)
    return conditions.compose(resource.obj, made.status, made.verdict, f"{NOW:%Y-%m-%dT%H:%M:%SZ}", health=made.health)


def former(at: list[At]) -> Obj:
    """Return a status that an earlier build wrote."""
    status = reported(*world(*at, **SWITCHED_ON))
    return pruned(status)


def rewritten(status: Obj, at: list[At], stored: Stored = kept, times: int = 1, **spec: Any) -> Obj:
    """Return the status after the operator has written it a number of times."""
    for _ in range(times):
        resource = resource_with(status, at, **spec)
        status = stored(reported(resource, seen(resource, *at)))
    return status


def resource_with(status: Obj, at: list[At], **spec: Any) -> RedisCluster:
    """Return a resource that has this status, and nothing else."""
    obj = cluster(*at, **spec).obj
    return RedisCluster.parse({**obj, "status": status})


def nodes_in_conditions(status: Obj) -> list[str]:
    return [entry["name"] for entry in status["conditions"] if is_node(entry)]


def identities(status: Obj) -> list[tuple[str, str, str]]:
    return [(node["name"], node["nodeId"], node["disk"]) for node in recorded_entries(status)]


ALL = [f"demo-{number}" for number in range(6)]


def test_conditions_of_a_new_cluster_are_standard_conditions() -> None:
    begun = rewritten({}, [NEW] * 6)
    for status in (begun, rewritten(begun | {"formed": True}, formed())):
        assert [each["type"] for each in status["conditions"]][:3] == ["Ready", "Reconciling", "Stalled"]
        for condition in status["conditions"]:
            assert condition.keys() == {
                "type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"
            }  # fmt: skip
        assert [node["name"] for node in status["nodes"]] == ALL


@pytest.mark.parametrize("given", [PODS, ASSIGNED, SWITCHED_ON], ids=str)
def test_entries_have_the_fields_of_the_first_manifests(given: Obj) -> None:
    status = reported(*world(*formed(), **given))
    first, *_, last = (entry for entry in status["conditions"] if is_node(entry))
    assert {key: first[key] for key in FIRST_FIELDS} == {
        "name": "demo-0",
        "instance": "10.0.0.1:6379",
        "type": "master",
        "masterNodeId": node_id(0),
        "nodeId": node_id(0),
        "domainName": "demo-0.demo.default.svc.cluster.local",
        "slots": "0-5460",
        "hostname": "host-0",
        "hostIP": "192.0.2.1",
        "status": "True",
        "reason": "Serving",
        "message": "",
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }
    assert (last["type"], last["masterNodeId"]) == ("slave", node_id(2))
    kinds = [is_node(entry) for entry in status["conditions"]]
    assert kinds == sorted(kinds), "the conditions come first"


@pytest.mark.parametrize(
    ("given", "listed"),
    [({}, []), (PODS, ALL), (ASSIGNED, ALL), (SWITCHED_ON, ALL), (SWITCHED_OFF, []), (PODS | SWITCHED_OFF, [])],
    ids=str,
)
def test_switch_decides_and_defaults_to_true_for_the_first_fields(given: Obj, listed: list[str]) -> None:
    status = reported(*world(*formed(), **given))
    assert nodes_in_conditions(status) == listed
    again = rewritten(status, formed())
    assert nodes_in_conditions(again) == [], "the field is removed, and no earlier build wrote the entries"


@pytest.mark.parametrize("times", [1, 3])
def test_entries_of_an_earlier_build_stay(times: int) -> None:
    before = former(formed())
    status = rewritten(before, formed(), times=times)
    assert nodes_in_conditions(status) == ALL
    assert status["conditions"] == before["conditions"]
    assert identities(status) == identities(before)


def test_entries_of_another_operator_of_this_api_stay() -> None:
    before = {key: value for key, value in former(formed()).items() if key in ("phase", "conditions")}
    assert nodes_in_conditions(rewritten(before, formed(), times=2)) == ALL


def test_entries_of_an_earlier_build_end_with_the_switch_once_nodes_are_stored() -> None:
    before = former(formed())
    first = rewritten(before, formed(), **SWITCHED_OFF)
    assert nodes_in_conditions(first) == ALL, "it is not known that status.nodes is kept"
    status = rewritten(first, formed(), **SWITCHED_OFF)
    assert nodes_in_conditions(status) == []
    assert identities(status) == identities(before)
    assert nodes_in_conditions(rewritten(status, formed())) == ALL, "the default of this resource"


@pytest.mark.parametrize("given", [{}, SWITCHED_OFF, SWITCHED_ON], ids=str)
def test_older_crd_keeps_the_entries(given: Obj) -> None:
    """An older CRD drops the switch as well, so that the last two cases are only possible in between."""
    begun = rewritten({}, [NEW] * 6, pruned, **given)
    assert "nodes" not in begun
    status = rewritten(begun | {"formed": True}, formed(), pruned, times=2, **given)
    assert nodes_in_conditions(status) == ALL
    assert identities(status) == [(f"demo-{n}", node_id(n), f"disk-{n}") for n in range(6)]


AWAY = [replace(formed()[0], up=False, ready=True), *formed()[1:5], replace(formed()[5], up=False, pod=False)]
LOST = [*formed()[:5], At(incarnation=1, recorded=0, disk="disk-5b", member=False, knows=False, epoch=0)]


@pytest.mark.parametrize("at", [formed(), AWAY, LOST], ids=["at rest", "nodes are away", "a volume was replaced"])
def test_plan_on_the_status_of_an_earlier_build_is_that_on_the_present_one(at: list[At]) -> None:
    """No node counts as new, unknown or lost because of the form of its record."""
    present, before = (resource_with(status(formed()), at) for status in (lambda at: reported(*world(*at)), former))
    found, known = (seen(resource, *at) for resource in (present, before))
    assert [each.recorded for each in known.instances] == [each.recorded for each in found.instances]
    made, expected = plan(before, known), plan(present, found)
    assert acts(made.actions) == acts(expected.actions)
    assert (made.verdict, made.health) == (expected.verdict, expected.health)
    assert made.status["nodes"] == expected.status["nodes"]


def test_both_forms_of_an_entry_have_the_same_content() -> None:
    status = reported(*world(*AWAY, **SWITCHED_ON))
    nodes = status["nodes"]
    assert recorded_entries(pruned(status)) == [
        {key: value for key, value in node.items() if key != "flags"} for node in nodes
    ]
    assert [each for each in status["conditions"] if is_node(each)] == as_conditions(nodes)


@pytest.mark.parametrize("at", [formed(), AWAY, LOST], ids=["at rest", "nodes are away", "a volume was replaced"])
@pytest.mark.parametrize("given", [{}, SWITCHED_ON], ids=str)
def test_crd_accepts_the_status(given: Obj, at: list[At]) -> None:
    status = reported(*world(*at, **given))
    assert list(broken_constraints(root_schema(API)["properties"]["status"], status, "status")) == []
    upgraded = rewritten(former(at), at)
    assert list(broken_constraints(root_schema(API)["properties"]["status"], upgraded, "status")) == []


@pytest.mark.parametrize("given", [{}, SWITCHED_ON], ids=str)
def test_metrics_do_not_depend_on_the_switch(given: Obj) -> None:
    spec: Obj = {"replicas": 6}
    status, expected = reported(*world(*AWAY, **given)), reported(*world(*AWAY))
    assert list(states({"spec": spec, "status": status})) == list(states({"spec": spec, "status": expected}))
    assert list(states({"spec": spec, "status": former(AWAY)})) == list(states({"spec": spec, "status": expected}))


def test_no_loss_is_offered_while_the_records_are_lost() -> None:
    """The token would confirm that keys are lost which are on the volumes."""
    away = [replace(node, up=False, pod=False) for node in formed()]
    unrecorded = [replace(node, recorded=None) for node in away]
    resource = cluster(*unrecorded)
    made = plan(resource, seen(resource, *unrecorded))
    assert made.verdict.reason == "SlotsUnserved"
    assert "recovery" not in made.status
