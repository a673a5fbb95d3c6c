"""Tests of simulated volumes and of pods that run to completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.kubernetes.errors import Forbidden, Invalid, NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from simulator.api_server.kinds import ATTRIBUTES_CLASS, STORAGE_CLASS
from simulator.clock import Clock
from simulator.kubelet.claims import INFEASIBLE
from simulator.kubelet.kubelet import Exit, ProcessStatus
from tests.harness import ApiServer, Workloads
from tests.support.api_server_scenarios import claim, stateful_set

NAMESPACE = "cache"


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def template(**labels: str) -> Obj:
    return {"metadata": {"name": "data", "labels": labels}, "spec": claim()["spec"]}


def apply_stateful_set(server: ApiServer, replicas: int, **spec: Any) -> None:
    given = {"volumeClaimTemplates": [template(uid="1")], "updateStrategy": {"type": "OnDelete"}}
    obj = stateful_set(replicas=replicas, **given | spec)
    obj["metadata"]["namespace"] = NAMESPACE
    server.actor("operator").apply(STATEFUL_SET, obj, force=True)


def names(server: ApiServer, kind: Any) -> list[str]:
    return [obj["metadata"]["name"] for _, obj in server.objects(kind)]


def uids(server: ApiServer, kind: Any) -> list[str]:
    return [obj["metadata"]["uid"] for _, obj in server.objects(kind)]


def delete(server: ApiServer, kind: Any, name: str, **options: Any) -> None:
    server.actor("kubectl").delete(kind, NAMESPACE, name, **options)


def test_each_ordinal_gets_a_claim_that_outlives_its_pod(server: ApiServer) -> None:
    apply_stateful_set(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    assert names(server, PERSISTENT_VOLUME_CLAIM) == ["data-it-0", "data-it-1"]
    [created, _] = [found for _, found in server.objects(PERSISTENT_VOLUME_CLAIM)]
    assert created["metadata"]["labels"] == {"uid": "1", "app": "it"}, "labels of the template and of the selector"
    assert created["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert "ownerReferences" not in created["metadata"]
    pod = server.actor("kubectl").get(POD, NAMESPACE, "it-0")
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-it-0"}}]
    before = uids(server, PERSISTENT_VOLUME_CLAIM)
    delete(server, POD, "it-0")
    apply_stateful_set(server, 1)
    workloads.settle()
    assert (names(server, POD), uids(server, PERSISTENT_VOLUME_CLAIM)) == (["it-0"], before)
    apply_stateful_set(server, 2)
    workloads.settle()
    assert uids(server, PERSISTENT_VOLUME_CLAIM) == before, "scaling up reuses the claim of the ordinal"


def test_deleted_claim_in_use_is_replaced_after_its_pod_is_deleted(server: ApiServer) -> None:
    apply_stateful_set(server, 1)
    workloads = Workloads(server)
    workloads.settle()
    before = uids(server, PERSISTENT_VOLUME_CLAIM)
    delete(server, PERSISTENT_VOLUME_CLAIM, "data-it-0")
    workloads.settle()
    assert uids(server, PERSISTENT_VOLUME_CLAIM) == before, "the deletion waits for the pod"
    delete(server, POD, "it-0")
    workloads.settle()
    assert uids(server, PERSISTENT_VOLUME_CLAIM) != before
    assert names(server, POD) == ["it-0"]


def test_pod_is_not_scheduled_until_its_claim_exists(server: ApiServer) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "it"}}
    spec = {"containers": [{"name": "main", "image": "image:1"}], "volumes": [volume]}
    server.actor("kubectl").create(POD, {"metadata": {"name": "it", "namespace": NAMESPACE}, "spec": spec})
    workloads = Workloads(server)
    workloads.settle()
    [condition] = server.actor("kubectl").get(POD, NAMESPACE, "it")["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        'persistentvolumeclaim "it" not found',
    )
    created = claim()
    created["metadata"]["namespace"] = NAMESPACE
    server.actor("kubectl").create(PERSISTENT_VOLUME_CLAIM, created)
    workloads.settle()
    assert server.actor("kubectl").get(POD, NAMESPACE, "it")["status"]["phase"] == "Running"


@pytest.mark.parametrize(("policy", "left"), [("Retain", ["data-it-0"]), ("Delete", [])])
def test_retention_policy_decides_whether_claims_are_deleted(server: ApiServer, policy: str, left: list[str]) -> None:
    apply_stateful_set(server, 1, persistentVolumeClaimRetentionPolicy={"whenDeleted": policy, "whenScaled": "Retain"})
    workloads = Workloads(server)
    workloads.settle()
    delete(server, STATEFUL_SET, "it")
    while workloads.step() or server.collect_garbage():
        pass
    assert (names(server, POD), names(server, PERSISTENT_VOLUME_CLAIM)) == ([], left)


def test_new_stateful_set_adopts_orphaned_pods(server: ApiServer) -> None:
    apply_stateful_set(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    before = uids(server, POD)
    delete(server, STATEFUL_SET, "it", propagationPolicy="Orphan")
    server.collect_garbage()
    assert [pod["metadata"].get("ownerReferences") for _, pod in server.objects(POD)] == [None, None]
    apply_stateful_set(server, 2)
    workloads.settle()
    [owner] = uids(server, STATEFUL_SET)
    assert uids(server, POD) == before
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for _, pod in server.objects(POD)} == {owner}


def test_on_delete_strategy_updates_a_pod_only_when_it_is_recreated(server: ApiServer) -> None:
    apply_stateful_set(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    changed = stateful_set()["spec"]["template"]
    changed["spec"]["containers"][0]["image"] = "image:2"
    apply_stateful_set(server, 2, template=changed)
    workloads.settle()
    delete(server, POD, "it-1")
    workloads.settle()
    assert [pod["spec"]["containers"][0]["image"] for _, pod in server.objects(POD)] == ["image:1", "image:2"]


def test_claim_grows_if_its_storage_class_allows_expansion(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    created = claim(storageClassName="fast")
    created["metadata"]["namespace"] = NAMESPACE
    kubectl.create(PERSISTENT_VOLUME_CLAIM, created)
    bigger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with pytest.raises(Forbidden):
        kubectl.merge(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it", bigger)
    kubectl.create(STORAGE_CLASS, {"metadata": {"name": "fast"}, "allowVolumeExpansion": True})
    kubectl.merge(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it", bigger)
    Workloads(server).settle()
    assert kubectl.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it")["status"]["capacity"] == {"storage": "2Gi"}


def attributes_class(server: ApiServer, name: str, **parameters: str) -> None:
    made = {"metadata": {"name": name}, "driverName": "example.com", "parameters": parameters}
    server.actor("kubectl").create(ATTRIBUTES_CLASS, made)


def modified(server: ApiServer, name: str | None) -> Obj:
    """Request another VolumeAttributesClass for the claim, and return the status that follows."""
    kubectl = server.actor("kubectl")
    kubectl.merge(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it", {"spec": {"volumeAttributesClassName": name}})
    Workloads(server).settle()
    found: Obj = kubectl.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it")["status"]
    return {key: found[key] for key in ("currentVolumeAttributesClassName", "modifyVolumeStatus") if key in found}


def test_claim_gets_another_class_of_attributes_while_it_is_bound(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    made = claim(volumeAttributesClassName="slow")
    made["metadata"]["namespace"] = NAMESPACE
    kubectl.create(PERSISTENT_VOLUME_CLAIM, made)
    with pytest.raises(Invalid, match="for bound claims"):
        modified(server, "fast")
    Workloads(server).settle()
    target = {"targetVolumeAttributesClassName": "fast"}
    pending = {"currentVolumeAttributesClassName": "slow", "modifyVolumeStatus": target | {"status": "Pending"}}
    assert modified(server, "fast") == pending
    attributes_class(server, "fast")
    workloads = Workloads(server)
    seen = []
    while workloads.step():
        seen.append(kubectl.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it")["status"].get("modifyVolumeStatus"))
    assert seen == [target | {"status": "InProgress"}, None]
    assert modified(server, "fast") == {"currentVolumeAttributesClassName": "fast"}
    with pytest.raises(Invalid, match="update to nil is forbidden"):
        modified(server, None)


def test_driver_may_refuse_a_class_of_attributes(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    made = claim()
    made["metadata"]["namespace"] = NAMESPACE
    kubectl.create(PERSISTENT_VOLUME_CLAIM, made)
    Workloads(server).settle()
    attributes_class(server, "extreme", **INFEASIBLE)
    state = {"targetVolumeAttributesClassName": "extreme", "status": "Infeasible"}
    assert modified(server, "extreme") == {"modifyVolumeStatus": state}
    assert modified(server, None) == {}, "it was never applied"


@dataclass
class ScriptedProcesses:
    """Processes in a configurable state that record their calls."""

    fate: ProcessStatus = field(default_factory=ProcessStatus)
    ran: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        assert pod["status"]["podIP"]
        self.ran.append((pod["metadata"]["uid"], {name: found["metadata"]["uid"] for name, found in claims.items()}))
        return self.fate

    def end(self, uid: str) -> None:
        self.ended.append(uid)


def test_processes_receive_pods_and_claims_and_their_deletions(server: ApiServer) -> None:
    apply_stateful_set(server, 1)
    processes = ScriptedProcesses()
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    [pod], [volume] = uids(server, POD), uids(server, PERSISTENT_VOLUME_CLAIM)
    assert {uid for uid, _ in processes.ran} == {pod}
    assert processes.ran[-1] == (pod, {"data": volume})
    apply_stateful_set(server, 0)
    delete(server, PERSISTENT_VOLUME_CLAIM, "data-it-0")
    workloads.settle()
    assert processes.ended == [pod, volume]


def test_container_that_exits_is_started_again_after_a_growing_back_off() -> None:
    clock = Clock(datetime(2026, 1, 1, tzinfo=UTC))
    server = ApiServer(clock=clock)
    apply_stateful_set(server, 1)
    fate = ProcessStatus("CrashLoopBackOff", termination_message="no")
    workloads = Workloads(server, processes=ScriptedProcesses(fate))
    started = []
    for seconds in (0, 9, 1, 10, 10, 39, 1):
        clock.wait(seconds)
        workloads.settle()
        [container] = server.actor("kubectl").get(POD, NAMESPACE, "it-0")["status"]["containerStatuses"]
        started.append((container["restartCount"], container["lastState"]["terminated"]["startedAt"][-3:-1]))
    assert started == [(1, "00"), (1, "00"), (2, "10"), (2, "10"), (3, "30"), (3, "30"), (4, "10")]


def test_termination_message_appears_in_the_last_state(server: ApiServer) -> None:
    apply_stateful_set(server, 1)
    processes = ScriptedProcesses(ProcessStatus("CrashLoopBackOff", termination_message="no"))
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    [container] = server.actor("kubectl").get(POD, NAMESPACE, "it-0")["status"]["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert container["lastState"]["terminated"]["message"] == "no"
    processes.fate = ProcessStatus()
    workloads.settle()
    [container] = server.actor("kubectl").get(POD, NAMESPACE, "it-0")["status"]["containerStatuses"]
    assert (container["ready"], container["lastState"]["terminated"]["message"]) == (True, "no")


@pytest.mark.parametrize(
    ("exits", "phase"),
    [
        ({"first": Exit(), "main": Exit(0, "done")}, "Succeeded"),
        ({"first": Exit(), "main": Exit(1, "done")}, "Failed"),
        ({"first": Exit(1, "wrong")}, "Failed"),
    ],
)
def test_completed_pod_reports_exit_codes_and_is_not_restarted(
    server: ApiServer, exits: dict[str, Exit], phase: str
) -> None:
    containers = [{"name": "main", "image": "image:1"}]
    spec = {"initContainers": [{"name": "first", "image": "image:1"}], "containers": containers}
    server.actor("kubectl").create(POD, {"metadata": {"name": "it", "namespace": NAMESPACE}, "spec": spec})
    processes = ScriptedProcesses(ProcessStatus(exits=exits))
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    status = server.actor("kubectl").get(POD, NAMESPACE, "it")["status"]
    assert status["phase"] == phase
    states = {found["name"]: found["state"] for found in status["initContainerStatuses"] + status["containerStatuses"]}
    for name, ended in exits.items():
        assert states[name]["terminated"]["exitCode"] == ended.code
        assert states[name]["terminated"].get("message", "") == ended.message
    assert all("waiting" in states[name] for name in states.keys() - exits.keys())
    runs = len(processes.ran)
    workloads.settle()
    assert len(processes.ran) == runs


def test_stateful_set_replaces_a_failed_pod(server: ApiServer) -> None:
    apply_stateful_set(server, 1)
    processes = ScriptedProcesses()
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    before = uids(server, POD)
    processes.fate = ProcessStatus(exits={"main": Exit(1, "evicted")})
    for _ in range(3):
        workloads.step()
    processes.fate = ProcessStatus()
    workloads.settle()
    assert uids(server, POD) != before
    assert server.actor("kubectl").get(POD, NAMESPACE, "it-0")["status"]["phase"] == "Running"


def test_unused_claim_is_deleted_at_once(server: ApiServer) -> None:
    created = claim()
    created["metadata"]["namespace"] = NAMESPACE
    server.actor("kubectl").create(PERSISTENT_VOLUME_CLAIM, created)
    delete(server, PERSISTENT_VOLUME_CLAIM, "it")
    Workloads(server).settle()
    with pytest.raises(NotFound):
        server.actor("kubectl").get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it")
