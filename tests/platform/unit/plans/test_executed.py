"""Steps and effects of a change, from the watches of a cluster and the operator's log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.plans.executed import EXECUTOR, RECONCILER, Event, Execution, execution
from shared.kubernetes.kinds import Obj

BEGAN = 1_000_000_000.0
REPLICA_SET = {"kind": "ReplicaSet", "name": "cache-6b7d9c5f4d", "uid": "s", "controller": True}


def pod(name: str, uid: str, *, leaves: bool = False, owner: Obj | None = None) -> Obj:
    metadata: Obj = {"name": name, "uid": uid, "namespace": "default"}
    metadata |= {"deletionTimestamp": "2001-09-09T01:46:41Z"} if leaves else {}
    own = owner or {"kind": "StatefulSet", "name": "demo", "uid": "o", "controller": True}
    return {"kind": "Pod", "metadata": metadata | {"ownerReferences": [own]}}


def resource(reason: str = "Ready", **status: Any) -> Obj:
    ready = {"type": "Ready", "status": str(reason == "Ready"), "reason": reason}
    status |= {"conditions": [ready], "observedGeneration": 2}
    return {"kind": "EtcdCluster", "metadata": {"name": "demo", "generation": 2, "uid": "r"}, "status": status}


def node(name: str, role: str, slots: str = "", primary: str = "") -> Obj:
    return {"name": name, "nodeId": f"id-{name}", "role": role, "slots": slots, "primaryId": primary}


def line(after: float, message: str, logger: str = EXECUTOR, level: str = "info") -> str:
    second, fraction = divmod(after, 1)
    moment = f"2001-09-09T01:46:{40 + int(second):02d}.{int(1000 * fraction):03d}+00:00"
    return json.dumps({"time": moment, "level": level, "logger": logger, "message": f"default/demo: {message}"})


def happened(*events: tuple[float, str, Obj], log: tuple[str, ...] = ()) -> Execution:
    return execution([Event(BEGAN + at, change, obj) for at, change, obj in events], log, BEGAN, "default/demo")


def titles(found: Execution) -> list[str]:
    return [step.title for step in found.steps if not step.minor]


def test_evicted_pod_restarts_as_an_effect_of_the_eviction() -> None:
    found = happened(
        (-1, "ADDED", pod("demo-1", "a")),
        (1.0, "MODIFIED", pod("demo-1", "a", leaves=True)),
        (2.0, "DELETED", pod("demo-1", "a", leaves=True)),
        (2.1, "ADDED", pod("demo-1", "b")),
        log=(line(1.1, "evicted Pod demo-1"),),
    )
    [step] = found.steps
    assert (step.title, [(each.name, each.effect) for each in step.pods]) == (
        "evict Pod demo-1",
        [("demo-1", "restarts")],
    )
    assert found.begins == (BEGAN + 1.0,)


def test_pods_of_the_controllers_start_restart_and_stop() -> None:
    found = happened(
        (-1, "ADDED", pod("demo-0", "a")),
        (-1, "ADDED", pod("demo-2", "c")),
        (1, "ADDED", pod("demo-3", "d")),
        (2, "MODIFIED", pod("demo-0", "a", leaves=True)),
        (3, "DELETED", pod("demo-0", "a", leaves=True)),
        (3, "ADDED", pod("demo-0", "b")),
        (4, "DELETED", pod("demo-2", "c")),
    )
    assert titles(found) == ["Pod demo-3 starts", "Pod demo-0 restarts", "Pod demo-2 stops"]


def test_pods_of_a_deployment_have_names_of_their_own() -> None:
    found = happened(
        (-1, "ADDED", pod("cache-6b7d9c5f4d-x2b4k", "a", owner=REPLICA_SET)),
        (1, "ADDED", pod("cache-5f6d8c9b7-z8c4m", "b", owner=REPLICA_SET | {"name": "cache-5f6d8c9b7"})),
        (2, "MODIFIED", pod("cache-6b7d9c5f4d-x2b4k", "a", owner=REPLICA_SET, leaves=True)),
    )
    assert titles(found) == ["Pod cache (new) starts", "Pod cache-6b7d9c5f4d-x2b4k stops"]


@pytest.mark.parametrize(
    ("message", "title", "minor"),
    [
        ("created StatefulSet demo", "create StatefulSet demo", False),
        ("applied StatefulSet demo: spec.replicas, metadata.annotations.a", "change StatefulSet demo", False),
        ("applied StatefulSet demo: spec.template.metadata.annotations.a", "change StatefulSet demo", True),
        ("applied Service demo: changed intent", "change Service demo", True),
        ("changed Pod demo-1: metadata.labels.serves", "change Pod demo-1", True),
        (
            "changed PersistentVolumeClaim data-demo-1: spec.resources",
            "change PersistentVolumeClaim data-demo-1",
            False,
        ),
        ("deleted Pod demo-1, to stop within 10 s", "delete Pod demo-1", False),
        ("replaced Secret demo-tls", "change Secret demo-tls", True),
        ("promote demo-3 (00000000000000ab)", "promote demo-3", False),
        ("let demo-6 meet demo-0 at 10.0.0.1:6379", "let demo-6 meet demo-0", False),
    ],
)
def test_lines_of_the_log_are_steps(message: str, title: str, minor: bool) -> None:
    [step] = happened(log=(line(1, message),)).steps
    assert (step.title, step.minor) == (title, minor)


def test_other_lines_are_no_steps() -> None:
    other = line(1, "created StatefulSet demo").replace("default/demo", "default/demo-2")
    lines = (
        other,
        "no JSON",
        "[]",
        line(1, "created Service demo", logger="kopf"),
        line(1, "promote demo-3", level="warning"),
    )
    assert happened(log=lines).steps == ()


def test_reasons_are_those_that_the_operator_reported() -> None:
    log = (line(1, "Scaling: Scaling from 3 to 5 members.", RECONCILER), line(2, "Ready: All members.", RECONCILER))
    assert happened(log=log).reasons == ("Scaling", "Ready")


def test_roles_and_the_end_are_those_of_the_status() -> None:
    before = [{"name": "demo-0", "id": "1", "role": "leader"}, {"name": "demo-2", "id": "3", "role": "voter"}]
    learner = {"name": "demo-3", "id": "4", "role": "learner"}
    found = happened(
        (-1, "ADDED", resource(members=before)),
        (1, "MODIFIED", resource("Scaling", members=[before[0], learner])),
        (3, "MODIFIED", resource(members=[before[0], learner | {"role": "voter"}])),
        (4, "MODIFIED", resource(members=[before[0] | {"role": "voter"}, learner | {"role": "leader"}])),
    )
    assert found.roles == {"demo-0": ("voter",), "demo-2": ("voter", ""), "demo-3": ("", "learner", "voter")}
    assert (found.ended, found.reason, found.ready) == (BEGAN + 3, "Ready", True)


def test_slots_move_unless_a_replica_takes_over() -> None:
    before = [node("a", "primary", "0-99"), node("b", "replica", primary="id-a"), node("c", "primary", "100-199")]
    taken = [node("a", "replica", primary="id-b"), node("b", "primary", "0-99"), node("c", "primary", "100-199")]
    after = [node("a", "replica", primary="id-b"), node("b", "primary", "0-49"), node("c", "primary", "50-199")]
    found = happened(
        (-1, "ADDED", resource(nodes=before)),
        (1, "MODIFIED", resource(nodes=taken)),
        (2, "MODIFIED", resource(nodes=after)),
    )
    assert [(each.source, each.target, each.slots) for each in found.moves] == [("b", "c", 50)]
    assert found.roles["b"] == ("replica", "primary")


def test_status_of_a_memcached_has_no_members() -> None:
    assert happened((1, "MODIFIED", resource(nodes=["cache-0", "cache-1"]))).roles == {}
