"""A cluster whose pods were all deleted serves all slots again, regardless of what is wrong with its spec."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from operators.redis.objects.names import CLUSTER_UID, COMPONENT
from operators.redis.slots.hash_slots import SLOTS
from shared.kubernetes import ownership
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, Obj
from tests.harness.scenario import (
    ScenarioStep,
    at_once,
    create,
    delete,
    edit,
    later,
    operator_down,
    unobserved,
)
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import (
    AUTH,
    NAME,
    REDIS,
    all_pods_deleted,
    cluster,
    in_memory,
    lost,
    password_given,
    primary_lost,
    to_redis,
)


@dataclass(frozen=True)
class Obstacle:
    """Something wrong with the desired state.

    Attributes:
        reason: reason of the Ready condition, before and after the cluster heals.
        steps: cause of the obstacle.
        given: the cluster before.
        remedy: change after which the cluster matches its spec.
    """

    reason: str
    steps: tuple[ScenarioStep, ...]
    given: tuple[ScenarioStep, ...] = (cluster(6),)
    remedy: tuple[ScenarioStep, ...] = (cluster(6),)


def _foreign_volume(number: int) -> ScenarioStep:
    """Create a volume of a former cluster of the same name."""
    labels = {
        ownership.MANAGED_BY: "redis-operator",
        ownership.INSTANCE: NAME,
        ownership.NAME: "redis",
        ownership.COMPONENT: COMPONENT,
        CLUSTER_UID: "another",
    }

    def act(stage: object) -> None:
        claim: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"data-{NAME}-{number}", "namespace": "default", "labels": labels},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        stage.user_client.create(PERSISTENT_VOLUME_CLAIM, claim)  # type: ignore[attr-defined]

    return ScenarioStep(f"a foreign volume {number} appears", act)


MAPPED: Obj = {"pod": [{"configmap": "settings"}]}
SETTINGS_GIVEN = create(CONFIG_MAP, "settings", data={"redis.conf": "maxmemory-policy allkeys-lru\n"})
SETTINGS_INVALID = edit(CONFIG_MAP, {"data": {"redis.conf": "requirepass secret\n"}}, "settings")
REFUSED = to_redis("servers refuse a setting", lambda redis: redis.refused.add(("maxmemory-policy", "allkeys-lru")))

OBSTACLES = {
    "refused setting": Obstacle("ConfigRefused", (REFUSED, cluster(6, config={"maxmemory-policy": "allkeys-lru"}))),
    "missing Secret": Obstacle(
        "SecretMissing",
        (unobserved(delete(SECRET, "secret")),),
        given=(password_given(), cluster(6, **AUTH)),
        remedy=(unobserved(password_given()),),
    ),
    "Secret without a password": Obstacle(
        "SecretMissing",
        (unobserved(edit(SECRET, {"data": {"password": None}}, "secret")),),
        given=(password_given(), cluster(6, **AUTH)),
        remedy=(unobserved(delete(SECRET, "secret")), unobserved(password_given())),
    ),
    "missing ConfigMap": Obstacle(
        "ConfigMapMissing",
        (unobserved(delete(CONFIG_MAP, "settings")),),
        given=(SETTINGS_GIVEN, cluster(6, **MAPPED)),
        remedy=(unobserved(SETTINGS_GIVEN),),
    ),
    "invalid ConfigMap": Obstacle(
        "ConfigMapInvalid",
        (unobserved(SETTINGS_INVALID),),
        given=(SETTINGS_GIVEN, cluster(6, **MAPPED)),
        remedy=(unobserved(delete(CONFIG_MAP, "settings")), unobserved(SETTINGS_GIVEN)),
    ),
    "refused version": Obstacle("VersionRefused", (cluster(6, "6.2.14"),)),
    "invalid spec": Obstacle("InvalidSpec", (cluster(6, replicasPerMaster=2),)),
    "invalid spec of another size": Obstacle("InvalidSpec", (cluster(4),)),
    "foreign volume elsewhere": Obstacle(
        "ForeignData", (_foreign_volume(9),), remedy=(delete(PERSISTENT_VOLUME_CLAIM, f"data-{NAME}-9"),)
    ),
    "Service of another owner": Obstacle(
        "ForeignObject",
        at_once(delete(SERVICE, NAME), create(SERVICE, NAME, spec={"clusterIP": "None"})),
        remedy=(delete(SERVICE, NAME),),
    ),
    "paused": Obstacle("Paused", (cluster(6, pause=True),)),
    "paused with a larger size": Obstacle("Paused", (cluster(8, pause=True),)),
    "paused with a smaller size": Obstacle("Paused", (cluster(6, pause=True),), given=(cluster(8),)),
    "paused with another version": Obstacle("Paused", (cluster(6, "7.2.5", pause=True),)),
}
LOSSES = {
    "a replica and its volume": (lost(5), (cluster(6),), (cluster(6, pause=True),)),
    "a primary and its volume": ((primary_lost(),), (cluster(6),), (cluster(6, pause=True),)),
    "a primary without volumes": ((primary_lost(),), (in_memory(6),), (in_memory(6, pause=True),)),
}


def _is_served(run: ScenarioRun) -> bool:
    [state] = run.world.database.state()
    return bool(sum(state["slots by primary"]) == SLOTS and state["clusters"] == 1 and state["healthy"])


def _ready(run: ScenarioRun) -> Obj:
    [found] = run.stage.find()
    return condition(found, "Ready")


async def _hindered(obstacle: Obstacle) -> ScenarioRun:
    run = ScenarioRun(World(REDIS))
    await run.run_steps(obstacle.given)
    assert _ready(run)["reason"] == "Ready"
    await run.run_steps(obstacle.steps)
    assert _ready(run)["reason"] == obstacle.reason, _ready(run)["message"]
    assert _is_served(run)
    return run


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "absent"),
    [pytest.param(name, False, id=name) for name in OBSTACLES]
    + [pytest.param(name, True, id=f"{name}, operator down", marks=pytest.mark.weekly) for name in OBSTACLES],
)
async def test_deleted_pods_are_healed_although_the_spec_cannot_be_applied(name: str, absent: bool) -> None:
    obstacle = OBSTACLES[name]
    run = await _hindered(obstacle)
    deleted = all_pods_deleted(len(run.stage.find(POD)))
    await run.run_steps((*(operator_down(*deleted) if absent else deleted), unobserved(later(30))))
    assert _is_served(run), _ready(run)
    assert _ready(run)["reason"] == obstacle.reason, _ready(run)["message"]
    await run.run_steps(obstacle.remedy)
    assert _ready(run)["reason"] == "Ready", _ready(run)["message"]
    assert _is_served(run)


async def test_certificates_are_issued_while_changes_are_paused() -> None:
    run = ScenarioRun(World(REDIS))
    await run.run_steps((cluster(6, tls={"mode": "self"}), cluster(6, tls={"mode": "self"}, pause=True)))
    before = {secret["metadata"]["name"] for secret in run.stage.find(SECRET)}
    deletions = [unobserved(delete(SECRET, f"{NAME}-{name}")) for name in ("server-tls", "nodes-tls", "users")]
    await run.run_steps((*deletions, *all_pods_deleted(), unobserved(later(30))))
    assert {secret["metadata"]["name"] for secret in run.stage.find(SECRET)} == before
    assert _ready(run)["reason"] == "Paused", _ready(run)["message"]
    assert _is_served(run)


@pytest.mark.parametrize("name", LOSSES)
async def test_lost_node_is_replaced_while_changes_are_paused(name: str) -> None:
    steps, given, pause = LOSSES[name]
    run = ScenarioRun(World(REDIS))
    await run.run_steps((*given, *pause, *steps, unobserved(later(60))))
    assert _is_served(run), _ready(run)
    [state] = run.world.database.state()
    assert (state["nodes"], state["replicas by primary"]) == (6, [1, 1, 1]), "the new node replicates a primary"
    assert (_ready(run)["reason"], _ready(run)["status"]) == ("Paused", "True"), _ready(run)["message"]
