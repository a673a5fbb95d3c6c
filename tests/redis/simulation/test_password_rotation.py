"""After the change of a password or a certificate, the status reports when it is in effect."""

from __future__ import annotations

from shared.kubernetes.kinds import SECRET
from simulator.redis.process import digest
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import (
    AUTH,
    REDIS,
    TLS,
    certificate_changed,
    certificate_given,
    cluster,
    password_changed,
    password_given,
)


def observed(run: ScenarioRun) -> dict[str, str]:
    (resource,) = run.stage.find()
    return {each["name"]: each["resourceVersion"] for each in resource["status"].get("observedSecrets", ())}


def version(run: ScenarioRun, name: str) -> str:
    return str(run.stage.user_client.get(SECRET, run.stage.namespace, name)["metadata"]["resourceVersion"])


async def test_new_password_is_reported_once_every_node_uses_it() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((password_given(), cluster(6, **AUTH)))
    assert observed(run) == {"secret": version(run, "secret")}
    redis, before = run.world.database, observed(run)
    assert isinstance(redis, FakeRedis)
    await run.run_steps((password_changed("two"),))
    assert observed(run) == {"secret": version(run, "secret")} != before
    assert all(process.passwords >= {digest("two")} for process in redis.running)


async def test_new_certificate_is_reported_once_every_node_uses_it() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((certificate_given(), cluster(6, **TLS)))
    before = observed(run)
    assert before == {"certificate": version(run, "certificate")}
    await run.run_steps((certificate_changed("second"),))
    assert observed(run) == {"certificate": version(run, "certificate")} != before
