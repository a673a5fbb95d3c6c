"""Adoption of volumes by a whole operator whose status is lost before anything has started on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secret_provenance import ADOPT, RECORD
from shared.status.conditions import STALLED
from tests.harness.disturbance import Disturbance
from tests.harness.outage import Outage, disturbance, status_lost
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario, Stage
from tests.harness.scenario_runner import ScenarioRun
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.redis.scenarios import REDIS, SCENARIOS

pytestmark = pytest.mark.nightly

POINTS = "PATCH PersistentVolumeClaim", "APPLY StatefulSet"
"""Writes at which the status is lost: before the first claim is handed over, and after the last one."""


def _adopt_secrets(stage: Stage) -> None:
    """Do what the resource reports first: its status was also the record of the Secrets that the operator made."""
    (resource,) = stage.find()
    stalled = condition(resource, STALLED)
    assert (stalled["status"], stalled["reason"]) == ("True", "ForeignObject")
    sentence, _, uids = stalled["message"].removesuffix("`").partition(f" {ADOPT}=")
    secrets = {secret["metadata"]["name"]: secret["metadata"]["uid"] for secret in stage.find(SECRET)}
    assert sentence.startswith("Secret cache-users: ")
    assert uids == secrets["cache-users"]
    _annotate(stage, resource, uids)


def _end_adoption(stage: Stage) -> None:
    """Remove the consent: the adoption is recorded."""
    (resource,) = stage.find()
    assert resource["status"][RECORD]["cache-users"] == resource["metadata"]["annotations"][ADOPT]
    _annotate(stage, resource, None)


def _annotate(stage: Stage, resource: Obj, uids: str | None) -> None:
    name, change = resource["metadata"]["name"], {"metadata": {"annotations": {ADOPT: uids}}}
    stage.user_client.merge(stage.kind, stage.namespace, name, change)


def _status_lost_before_the_start() -> Disturbance:
    full = disturbance("the status is lost", Outage(status_lost, _adopt_secrets, _end_adoption))

    def chosen(course: ReferenceRun) -> list[int]:
        points = full.points(course)
        return [next(index for index, text in enumerate(points) if write in text) for write in POINTS]

    def points(course: ReferenceRun) -> list[str]:
        return [full.points(course)[index] for index in chosen(course)]

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        return await full.play(course, chosen(course)[nth])

    return replace(full, points=points, play=play)


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.name.startswith("adopt volumes")], ids=str)
async def test_adoption_is_recorded_again_if_the_status_is_lost_before_the_start(
    scenario: Scenario, scoreboard: Scoreboard
) -> None:
    """Before, the cluster counted as new, and its pods never received clients.

    The user adopts the Secrets as the status reports; the operator knows the adoption of the volumes from the claims.
    """
    scoreboard.require(await sweep(REDIS, scenario, _status_lost_before_the_start()))
