"""Advice in messages about a lost quorum works when a user follows it."""

from __future__ import annotations

import pytest

from operators.etcd.api.backup import API, EtcdBackup
from operators.etcd.operator import backups
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from simulator.harness import NAMESPACE, Harness
from tests.harness.scenario import at_once, create
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import AUTH, ETCD, NAME, OPTIONS, STORE, cluster, given_password, member
from tests.support.plays import ready
from tests.support.pod_loss import delete_now

CLAIM: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def snapshot_of(play: ScenarioRun) -> EtcdBackup:
    """Create an EtcdBackup, and return it after its controller has settled."""
    world = play.world
    connect, head = world.database.connect, {"apiVersion": API.kind.api_version, "kind": API.kind.name}  # type: ignore[attr-defined]
    operator = Harness(backups(OPTIONS, connect), workloads=world.workloads, clock=world.clock)
    spec = {"clusterName": NAME, "destination": STORE}
    operator.user_client.create(API.kind, {**head, "metadata": {"name": "now", "namespace": NAMESPACE}, "spec": spec})
    await operator.settle()
    return EtcdBackup.parse(operator.resource("now"))


@pytest.mark.parametrize("auth", [{}, AUTH], ids=["without auth", "with auth"])
async def test_backup_of_the_last_data_in_memory_is_advised_only_if_it_can_be_taken(auth: Obj) -> None:
    play = ScenarioRun(World(ETCD))
    for step in (
        given_password(),
        create(PERSISTENT_VOLUME_CLAIM, STORE["volume"]["claimName"], spec=CLAIM),
        cluster(3, storage={"medium": "Memory"}, **auth),
        *at_once(*(delete_now(POD, member(number)) for number in (0, 2))),
    ):
        await play.step(step)
    found = ready(play)
    assert found["reason"] == "QuorumLost", found["message"]
    is_advised = "take an EtcdBackup of it now" in found["message"]
    assert ("restore the last EtcdBackup" in found["message"]) != is_advised
    snapshot = await snapshot_of(play)
    assert (snapshot.phase == "Complete") == is_advised, snapshot.reported["conditions"][0]["message"]
