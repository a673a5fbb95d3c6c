"""Calls on servers that arrive late."""

from __future__ import annotations

from typing import Literal

import pytest

from operators.redis.client.commands import FailOver, execute
from operators.redis.client.errors import Refused
from operators.redis.client.server import Access, Endpoint
from tests.unit.redis.simulation.lab import GuardedLab

Mode = Literal["", "FORCE", "TAKEOVER"]


@pytest.fixture
async def lab() -> GuardedLab:
    return await GuardedLab.begin()


async def fail_over(lab: GuardedLab, replica: str, primary: str, mode: Mode = "") -> None:
    at = Endpoint(replica, *lab.address(replica)[:1], replica)
    await execute(lab.redis.connect, FailOver(Access(), at, lab.id(replica), lab.id(primary), mode))


def primaries(lab: GuardedLab) -> set[str]:
    return {name for name in "abcdef" if not lab.process(name).node.me.primary}


@pytest.mark.parametrize("mode", ["", "FORCE", "TAKEOVER"])
async def test_late_failover_does_not_depose_another_primary(lab: GuardedLab, mode: Mode) -> None:
    """The replica was planned to replace one primary, and replicates another one when the call arrives."""
    with pytest.raises(Refused, match=f"replicates {lab.id('c')}, not {lab.id('a')}"):
        await fail_over(lab, "f", "a", mode)
    await lab.wait(20)
    assert primaries(lab) == {*"abc"}
    assert not lab.redis.violations


@pytest.mark.parametrize("mode", ["FORCE", "TAKEOVER"])
async def test_late_forced_failover_does_not_depose_a_primary_that_is_back(lab: GuardedLab, mode: Mode) -> None:
    with pytest.raises(Refused, match="does not report that its primary failed"):
        await fail_over(lab, "f", "c", mode)
    await lab.wait(20)
    assert primaries(lab) == {*"abc"}
    assert not lab.redis.violations


async def test_failover_replaces_the_expected_primary(lab: GuardedLab) -> None:
    await fail_over(lab, "f", "c")
    await lab.wait(5)
    assert primaries(lab) == {*"abf"}
    await fail_over(lab, "f", "c")
    assert not lab.redis.violations
