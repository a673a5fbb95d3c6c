"""A smaller size of volumes: accepted until they have grown, and then refused with the claim that is larger."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.api.podspec import warnings_of_size
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress
from shared.steps.provisioning import Volumes


def claim(number: int, size: str) -> Obj:
    return {
        "metadata": {"name": f"data-demo-{number}", "uid": f"c-{number}"},
        "spec": {"resources": {"requests": {"storage": size}}},
    }


def stateful_set(size: str) -> Obj:
    return {"spec": {"volumeClaimTemplates": [{"spec": {"resources": {"requests": {"storage": size}}}}]}}


def refuse_smaller(claims: list[Obj], stateful_set: Obj | None, size: str) -> Step:
    return Volumes(
        claims=claims,
        stateful_set=stateful_set,
        size=size,
        attributes_class=None,
        now=datetime(2026, 1, 1, tzinfo=UTC),
        refusal="example.com/refused",
        attempts="example.com/tried",
    ).refuse_smaller()


@pytest.mark.parametrize(
    ("sizes", "template", "size"),
    [
        (("8Gi", "8Gi"), "8Gi", "8Gi"),
        (("8Gi", "8Gi"), "8Gi", "16Gi"),
        (("16Gi", "8Gi"), "8Gi", "8Gi"),  # one has grown, another was refused: the larger one does no harm
        (("8Gi", "20Gi"), "8Gi", "8Gi"),  # expanded by a user
        (("8Gi", "8Gi"), "16Gi", "8Gi"),  # nothing has that size
        ((), "8Gi", "4Gi"),
    ],
)
def test_size_that_no_volume_prevents_is_accepted(sizes: tuple[str, ...], template: str, size: str) -> None:
    claims = [claim(number, each) for number, each in enumerate(sizes)]
    assert refuse_smaller(claims, stateful_set(template), size) == PASS
    assert refuse_smaller(claims, None, size) == PASS


def test_size_below_that_of_grown_volumes_is_refused() -> None:
    step = refuse_smaller([claim(0, "8Gi"), claim(1, "16Gi")], stateful_set("8Gi"), "4Gi")
    assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "VolumesCannotShrink", ())
    assert "4Gi is below the 16Gi of PersistentVolumeClaim data-demo-1" in step.message
    assert "Set at least 16Gi" in step.message


def test_change_of_the_size_is_a_warning() -> None:
    """Also if `storage` is removed: the manifest does not show the default that replaces it."""
    assert warnings_of_size("8Gi", "8192Mi") == []
    assert "grow from 4Gi to 8Gi, and can never shrink" in warnings_of_size("8Gi", "4Gi")[0]
    assert "8Gi is below the former 80Gi" in warnings_of_size("8Gi", "80Gi")[0]
