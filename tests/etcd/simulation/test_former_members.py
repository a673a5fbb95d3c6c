"""A new EtcdCluster while the members of its former namesake still answer: it does not record what they report."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, STATEFUL_SET
from tests.harness.scenario import ScenarioStep, Stage, at_once, delete
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, NAME, cluster, member
from tests.support.plays import ready
from tests.support.pod_loss import delete_now


def _delete_without_pods(stage: Stage) -> None:
    """Delete the resource, and its StatefulSet without the pods, which that of the next resource adopts."""
    stage.user_client.delete(stage.kind, stage.namespace, NAME)
    stage.user_client.delete(STATEFUL_SET, stage.namespace, NAME, orphan=True)


@pytest.mark.parametrize(
    "deletion", [delete(), ScenarioStep("deleted, pods are orphaned", _delete_without_pods)], ids=str
)
async def test_id_of_the_former_namesake_is_not_recorded(deletion: ScenarioStep) -> None:
    play = ScenarioRun(World(ETCD))
    await play.step(cluster(1))
    former = play.stage.find()[0]["status"]["clusterID"]
    for step in at_once(deletion, cluster(1)):
        await play.step(step)
    assert ready(play)["reason"] == "VolumeInTheWay"
    assert play.stage.find()[0]["status"].get("clusterID") is None
    await play.step(delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(0)}"))  # as the message advises
    await play.wait(60, times=2)
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    assert play.stage.find()[0]["status"]["clusterID"] not in (None, former)
