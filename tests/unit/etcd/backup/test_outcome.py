"""What is made of a pod that has come to its end."""

from __future__ import annotations

import json

import pytest

from operators.etcd.backup.outcome import outcome
from operators.etcd.reasons import INTERRUPTED
from shared.kubernetes.kinds import Obj
from tests.unit.etcd.backup.states import BEGAN, ENDED, at, ended, failed


def pod(status: Obj) -> Obj:
    return {"metadata": {"name": "p"}, "status": {"startTime": BEGAN, **status}}


@pytest.mark.parametrize("reported", [{}, {"phase": "Pending"}, {"phase": "Running"}, {"phase": "Unknown"}])
def test_a_pod_that_has_not_ended_has_come_to_nothing(reported: Obj) -> None:
    assert outcome(pod(reported)) is None
    assert outcome(None) is None


def test_what_the_last_container_said_is_what_it_came_to() -> None:
    found = outcome(pod(ended({}, "any text of etcdutl", {"revision": 7})))
    assert found is not None
    assert (found.succeeded, found.result) == (True, {"revision": 7})
    assert (found.started, found.finished) == (at(BEGAN), at(ENDED))


@pytest.mark.parametrize("result", ["", "all went well", "[7]", "null", "{}", '{"revision": 7'])
def test_success_without_a_result_is_none(result: str) -> None:
    """An image that is another program ends well, too: what it did not say, it did not do."""
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


KUBELET: Obj = {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the deadline"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (failed("StoreFull", "No room."), ("StoreFull", "No room.")),
        (failed("StoreFull", "No room.") | KUBELET, ("StoreFull", "No room.")),
        (failed(INTERRUPTED, "Told to end.") | KUBELET, ("DeadlineExceeded", KUBELET["message"])),
        (failed(INTERRUPTED, "Told to end."), (INTERRUPTED, "Told to end.")),
        ({"phase": "Failed"} | KUBELET, ("DeadlineExceeded", KUBELET["message"])),
        ({"phase": "Failed", "reason": "Evicted"}, ("Evicted", "Evicted.")),
        (ended("Traceback\nValueError: no", code=1), ("NoResult", "ValueError: no")),
        ({"phase": "Failed"}, ("NoResult", "The container exited with code 0, without a message.")),
    ],
)
def test_why_a_pod_failed_is_told_by_who_knows(status: Obj, told: tuple[str, str]) -> None:
    assert reason(status) == told


@pytest.mark.parametrize(
    ("kubelets", "told"), [("OOMKilled", "OOMKilled"), ("Error", "ProgramFailed"), ("ContainerCannotRun",) * 2]
)
def test_a_container_that_said_nothing_is_told_by_the_kubelet(kubelets: str, told: str) -> None:
    status = ended("", code=137)
    status["containerStatuses"][0]["state"]["terminated"]["reason"] = kubelets
    assert reason(status) == (told, "The container exited with code 137, without a message.")


def test_the_container_that_failed_is_the_one_that_is_told() -> None:
    """An init container's failure ends the pod: those after it never began."""
    status: Obj = {
        "phase": "Failed",
        "initContainerStatuses": ended({}, {"reason": "SnapshotCorrupt", "message": "a.db: no."}, code=1)[
            "containerStatuses"
        ],
        "containerStatuses": [{"name": "seal", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    assert reason(status) == ("SnapshotCorrupt", "a.db: no.")


def test_a_log_that_stands_in_for_a_message_is_cut() -> None:
    _, told = reason(ended("first\n" + "x" * 4000, code=1))
    assert told == "x" * 1000
    assert json.dumps(told)
