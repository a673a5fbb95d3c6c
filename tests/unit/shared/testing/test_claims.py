"""The simulated cluster keeps volumes, and lets pods run to an end, as a cluster does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.kubernetes.errors import Forbidden, NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.testing import ApiServer, Workloads
from shared.testing.api_server.kinds import STORAGE_CLASS
from shared.testing.kubelet.kubelet import Exit, Fate
from tests.support.api_server_scenarios import claim, stateful_set

NAMESPACE = "cache"


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def template(**labels: str) -> Obj:
    return {"metadata": {"name": "data", "labels": labels}, "spec": claim()["spec"]}


def make(server: ApiServer, replicas: int, **spec: Any) -> None:
    given = {"volumeClaimTemplates": [template(uid="1")], "updateStrategy": {"type": "OnDelete"}}
    obj = stateful_set(replicas=replicas, **given | spec)
    obj["metadata"]["namespace"] = NAMESPACE
    server.actor("operator").apply(STATEFUL_SET, obj, force=True)


def names(server: ApiServer, kind: Any) -> list[str]:
    return [obj["metadata"]["name"] for _, obj in server.objects(kind)]


def uids(server: ApiServer, kind: Any) -> list[str]:
    return [obj["metadata"]["uid"] for _, obj in server.objects(kind)]


def delete(server: ApiServer, kind: Any, name: str, **options: Any) -> None:
    server.actor("person").delete(kind, NAMESPACE, name, **options)


def test_each_place_gets_a_claim_that_outlives_its_pod(server: ApiServer) -> None:
    make(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    assert names(server, PERSISTENT_VOLUME_CLAIM) == ["data-it-0", "data-it-1"]
    [made, _] = [found for _, found in server.objects(PERSISTENT_VOLUME_CLAIM)]
    assert made["metadata"]["labels"] == {"uid": "1", "app": "it"}, "the template's labels and the selector's"
    assert made["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert "ownerReferences" not in made["metadata"]
    pod = server.actor("person").get(POD, NAMESPACE, "it-0")
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-it-0"}}]
    before = uids(server, PERSISTENT_VOLUME_CLAIM)
    delete(server, POD, "it-0")
    make(server, 1)
    workloads.settle()
    assert (names(server, POD), uids(server, PERSISTENT_VOLUME_CLAIM)) == (["it-0"], before)
    make(server, 2)
    workloads.settle()
    assert uids(server, PERSISTENT_VOLUME_CLAIM) == before, "one that was scaled away is taken again as it is"


def test_a_claim_in_use_stays_until_its_pod_is_gone_and_then_is_made_again(server: ApiServer) -> None:
    make(server, 1)
    workloads = Workloads(server)
    workloads.settle()
    before = uids(server, PERSISTENT_VOLUME_CLAIM)
    delete(server, PERSISTENT_VOLUME_CLAIM, "data-it-0")
    workloads.settle()
    assert uids(server, PERSISTENT_VOLUME_CLAIM) == before, "it waits"
    delete(server, POD, "it-0")
    workloads.settle()
    assert uids(server, PERSISTENT_VOLUME_CLAIM) != before
    assert names(server, POD) == ["it-0"]


def test_a_pod_without_its_claim_is_not_scheduled_until_there_is_one(server: ApiServer) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "it"}}
    spec = {"containers": [{"name": "main", "image": "image:1"}], "volumes": [volume]}
    server.actor("person").create(POD, {"metadata": {"name": "it", "namespace": NAMESPACE}, "spec": spec})
    workloads = Workloads(server)
    workloads.settle()
    [condition] = server.actor("person").get(POD, NAMESPACE, "it")["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        'persistentvolumeclaim "it" not found',
    )
    made = claim()
    made["metadata"]["namespace"] = NAMESPACE
    server.actor("person").create(PERSISTENT_VOLUME_CLAIM, made)
    workloads.settle()
    assert server.actor("person").get(POD, NAMESPACE, "it")["status"]["phase"] == "Running"


@pytest.mark.parametrize(("policy", "left"), [("Retain", ["data-it-0"]), ("Delete", [])])
def test_claims_go_with_their_stateful_set_if_it_says_so(server: ApiServer, policy: str, left: list[str]) -> None:
    make(server, 1, persistentVolumeClaimRetentionPolicy={"whenDeleted": policy, "whenScaled": "Retain"})
    workloads = Workloads(server)
    workloads.settle()
    delete(server, STATEFUL_SET, "it")
    while workloads.step() or server.collect_garbage():
        pass
    assert (names(server, POD), names(server, PERSISTENT_VOLUME_CLAIM)) == ([], left)


def test_pods_that_were_orphaned_are_taken_up_by_the_next_stateful_set(server: ApiServer) -> None:
    make(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    before = uids(server, POD)
    delete(server, STATEFUL_SET, "it", propagationPolicy="Orphan")
    server.collect_garbage()
    assert [pod["metadata"].get("ownerReferences") for _, pod in server.objects(POD)] == [None, None]
    make(server, 2)
    workloads.settle()
    [owner] = uids(server, STATEFUL_SET)
    assert uids(server, POD) == before
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for _, pod in server.objects(POD)} == {owner}


def test_with_on_delete_a_pod_gets_the_new_template_only_when_it_is_made_again(server: ApiServer) -> None:
    make(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    changed = stateful_set()["spec"]["template"]
    changed["spec"]["containers"][0]["image"] = "image:2"
    make(server, 2, template=changed)
    workloads.settle()
    delete(server, POD, "it-1")
    workloads.settle()
    assert [pod["spec"]["containers"][0]["image"] for _, pod in server.objects(POD)] == ["image:1", "image:2"]


def test_a_claim_grows_where_its_class_lets_it(server: ApiServer) -> None:
    person = server.actor("person")
    made = claim(storageClassName="fast")
    made["metadata"]["namespace"] = NAMESPACE
    person.create(PERSISTENT_VOLUME_CLAIM, made)
    bigger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with pytest.raises(Forbidden):
        person.merge(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it", bigger)
    person.create(STORAGE_CLASS, {"metadata": {"name": "fast"}, "allowVolumeExpansion": True})
    person.merge(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it", bigger)
    Workloads(server).settle()
    assert person.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it")["status"]["capacity"] == {"storage": "2Gi"}


@dataclass
class Scripted:
    """Processes that fare as they are told; what they were asked is kept."""

    fate: Fate = field(default_factory=Fate)
    ran: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> Fate:
        assert pod["status"]["podIP"]
        self.ran.append((pod["metadata"]["uid"], {name: found["metadata"]["uid"] for name, found in claims.items()}))
        return self.fate

    def end(self, uid: str) -> None:
        self.ended.append(uid)


def test_processes_hear_of_their_pods_and_claims_and_of_the_end_of_both(server: ApiServer) -> None:
    make(server, 1)
    processes = Scripted()
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    [pod], [volume] = uids(server, POD), uids(server, PERSISTENT_VOLUME_CLAIM)
    assert {uid for uid, _ in processes.ran} == {pod}
    assert processes.ran[-1] == (pod, {"data": volume})
    make(server, 0)
    delete(server, PERSISTENT_VOLUME_CLAIM, "data-it-0")
    workloads.settle()
    assert processes.ended == [pod, volume]


def test_what_a_container_said_when_it_ended_is_told(server: ApiServer) -> None:
    make(server, 1)
    processes = Scripted(Fate("CrashLoopBackOff", said="no"))
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    [container] = server.actor("person").get(POD, NAMESPACE, "it-0")["status"]["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert container["lastState"]["terminated"]["message"] == "no"
    processes.fate = Fate()
    workloads.settle()
    [container] = server.actor("person").get(POD, NAMESPACE, "it-0")["status"]["containerStatuses"]
    assert (container["ready"], container["lastState"]["terminated"]["message"]) == (True, "no")


@pytest.mark.parametrize(
    ("exits", "phase"),
    [
        ({"first": Exit(), "main": Exit(0, "done")}, "Succeeded"),
        ({"first": Exit(), "main": Exit(1, "done")}, "Failed"),
        ({"first": Exit(1, "wrong")}, "Failed"),
    ],
)
def test_a_pod_that_ends_says_how_and_is_left_alone(server: ApiServer, exits: dict[str, Exit], phase: str) -> None:
    containers = [{"name": "main", "image": "image:1"}]
    spec = {"initContainers": [{"name": "first", "image": "image:1"}], "containers": containers}
    server.actor("person").create(POD, {"metadata": {"name": "it", "namespace": NAMESPACE}, "spec": spec})
    processes = Scripted(Fate(exits=exits))
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    status = server.actor("person").get(POD, NAMESPACE, "it")["status"]
    assert status["phase"] == phase
    told = {found["name"]: found["state"] for found in status["initContainerStatuses"] + status["containerStatuses"]}
    for name, ended in exits.items():
        assert told[name]["terminated"]["exitCode"] == ended.code
        assert told[name]["terminated"].get("message", "") == ended.message
    assert all("waiting" in told[name] for name in told.keys() - exits.keys())
    asked = len(processes.ran)
    workloads.settle()
    assert len(processes.ran) == asked


def test_a_stateful_set_makes_a_pod_that_has_ended_again(server: ApiServer) -> None:
    make(server, 1)
    processes = Scripted()
    workloads = Workloads(server, processes=processes)
    workloads.settle()
    before = uids(server, POD)
    processes.fate = Fate(exits={"main": Exit(1, "evicted")})
    for _ in range(3):
        workloads.step()
    processes.fate = Fate()
    workloads.settle()
    assert uids(server, POD) != before
    assert server.actor("person").get(POD, NAMESPACE, "it-0")["status"]["phase"] == "Running"


def test_a_claim_that_is_gone_is_gone(server: ApiServer) -> None:
    made = claim()
    made["metadata"]["namespace"] = NAMESPACE
    server.actor("person").create(PERSISTENT_VOLUME_CLAIM, made)
    delete(server, PERSISTENT_VOLUME_CLAIM, "it")
    Workloads(server).settle()
    with pytest.raises(NotFound):
        server.actor("person").get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "it")
