"""Outcome of a pod that has ended."""

from __future__ import annotations

import json

import pytest

from operators.etcd.backup.outcome import outcome
from operators.etcd.reasons import INTERRUPTED
from shared.kubernetes.kinds import Obj
from tests.etcd.unit.backup.states import BEGAN, ENDED, at, ended, failed


def pod(status: Obj) -> Obj:
    return {"metadata": {"name": "p"}, "status": {"startTime": BEGAN, **status}}


@pytest.mark.parametrize("reported", [{}, {"phase": "Pending"}, {"phase": "Running"}, {"phase": "Unknown"}])
def test_pod_that_has_not_ended_has_no_outcome(reported: Obj) -> None:
    assert outcome(pod(reported)) is None
    assert outcome(None) is None


def test_termination_message_of_the_last_container_is_the_result() -> None:
    found = outcome(pod(ended({}, "any text of etcdutl", {"revision": 7})))
    assert found is not None
    assert (found.succeeded, found.result) == (True, {"revision": 7})
    assert found.seconds == (at(ENDED) - at(BEGAN)).total_seconds()


@pytest.mark.parametrize("result", ["", "all went well", "[7]", "null", "{}", '{"revision": 7', "[" * 4096])
def test_success_without_a_result_is_a_failure(result: str) -> None:
    """A wrong image may exit with code 0, too: only a reported result is a success."""
    found = outcome(pod(ended(result)))
    assert found is not None
    assert not found.succeeded
    assert found.reason == "NoResult"
    assert found.message


def reason(status: Obj) -> tuple[str, str]:
    found = outcome(pod(status))
    assert found is not None
    assert not found.succeeded
    return found.reason, found.message


DEEP = '{"reason":' + "[" * 900 + "]" * 900 + "}"
KUBELET: Obj = {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the deadline"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (failed("StoreFull", "No space."), ("StoreFull", "No space.")),
        (failed("StoreFull", "No space.") | KUBELET, ("StoreFull", "No space.")),
        (failed(INTERRUPTED, "Interrupted.") | KUBELET, ("DeadlineExceeded", KUBELET["message"])),
        (failed(INTERRUPTED, "Interrupted."), (INTERRUPTED, "Interrupted.")),
        ({"phase": "Failed"} | KUBELET, ("DeadlineExceeded", KUBELET["message"])),
        ({"phase": "Failed", "reason": "Evicted"}, ("Evicted", "Evicted.")),
        (ended("Traceback\nValueError: no", code=1), ("NoResult", "ValueError: no")),
        (ended(DEEP, code=1), ("NoResult", DEEP[-1000:])),
        ({"phase": "Failed"}, ("NoResult", "The container exited with code 0, without a message.")),
    ],
)
def test_reason_of_a_failure_comes_from_the_most_specific_source(status: Obj, expected: tuple[str, str]) -> None:
    assert reason(status) == expected


@pytest.mark.parametrize(
    ("kubelet_reason", "expected"),
    [("OOMKilled", "OOMKilled"), ("Error", "ProgramFailed"), ("ContainerCannotRun",) * 2],
)
def test_reason_of_the_kubelet_is_used_for_a_container_without_a_message(kubelet_reason: str, expected: str) -> None:
    status = ended("", code=137)
    status["containerStatuses"][0]["state"]["terminated"]["reason"] = kubelet_reason
    assert reason(status) == (expected, "The container exited with code 137, without a message.")


def test_failed_container_is_reported() -> None:
    """A failed init container ends the pod: later containers never start."""
    status: Obj = {
        "phase": "Failed",
        "initContainerStatuses": ended({}, {"reason": "SnapshotCorrupt", "message": "a.db: no."}, code=1)[
            "containerStatuses"
        ],
        "containerStatuses": [{"name": "seal", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    assert reason(status) == ("SnapshotCorrupt", "a.db: no.")


def test_log_that_replaces_a_message_is_truncated() -> None:
    _, message = reason(ended("first\n" + "x" * 4000, code=1))
    assert message == "x" * 1000
    assert json.dumps(message)
