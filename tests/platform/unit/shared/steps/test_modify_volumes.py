"""The VolumeAttributesClass of volumes: each claim once, then the template of new ones, and no endless retry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.runtime.plan import PASS, Delete, Patch, Step
from shared.status.verdict import Progress
from shared.steps.provisioning import Volumes

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
TRIED, REFUSED = "example.com/tried", "example.com/refused"
ATTEMPT = "fast at 2026-01-01T12Z"


def claim(
    number: int = 0,
    *,
    has: str | None = None,
    applied: str | None = None,
    state: str = "",
    tried: str = "",
    **status: Any,
) -> Obj:
    """Return a claim.

    Args:
        has: class in its spec.
        applied: class that its volume has.
        state: state of a modification in its status.
        tried: value of the annotation.
    """
    metadata: Obj = {"name": f"data-demo-{number}", "uid": f"c-{number}"}
    if tried:
        metadata["annotations"] = {TRIED: tried}
    spec: Obj = {"resources": {"requests": {"storage": "1Gi"}}}
    if has is not None:
        spec["volumeAttributesClassName"] = has
    found: Obj = {"phase": "Bound", "capacity": {"storage": "1Gi"}} | status
    if applied is not None:
        found["currentVolumeAttributesClassName"] = applied
    if state:
        found["modifyVolumeStatus"] = {"status": state, "targetVolumeAttributesClassName": "fast"}
    return {"metadata": metadata, "spec": spec, "status": found}


APPLIED = claim(has="fast", applied="fast")


def stateful_set(attributes_class: str | None = None) -> Obj:
    spec: Obj = {"resources": {"requests": {"storage": "1Gi"}}}
    if attributes_class is not None:
        spec["volumeAttributesClassName"] = attributes_class
    return {"metadata": {"name": "demo"}, "spec": {"volumeClaimTemplates": [{"spec": spec}]}}


def volumes(
    claims: tuple[Obj, ...], requested: str | None, stateful_set: Obj | None = None, now: datetime = NOW
) -> Volumes:
    return Volumes(
        claims=claims,
        stateful_set=stateful_set,
        size="1Gi",
        attributes_class=requested,
        now=now,
        refusal=REFUSED,
        attempts=TRIED,
    )


def modify(*claims: Obj, requested: str | None = "fast", now: datetime = NOW) -> Step:
    return volumes(claims, requested, now=now).modify()


def grow(*claims: Obj, template: str | None = None, requested: str | None = "fast", may_recreate: bool = True) -> Step:
    return volumes(claims, requested, stateful_set(template)).grow(may_recreate=may_recreate)


def test_class_is_set_on_each_claim_that_has_another_one() -> None:
    step = modify(claim(0), claim(1, has="fast", applied="fast"), claim(2, has="slow", applied="slow"))
    patches = [action for action in step.actions if isinstance(action, Patch)]
    assert [patch.obj["metadata"]["name"] for patch in patches] == ["data-demo-0", "data-demo-2"]
    assert patches[0].change == {
        "metadata": {"annotations": {TRIED: ATTEMPT}},
        "spec": {"volumeAttributesClassName": "fast"},
    }
    assert patches[0].noted == (TRIED, ATTEMPT)
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "ModifyingVolumes")


def test_nothing_is_set_without_a_class_in_the_spec() -> None:
    assert modify(claim(has="slow", applied="slow"), requested=None) == PASS
    assert modify(claim(), requested=None) == PASS


def test_unbound_claim_waits_for_its_volume() -> None:
    assert modify(claim(phase="Pending")) == PASS


def test_refused_class_is_reported_and_not_sent_again() -> None:
    step = modify(claim(tried=f"{ATTEMPT}: 403 update is forbidden when the feature gate is disabled."))
    assert (step.progress, step.reason, step.warning, step.actions) == (
        Progress.PROGRESSING,
        "VolumesNotModified",
        True,
        (),
    )
    assert step.message == (
        "PersistentVolumeClaim data-demo-0 does not get VolumeAttributesClass fast: 403 update is forbidden when the "
        "feature gate is disabled. Remove storage.volumeAttributesClassName, or make the class available. The operator "
        "retries every hour."
    )


def test_class_that_the_server_dropped_is_reported_and_not_sent_again() -> None:
    """An API server before 1.34 accepts the write, which records the attempt, and drops the field."""
    step = modify(claim(tried=ATTEMPT))
    assert (step.reason, step.actions) == ("VolumesNotModified", ())
    assert "the API server dropped the field, which Kubernetes 1.34 and later have" in step.message


def test_attempt_is_repeated_after_an_hour_or_with_another_class() -> None:
    assert len(modify(claim(tried=ATTEMPT), now=NOW + timedelta(hours=1)).actions) == 1
    assert len(modify(claim(tried=ATTEMPT), requested="faster").actions) == 1


@pytest.mark.parametrize(("state", "hint"), [("", ""), ("InProgress", ""), ("Pending", " Does the class exist?")])
def test_class_that_the_driver_has_not_applied_is_awaited(state: str, hint: str) -> None:
    step = modify(claim(has="fast", state=state, tried=ATTEMPT))
    assert (step.reason, step.warning, step.actions) == ("ModifyingVolumes", False, ())
    assert step.message == f"Waiting for the storage driver to apply VolumeAttributesClass fast to data-demo-0.{hint}"


def test_class_that_the_driver_refuses_is_reported() -> None:
    step = modify(claim(has="fast", applied="slow", state="Infeasible", tried=ATTEMPT))
    assert (step.reason, step.warning, step.actions) == ("VolumesNotModified", True, ())
    assert "cannot apply VolumeAttributesClass fast to PersistentVolumeClaim data-demo-0" in step.message


def test_applied_class_needs_nothing() -> None:
    assert modify(claim(has="fast", applied="fast", tried=ATTEMPT)) == PASS


def test_stateful_set_is_recreated_without_its_pods_when_every_volume_has_the_class() -> None:
    step = grow(claim(0, has="fast", applied="fast"), claim(1, has="fast", applied="fast"))
    (action,) = step.actions
    assert isinstance(action, Delete)
    assert (action.kind, action.orphan, step.reason) == (STATEFUL_SET, True, "ModifyingVolumes")


@pytest.mark.parametrize(
    "given",
    [
        {"claims": (), "template": None},
        {"claims": (APPLIED, claim(1)), "template": None},
        {"claims": (claim(tried=ATTEMPT),), "template": None},
        {"claims": (APPLIED, claim(1, has="fast", applied="slow", state="InProgress")), "template": None},
        {"claims": (claim(has="fast", state="Infeasible"),), "template": None},
        {"claims": (APPLIED,), "template": "fast"},
        {"claims": (APPLIED,), "template": None, "requested": None},
        {"claims": (APPLIED,), "template": None, "may_recreate": False},
    ],
    ids=[
        "no claims",
        "not all claims",
        "dropped by the server",
        "not applied yet",
        "refused by the driver, which would provide no new volume",
        "present",
        "no class in the spec",
        "not allowed",
    ],
)
def test_stateful_set_is_not_recreated_otherwise(given: dict[str, Any]) -> None:
    claims = given.pop("claims")
    assert grow(*claims, **given) == PASS
