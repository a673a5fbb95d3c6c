"""Ordinals of pods and claims: those of any spec, and of others a few at a time."""

from __future__ import annotations

import pytest

from shared.kubernetes.ordinals import MAX_SURPLUS, ordinal, replicas, to_observe


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *(("demo-0", 0), ("demo-12", 12), ("demo", None), ("demo-", None), ("demo-01", None), ("demo-x", None)),
        *(("demo-1-2", None), ("other-1", None), ("xdemo-1", None), ("data-demo-1", None)),
    ],
)
def test_ordinal_of_a_name(name: str, found: int | None) -> None:
    assert ordinal(name, "demo") == found


def test_replicas_of_another_client_are_bounded() -> None:
    assert replicas({"spec": {"replicas": 2**31 - 1}}, 9) == 9
    assert replicas({"spec": {"replicas": 3}}, 9) == 3
    assert replicas(None, 9) == 0


def test_lowest_of_the_ordinals_beyond_any_spec_are_observed() -> None:
    assert to_observe(3, {7, 2}, 9) == [0, 1, 2, 7]
    assert to_observe(2**31, range(1_000), 9) == [*range(9 + MAX_SURPLUS)]
