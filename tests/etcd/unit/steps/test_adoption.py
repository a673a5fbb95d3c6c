"""Adoption of the volumes of a deleted EtcdCluster of the same name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.database import DATABASE
from operators.etcd.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import INSTANCE, NAME
from shared.runtime.plan import Patch, Plan
from shared.status.verdict import Progress
from tests.etcd.unit.world import ABSENT, CLUSTER_ID, DOWN, VOTER, At, acts, assess, cluster, member_id, plan, seen
from tests.etcd.unit.world import replicas_and_start as start

FORMER = "u-0"
VOTERS = ",".join(f"demo-{number}={member_id(number):016x}" for number in range(3))


def record(number: int, **other: str) -> Obj:
    """The annotations of a claim that had a healthy member."""
    found = {
        "etcd.ydzs.io/cluster-id": f"{CLUSTER_ID:016x}",
        "etcd.ydzs.io/member-id": f"{member_id(number):016x}",
        "etcd.ydzs.io/peer-url": f"http://demo-{number}.demo.default.svc:2380",
        "etcd.ydzs.io/version": "3.6.8",
        "etcd.ydzs.io/voters": VOTERS,
    }
    return found | {f"etcd.ydzs.io/{key.replace('_', '-')}": value for key, value in other.items()}


def recreated(
    *owners: str, status: Obj | None = None, adopt: str = FORMER, **spec: Any
) -> tuple[EtcdCluster, Observed]:
    """A recreated resource, and the volumes that exist: the UID of the owner by number, or none."""
    given: dict[str, Any] = {"adopt": {"fromUID": adopt}} if adopt else {}
    resource = cluster(recorded=None, **given, **spec)
    at = [replace(ABSENT, disk=f"disk-{number}" if owner else "") for number, owner in enumerate(owners)]
    world = seen(resource, *at, known=False, stateful_set=False)
    for instance, owner in zip(world.instances, owners, strict=True):
        if instance.volume is not None:
            metadata = instance.volume["metadata"]
            metadata["labels"] = {"etcd.ydzs.io/cluster-uid": owner, INSTANCE: "demo", NAME: "etcd"}
            metadata |= {"annotations": record(instance.number), "resourceVersion": "7"}
    return resource, world


def annotate(world: Observed, number: int, **other: str) -> None:
    volume = world.instances[number].volume
    assert volume is not None
    volume["metadata"]["annotations"] = record(number, **other)


def recorded(made: Plan, resource: EtcdCluster) -> EtcdCluster:
    """The resource with the status of the plan."""
    return EtcdCluster.parse({**resource.obj, "status": made.status})


def reason(made: Plan) -> tuple[Progress, str]:
    return made.verdict.progress, made.verdict.reason


def handed_over(made: Plan) -> list[str]:
    found = []
    for action in made.actions:
        assert isinstance(action, Patch)
        assert action.change["metadata"]["resourceVersion"] == "7", "the claim must be as observed"
        found += [f"{action.obj['metadata']['name']} to {uid}" for uid in action.change["metadata"]["labels"].values()]
    return found


def test_adoption_is_recorded_with_the_former_members_before_a_claim_changes() -> None:
    resource, world = recreated(FORMER, FORMER, FORMER)
    made = plan(resource, world)
    assert made.actions == ()
    assert reason(made) == (Progress.WAITING, "Adopting")
    assert made.status["adoption"] == {"fromUID": FORMER}
    assert made.status["clusterID"] == f"{CLUSTER_ID:016x}"
    assert made.status["version"] == "3.6.8"
    assert [(member["name"], member["id"], member["volume"]) for member in made.status["members"]] == [
        (f"demo-{number}", f"{member_id(number):016x}", f"disk-{number}") for number in range(3)
    ]


def test_recorded_adoption_hands_over_the_remaining_claims_only() -> None:
    resource, world = recreated(FORMER, "u-1", FORMER)
    made = plan(recorded(plan(resource, world), resource), world)
    assert handed_over(made) == ["data-demo-0 to u-1", "data-demo-2 to u-1"]


def test_no_member_starts_before_all_claims_are_adopted_and_none_may_bootstrap_then() -> None:
    first, world = recreated(FORMER, FORMER, FORMER)
    resource = recorded(plan(first, world), first)
    _, world = recreated("u-1", "u-1", "u-1")
    assert start(plan(resource, world)) == (3, "existing")


def test_adoption_is_recorded_again_if_the_status_is_lost_before_anything_started() -> None:
    """Before, the adoption was refused, because no claim had the former UID any more."""
    resource, world = recreated("u-1", "u-1", "u-1")
    made = plan(resource, world)
    assert (made.actions, reason(made)) == ((), (Progress.WAITING, "Adopting"))
    assert made.status["adoption"] == {"fromUID": FORMER}
    assert made.status["clusterID"] == f"{CLUSTER_ID:016x}"
    assert start(plan(recorded(made, resource), world)) == (3, "existing")


def test_single_adopted_volume_may_not_bootstrap_even_if_the_status_is_lost() -> None:
    resource, world = recreated("u-1", adopt="", size=1)
    assert start(plan(resource, world)) == (1, "existing")


def test_voters_without_a_volume_still_count_for_the_quorum() -> None:
    resource, world = recreated("", FORMER, "")
    resource = recorded(plan(resource, world), resource)
    assert [(known.name, bool(known.volume)) for known in resource.recorded_members] == [
        ("demo-0", False),
        ("demo-1", True),
        ("demo-2", False),
    ]
    _, world = recreated("", "u-1", "")
    assert start(plan(resource, world)) == (3, "existing")


@pytest.mark.parametrize("adopt", ["", "another"])
def test_message_of_a_foreign_volume_names_the_field_and_the_uid(adopt: str) -> None:
    resource, world = recreated(FORMER, FORMER, FORMER, adopt=adopt)
    made = plan(resource, world)
    assert made.actions == ()
    assert reason(made) == (Progress.BLOCKED, "VolumeInTheWay")
    adopt = """`kubectl patch etcdcluster demo -n default --type merge -p '{"spec":{"adopt":{"fromUID":"u-0"}}}'`"""
    assert f"set spec.adopt.fromUID to u-0: {adopt}" in made.verdict.message
    assert "restore" not in made.verdict.message
    assert "clusterID" not in made.status


def test_volumes_of_several_owners_are_not_adopted() -> None:
    resource, world = recreated(FORMER, "another", FORMER)
    made = plan(resource, world)
    assert made.actions == ()
    assert reason(made) == (Progress.BLOCKED, "VolumeInTheWay")


def test_adoption_without_any_volume_starts_nothing() -> None:
    resource, world = recreated("", "", "")
    made = plan(resource, world)
    assert made.actions == ()
    assert reason(made) == (Progress.BLOCKED, "AdoptionRefused")
    assert "no volume claim of this name has the label etcd.ydzs.io/cluster-uid=u-0" in made.verdict.message


def refusal(resource: EtcdCluster, world: Observed) -> str:
    made = plan(resource, world)
    assert made.actions == ()
    assert reason(made) == (Progress.BLOCKED, "AdoptionRefused")
    assert "adoption" not in made.status
    assert "clusterID" not in made.status
    return made.verdict.message


def test_volumes_of_an_existing_resource_are_not_adopted() -> None:
    resource, world = recreated(FORMER, FORMER, FORMER)
    message = refusal(resource, replace(world, former_resource="team-a/demo"))
    assert "team-a/demo still has that UID" in message


def test_volumes_are_not_adopted_while_a_former_pod_exists() -> None:
    resource, world = recreated(FORMER, FORMER, FORMER)
    pod = seen(resource, replace(DOWN, leaving=True), known=False).instances[0].pod_obj
    instances = (replace(world.instances[0], pod_obj=pod), *world.instances[1:])
    assert "Pod demo-0 exists" in refusal(resource, replace(world, instances=instances))


def test_volumes_of_different_clusters_are_not_adopted() -> None:
    resource, world = recreated(FORMER, FORMER, FORMER)
    annotate(world, 1, cluster_id="00000000000000c2")
    message = refusal(resource, world)
    assert "different clusters" in message
    assert "demo-1: 00000000000000c2" in message


@pytest.mark.parametrize(
    "url", ["http://demo-1.demo.production.svc:2380", "https://demo-1.demo.default.svc:2380", "http://demo-1:2380"]
)
def test_volumes_whose_members_have_other_addresses_are_not_adopted(url: str) -> None:
    """Members of a copy in another namespace would join the cluster that they were copied from."""
    resource, world = recreated(FORMER, FORMER, FORMER)
    annotate(world, 1, peer_url=url)
    assert f"the other members know demo-1 as {url}" in refusal(resource, world)


@pytest.mark.parametrize("version", ["3.5.26", "3.7.0"])
def test_volumes_are_adopted_with_the_version_that_wrote_them(version: str) -> None:
    resource, world = recreated(FORMER, FORMER, FORMER)
    for number in range(3):
        annotate(world, number, version=version)
    assert f"Set spec.version to {version}" in refusal(resource, world)


def test_volumes_without_any_record_are_not_adopted() -> None:
    resource, world = recreated(FORMER, FORMER, FORMER)
    for instance in world.instances:
        assert instance.volume is not None
        del instance.volume["metadata"]["annotations"]
    message = refusal(resource, world)
    assert "annotate data-demo-0, data-demo-1, data-demo-2 with its id" in message


def test_volume_annotated_by_hand_is_adopted() -> None:
    resource, world = recreated(FORMER, size=1)
    assert world.instances[0].volume is not None
    world.instances[0].volume["metadata"]["annotations"] = {"etcd.ydzs.io/cluster-id": f"{CLUSTER_ID:016x}"}
    made = plan(resource, world)
    assert reason(made) == (Progress.WAITING, "Adopting")
    assert made.status["clusterID"] == f"{CLUSTER_ID:016x}"


def test_adopted_members_that_report_another_cluster_block_every_change() -> None:
    first, world = recreated(FORMER, FORMER, FORMER)
    resource = recorded(plan(first, world), first)
    made = plan(resource, replace(seen(resource, VOTER, VOTER, VOTER), cluster_id=0xBAD))
    assert acts(made.actions) == []
    assert made.verdict.reason == "AnotherCluster"


def marks(resource: EtcdCluster, *at: At, **more: Any) -> list[str]:
    step = DATABASE.mark_volumes(assess(resource, replace(seen(resource, *at), **more)))
    assert all(isinstance(action, Patch) for action in step.actions)
    return [action.obj["metadata"]["name"] for action in step.actions if isinstance(action, Patch)]


def test_volumes_of_healthy_members_record_their_cluster() -> None:
    resource = cluster()
    world = seen(resource, VOTER, VOTER, VOTER)
    [patch, *_] = DATABASE.mark_volumes(assess(resource, world)).actions
    assert isinstance(patch, Patch)
    assert patch.change == {"metadata": {"annotations": record(0)}}


def test_volume_is_not_marked_without_evidence_that_its_member_has_its_data() -> None:
    assert marks(cluster(), VOTER, DOWN, VOTER) == ["data-demo-0", "data-demo-2"]
    assert marks(cluster(), VOTER, VOTER, VOTER, cluster_id=0xBAD) == []
    assert marks(cluster(recorded=None), VOTER, VOTER, VOTER) == [], "the status records the cluster first"
