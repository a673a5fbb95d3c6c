"""Past defects of the etcd operator (`tests.support.past_defects`)."""

from __future__ import annotations

import re

import pytest

from operators.etcd.state.empty_directory import EmptyStarts
from operators.etcd.steps import quorum_recovery
from operators.etcd.steps.data_loss import QuorumLoss
from tests.etcd.simulation.courses import CONFIRMED, DAY, MOUNTED
from tests.etcd.simulation.test_random_courses import PLAIN, begun, quorum_is_lost, recovery_is_confirmed
from tests.harness.scenario import later
from tests.support.past_defects import PastDefect, RemoveFix, tokens_identify_no_occurrence


def confirmation_counts_for_ever(patch: pytest.MonkeyPatch) -> None:
    tokens_identify_no_occurrence(patch, quorum_recovery, lambda loss: re.sub(r" at revision \d+", "", loss))


def empty_directory_is_a_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EmptyStarts, "prove_loss", True)
    patch.setattr(QuorumLoss, "kept", property(lambda found: found.others))


async def same_disks_are_away_again(remove_fix: RemoveFix) -> None:
    """The disks of the same two members are back before a confirmation counts, which stays in the spec."""
    course = await begun(PLAIN)
    remove_fix()
    await quorum_is_lost(course)
    course.play.end()
    for step in (CONFIRMED, MOUNTED, later(60)):
        step.act(course.play.stage)
    course.play.world.settle_workloads()  # else one of them, which is empty for longer, is replaced
    course._start()
    await course.go(later(60))
    assert course.ready["reason"] == "Ready", course.ready
    course.etcd.written(50_000)
    await course.go(later(300 * DAY))
    await quorum_is_lost(course)


async def disks_are_not_mounted(remove_fix: RemoveFix) -> None:
    course = await begun(PLAIN)
    remove_fix()
    await recovery_is_confirmed(course)


DEFECTS = (
    PastDefect(
        "X1",
        "A confirmation is never spent: the same disks, unmounted for a moment months later, are given up.",
        confirmation_counts_for_ever,
        same_disks_are_away_again,
        "without consent",
    ),
    PastDefect(
        "X6",
        "An empty directory on the recorded volume is a loss: the recovery deletes disks that are not mounted.",
        empty_directory_is_a_loss,
        disks_are_not_mounted,
        "deletes the volume .*, which survived the loss of the quorum, and no user released it",
    ),
)
