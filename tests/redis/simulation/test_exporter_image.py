"""The exporter's image of another release stays until the next change; one that the spec sets is applied at once."""

from __future__ import annotations

from shared.kubernetes.kinds import STATEFUL_SET
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import NAME, REDIS, cluster


def images(run: ScenarioRun) -> list[str]:
    found = run.stage.user_client.get(STATEFUL_SET, run.stage.namespace, NAME)
    return [each["image"] for each in found["spec"]["template"]["spec"]["containers"]][1:]


async def test_image_that_is_removed_from_the_spec_is_replaced_by_the_default() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(3, replicasPerMaster=0, metrics={}),))
    (default,) = images(run)
    await run.run_steps((cluster(3, replicasPerMaster=0, metrics={"image": "exporter:9"}),))
    assert images(run) == ["exporter:9"]
    await run.run_steps((cluster(3, replicasPerMaster=0, metrics={}),))
    assert images(run) == [default]
