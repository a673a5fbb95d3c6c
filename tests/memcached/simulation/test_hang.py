"""A server that hangs: the status compares with what clients of the simulated servers get."""

from __future__ import annotations

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from shared.status.conditions import AVAILABLE
from tests.harness.scenario import ScenarioStep, apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.memcached.scenarios import MEMCACHED, NAMED, Servers


@pytest.mark.parametrize(("metrics", "available"), [({}, "False"), (None, "True")], ids=["sidecar", "no sidecar"])
async def test_server_that_hangs_is_not_available(metrics: Obj | None, available: str) -> None:
    """The kernel accepts connections to it. Without a sidecar, a probe that only connects is all that is known."""
    run = ScenarioRun(World(MEMCACHED))
    servers = run.world.database
    assert isinstance(servers, Servers)
    spec = NAMED | {"size": 2} | ({} if metrics is None else {"metrics": metrics})
    await run.run_steps((apply(**spec),))
    addresses = [pod["status"]["podIP"] for pod in run.stage.find(POD)]

    def hang() -> None:
        servers.hung = set(addresses[:1])

    def respond() -> None:
        servers.hung = set()

    await run.run_steps((ScenarioStep("a server hangs", lambda _: hang()),))
    assert condition(run) == available
    await run.run_steps((ScenarioStep("it responds again", lambda _: respond()),))
    assert condition(run) == "True"


def condition(run: ScenarioRun) -> str:
    (resource,) = run.stage.find()
    return str(accessors.condition(resource, AVAILABLE)["status"])
