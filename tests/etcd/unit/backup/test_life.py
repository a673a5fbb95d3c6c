"""EtcdBackups from creation to completion: a failure at any moment does not change the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from operators.etcd.api import resource as api
from operators.etcd.api.backup import API, EtcdBackup
from operators.etcd.backup.assessment import BACKOFF_SECONDS, MAX_ATTEMPTS
from operators.etcd.objects import names, stateful_set
from operators.etcd.objects import pod as template
from operators.etcd.objects.bootstrap import New
from operators.etcd.operator import backups
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, STATEFUL_SET, Obj
from simulator.harness import NAMESPACE, Harness
from simulator.kubelet.kubelet import Exit, ProcessStatus
from tests.etcd.simulation.database import FakeEtcd
from tests.etcd.unit.backup.states import BUCKET, VOLUME, at
from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.scenario import (
    Scenario,
    ScenarioStep,
    Stage,
    Subject,
    apply,
    at_once,
    create,
    delete,
    operator_down,
)
from tests.harness.scenario_runner import World
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.etcd.scenarios import OPTIONS

SNAPSHOT_CONTAINER = "snapshot"
"""Name of the container that takes a snapshot."""


@dataclass
class Etcd(FakeEtcd):
    """Fake etcd with a snapshot store that can refuse snapshots.

    Attributes:
        refusals: number of further attempts that fail.
        failed: UIDs of the pods whose attempt failed.
    """

    refusals: int = 0
    failed: set[str] = field(default_factory=set)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        takes_snapshot = pod["spec"]["containers"][0]["name"] == SNAPSHOT_CONTAINER
        uid = pod["metadata"]["uid"]
        if takes_snapshot and uid not in self.failed and self.refusals:
            self.refusals -= 1
            self.failed.add(uid)
        if uid in self.failed:
            return ProcessStatus(
                exits={
                    SNAPSHOT_CONTAINER: Exit(1, json.dumps({"reason": "StoreFull", "message": "The volume is full."}))
                }
            )
        return super().run(pod, claims)


BACKUPS = Subject(
    "etcd-backup",
    lambda etcd: backups(OPTIONS, etcd.connect),
    database=Etcd,
    serves=(api.API.kind,),
    patience=100.0,  # longer than the longest backoff between two attempts
)


def begin(stage: Stage) -> None:
    """Start a cluster of one member and record its ID."""
    kind = api.API.kind
    metadata = {"name": "demo", "namespace": stage.namespace}
    spec = {"size": 1, "version": "3.6.11"}
    made = stage.user_client.create(
        kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
    )
    resource = api.EtcdCluster.parse(made)
    own = names.owner(resource, "etcd-operator")
    pod = template.pod(resource, own, resource.image_reference("etcd"), New(), template.MountedSecrets())
    stage.user_client.apply(STATEFUL_SET, stateful_set.stateful_set(resource, own, pod, 1))
    stage.workloads.settle()
    status = {"status": {"clusterID": f"{stage.database.cluster().id:016x}"}}
    stage.user_client.merge(kind, stage.namespace, "demo", status, subresource="status")


def refusing(attempts: int) -> ScenarioStep:
    return ScenarioStep(
        f"the store refuses {attempts} attempts", lambda stage: setattr(stage.database, "refusals", attempts)
    )


CLUSTER = ScenarioStep("a cluster runs", begin)
CLAIM = create(
    PERSISTENT_VOLUME_CLAIM,
    "snapshots",
    spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
)
KEYS = create(SECRET, "keys", data={"accessKeyID": "YQ==", "secretAccessKey": "Yg=="})
NIGHTLY = apply("nightly", clusterName="demo", destination=VOLUME)
TO_BUCKET = apply("nightly", clusterName="demo", destination=BUCKET)

SCENARIOS = (
    Scenario("completed", (NIGHTLY,), given=(CLUSTER, CLAIM), ends="Complete"),
    Scenario("to a bucket, credentials created later", (TO_BUCKET, KEYS), given=(CLUSTER,), ends="Complete"),
    Scenario("cluster created later", (NIGHTLY, CLUSTER), given=(CLAIM,), ends="Complete"),
    Scenario("refused once", (refusing(1), NIGHTLY), given=(CLUSTER, CLAIM), ends="Complete", exact_counts=False),
    Scenario(
        "refused permanently",
        (refusing(MAX_ATTEMPTS), NIGHTLY),
        given=(CLUSTER, CLAIM),
        ends="StoreFull",
        exact_counts=False,
    ),
    Scenario(
        "recreated after a failure",
        (*at_once(delete(name="nightly"), NIGHTLY),),
        given=(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS), NIGHTLY),
        ends="Complete",
    ),
    Scenario("created while the operator is down", operator_down(NIGHTLY), given=(CLUSTER, CLAIM), ends="Complete"),
    Scenario("deleted", (delete(name="nightly"),), given=(CLUSTER, CLAIM, NIGHTLY), ends=""),
    Scenario("deleted while running", at_once(NIGHTLY, delete(name="nightly")), given=(CLUSTER, CLAIM), ends=""),
)


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
async def test_disturbed_run_ends_in_the_same_state(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(BACKUPS, scenario, disturbance))


# Single runs in detail.


class Life:
    """Test world with one operator."""

    def __init__(self, *steps: ScenarioStep) -> None:
        self.world = World(BACKUPS)
        self.operator: Harness = self.world.operator()
        self.stage = Stage(
            API.kind,
            NAMESPACE,
            self.operator.user_client,
            self.world.workloads,
            self.world.database,
            self.world.clock,
        )
        for step in steps:
            step.act(self.stage)

    async def play(self, *steps: ScenarioStep) -> EtcdBackup:
        for step in steps:
            step.act(self.stage)
            await self.operator.settle()
        return EtcdBackup.parse(self.operator.resource("nightly"))

    @property
    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.stage.find(POD) if pod["metadata"]["name"] != "demo-0"]

    @property
    def created(self) -> list[Any]:
        return [write for write in self.world.server.log.writes() if write.status == 201]


async def test_snapshot_is_taken_once_and_its_pod_is_deleted() -> None:
    life = Life(CLUSTER, CLAIM)
    found = await life.play(NIGHTLY)
    assert (found.phase, found.reported["attempts"], found.reported["member"]) == ("Complete", 1, "demo-0")
    assert found.reported["revision"] == life.world.database.snapshots[found.reported["file"]]  # type: ignore[attr-defined]
    assert found.reported["location"] == f"volume://snapshots/etcd/{found.reported['file']}"
    assert life.pods == []
    assert await life.operator.events() == [("Running", 1), ("Complete", 1)]


async def test_completed_backup_is_never_repeated() -> None:
    life = Life(CLUSTER, CLAIM)
    first = await life.play(NIGHTLY)
    delete(api.API.kind, "demo").act(life.stage)
    again = life.operator.restart()
    await again.settle()
    assert EtcdBackup.parse(again.resource("nightly")).reported == first.reported
    assert len(life.created) == 1, "only one pod was ever created"


async def test_backup_fails_after_three_attempts_and_keeps_the_last_pod_for_its_log() -> None:
    life = Life(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS))
    found = await life.play(NIGHTLY)
    assert (found.phase, found.reported["attempts"], found.over) == ("Failed", MAX_ATTEMPTS, True)
    assert len(life.created) == MAX_ATTEMPTS
    assert life.pods == ["nightly-snapshot"]
    assert {reason for reason, _ in await life.operator.events()} == {"Running", "StoreFull"}
    began, over = (found.obj["metadata"]["creationTimestamp"], found.reported["completedAt"])
    assert (at(over) - at(began)).total_seconds() >= sum(BACKOFF_SECONDS[: MAX_ATTEMPTS - 1]), (
        "the backoff delays the attempts"
    )


async def test_deletion_removes_the_pod_and_keeps_the_file() -> None:
    life = Life(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS))
    await life.play(NIGHTLY)
    delete(name="nightly").act(life.stage)
    await life.operator.settle()
    assert life.pods == []
    with pytest.raises(NotFound):
        life.operator.resource("nightly")


async def test_recreated_backup_does_not_inherit_the_failure_of_the_former_one() -> None:
    """The pod of the former resource may still exist and report three failed attempts."""
    life = Life(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS))
    await life.play(NIGHTLY)
    life.operator.user_client.delete(API.kind, NAMESPACE, "nightly")
    NIGHTLY.act(life.stage)
    await life.operator.run()
    waiting = EtcdBackup.parse(life.operator.resource("nightly"))
    assert waiting.reported["conditions"][0]["reason"] == "PodInTheWay"
    await life.operator.settle()
    found = EtcdBackup.parse(life.operator.resource("nightly"))
    assert (found.phase, found.reported["attempts"]) == ("Complete", 1)
