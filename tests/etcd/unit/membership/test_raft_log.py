"""Upgrades wait until every member's Raft log is readable by the next version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT, runs_as
from operators.etcd.objects.bootstrap import New, successor
from operators.etcd.state.observed import Observed
from operators.etcd.steps.version_change import hold
from shared.kubernetes.kinds import Obj
from tests.etcd.unit.steps.test_rolling_update import image
from tests.etcd.unit.world import DOWN, VOTER, At, acts, assess, cluster, member_id, plan, seen

OWN_ID, RECOVERED_ID = "00000000000000c1", "00000000000000c2"
SINCE: Obj = {"clusterID": OWN_ID, "series": "3.6", "sinceIndex": 500}
AFTER = SINCE | {"after": "3.5"}
RUNS = "example.com/etcd:v3.6.11"


def world(resource: EtcdCluster, applied: int, arguments: list[str] | None = None, version: str = "3.6.0") -> Observed:
    """Return three members of 3.6.11 with the given applied index."""
    own = replace(VOTER, version="3.6.11", applied=applied)
    found = replace(seen(resource, own, own, own, image=RUNS), cluster_version=version)
    if arguments is None:
        return found
    instances = tuple(replace(instance, pod_obj=_with(instance.pod_obj, arguments)) for instance in found.instances)
    return replace(found, instances=instances)


def _with(pod: Any, arguments: list[str]) -> Obj:
    return {**pod, "spec": {**(pod.get("spec") or {}), "containers": [{"name": "etcd", "args": arguments}]}}


def unreadable(resource: EtcdCluster, found: Observed) -> str:
    """Return why the members cannot be changed to the version of the spec; empty if they can."""
    waiting = hold(assess(resource, found))
    return waiting.why if waiting else ""


def upgrade(status: Obj, *at: At, known: bool = True) -> tuple[EtcdCluster, Observed]:
    """Return a cluster of 3.6.11 whose spec requests 3.7.0, with members in the given states."""
    resource = cluster(version="3.7.0", status={"version": "3.6.11", **status})
    found = seen(resource, *at, image=RUNS, known=known, leader=0 if known else None)
    return resource, replace(found, cluster_version="3.6.0" if known else "")


def recorded(*snapshotted: int) -> list[Obj]:
    """Return status.members; those with the given numbers have written a snapshot as 3.6."""
    found: list[Obj] = [
        {"name": f"demo-{number}", "id": f"{member_id(number):016x}", "volume": f"disk-{number}"} for number in range(3)
    ]
    for number in snapshotted:
        found[number]["snapshottedAs"] = "3.6"
    return found


ENOUGH = At(version="3.6.11", applied=501 + ENTRIES_PER_SNAPSHOT)
TOO_FEW = replace(ENOUGH, applied=600)
UNREACHABLE = replace(DOWN, runs=True, ready=True)


def test_log_that_started_as_3_6_does_not_block_an_upgrade() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": SINCE})
    assert unreadable(resource, world(resource, 501)) == ""


def test_upgrade_of_a_log_from_3_5_waits_for_a_snapshot_of_each_member() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER, "version": "3.6.11"})
    early = world(resource, 500 + ENTRIES_PER_SNAPSHOT)
    made = plan(resource, early)
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.warning) == ("UpgradeBlocked", True)
    assert "3.7.0 reads only log entries that 3.6 or later wrote" in made.verdict.message
    assert "writes its next snapshot after 1 more changes" in made.verdict.message
    assert image(made) == RUNS
    assert made.status["phase"] == "Updating"
    enough = world(resource, 501 + ENTRIES_PER_SNAPSHOT)
    assert unreadable(resource, enough) == ""
    assert image(plan(resource, enough)) == "example.com/etcd:v3.7.0"


def test_upgrade_waits_for_a_single_lagging_member() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER})
    own = replace(VOTER, version="3.6.11", applied=501 + ENTRIES_PER_SNAPSHOT)
    found = replace(seen(resource, own, replace(own, applied=20), own, image=RUNS), cluster_version="3.6.0")
    assert unreadable(resource, found).count("demo-1") == 1


def test_member_that_snapshots_more_often_is_ready_sooner() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER})
    assert unreadable(resource, world(resource, 600, ["--name=x", "--snapshot-count=100"]))
    assert unreadable(resource, world(resource, 601, ["--name=x", "--snapshot-count=100"])) == ""


def test_upgraded_member_does_not_block_the_upgrade() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER})
    found = world(resource, 501 + ENTRIES_PER_SNAPSHOT)
    ahead = replace(VOTER, version="3.7.0", applied=1)
    others = seen(resource, ahead).instances
    assert unreadable(resource, replace(found, instances=(*others, *found.instances[1:]))) == ""


def test_unreachable_member_is_unknown_and_holds_the_upgrade() -> None:
    resource, found = upgrade({"runsAs": AFTER}, ENOUGH, UNREACHABLE, ENOUGH)
    made = plan(resource, found)
    assert (image(made), acts(made.actions)) == (RUNS, [])
    assert (made.verdict.reason, made.verdict.warning) == ("UpgradeBlocked", True)
    assert "demo-1 does not answer the operator" in made.verdict.message


def test_operator_that_is_cut_off_keeps_the_template() -> None:
    for status in ({"runsAs": AFTER}, {"runsAs": SINCE}, {}):
        resource, found = upgrade(status, UNREACHABLE, UNREACHABLE, UNREACHABLE, known=False)
        made = plan(resource, found)
        assert (image(made), acts(made.actions)) == (RUNS, [])


def test_members_that_are_down_are_not_recreated_as_the_next_version() -> None:
    broken = replace(DOWN, old=True, problem="CrashLoopBackOff: back-off")
    resource, found = upgrade({"runsAs": AFTER}, broken, broken, broken, known=False)
    assert image(plan(resource, found)) == RUNS
    flipped = seen(resource, broken, broken, broken, known=False, leader=None)  # an earlier release set the template
    assert acts(plan(resource, flipped).actions) == []
    written = cluster(version="3.7.0", status={"runsAs": AFTER, "members": recorded(0)})
    assert acts(plan(written, flipped).actions) == ["delete Pod demo-0 (pod-0)"], "its snapshot is recorded"


def test_pod_is_not_rolled_to_a_version_that_may_not_read_its_log() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER, "version": "3.6.11"})
    old = replace(TOO_FEW, old=True)
    flipped = replace(seen(resource, old, old, old), cluster_version="3.6.0")
    made = plan(resource, flipped)
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.warning) == ("UpgradeBlocked", True)


def test_missing_record_is_unknown() -> None:
    resource, found = upgrade({}, ENOUGH, ENOUGH, ENOUGH)
    assert "it is not recorded since when the cluster runs as 3.6" in unreadable(resource, found)
    assert image(plan(resource, found)) == RUNS
    lost = cluster(recorded=None, version="3.7.0")
    assert unreadable(lost, found), "the whole status is lost"


def test_member_with_an_unknown_version_holds_the_upgrade_to_3_6() -> None:
    resource = cluster(version="3.6.11", status={"version": "3.5.26"})
    own = replace(VOTER, version="3.5.26")
    found = seen(resource, own, UNREACHABLE, own, image="example.com/etcd:v3.5.26")
    made = plan(resource, replace(found, cluster_version="3.5.0"))
    assert image(made) == "example.com/etcd:v3.5.26"
    assert "needs the version of every member: demo-1 does not answer the operator" in made.verdict.message


def test_snapshot_of_a_member_is_recorded_until_the_series_changes() -> None:
    resource, found = upgrade({"runsAs": AFTER}, ENOUGH, TOO_FEW, ENOUGH)
    kept = plan(resource, found).status["members"]
    assert [member.get("snapshottedAs") for member in kept] == ["3.6", None, "3.6"]
    resource = cluster(version="3.7.0", status={"runsAs": AFTER, "members": recorded(0, 1, 2)})
    more = replace(
        found, instances=tuple(_with_count(instance, "--snapshot-count=90000") for instance in found.instances)
    )
    assert unreadable(resource, more) == "", "the snapshot is written already"
    back = cluster(status={"runsAs": AFTER | {"series": "3.5", "after": "3.6"}, "members": recorded(0, 1, 2)})
    later = plan(back, found).status
    assert later["runsAs"]["after"] == "3.5"
    assert [member.get("snapshottedAs") for member in later["members"]] == [None, None, None]


def test_snapshot_of_a_former_member_is_no_evidence_for_the_next_one() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER, "members": recorded(0, 1, 2)})
    another = replace(TOO_FEW, id=0xAA)
    found = replace(seen(resource, ENOUGH, another, ENOUGH, image=RUNS), cluster_version="3.6.0")
    assert "demo-1" in unreadable(resource, found)


def _with_count(instance: Any, argument: str) -> Any:
    return replace(instance, pod_obj=_with(instance.pod_obj, [argument]))


def test_lower_snapshot_count_is_rolled_out_while_the_upgrade_waits() -> None:
    resource = cluster(version="3.7.0", snapshotCount=100, status={"runsAs": AFTER, "version": "3.6.11"})
    old = replace(VOTER, version="3.6.11", applied=600, old=True)
    found = replace(seen(resource, old, old, old, image=RUNS), cluster_version="3.6.0")
    made = plan(resource, found)
    assert acts(made.actions) == ["evict Pod demo-1 (pod-1)"]
    assert image(made) == RUNS


def test_patch_upgrade_does_not_wait() -> None:
    resource = cluster(version="3.6.16", status={"runsAs": AFTER})
    assert unreadable(resource, world(resource, 501)) == ""


def test_status_records_the_former_series_of_the_cluster() -> None:
    resource = cluster(status={"runsAs": {"clusterID": OWN_ID, "series": "3.5", "sinceIndex": 3}})
    found = world(resource, 1000)
    assert runs_as(resource, found, OWN_ID) == AFTER | {"sinceIndex": 1000}
    resource = cluster(status={"runsAs": AFTER})
    assert runs_as(resource, found, OWN_ID) == AFTER, "the index does not move with each change"
    assert runs_as(resource, replace(found, cluster_version=""), OWN_ID) == AFTER, "the cluster version is unknown"


def test_new_cluster_has_the_series_of_its_seed() -> None:
    resource = cluster(1, recorded=None)
    seed = seen(resource, replace(VOTER, version="3.6.11", applied=4, start=New()))
    assert runs_as(resource, replace(seed, cluster_version="3.0.0"), OWN_ID) == SINCE | {"sinceIndex": 4}
    early = cluster(status={"runsAs": SINCE})
    assert runs_as(early, world(early, 4, version="3.0.0"), OWN_ID) == SINCE, "the version is not decided yet"


def test_log_of_unknown_origin_is_recorded_as_such() -> None:
    resource = cluster()
    assert runs_as(resource, world(resource, 1000), OWN_ID) == SINCE | {"sinceIndex": 1000, "after": "unknown"}
    lost = cluster(recorded=None)
    assert runs_as(lost, world(lost, 1000), OWN_ID) == SINCE | {"sinceIndex": 1000, "after": "unknown"}


def test_recovered_cluster_starts_a_log_of_its_own() -> None:
    resource = cluster(status={"runsAs": AFTER, "recovery": {"token": "t", "survivor": "demo-0"}})
    found, new = world(resource, 7), successor(resource)
    instances = [replace(each, status=each.status and replace(each.status, cluster_id=new)) for each in found.instances]
    found = replace(found, cluster_id=new, instances=tuple(instances))
    assert runs_as(resource, found, RECOVERED_ID) == SINCE | {"clusterID": RECOVERED_ID, "sinceIndex": 7}
