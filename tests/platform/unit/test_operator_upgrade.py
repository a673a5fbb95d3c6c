"""A new version of an operator replaces no pod: with metrics, authentication and TLS on, in every kind of workload.

The operator is upgraded to another image, and its process restarts with an empty memory. Everything else stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from operators.etcd.operator import clusters as etcd_clusters
from operators.memcached.operator import controller as memcached_controller
from operators.redis.api import spec as redis_spec
from operators.redis.objects import pod as redis_pod
from operators.redis.operator import clusters as redis_clusters
from shared.api.podspec import PodSettings
from shared.cli.options import parse_options
from shared.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET, Kind, Obj
from shared.runtime.controller import Controller
from shared.runtime.options import Options
from tests.harness.scenario import ScenarioStep, Subject, apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.issuing import issued
from tests.support.memcached import scenarios as memcached
from tests.support.redis import scenarios as redis

Build = Callable[[Options, Any], Controller[Any, Any]]

METRICS: Obj = {"metrics": {}}
EVERYTHING: Obj = METRICS | memcached.AUTH | memcached.TLS

BUILDS: dict[str, Build] = {
    "memcached": lambda options, servers: memcached_controller(options, servers.connect),
    "etcd": lambda options, servers: dataclasses.replace(etcd_clusters(options, servers.connect), issue=issued),
    "redis": lambda options, servers: dataclasses.replace(redis_clusters(options, servers.connect), issue=issued),
}
SECRETS = (memcached.given_users(), memcached.given_certificate())
CASES = [
    pytest.param(memcached.MEMCACHED, (*SECRETS, apply(size=2, **EVERYTHING)), id="memcached-Deployment"),
    pytest.param(
        memcached.MEMCACHED,
        (*SECRETS, apply(size=2, workload="StatefulSet", **EVERYTHING)),
        id="memcached-StatefulSet",
    ),
    pytest.param(memcached.MEMCACHED, (*SECRETS, apply(size=2, **memcached.AUTH)), id="memcached-auth"),
    pytest.param(
        etcd.ETCD,
        (etcd.given_password(), etcd.cluster(3, **etcd.AUTH, **etcd.TLS)),
        id="etcd",
    ),
    pytest.param(
        redis.REDIS,
        (
            redis.password_given(),
            redis.certificate_given(),
            redis.cluster(6, **METRICS, **redis.AUTH, **redis.TLS),
        ),
        id="redis",
    ),
]


def released(subject: Subject, number: int) -> Subject:
    """Return the operator as of a release: its image, and a process of it."""
    image = f"example.com/{subject.name}-operator:{number}"
    options = parse_options(f"{subject.name}-operator", subject.name, ["--agent-image", image], {})
    return dataclasses.replace(subject, controller=lambda servers: BUILDS[subject.name](options, servers))


async def upgraded(world: World, subject: Subject) -> None:
    """Run the operator of another release until the world is settled, over a resync too."""
    world.subject = subject
    run = ScenarioRun(world)
    await run.run_steps(())
    run.resync()
    await run.settle()


def uids(world: World, kind: Kind = POD) -> set[str]:
    return {obj["metadata"]["uid"] for _, obj in world.server.objects(kind)}


def templates(world: World) -> list[Obj]:
    return [obj["spec"]["template"] for kind in (DEPLOYMENT, STATEFUL_SET) for _, obj in world.server.objects(kind)]


@pytest.mark.parametrize(("subject", "steps"), CASES)
async def test_upgraded_operator_replaces_no_pod(
    subject: Subject, steps: tuple[ScenarioStep, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(released(subject, 1))
    await ScenarioRun(world).run_steps(steps)
    before, template = uids(world), templates(world)
    assert before
    monkeypatch.setattr(redis_spec, "DEFAULT_EXPORTER", "example.com/redis_exporter:next")
    monkeypatch.setattr(redis_pod, "EXPORTER_TIMEOUT_SECONDS", 3)
    await upgraded(world, released(subject, 2))
    assert uids(world) == before
    assert templates(world) == template


@pytest.mark.parametrize(("subject", "steps"), CASES)
async def test_default_affinity_of_a_new_release_replaces_no_pod(
    subject: Subject, steps: tuple[ScenarioStep, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(released(subject, 1))
    with monkeypatch.context() as former:
        former.setattr(PodSettings, "apart", lambda *_: {})
        await ScenarioRun(world).run_steps(steps)
    before, template = uids(world), templates(world)
    await upgraded(world, released(subject, 2))
    assert uids(world) == before
    assert templates(world) == template


@pytest.mark.parametrize("edited", [{"memoryMB": 128}, {"affinity": {"podAntiAffinity": {}}}], ids=str)
async def test_next_roll_adopts_the_default_affinity(edited: Obj, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(released(memcached.MEMCACHED, 1))
    with monkeypatch.context() as former:
        former.setattr(PodSettings, "apart", lambda *_: {})
        await ScenarioRun(world).run_steps((apply(size=2),))
    await upgraded(world, released(memcached.MEMCACHED, 2))
    await ScenarioRun(world).run_steps((apply(size=2, **edited),))
    await ScenarioRun(world).run_steps((apply(size=2),))
    [template] = templates(world)
    terms = template["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["podAffinityTerm"]["topologyKey"] for term in terms] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]


async def test_next_roll_adopts_the_exporter_of_the_new_release() -> None:
    world = World(released(memcached.MEMCACHED, 1))
    await ScenarioRun(world).run_steps((apply(size=2, **METRICS),))
    await upgraded(world, released(memcached.MEMCACHED, 2))
    await ScenarioRun(world).run_steps((apply(size=2, memoryMB=128, **METRICS),))
    [template] = templates(world)
    assert template["spec"]["containers"][1]["image"] == "example.com/memcached-operator:2"
