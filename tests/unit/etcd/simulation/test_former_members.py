"""A new EtcdCluster while the members of its former namesake still answer: it does not record what they report."""

from __future__ import annotations

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM
from shared.testing.harness.scenario import at_once, delete
from shared.testing.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, cluster, member
from tests.support.pod_loss import delete_now
from tests.unit.etcd.simulation.test_random_worlds import ready_condition


async def test_id_of_the_former_namesake_is_not_recorded() -> None:
    play = ScenarioRun(World(ETCD))
    await play.step(cluster(1))
    former = play.stage.find()[0]["status"]["clusterID"]
    for step in at_once(delete(), cluster(1)):
        await play.step(step)
    assert ready_condition(play)["reason"] == "VolumeInTheWay"
    assert play.stage.find()[0]["status"].get("clusterID") is None
    await play.step(delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(0)}"))  # as the message advises
    await play.wait(60, times=2)
    assert ready_condition(play)["reason"] == "Ready", ready_condition(play)["message"]
    assert play.stage.find()[0]["status"]["clusterID"] not in (None, former)
