"""Data that a recovery did not use is kept until a user releases it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.backup.pods import STARTED, TOKEN, cleaning_pod_name
from operators.etcd.objects.names import KEPT, SET_ASIDE
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import Apply, Patch, Plan
from shared.status.verdict import Progress
from tests.etcd.unit.backup.states import ended, failed
from tests.etcd.unit.world import ABSENT, NOW, VOTER, At, acts, cluster, plan, seen

MARK = "abcdefabcdef"
FORMER = replace(ABSENT, disk="disk-2")
"""A number without a member, on whose volume the former cluster has data."""


def recovered(*at: At, mark: str, number: int, release: str = "", pod: Obj | None = None) -> Plan:
    """Plan for a recovered cluster whose volume `number` has a mark."""
    recovery: Obj = {"release": release} if release else {"confirm": MARK}
    resource = cluster(3, recovery=recovery)
    world = seen(resource, *at)
    volume = world.instances[number].volume
    assert volume is not None
    volume["metadata"]["annotations"] = {mark: MARK}
    return plan(resource, replace(world, job_pods={cleaning_pod_name(resource): pod} if pod else {}))


def test_kept_volume_is_neither_deleted_nor_used_by_a_new_member() -> None:
    made = recovered(VOTER, VOTER, FORMER, mark=KEPT, number=2)
    assert acts(made.actions) == []
    assert (made.verdict.progress, made.verdict.reason) == (Progress.PROGRESSING, "FormerDataKept")
    assert f"set spec.recovery.release to {MARK}" in made.verdict.message


def test_release_of_another_recovery_deletes_nothing() -> None:
    made = recovered(VOTER, VOTER, FORMER, mark=KEPT, number=2, release="another")
    assert acts(made.actions) == []
    assert made.verdict.reason == "FormerDataKept"


def test_released_volume_is_deleted() -> None:
    made = recovered(VOTER, VOTER, FORMER, mark=KEPT, number=2, release=MARK)
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-2 (disk-2)"]
    assert made.verdict.reason == "Removing"


@pytest.mark.parametrize("release", ["", "second", "first"])
def test_volume_with_former_data_of_an_earlier_recovery_stays_until_both_are_released(release: str) -> None:
    """E11: the survivor of the first recovery is a former member since the second one, which also had its own data."""
    resource = cluster(3, recovery={"release": release} if release else None)
    world = seen(resource, VOTER, VOTER, FORMER)
    volume = world.instances[2].volume
    assert volume is not None
    volume["metadata"]["annotations"] = {KEPT: "second", SET_ASIDE: "first"}
    made = plan(resource, world)
    assert (acts(made.actions), made.verdict.reason) == ([], "FormerDataKept")
    assert "set spec.recovery.release to first: it is deleted" in made.verdict.message
    removed: Obj = {"metadata": {"annotations": {SET_ASIDE: None}}}
    changes = [action.change for action in made.actions if isinstance(action, Patch) and action.obj == volume]
    assert (removed in changes) == (release == "first"), "it ends with the volume, once the second one is released"


def pods_made(made: Plan) -> list[Obj]:
    return [action.obj for action in made.actions if isinstance(action, Apply) and action.kind == POD]


def test_former_data_next_to_a_member_is_kept_and_reported_until_it_is_released() -> None:
    made = recovered(VOTER, VOTER, VOTER, mark=SET_ASIDE, number=0)
    assert pods_made(made) == []
    assert made.verdict.done
    assert f"Former data uses space on the volume of demo-0 (recovery {MARK})" in made.verdict.message


def test_released_former_data_is_deleted_by_a_pod() -> None:
    [pod] = pods_made(recovered(VOTER, VOTER, VOTER, mark=SET_ASIDE, number=0, release=MARK))
    [container] = pod["spec"]["containers"]
    assert container["args"] == ["clean", "--home=/var/lib/etcd", f"--token={MARK}"]
    assert pod["metadata"]["annotations"][STARTED] == rfc3339(NOW), "a failed one is replaced after a pause"
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-demo-0"}}]


def cleaning(**status: Any) -> Obj:
    metadata = {"name": "demo-clean", "namespace": "default", "uid": "p", "annotations": {TOKEN: MARK}}
    return {"kind": "Pod", "metadata": metadata, "status": status}


def test_cleaning_pod_of_another_owner_is_neither_used_nor_deleted() -> None:
    resource = cluster(3, recovery={"release": MARK})
    world = seen(resource, VOTER, VOTER, VOTER)
    volume = world.instances[0].volume
    assert volume is not None
    volume["metadata"]["annotations"] = {SET_ASIDE: MARK}
    pod = cleaning(**ended({"token": MARK, "bytes": 7}))
    made = plan(resource, replace(world, stray_pods={"demo-clean": pod}))
    assert (made.verdict.progress, made.verdict.reason) == (Progress.PROGRESSING, "ForeignObject")
    assert "Pod demo-clean is not controlled by this EtcdCluster." in made.verdict.message
    assert (pods_made(made), acts(made.actions)) == ([], [])
    assert not any(isinstance(action, Patch) and SET_ASIDE in str(action.change) for action in made.actions)


def test_mark_is_removed_when_the_data_is_deleted() -> None:
    pod = cleaning(**ended({"token": MARK, "bytes": 7}))
    made = recovered(VOTER, VOTER, VOTER, mark=SET_ASIDE, number=0, release=MARK, pod=pod)
    patches = [action.change for action in made.actions if isinstance(action, Patch)]
    assert {"metadata": {"annotations": {SET_ASIDE: None}}} in patches
    assert acts(made.actions) == ["delete Pod demo-clean (p)"]


@pytest.mark.parametrize("release", ["", MARK])
def test_failed_or_unneeded_pod_is_deleted(release: str) -> None:
    pod = cleaning(**failed("FileUnusable", finished="2026-01-01T11:59:00Z"))
    made = recovered(VOTER, VOTER, VOTER, mark=SET_ASIDE, number=0, release=release, pod=pod)
    assert acts(made.actions) == ["delete Pod demo-clean (p)"]


def test_cleaning_pod_that_cannot_start_is_named_with_the_reason() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    pod = cleaning(phase="Pending", containerStatuses=[{"name": "clean", "state": {"waiting": waiting}}])
    made = recovered(VOTER, VOTER, VOTER, mark=SET_ASIDE, number=0, release=MARK, pod=pod)
    assert made.verdict.reason == "ReleasingData"
    assert made.verdict.message.endswith("Pod demo-clean cannot pull its image.")
