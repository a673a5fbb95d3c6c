"""The etcd that is not there does what a real one did, and cries out where data would be at risk."""

from __future__ import annotations

import json

import pytest

from operators.etcd.client.errors import NotInSync
from shared.testing.harness.scenario import Unsafe
from tests.support import paths
from tests.support.etcd.recorded_conformance import STORIES, grow
from tests.unit.etcd.simulation.lab import FakeLab

RECORDED: dict[str, list[str]] = json.loads((paths.RECORDED / "etcd.json").read_text())

ENDS_BADLY = "the_seed_begins_again"


@pytest.mark.parametrize("name", [name for name in STORIES if name != ENDS_BADLY])
async def test_a_story_goes_as_it_went_with_a_real_etcd(name: str) -> None:
    lab = FakeLab()
    await STORIES[name](lab)
    assert lab.told == RECORDED[name]


async def test_a_seed_that_begins_again_is_a_violation_for_a_real_one_would_not_notice() -> None:
    lab = FakeLab()
    lab.etcd.guard.recorded.add("story")
    with pytest.raises(Unsafe, match="a begins a cluster on an empty disk, though the status records one"):
        await STORIES[ENDS_BADLY](lab)
    assert RECORDED[ENDS_BADLY][-1] == "the ids are the same"
    assert lab.etcd.violations


def test_every_recorded_story_is_told() -> None:
    assert RECORDED.keys() == STORIES.keys()


async def test_a_voter_that_comes_back_on_an_empty_disk_is_a_violation() -> None:
    lab = FakeLab()
    await grow(lab, "b", "c")
    await lab.wipe("b")
    with pytest.raises(Unsafe, match="b comes back as a voter on an empty disk, and has forgotten what it had written"):
        await lab.start("b", "existing", {"b": lab.url("b"), "xa": lab.url("a"), "xc": lab.url("c")})


async def test_a_second_cluster_beside_the_first_is_a_violation() -> None:
    lab = FakeLab()
    await grow(lab, "b")
    with pytest.raises(Unsafe, match="c begins a second cluster; the first one's data is still there"):
        await lab.start("c", "new", {"c": lab.url("c")})


async def test_removing_one_too_many_is_a_violation() -> None:
    """Etcd itself lets a member go that it has not seen for long, and counts who has started, not who is there."""
    lab = FakeLab()
    tell = await grow(lab, "b", "c", "d")
    gone = await tell.id_of("d")
    await lab.stop("d")
    await lab.server("a").remove(gone)
    await lab.stop("c")
    lab.etcd.guard.may_remove(lab.etcd, lab.etcd.cluster(), await tell.id_of("c"))
    with pytest.raises(Unsafe, match="the operator removes member b: 1 of 2 that remain are up, no quorum"):
        lab.etcd.guard.may_remove(lab.etcd, lab.etcd.cluster(), await tell.id_of("b"))


async def test_stopping_one_too_many_is_a_violation_and_stopping_one_is_not() -> None:
    lab = FakeLab()
    await grow(lab, "b", "c")
    etcd = lab.etcd
    etcd.guard.may_stop(etcd, {"a"}, "it stops a")
    await lab.stop("c")
    etcd.guard.may_stop(etcd, {"c"}, "it stops c, which is down")
    with pytest.raises(Unsafe, match="it stops a: 1 of 3 voters are left, which is no quorum"):
        etcd.guard.may_stop(etcd, {"a"}, "it stops a")
    await lab.stop("b")
    with pytest.raises(Unsafe, match="it stops a, which runs, while there is no quorum, and nobody allowed it"):
        etcd.guard.may_stop(etcd, {"a"}, "it stops a")


async def test_a_disk_that_forgot_is_found_out_before_it_leads() -> None:
    """What Raft promises rests on disks that keep what they were given: here one does not."""
    lab = FakeLab()
    await grow(lab, "b", "c")
    etcd = lab.etcd
    for name in "bc":
        etcd.member(name).index -= 1
    with pytest.raises(Unsafe, match="data-b may lead from now on without"):
        etcd.guard.inspect(etcd, "two disks were rolled back")


async def test_a_learner_that_lags_is_not_promoted_and_serves_nobody() -> None:
    lab = FakeLab()
    tell = await grow(lab)
    await lab.server("a").add_learner(lab.url("b"))
    lab.etcd.lagging.add("b")
    assert await lab.start("b", "existing", {"b": lab.url("b"), "xa": lab.url("a")}) == ""
    with pytest.raises(NotInSync):
        await lab.server("a").promote(await tell.id_of("b"))
    lab.etcd.lagging.clear()
    lab.etcd.settle("it catches up")
    await lab.server("a").promote(await tell.id_of("b"))


async def test_the_cluster_runs_as_its_oldest_member_and_never_goes_back() -> None:
    lab = FakeLab()
    await lab.start("a", "new", {"a": lab.url("a")}, "etcd:v3.5.26")
    assert await lab.server("a").cluster_version() == "3.5.0"
    await lab.stop("a")
    await lab.start("a", "existing", {"none": lab.url("b")}, "etcd:v3.6.8")
    assert await lab.server("a").cluster_version() == "3.6.0"
    await lab.stop("a")
    assert await lab.start("a", "existing", {"none": lab.url("b")}, "etcd:v3.5.26") == "it ends"


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("3.5.26", "3.7.0", "a minor version is skipped"),
        ("3.5.25", "3.6.8", "3.6.8 begins beside data-a, which runs 3.5.25; 3.5.26 is the least"),
    ],
)
async def test_an_upgrade_that_must_not_be_is_a_violation(first: str, then: str, said: str) -> None:
    lab = FakeLab()
    await lab.start("a", "new", {"a": lab.url("a")}, f"etcd:{first}")
    await lab.stop("a")
    with pytest.raises(Unsafe, match=said):
        await lab.start("a", "existing", {"none": lab.url("b")}, f"etcd:{then}")


async def test_a_full_quota_takes_no_writes_until_there_is_room_and_the_alarm_is_disarmed() -> None:
    lab = FakeLab()
    await grow(lab)
    server, etcd = lab.server("a"), lab.etcd
    etcd.fill()
    [alarm] = await server.alarms()
    before = (await server.status()).revision
    etcd.settle("time passes")
    assert (await server.status()).revision == before
    await server.disarm(alarm)
    assert await server.alarms() == (alarm,), "it is raised again at once"
    await server.compact(before)
    assert await server.is_compacted(before)
    await server.defragment()
    await server.disarm(alarm)
    assert await server.alarms() == ()
    assert (await server.status()).revision > before
