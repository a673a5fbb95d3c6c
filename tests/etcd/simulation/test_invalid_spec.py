"""A spec that cannot be parsed stops no repair: the last applied spec stays in force (X5)."""

from __future__ import annotations

from typing import Any

import pytest

from shared.api.applied_spec import APPLIED_SPEC
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from tests.harness.scenario import ScenarioStep, Stage, later
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd.scenarios import BACKUP, ETCD, NAME, TLS, cluster, lost, recovery_confirmed
from tests.support.plays import begun, ready, run


def edited(spec: Obj) -> ScenarioStep:
    """Change the spec in a way that admission would refuse."""

    def act(stage: Stage) -> None:
        stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": spec})

    return ScenarioStep(f"spec becomes {spec}", act)


def template(play: ScenarioRun) -> Any:
    [found] = play.stage.find(STATEFUL_SET)
    return found["spec"]["template"]


@pytest.mark.parametrize(
    "wrong", [{"size": 11}, {"size": "three"}, {"size": 11, "tls": {"mode": "none"}, "version": "2.3.8"}]
)
async def test_lost_member_is_replaced_while_the_spec_cannot_be_parsed(wrong: Obj) -> None:
    play = await begun(ETCD, cluster(3, **TLS))
    claims = {claim["metadata"]["uid"] for claim in play.stage.find(PERSISTENT_VOLUME_CLAIM)}
    before = template(play)
    await run(play, (edited(wrong), *lost(1), later(60), later(60), later(60)))
    assert ready(play)["reason"] == "InvalidSpec"
    assert "spec.size" in ready(play)["message"]
    assert "kept running as last applied" in ready(play)["message"]
    assert len(claims & {claim["metadata"]["uid"] for claim in play.stage.find(PERSISTENT_VOLUME_CLAIM)}) == 2
    etcd = play.stage.database
    assert len(etcd.voting(etcd.cluster())) == len(play.stage.find(POD)) == 3, ready(play)["message"]
    assert template(play)["spec"] == before["spec"]
    [found] = play.stage.find()
    assert [member["healthy"] for member in found["status"]["members"]] == [True] * 3
    await run(play, (cluster(3, **TLS), later(60)))
    assert ready(play)["reason"] == "Ready"


async def test_scheduled_backups_continue_while_the_spec_cannot_be_parsed() -> None:
    play = await begun(ETCD, cluster(1, **BACKUP), edited({"size": 11}), later(3700))
    [found] = play.stage.find()
    assert found["status"]["backup"]["nextTime"] > "2026-01-01T01"


async def test_number_that_a_later_version_rejects_is_kept() -> None:
    """The bound of size was tightened: the spec and the applied one have the same value."""
    play = await begun(ETCD, cluster(3))
    [made] = play.stage.find(STATEFUL_SET)
    noted = made["metadata"]["annotations"][APPLIED_SPEC].replace('"size":3', '"size":11')
    change = {"metadata": {"annotations": {APPLIED_SPEC: noted}}}
    play.stage.user_client.merge(STATEFUL_SET, play.stage.namespace, NAME, change)
    await run(play, (edited({"size": 11}), *lost(1), later(60), later(60), later(60)))
    etcd = play.stage.database
    assert len(etcd.voting(etcd.cluster())) == 3, ready(play)["message"]


@pytest.mark.parametrize(
    "note", ["", "{}", "[]", '{"uid":"another","spec":{"size":3}}', '{"uid":"UID","spec":{"tls":1}}']
)
async def test_nothing_is_healed_without_a_spec_that_is_known_to_be_applied(note: str) -> None:
    play = await begun(ETCD, cluster(3))
    [found] = play.stage.find()
    change = {"metadata": {"annotations": {APPLIED_SPEC: note.replace("UID", found["metadata"]["uid"]) or None}}}
    play.end()
    play.stage.user_client.merge(STATEFUL_SET, play.stage.namespace, NAME, change)
    edited({"size": 11}).act(play.stage)
    play.begin()
    play.world.server.log.reset()
    await run(play, (*lost(1), later(60)))
    assert ready(play)["reason"] == "InvalidSpec"
    assert {write.kind for write in play.world.server.log.writes(changed=True)} <= {"EtcdCluster", "Event"}


async def test_consent_of_a_spec_that_cannot_be_parsed_is_none() -> None:
    play = await begun(ETCD, cluster(3), *lost(1, 2))
    await run(play, (edited({"size": 11}), recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "QuorumLost"
    assert "spec.size: 11 is too large" in ready(play)["message"]
    assert not play.stage.database.clusters[next(iter(play.stage.database.clusters))].former
