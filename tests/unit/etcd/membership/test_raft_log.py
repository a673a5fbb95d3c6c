"""Upgrades wait until every member's Raft log is readable by the next version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT, runs_as, unreadable
from operators.etcd.observe import Observed
from shared.kubernetes.kinds import Obj
from tests.unit.etcd.steps.test_rolling_update import image
from tests.unit.etcd.world import VOTER, acts, cluster, plan, seen

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


def test_log_that_started_as_3_6_does_not_block_an_upgrade() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": SINCE})
    assert unreadable(resource, world(resource, 501)) == ""


def test_upgrade_of_a_log_from_3_5_waits_for_a_snapshot_of_each_member() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER, "version": "3.6.11"})
    early = world(resource, 500 + ENTRIES_PER_SNAPSHOT)
    made = plan(resource, early)
    assert acts(made.actions) == []
    assert (made.verdict.reason, made.verdict.warning) == ("UpgradeHeld", True)
    assert "3.7.0 cannot read log entries that 3.5 wrote" in made.verdict.message
    assert "writes its next snapshot after 1 more changes" in made.verdict.message
    assert image(made) == RUNS
    assert made.status["phase"] == "Updating"
    enough = world(resource, 501 + ENTRIES_PER_SNAPSHOT)
    assert unreadable(resource, enough) == ""
    assert image(plan(resource, enough)) == "example.com/etcd:v3.7.0"


def test_upgrade_waits_for_a_single_lagging_member() -> None:
    resource = cluster(version="3.7.0", status={"runsAs": AFTER})
    own = replace(VOTER, version="3.6.11", applied=501 + ENTRIES_PER_SNAPSHOT)
    found = replace(seen(resource, own, replace(own, applied=20), own), cluster_version="3.6.0")
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


def test_new_cluster_has_no_series_yet() -> None:
    resource = cluster()
    assert runs_as(resource, world(resource, 4, version="3.0.0"), OWN_ID) is None
    assert runs_as(resource, world(resource, 1000), OWN_ID) == SINCE | {"sinceIndex": 1000}


def test_recovered_cluster_starts_a_log_of_its_own() -> None:
    resource = cluster(status={"runsAs": AFTER})
    assert runs_as(resource, world(resource, 7), RECOVERED_ID) == SINCE | {"clusterID": RECOVERED_ID, "sinceIndex": 7}
