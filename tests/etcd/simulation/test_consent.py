"""A consent is for one loss, and ends with it; what stays in the spec afterwards consents to nothing.

The guard keeps each consent with the voters that were lost, and ends it as soon as a quorum returns.
"""

from __future__ import annotations

from shared.kubernetes.kinds import POD
from tests.harness.scenario import ScenarioStep, later, operator_down
from tests.support.etcd.scenarios import (
    ETCD,
    cluster,
    joined_outside,
    member,
    recovery_confirmed,
    recovery_released,
    unmounted,
)
from tests.support.plays import begun, ready, run
from tests.support.pod_loss import delete_now

DAY = 86400.0


def empty(*numbers: int) -> tuple[ScenarioStep, ...]:
    """Let members find their directory empty for so long that it counts as lost."""
    return unmounted(*numbers), later(30), later(150)


async def test_confirmation_of_a_loss_that_ended_does_not_consent_to_the_same_loss_a_year_later() -> None:
    """X1: the disks were mounted again before the confirmation counted, and it stays in the spec."""
    play = await begun(ETCD, cluster(3), *empty(1, 2))
    assert ready(play)["reason"] == "QuorumLost"
    await run(play, operator_down(recovery_confirmed(), unmounted(1, 2, mounts=True)))
    play.begin()
    await run(play, (later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    for days in (1, 300):
        play.stage.database.written(50_000)
        await run(play, (later(days * DAY), *empty(1, 2), later(30)))
        assert ready(play)["reason"] == "QuorumLost", "the same token, in the spec since the first loss"
        assert "earlier loss" in ready(play)["message"]
        await run(play, (unmounted(1, 2, mounts=True), later(60), later(60)))
        assert ready(play)["reason"] == "Ready"


async def test_loss_that_ended_and_began_again_without_the_operator_needs_another_consent() -> None:
    play = await begun(ETCD, cluster(3), *empty(1, 2))
    mounted = (unmounted(1, 2, mounts=True), later(60), later(30 * DAY), unmounted(1, 2))
    await run(play, operator_down(recovery_confirmed(), *mounted))
    play.begin()
    await run(play, (later(30), later(150)))
    assert ready(play)["reason"] == "QuorumLost"
    assert "earlier loss" in ready(play)["message"]


async def test_writes_end_a_loss_that_no_operator_saw_end() -> None:
    """The quorum returned for seconds only, but clients wrote meanwhile: the consent was to lose none of that."""
    play = await begun(ETCD, cluster(3), *empty(1, 2))
    mounted = (unmounted(1, 2, mounts=True), later(20), unmounted(1, 2))
    await run(play, operator_down(recovery_confirmed(), *mounted))
    play.begin()
    await run(play, (later(30), later(30)))
    assert ready(play)["reason"] == "QuorumLost"
    assert "earlier loss" in ready(play)["message"]


async def test_consent_names_voters_outside_of_the_pods_that_no_member_lists_any_more() -> None:
    """E1: after a restart without a quorum, a member serves no list. The guard ends a recovery without their ids."""
    play = await begun(ETCD, cluster(3), joined_outside(2), later(60))
    assert ready(play)["reason"] == "UnknownMember"
    await run(play, (unmounted(1, 2), delete_now(POD, member(0)), later(30), later(150), later(30)))
    outside = play.stage.find()[0]["status"]["outsideVoters"]
    assert (ready(play)["reason"], len(outside)) == ("QuorumLost", 2)
    await run(play, (recovery_confirmed(), later(60), recovery_released(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert "outsideVoters" not in play.stage.find()[0]["status"], "the new cluster has none"


async def test_recovery_spends_its_consent() -> None:
    """The next loss after a recovery needs a consent of its own, which is carried out."""
    play = await begun(ETCD, cluster(3), *empty(1, 2), recovery_confirmed(), later(60), recovery_released())
    await run(play, (later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    await run(play, (later(90 * DAY), *empty(1, 2)))
    assert ready(play)["reason"] == "QuorumLost"
    await run(play, (recovery_confirmed(), later(60), recovery_released(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
