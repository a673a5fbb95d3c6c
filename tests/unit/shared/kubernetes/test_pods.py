"""Pods as operators read them."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod


def obj(ready: str = "True", reason: str = "", *, controller: str = "", **containers: bool) -> Obj:
    owner = {"apiVersion": "apps/v1", "kind": controller, "name": "it", "uid": "u", "controller": True}
    return {
        "metadata": {"name": "it-0", "ownerReferences": [owner] if controller else []},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": ready, **({"reason": reason} if reason else {})}],
            "containerStatuses": [{"name": name, "ready": value} for name, value in containers.items()],
        },
    }


def test_pod_is_ready_if_its_condition_is_true() -> None:
    assert Pod.of(obj("True", main=True)).ready
    assert not Pod.of(obj("False", "ContainersNotReady", main=True, side=False)).ready


def test_terminating_pod_is_not_ready() -> None:
    leaving = obj("True", main=True)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not Pod.of(leaving, container="main").ready


@pytest.mark.parametrize(("main", "ready"), [(True, True), (False, False)])
def test_other_containers_do_not_count_if_one_is_named(main: bool, ready: bool) -> None:
    assert Pod.of(obj("False", "ContainersNotReady", main=main, side=False), container="main").ready is ready


def test_pod_on_a_lost_node_is_not_ready_even_if_its_containers_are() -> None:
    assert not Pod.of(obj("False", main=True), container="main").ready
    assert not Pod.of(obj("Unknown", "NodeStatusUnknown", main=True), container="main").ready


@pytest.mark.parametrize("controller", ["StatefulSet", "ReplicaSet", ""])
def test_pod_has_the_kind_of_its_controller(controller: str) -> None:
    assert Pod.of(obj(controller=controller)).controller == controller


@pytest.mark.parametrize(
    ("log", "quoted"),
    [
        ("flag provided but not defined: -foo\nUsage:\n\n  etcd [flags]\n", ": flag provided but not defined: -foo"),
        ('invalid value "a" for flag -max-txn-ops: parse error\nUsage:', ': invalid value "a" for flag -max-txn-ops'),
        ('panic: unrecognized level: "loud"\n\ngoroutine 1 [running]:', ': panic: unrecognized level: "loud"'),
        (
            '{"level":"warn","msg":"failed to verify flags","error":"min version (TLS1.3) is greater than max"}\n',
            ": failed to verify flags: min version (TLS1.3) is greater than max",
        ),
        (
            'cut off","error":"x"}\n{"level":"warn","msg":"failed to start etcd","error":"y"}\n'
            '{"level":"fatal","ts":"2026-11-23T15:54:27Z","msg":"discovery failed","error":"y","stacktrace":"z"}\n'
            '{"level":"info","msg":"closed etcd server"}\n',
            ": discovery failed: y)",
        ),
        (">>> 'requirepass secret'\nBad directive or wrong number of arguments\n", "(last ended: Error)"),
        ('{"level":"info","msg":"ready"}\n[1, 2]\n', "(last ended: Error)"),
        ("", "(last ended: Error)"),
    ],
)
def test_problem_quotes_why_the_container_exited(log: str, quoted: str) -> None:
    given = obj("False")
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
    ended = {"terminated": {"reason": "Error", "exitCode": 1, "message": log}}
    given["status"]["containerStatuses"] = [{"name": "it", "state": {"waiting": waiting}, "lastState": ended}]
    problem = Pod.of(given).problem
    assert problem.startswith("CrashLoopBackOff: back-off 5m0s restarting failed container (last ended: Error")
    assert quoted in problem
