"""A volume with data in use is never deleted: the lifecycle does not allow it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.runtime.plan import Delete, Evict
from shared.status.lifecycle import IllegalTransition
from shared.steps import volumes
from shared.steps.volumes import VOLUME, VolumeEvent, VolumeState, state_of


def claim(*, phase: str = "Bound", requested: str = "1Gi", has: str = "1Gi", deleting: bool = False) -> Obj:
    metadata: Obj = {"name": "data-demo-0", "uid": "c"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    spec = {"resources": {"requests": {"storage": requested}}}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, "capacity": {"storage": has}}}


STATES: list[tuple[Obj, bool, VolumeState]] = [
    (claim(phase="Pending"), True, VolumeState.CLAIMED),
    (claim(phase="Pending"), False, VolumeState.CLAIMED),
    (claim(), True, VolumeState.IN_USE),
    (claim(requested="1024Mi"), True, VolumeState.IN_USE),
    (claim(requested="2Gi"), True, VolumeState.GROWING),
    (claim(), False, VolumeState.RELEASED),
    (claim(requested="2Gi"), False, VolumeState.RELEASED),
    (claim(deleting=True), True, VolumeState.DELETING),
    (claim(deleting=True), False, VolumeState.DELETING),
]


@pytest.mark.parametrize(("obj", "in_use", "state"), STATES)
def test_state_follows_from_the_claim_and_the_use_of_its_data(obj: Obj, in_use: bool, state: VolumeState) -> None:
    assert state_of(obj, in_use=in_use) is state


@pytest.mark.parametrize(("obj", "in_use", "state"), STATES)
def test_claim_is_deleted_only_if_its_data_is_not_in_use(obj: Obj, in_use: bool, state: VolumeState) -> None:
    if state in (VolumeState.CLAIMED, VolumeState.RELEASED):
        deletion = volumes.delete(obj, in_use=in_use)
        assert (deletion.kind, deletion.obj) == (PERSISTENT_VOLUME_CLAIM, obj)
    else:
        with pytest.raises(IllegalTransition, match="the operator deletes the claim"):
            volumes.delete(obj, in_use=in_use)


def instance(volume: Obj | None, pod: Obj | None) -> Any:
    return SimpleNamespace(name="demo-0", pod=None, pod_obj=pod, volume=volume, runs=False)


def test_volume_is_deleted_before_its_pod_and_terminating_objects_are_skipped() -> None:
    pod, leaving = {"metadata": {"name": "p"}}, {"metadata": {"name": "p", "deletionTimestamp": "x"}}
    volume = claim()
    assert volumes.replace_disk(instance(volume, pod), in_use=False) == (
        Delete(PERSISTENT_VOLUME_CLAIM, volume),
        Delete(POD, pod),
    ), "the next pod cannot use a volume that is being deleted"
    assert volumes.replace_disk(instance(claim(deleting=True), leaving), in_use=False) == ()
    assert volumes.replace_disk(instance(claim(deleting=True), pod), in_use=False) == (Delete(POD, pod),)
    with pytest.raises(IllegalTransition):
        volumes.replace_disk(instance(claim(), pod), in_use=True)


def test_pod_that_serves_is_evicted_before_its_volume_is_deleted() -> None:
    """A deletion of the volume cannot be undone, so a refused eviction must come before it."""
    pod, leaving = {"metadata": {"name": "p"}}, {"metadata": {"name": "p", "deletionTimestamp": "x"}}
    volume = claim()
    deletion = Delete(PERSISTENT_VOLUME_CLAIM, volume)
    assert volumes.replace_disk(instance(volume, pod), in_use=False, evicts=True) == (Evict(pod), deletion)
    assert volumes.replace_disk(instance(volume, leaving), in_use=False, evicts=True) == (deletion,)


def test_data_in_use_is_never_one_event_away_from_deletion() -> None:
    for state in (VolumeState.IN_USE, VolumeState.GROWING):
        assert VolumeState.DELETING not in VOLUME.transitions[state].values()
        assert not VOLUME.allows(state, VolumeEvent.DELETE)
    assert set(VOLUME.transitions) == set(VolumeState)
    assert VOLUME.transitions[VolumeState.DELETED] == {}
