"""A disk that is not mounted looks like an empty volume: it is neither lost at once, nor for ever unknown."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM
from tests.harness.outage import status_lost
from tests.harness.scenario import ScenarioStep, later, operator_down
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd.scenarios import ETCD, cluster, lost, unmounted
from tests.support.plays import begun, ready, run

DAY = 86400.0


def claims(play: ScenarioRun) -> dict[str, str]:
    return {found["metadata"]["name"]: found["metadata"]["uid"] for found in play.stage.find(PERSISTENT_VOLUME_CLAIM)}


async def test_member_whose_disk_is_unmounted_for_a_moment_keeps_its_volume() -> None:
    play = await begun(ETCD, cluster(3))
    before = claims(play)
    await run(play, (unmounted(2), later(30)))
    assert "Check that the disk is mounted" in ready(play)["message"]
    await run(play, (unmounted(2, mounts=True), later(30), later(30)))
    assert ready(play)["reason"] == "Ready"
    assert claims(play) == before


async def test_two_short_losses_of_a_mount_months_apart_prove_nothing() -> None:
    play = await begun(ETCD, cluster(3))
    before = claims(play)
    for _ in range(3):
        await run(play, (unmounted(2), later(30), unmounted(2, mounts=True), later(30), later(90 * DAY)))
    assert claims(play) == before


async def test_member_whose_disk_stays_empty_is_replaced() -> None:
    play = await begun(ETCD, cluster(3))
    before = claims(play)
    await run(play, (unmounted(2), later(60), later(150), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert claims(play)["data-cache-2"] != before["data-cache-2"]


async def test_recovery_is_offered_only_once_the_loss_is_proven() -> None:
    play = await begun(ETCD, cluster(3), unmounted(1, 2), later(30))
    assert ready(play)["reason"] == "NoQuorum"
    assert "cache-1 is unreachable (its data directory was empty at the start at" in ready(play)["message"]
    [found] = play.stage.find()
    assert "recovery" not in found["status"]
    await run(play, (later(150),))
    assert ready(play)["reason"] == "QuorumLost"
    assert "cache-1, cache-2 (empty directory) of the 3 voters" in ready(play)["message"]


async def test_loss_of_all_data_is_reported_although_the_status_was_lost() -> None:
    """X7: the message was that of the kubelet, CrashLoopBackOff, without a remedy."""
    play = await begun(ETCD, cluster(3))
    everything = (*lost(0, 1, 2), ScenarioStep("the status is lost", status_lost))
    await run(play, operator_down(*everything))
    await run(play, (later(60), later(150), later(60)))
    assert ready(play)["reason"] == "DataLost", ready(play)["message"]
    assert "cache-0, cache-1, cache-2 started with an empty directory" in ready(play)["message"]
    assert "spec.restore" in ready(play)["message"]


@pytest.mark.parametrize("size", [1, 3])
async def test_members_return_with_all_data_once_their_disks_are_mounted(size: int) -> None:
    play = await begun(ETCD, cluster(size), unmounted(*range(size)), later(30), later(150))
    before = claims(play)
    assert "first check that the disk is mounted" in ready(play)["message"]
    await run(play, (unmounted(*range(size), mounts=True), later(60), later(60)))
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    kept = before.items() & claims(play).items()
    assert len(kept) > size // 2, "a member that is empty for longer than the others is replaced"
