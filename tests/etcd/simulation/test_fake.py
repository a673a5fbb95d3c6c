"""The simulated etcd behaves like a recorded real one, and reports actions that put data at risk."""

from __future__ import annotations

import json

import pytest

from operators.etcd.client.errors import NotInSync
from tests.etcd.simulation.lab import FakeLab
from tests.harness.scenario import Unsafe
from tests.support import paths
from tests.support.etcd.recorded_conformance import SESSIONS, grow

RECORDED: dict[str, list[str]] = json.loads((paths.RECORDED / "etcd.json").read_text())

SECOND_BOOTSTRAP = "seed_bootstraps_again"


@pytest.mark.parametrize("name", [name for name in SESSIONS if name != SECOND_BOOTSTRAP])
async def test_session_has_the_transcript_of_a_real_etcd(name: str) -> None:
    lab = FakeLab()
    await SESSIONS[name](lab)
    assert lab.transcript == RECORDED[name]


async def test_second_bootstrap_is_a_violation_that_etcd_does_not_detect() -> None:
    lab = FakeLab()
    lab.etcd.guard.recorded.add("session")
    with pytest.raises(Unsafe, match="a bootstraps a cluster on an empty disk, but the status records one"):
        await SESSIONS[SECOND_BOOTSTRAP](lab)
    assert RECORDED[SECOND_BOOTSTRAP][-1] == "the ids are the same"
    assert lab.etcd.violations


def test_every_session_is_recorded() -> None:
    assert RECORDED.keys() == SESSIONS.keys()


async def test_voter_that_restarts_on_an_empty_disk_is_a_violation() -> None:
    lab = FakeLab()
    await grow(lab, "b", "c")
    await lab.wipe("b")
    with pytest.raises(Unsafe, match="b restarts as a voter on an empty disk, without its acknowledged entries"):
        await lab.start("b", "existing", {"b": lab.url("b"), "xa": lab.url("a"), "xc": lab.url("c")})


async def test_second_cluster_while_the_first_exists_is_a_violation() -> None:
    lab = FakeLab()
    await grow(lab, "b")
    with pytest.raises(Unsafe, match="c bootstraps a second cluster while data of the first one exists"):
        await lab.start("c", "new", {"c": lab.url("c")})


async def test_removal_that_loses_the_quorum_is_a_violation() -> None:
    """The check of etcd counts members that have started, not members that are reachable."""
    lab = FakeLab()
    recorder = await grow(lab, "b", "c", "d")
    removed = await recorder.id_of("d")
    await lab.stop("d")
    await lab.server("a").remove(removed)
    await lab.stop("c")
    lab.etcd.guard.may_remove(lab.etcd, lab.etcd.cluster(), await recorder.id_of("c"))
    with pytest.raises(Unsafe, match="the operator removes member b: 1 of 2 remaining members are up, no quorum"):
        lab.etcd.guard.may_remove(lab.etcd, lab.etcd.cluster(), await recorder.id_of("b"))


async def test_pod_stop_that_loses_the_quorum_is_a_violation() -> None:
    lab = FakeLab()
    await grow(lab, "b", "c")
    etcd = lab.etcd
    etcd.guard.may_stop(etcd, {"a"}, "stopping a")
    await lab.stop("c")
    etcd.guard.may_stop(etcd, {"c"}, "stopping c, which is down")
    with pytest.raises(Unsafe, match="stopping a: 1 of 3 voters are left, which is no quorum"):
        etcd.guard.may_stop(etcd, {"a"}, "stopping a")
    await lab.stop("b")
    with pytest.raises(Unsafe, match="stopping a, which runs, while there is no quorum, without consent"):
        etcd.guard.may_stop(etcd, {"a"}, "stopping a")


async def test_disk_without_acknowledged_writes_is_found_before_it_leads() -> None:
    """Raft relies on disks that keep acknowledged entries; here two disks lose one."""
    lab = FakeLab()
    await grow(lab, "b", "c")
    etcd = lab.etcd
    for name in "bc":
        etcd.member(name).index -= 1
    with pytest.raises(Unsafe, match="data-b can become leader without"):
        etcd.guard.inspect(etcd, "two disks were rolled back")


async def test_lagging_learner_is_not_promoted() -> None:
    lab = FakeLab()
    recorder = await grow(lab)
    await lab.server("a").add_learner(lab.url("b"))
    lab.etcd.lagging.add("b")
    assert await lab.start("b", "existing", {"b": lab.url("b"), "xa": lab.url("a")}) == ""
    with pytest.raises(NotInSync):
        await lab.server("a").promote(await recorder.id_of("b"))
    lab.etcd.lagging.clear()
    lab.etcd.settle("b catches up")
    await lab.server("a").promote(await recorder.id_of("b"))


async def test_cluster_version_is_that_of_the_oldest_member_some_seconds_later_and_never_falls() -> None:
    lab = FakeLab()
    await lab.start("a", "new", {"a": lab.url("a")}, "etcd:v3.5.26")
    assert await lab.server("a").cluster_version() == "3.5.0"
    await lab.stop("a")
    await lab.start("a", "existing", {"none": lab.url("b")}, "etcd:v3.6.8")
    assert await lab.server("a").cluster_version() == "3.5.0"
    lab.etcd.clock.wait(4)
    assert await lab.server("a").cluster_version() == "3.6.0"
    await lab.stop("a")
    assert await lab.start("a", "existing", {"none": lab.url("b")}, "etcd:v3.5.26") == "it ends"


@pytest.mark.parametrize(
    ("first", "then", "violation"),
    [
        ("3.5.26", "3.7.0", "a minor version is skipped"),
        ("3.5.25", "3.6.8", "3.6.8 starts while data-a runs 3.5.25; the minimum is 3.5.26"),
    ],
)
async def test_unsupported_upgrade_is_a_violation(first: str, then: str, violation: str) -> None:
    lab = FakeLab()
    await lab.start("a", "new", {"a": lab.url("a")}, f"etcd:{first}")
    await lab.stop("a")
    with pytest.raises(Unsafe, match=violation):
        await lab.start("a", "existing", {"none": lab.url("b")}, f"etcd:{then}")


async def test_full_quota_refuses_writes_until_space_is_freed_and_the_alarm_disarmed() -> None:
    lab = FakeLab()
    await grow(lab)
    server, etcd = lab.server("a"), lab.etcd
    etcd.fill()
    [alarm] = await server.alarms()
    before = (await server.status()).revision
    etcd.settle("time passes")
    assert (await server.status()).revision == before
    await server.disarm(alarm)
    assert await server.alarms() == (alarm,), "etcd raises the alarm again at once"
    await server.compact(before)
    assert await server.is_compacted(before)
    await server.defragment()
    await server.disarm(alarm)
    assert await server.alarms() == ()
    assert (await server.status()).revision > before


async def test_full_cluster_cannot_be_filled_again_before_the_alarm_is_disarmed() -> None:
    lab = FakeLab()
    await grow(lab)
    lab.etcd.fill()
    server = lab.server("a")
    await server.compact((await server.status()).revision)
    compacted = (await server.status()).db_in_use
    lab.etcd.fill()
    assert (await server.status()).db_in_use == compacted
