"""EtcdBackups from their creation to their end: whatever goes wrong at whichever moment, it ends as if nothing had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from operators.etcd.api import resource as api
from operators.etcd.api.backup import API, EtcdBackup
from operators.etcd.backup.plan import BACKOFF_SECONDS
from operators.etcd.backup.report import MAX_ATTEMPTS
from operators.etcd.objects import names, stateful_set
from operators.etcd.objects import pod as template
from operators.etcd.objects.bootstrap import New
from operators.etcd.operator import backups
from operators.etcd.security.secrets import Secrets
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, STATEFUL_SET, Obj
from shared.testing.harness.disturbance import DISTURBANCES, Disturbance
from shared.testing.harness.harness import NAMESPACE, Harness
from shared.testing.harness.scenario import Scenario, ScenarioStep, Stage, Subject, apply, at_once, away, create, delete
from shared.testing.harness.scenario_runner import World
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from shared.testing.kubelet.kubelet import Exit, Fate
from tests.support.etcd.scenarios import OPTIONS
from tests.unit.etcd.backup.states import BUCKET, VOLUME, at
from tests.unit.etcd.simulation.database import FakeEtcd

TAKES = "snapshot"
"""Name of the container that takes a snapshot."""


@dataclass
class Etcd(FakeEtcd):
    """etcd, and stores that may not take what is brought.

    Attributes:
        refusals: how many more attempts fail.
        failed: UIDs of the pods whose attempts did.
    """

    refusals: int = 0
    failed: set[str] = field(default_factory=set)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> Fate:
        takes = pod["spec"]["containers"][0]["name"] == TAKES
        uid = pod["metadata"]["uid"]
        if takes and uid not in self.failed and self.refusals:
            self.refusals -= 1
            self.failed.add(uid)
        if uid in self.failed:
            return Fate(exits={TAKES: Exit(1, json.dumps({"reason": "StoreFull", "message": "The volume is full."}))})
        return super().run(pod, claims)


BACKUPS = Subject(
    "etcd-backup",
    lambda etcd: backups(OPTIONS, etcd.connect),
    database=Etcd,
    serves=(api.API.kind,),
    patience=100.0,  # the longest pause between two tries, and more
)


def begin(stage: Stage) -> None:
    """A cluster of one member runs, and is recorded."""
    kind = api.API.kind
    metadata = {"name": "demo", "namespace": stage.namespace}
    spec = {"size": 1, "version": "3.6.11"}
    made = stage.person.create(
        kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
    )
    resource = api.EtcdCluster.parse(made)
    own = names.owner(resource, "etcd-operator")
    pod = template.pod(resource, own, resource.image_reference("etcd"), New(), Secrets())
    stage.person.apply(STATEFUL_SET, stateful_set.stateful_set(resource, own, pod, 1))
    stage.workloads.settle()
    status = {"status": {"clusterID": f"{stage.database.cluster().id:016x}"}}
    stage.person.merge(kind, stage.namespace, "demo", status, subresource="status")


def refusing(tries: int) -> ScenarioStep:
    return ScenarioStep(f"the store refuses {tries} times", lambda stage: setattr(stage.database, "refusals", tries))


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
    Scenario("taken", (NIGHTLY,), given=(CLUSTER, CLAIM), ends="Complete"),
    Scenario("taken to a bucket, whose keys come late", (TO_BUCKET, KEYS), given=(CLUSTER,), ends="Complete"),
    Scenario("the cluster comes late", (NIGHTLY, CLUSTER), given=(CLAIM,), ends="Complete"),
    Scenario("refused once", (refusing(1), NIGHTLY), given=(CLUSTER, CLAIM), ends="Complete", counted=False),
    Scenario(
        "refused for good", (refusing(MAX_ATTEMPTS), NIGHTLY), given=(CLUSTER, CLAIM), ends="StoreFull", counted=False
    ),
    Scenario(
        "made again after it failed",
        (*at_once(delete(name="nightly"), NIGHTLY),),
        given=(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS), NIGHTLY),
        ends="Complete",
    ),
    Scenario("no operator meanwhile", away(NIGHTLY), given=(CLUSTER, CLAIM), ends="Complete"),
    Scenario("deleted", (delete(name="nightly"),), given=(CLUSTER, CLAIM, NIGHTLY), ends=""),
    Scenario("deleted while it is taken", at_once(NIGHTLY, delete(name="nightly")), given=(CLUSTER, CLAIM), ends=""),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
async def test_it_ends_as_if_nothing_had_happened(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(BACKUPS, scenario, disturbance))


# One life, looked at closely.


class Life:
    """A world with one operator."""

    def __init__(self, *steps: ScenarioStep) -> None:
        self.world = World(BACKUPS)
        self.operator: Harness = self.world.operator()
        self.stage = Stage(
            API.kind,
            NAMESPACE,
            self.operator.person,
            self.world.workloads,
            self.world.database,
            self.world.clock,
        )
        for step in steps:
            step.act(self.stage)

    async def lives(self, *steps: ScenarioStep) -> EtcdBackup:
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


async def test_a_snapshot_is_taken_once_told_and_its_pod_is_gone() -> None:
    life = Life(CLUSTER, CLAIM)
    found = await life.lives(NIGHTLY)
    assert (found.phase, found.reported["attempts"], found.reported["member"]) == ("Complete", 1, "demo-0")
    assert found.reported["revision"] == life.world.database.snapshots[found.reported["file"]]  # type: ignore[attr-defined]
    assert found.reported["location"] == f"volume://snapshots/etcd/{found.reported['file']}"
    assert life.pods == []
    assert await life.operator.events() == [("Running", 1), ("Complete", 1)]


async def test_what_is_complete_is_never_taken_again() -> None:
    life = Life(CLUSTER, CLAIM)
    first = await life.lives(NIGHTLY)
    delete(api.API.kind, "demo").act(life.stage)
    again = life.operator.restart()
    await again.settle()
    assert EtcdBackup.parse(again.resource("nightly")).reported == first.reported
    assert len(life.created) == 1, "one pod, ever"


async def test_after_three_failures_it_is_given_up_and_the_last_pod_stays_for_its_log() -> None:
    life = Life(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS))
    found = await life.lives(NIGHTLY)
    assert (found.phase, found.reported["attempts"], found.over) == ("Failed", MAX_ATTEMPTS, True)
    assert len(life.created) == MAX_ATTEMPTS
    assert life.pods == ["nightly-snapshot"]
    assert {reason for reason, _ in await life.operator.events()} == {"Running", "StoreFull"}
    began, over = (found.obj["metadata"]["creationTimestamp"], found.reported["completedAt"])
    assert (at(over) - at(began)).total_seconds() >= sum(BACKOFF_SECONDS), "it waited in between"


async def test_deletion_takes_the_pod_along_and_leaves_the_file() -> None:
    life = Life(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS))
    await life.lives(NIGHTLY)
    delete(name="nightly").act(life.stage)
    await life.operator.settle()
    assert life.pods == []
    with pytest.raises(NotFound):
        life.operator.resource("nightly")


async def test_one_made_again_after_it_failed_is_not_taken_for_the_former() -> None:
    """The former's pod may be there yet, and tells of three tries that were not this one's."""
    life = Life(CLUSTER, CLAIM, refusing(MAX_ATTEMPTS))
    await life.lives(NIGHTLY)
    life.operator.person.delete(API.kind, NAMESPACE, "nightly")
    NIGHTLY.act(life.stage)
    await life.operator.run()
    waits = EtcdBackup.parse(life.operator.resource("nightly"))
    assert waits.reported["conditions"][0]["reason"] == "PodInTheWay"
    await life.operator.settle()
    found = EtcdBackup.parse(life.operator.resource("nightly"))
    assert (found.phase, found.reported["attempts"]) == ("Complete", 1)
