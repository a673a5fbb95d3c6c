"""Marks of recoveries on volumes: a withdrawn one leaves none, and a later one keeps those of an earlier one."""

from __future__ import annotations

from operators.etcd.objects.names import KEPT, SET_ASIDE
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from tests.harness.scenario import ScenarioStep, Stage, later
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd.scenarios import (
    ETCD,
    EXPANDABLE,
    NAME,
    cluster,
    lost,
    member,
    recovery_confirmed,
    recovery_withdrawn,
    sized,
    to_etcd,
    unmounted,
    volumes,
)
from tests.support.plays import begun, ready, run


def marked(play: ScenarioRun) -> dict[str, list[str]]:
    """Return the marks on each claim that has any."""
    claims: list[Obj] = play.stage.find(PERSISTENT_VOLUME_CLAIM)
    found = {
        claim["metadata"]["name"]: [mark for mark in (annotation(claim, KEPT), annotation(claim, SET_ASIDE)) if mark]
        for claim in claims
    }
    return {name: marks for name, marks in found.items() if marks}


def released(token: str) -> ScenarioStep:
    """Release the former data of a recovery."""

    def act(stage: Stage) -> None:
        stage.database.guard.released.add(token)
        release = {"spec": {"recovery": {"release": token, "confirm": None}}}
        stage.user_client.merge(stage.kind, stage.namespace, NAME, release)

    return ScenarioStep(f"{token} is released", act)


def offered(play: ScenarioRun) -> str:
    [found] = play.stage.find()
    return str(found["status"]["recovery"]["token"])


async def test_corrupt_member_is_replaced_after_a_recovery_that_was_withdrawn() -> None:
    """X3: the volumes of the survivors stayed marked, so that no new member could use them: 4 of 5, for ever."""
    small = (EXPANDABLE, cluster(5, **volumes("1Gi")), sized(600))
    play = await begun(ETCD, *small, unmounted(2, 3, 4), later(30), later(150))
    assert ready(play)["reason"] == "QuorumLost"
    await run(play, (recovery_confirmed(), later(30)))
    assert ready(play)["reason"] == "RecoveryFailed"
    assert marked(play).keys() == {f"data-{member(number)}" for number in range(5)}
    mounted = to_etcd("the disks are mounted", _mount)
    await run(play, (mounted, recovery_withdrawn(), later(60), later(60), later(60)))
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    assert marked(play) == {}
    await run(play, (to_etcd("member 1 is corrupt", lambda etcd: etcd.corrupt(member(1))), *[later(60)] * 4))
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    assert len(play.stage.find(POD)) == 5


def _mount(etcd: object) -> None:
    """Mount the disks of stopped members."""
    disks = etcd.disks  # type: ignore[attr-defined]
    for uid in [uid for uid in disks if uid.startswith("above ")]:
        disks[uid.removeprefix("above ")] = disks.pop(uid)


async def test_second_recovery_does_not_forget_the_former_data_of_the_first() -> None:
    """X8: data.before-TOKEN of the first one could never be released, and filled the disk."""
    play = await begun(ETCD, cluster(3), *lost(1, 2))
    first = offered(play)
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    await run(play, (*lost(1, 2), later(60)))
    second = offered(play)
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    disk = play.stage.database.member(member(0))
    assert disk.former.keys() == {first, second}
    assert f"recovery {first}" in ready(play)["message"]
    for token, left in ((second, {first}), (first, set())):
        await run(play, (released(token), later(60)))
        assert disk.former.keys() == left
    assert marked(play) == {}


async def test_recovery_waits_for_the_end_of_each_survivor() -> None:
    """X9: the guard refuses a new cluster while a member of the former one runs."""
    play = await begun(ETCD, cluster(5), *lost(0, 2, 4))
    play.stage.workloads.ignore_stop(lambda pod: pod["metadata"]["name"] == member(3))
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "FormerDataKept", ready(play)["message"]


async def test_former_cluster_that_has_a_quorum_again_gets_no_clients() -> None:
    """E3: the disks of the majority were only not mounted. The guard refuses members that clients reach."""
    play = await begun(ETCD, cluster(3), unmounted(0, 1), later(30), later(150), recovery_confirmed(), later(60))
    await run(play, (later(60), unmounted(0, 1, mounts=True), later(60), later(60)))
    etcd = play.stage.database
    assert sorted(cluster.former for cluster in etcd.clusters.values() if etcd.has_quorum(cluster)) == [False, True]
    found = ready(play)
    assert found["reason"] == "FormerDataKept", found["message"]
    assert "have a leader again" in found["message"]
