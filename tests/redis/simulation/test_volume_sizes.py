"""The size of volumes by a whole operator: reverted while nothing has grown, and refused once volumes have grown."""

from __future__ import annotations

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD
from simulator.api_server.kinds import STORAGE_CLASS
from tests.harness.scenario import ScenarioStep
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import ALONE, REDIS, cluster

FAST = {"metadata": {"name": "fast"}, "provisioner": "example.com/disks", "allowVolumeExpansion": True}
CLASS_GIVEN = ScenarioStep("a class that grows", lambda stage: stage.user_client.create(STORAGE_CLASS, FAST))


def sized(size: str, **storage: str) -> ScenarioStep:
    return cluster(3, **ALONE, storage={"size": size, **storage})


def reason(run: ScenarioRun) -> str:
    return str(condition(run.stage.find()[0], "Ready")["reason"])


def sizes(run: ScenarioRun) -> set[str]:
    claims = run.stage.find(PERSISTENT_VOLUME_CLAIM)
    return {claim["spec"]["resources"]["requests"]["storage"] for claim in claims}


async def test_size_is_reverted_while_no_volume_has_grown() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((sized("1Gi"), sized("2Gi")))
    assert reason(run) == "VolumesCannotGrow"
    await run.run_steps((sized("1Gi"),))
    assert (reason(run), sizes(run)) == ("Ready", {"1Gi"})


async def test_spec_with_a_smaller_size_than_the_volumes_is_not_applied() -> None:
    run = ScenarioRun(World(REDIS))
    fast = {"storageClassName": "fast"}
    await run.run_steps((CLASS_GIVEN, sized("1Gi", **fast), sized("2Gi", **fast)))
    assert (reason(run), sizes(run)) == ("Ready", {"2Gi"})
    await run.run_steps((cluster(4, **ALONE, storage={"size": "1Gi", **fast}),))
    assert (reason(run), sizes(run), len(run.stage.find(POD))) == ("VolumesCannotShrink", {"2Gi"}, 3)
    await run.run_steps((sized("2Gi", **fast),))
    assert reason(run) == "Ready"
