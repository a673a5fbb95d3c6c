"""Pods as operators read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from tests.harness import cost


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
        ('{"a":' * 2_000, "(last ended: Error)"),
        ('{"level":"fatal","msg":"x","error":' + "[" * 900 + "]" * 900 + "}", "(last ended: Error)"),
        ("", "(last ended: Error)"),
    ],
)
def test_problem_quotes_why_the_container_exited(log: str, quoted: str) -> None:
    given = obj("False")
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
    ended = {"terminated": {"reason": "Error", "exitCode": 1, "message": log}}
    given["status"]["containerStatuses"] = [{"name": "it", "state": {"waiting": waiting}, "lastState": ended}]
    problem = Pod.of(given).problem
    assert problem.startswith("CrashLoopBackOff: container it keeps exiting (last ended: Error")
    assert quoted in problem


REDIS = "docker.io/library/redis:8.2.9"
RESOLVE = f'failed to pull and unpack image "{REDIS}": failed to resolve reference "{REDIS}": '
KUBELET = "rpc error: code = NotFound desc = "


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (f"{KUBELET}{RESOLVE}{REDIS}: not found", "the registry does not have it"),
        ("manifest unknown: manifest unknown", "the registry does not have it"),
        (
            f"{RESOLVE}pull access denied, repository does not exist or may require authorization: "
            "server message: insufficient_scope: authorization failed",
            "the registry denies access, or does not have it; check its name and imagePullSecrets",
        ),
        (
            f"{RESOLVE}unexpected status from HEAD request to https://r.example/v2/: 429 Too Many Requests",
            "the registry limits the rate of pulls",
        ),
        (f'{RESOLVE}failed to do request: Head "https://r.example/v2/": EOF', "EOF"),
        (f"{RESOLVE}dial tcp: lookup r.example: no such host", "the name of the registry cannot be resolved"),
        (f"{RESOLVE}dial tcp 10.0.0.1:443: connect: connection refused", "the registry does not answer"),
        (f"{RESOLVE}dial tcp 10.0.0.1:443: i/o timeout", "the registry does not answer"),
        (
            f"{RESOLVE}tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "the certificate of the registry is not trusted by the node",
        ),
        (f"{RESOLVE}http: server gave HTTP response to HTTPS client", "the registry does not use TLS"),
        (f"{KUBELET}no match for platform in manifest: not found", "it is not built for the platform of the node"),
        ("write /var/lib: no space left on device", "the node has no space left"),
        (f"{KUBELET}{'something new ' * 40}", ("something new " * 40)[:150]),
    ],
)
def test_the_error_of_a_registry_is_reduced_to_its_cause_and_the_same_during_the_back_off(
    error: str, cause: str
) -> None:
    """The kubelet alternates between the two reasons every few seconds."""
    found = [
        Pod.of(waiting(reason, message))
        for reason, message in (
            ("ErrImagePull", error),
            ("ImagePullBackOff", f'Back-off pulling image "{REDIS}": ErrImagePull: {error}'),
        )
    ]
    assert {pod.problem for pod in found} == {f"cannot pull {REDIS}: {cause}"}
    assert all(pod.lacks_image and pod.hindrance == pod.problem for pod in found)


@pytest.mark.parametrize("part", ["x", " ", "\n", "no match", "connection ", '": ', "desc = ", "time-"])
async def test_long_error_of_a_registry_costs_little(part: str) -> None:
    async with cost.bounded():
        problem = Pod.of(waiting("ErrImagePull", part * (1_000_000 // len(part)))).problem
    assert problem.startswith(f"cannot pull {REDIS}")
    assert len(problem) < 300


def test_an_older_kubelet_reports_no_cause_during_the_back_off() -> None:
    pod = Pod.of(waiting("ImagePullBackOff", f'Back-off pulling image "{REDIS}"'))
    assert pod.hindrance == f"cannot pull {REDIS}"


def waiting(reason: str, message: str) -> Obj:
    given = obj("False")
    given["spec"] = {"containers": [{"name": "redis", "image": REDIS}]}
    state = {"waiting": {"reason": reason, "message": message}}
    given["status"]["containerStatuses"] = [{"name": "redis", "image": "sha256:1", "state": state}]
    return given


def test_a_container_that_keeps_exiting_has_one_problem_in_all_of_its_states() -> None:
    """The states follow each other within seconds, and the back-off in the kubelet's message grows each time."""
    ended = {"terminated": {"reason": "Error", "exitCode": 1}}
    back_off = "back-off {} restarting failed container=redis pod=it-0_default(7d5b7f3c)"
    states: list[Obj] = [
        {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": back_off.format("10s")}}, "lastState": ended},
        {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": back_off.format("5m0s")}}, "lastState": ended},
        {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": ended},
        {"state": ended, "lastState": ended},
    ]
    found = []
    for state in states:
        given = obj("False", redis=False)
        given["status"]["containerStatuses"] = [{"name": "redis", "ready": False, "restartCount": 2, **state}]
        found.append(Pod.of(given))
    assert {pod.hindrance for pod in found} == {
        "does not start: CrashLoopBackOff: container redis keeps exiting (last ended: Error)"
    }
    assert all(pod.is_failing(datetime(2026, 1, 1, tzinfo=UTC)) for pod in found)
    assert [bool(pod.problem) for pod in found] == [True, True, False, False], "it may run: no evidence of a failure"
