"""The records of a cluster in its status, and their restoration from volume claims if the status is lost."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.membership.volume_record import to_record
from operators.etcd.objects.bootstrap import successor_of
from operators.etcd.objects.names import KEPT, SET_ASIDE, VOTERS
from operators.etcd.state.observed import Observed
from operators.etcd.steps.quorum_recovery import executing, replicas
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.etcd.unit.steps.test_adoption import record
from tests.etcd.unit.world import ABSENT, CLUSTER_ID, VOTER, At, assess, cluster, member_id, plan, seen

TOKEN = "abcdefabcdef"
STARTS = At(up=False, problem="ContainerCreating: ")
LOST = At(up=False, disk="another", problem="CrashLoopBackOff: back-off", empty_data_dir=True)


def without_status(
    *at: At, records: dict[int, Obj], stopped: bool = False, **spec: Any
) -> tuple[EtcdCluster, Observed]:
    """A cluster whose status was lost, and whose members do not answer.

    Args:
        records: annotations of claims, by number.
        stopped: whether the StatefulSet has 0 replicas, as during a recovery.
    """
    resource = cluster(len(at), recorded=None, **spec)
    world = seen(resource, *at, leader=None, known=False, replicas=0 if stopped else len(at))
    for number, found in records.items():
        volume = world.instances[number].volume
        assert volume is not None
        volume["metadata"]["annotations"] = found
    return resource, world


def changes(made: Plan) -> list[str]:
    """The changes of a plan, except those of Services, the disruption budget and the network policy."""
    found = [f"{type(act).__name__} {act.obj['kind']} {act.obj['metadata']['name']}" for act in made.actions]  # type: ignore[union-attr]
    return [each for each in found if not re.search("Service|PodDisruptionBudget|NetworkPolicy", each)]


def again(made: Plan, resource: EtcdCluster) -> EtcdCluster:
    return EtcdCluster.parse({**resource.obj, "status": made.status})


def test_lost_status_is_restored_from_volume_claims_before_anything_else_happens() -> None:
    """Before, a cluster that had lost its quorum as well was reported as one that has yet to start."""
    resource, world = without_status(LOST, STARTS, LOST, records={1: record(1)})
    made = plan(resource, world)
    assert (changes(made), made.verdict.progress, made.verdict.reason) == ([], Progress.WAITING, "Recording")
    assert made.status["clusterID"] == f"{CLUSTER_ID:016x}"
    assert [(member["name"], member["id"], member.get("volume")) for member in made.status["members"]] == [
        ("demo-0", f"{member_id(0):016x}", None),
        ("demo-1", f"{member_id(1):016x}", "disk-1"),
        ("demo-2", f"{member_id(2):016x}", None),
    ]
    afterwards = plan(again(made, resource), world)
    assert afterwards.verdict.reason == "QuorumLost"
    assert "demo-0, demo-2 (another volume) of the 3 voters lost their data" in afterwards.verdict.message


def test_lost_status_is_restored_with_the_voters_outside_of_the_pods() -> None:
    """E1: without them, two of five voters counted as the majority of three."""
    resource = cluster(3)
    running = seen(resource, VOTER, VOTER, VOTER)
    outside = Member(0xE0, "elsewhere", ("http://elsewhere:2380",))
    running = replace(running, members=(*(running.members or ()), outside))
    [voters] = {to_record(resource, running, each)[VOTERS] for each in running.instances}
    made = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, voters=voters)}))
    assert made.status["outsideVoters"] == ["00000000000000e0"]
    assert [member["name"] for member in made.status["members"]] == ["demo-0", "demo-1", "demo-2"]
    unreadable = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, voters="demo-1=a1,=none")}))
    assert not any("id" in member for member in unreadable.status["members"]), "the API server would refuse this id"


@pytest.mark.parametrize(
    "voters",
    ["demo-1=a1", "demo-1", "=-1", f"={'f' * 17}", "=+00000000000000e", "=000000000000_0e0", f"={'0' * 13}abC"],
)
def test_record_with_an_id_that_no_member_can_have_restores_nothing(voters: str) -> None:
    """Without all voters, a minority counts as the majority; and the API server would refuse some of these ids."""
    valid = f"demo-0={member_id(0):016x}"
    made = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, voters=f"{valid},{voters}")}))
    assert "clusterID" not in made.status
    assert not any("id" in member for member in made.status["members"])


@pytest.mark.parametrize("key", ["cluster_id", "member_id"])
@pytest.mark.parametrize("text", ["-1", "f" * 17, "+0e", "0x1f", " 1_0 ", "c1", f"{'0' * 13}abC", "0" * 16])
def test_record_with_another_form_of_an_id_restores_nothing(key: str, text: str) -> None:
    """The API server would refuse such an id, and with it every status."""
    made = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, voters="", **{key: text})}))
    assert "clusterID" not in made.status
    assert not any("id" in member for member in made.status["members"])


@pytest.mark.parametrize(
    "voters",
    [
        "demo-0={0},demo-0={3},demo-1={1},demo-2={2}",
        "demo-0={0},demo-1={1},demo-2={1}",
        "={0},={0},demo-1={1}",
        "elsewhere-9={0},demo-1={1}",
        "demo-9={0},demo-1={1}",
        "demo-00={0},demo-1={1}",
        "http://demo-0={0},demo-1={1}",
        "demo-0={0},demo-1={2}",
        "demo-0={1},demo-2={2}",
        "demo-0={0},={1}",
    ],
)
def test_record_whose_voters_contradict_each_other_or_its_member_restores_nothing(voters: str) -> None:
    """E1: three of four voters were restored, so that two were their majority."""
    ids = [f"{member_id(number):016x}" for number in range(4)]
    made = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, voters=voters.format(*ids))}))
    assert "clusterID" not in made.status
    assert not any("id" in member for member in made.status["members"])


def test_record_whose_voters_name_a_member_without_its_own_id_restores_nothing() -> None:
    made = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, member_id="")}))
    assert "clusterID" not in made.status


def test_record_of_a_learner_restores_the_voters() -> None:
    voters = f"demo-0={member_id(0):016x},demo-2={member_id(2):016x}"
    made = plan(*without_status(LOST, STARTS, LOST, records={1: record(1, voters=voters)}))
    assert [member["id"] for member in made.status["members"]] == [f"{member_id(number):016x}" for number in range(3)]


@pytest.mark.parametrize(
    "records",
    [{}, {0: record(0), 1: record(1, cluster_id="00000000000000aa")}, {0: record(0, cluster_id="unreadable")}],
)
def test_volumes_that_do_not_agree_restore_nothing(records: dict[int, Obj]) -> None:
    made = plan(*without_status(STARTS, STARTS, STARTS, records=records))
    assert made.status.get("clusterID") is None
    assert made.status["members"] == []


STOPPED = replace(ABSENT, disk=None)


def interrupted(cluster_id: int = CLUSTER_ID, **spec: Any) -> tuple[EtcdCluster, Observed]:
    """A cluster that lost its status while its members are stopped for a recovery, with two of five volumes left."""
    marked = record(1, cluster_id=f"{cluster_id:016x}") | {SET_ASIDE: f"{TOKEN}@{CLUSTER_ID:016x}"}
    records = {1: marked, 3: record(3)}
    return without_status(*[STOPPED] * 5, records=records, stopped=True, **spec)


CONFIRMED: Obj = {"recovery": {"confirm": TOKEN}}


def test_interrupted_recovery_continues_and_keeps_every_other_volume_with_data() -> None:
    """Before, the first member alone was started, on an empty volume."""
    resource, world = interrupted(**CONFIRMED)
    made = plan(resource, world)
    assert (changes(made), made.verdict.reason) == ([], "Recording")
    found = made.status["recovery"]
    assert (found["token"], found["survivor"], found["kept"]) == (TOKEN, "demo-1", ["demo-3"])
    resource = again(made, resource)
    assert executing(assess(resource, world))
    assert replicas(assess(resource, world)) == 0
    assert "Patch PersistentVolumeClaim data-demo-3" in changes(plan(resource, world)), "its mark was missing"


def test_withdrawn_recovery_is_not_restored() -> None:
    resource, world = interrupted()
    made = plan(resource, world)
    assert "recovery" not in made.status
    assert replicas(assess(again(made, resource), world)) == 4, "all members with volumes start again"


def test_completed_recovery_is_not_repeated() -> None:
    resource, _ = interrupted(**CONFIRMED)
    new = successor_of(resource, {"token": TOKEN, "survivor": "demo-1"})
    made = plan(*interrupted(new, **CONFIRMED))
    assert "recovery" not in made.status


def test_kept_volume_stays_in_the_status() -> None:
    resource = cluster(3, recorded=range(2), status={"phase": "Creating"})
    world = seen(resource, VOTER, VOTER, replace(ABSENT, disk="disk-2"))
    volume = world.instances[2].volume
    assert volume is not None
    volume["metadata"]["annotations"] = {KEPT: TOKEN}
    status = plan(resource, world).status
    assert status["members"][2] == {"name": "demo-2", "volume": "disk-2"}
    assert status["phase"] == "Recovering"


def test_url_of_a_member_that_lost_its_data_is_no_endpoint_without_a_quorum() -> None:
    urls = [f"http://demo-{number}.demo.default.svc:2379" for number in range(3)]
    resource = cluster(3, recorded=range(3), status={"endpoints": urls})
    world = seen(resource, LOST, STARTS, LOST, leader=None, known=False, replicas=3)
    assert plan(resource, world).status["endpoints"] == [urls[1]]
