"""Losses of shards in the simulated world, and what users do about them: confirm, withdraw, bring data back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial

from shared.cli.options import parse_options
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from tests.harness.scenario import ScenarioStep, Stage, at_once
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import NAME, REDIS, cluster, controller

ON_HOSTS: Obj = {"storage": None, "pod": [{"volumes": {"type": "hostPath"}}]}
"""A cluster that keeps its data in directories of the Kubernetes nodes."""

OPTIONS = parse_options("redis-operator", "redis", ["--allow-host-path"], {})

SUBJECT = dataclasses.replace(REDIS, controller=partial(controller, OPTIONS))
"""The operator on a platform that allows directories of the Kubernetes nodes."""

DAY = 86400.0


def on_hosts(replicas: int = 6) -> ScenarioStep:
    return cluster(replicas, **ON_HOSTS)


def shard_of(redis: FakeRedis, number: int = 0) -> list[str]:
    """Return the pods of the nth shard, the primary first."""
    primaries = [process for process in redis.running if process.node.me.slots and not process.node.me.primary]
    primary = primaries[number % len(primaries)]
    return [primary.pod, *(replica.pod for replica in redis.replicas_of(primary))]


def hosts(stage: Stage) -> dict[str, str]:
    """Return the Kubernetes node of each pod."""
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in stage.find(POD)}


def moved(pods: Iterable[str], to: Iterable[str] = ()) -> ScenarioStep:
    """Delete pods, so that each starts on another Kubernetes node, as a drain does; or on one of the given ones."""
    pods, to = tuple(pods), frozenset(to)

    def act(stage: Stage) -> None:
        present = hosts(stage)
        every = {f"node-{number + 1}" for number in range(4)}
        stage.workloads.cordon(every - to if to else {present[pod] for pod in pods if pod in present})
        for pod in pods:
            stage.user_client.delete(POD, stage.namespace, pod, gracePeriodSeconds=0)

    return ScenarioStep(f"{', '.join(pods)} are moved to {', '.join(sorted(to)) or 'other nodes'}", act)


def returned(at: dict[str, str], pods: Iterable[str]) -> tuple[ScenarioStep, ...]:
    """Move each pod back to the Kubernetes node that has its data."""
    return tuple(moved([pod], [at[pod]]) for pod in pods)


def destroyed(pods: Iterable[str]) -> tuple[ScenarioStep, ...]:
    """Delete pods together with their volumes."""

    def act(pod: str) -> ScenarioStep:
        def delete(stage: Stage) -> None:
            claims = {claim["metadata"]["name"] for claim in stage.find(PERSISTENT_VOLUME_CLAIM)}
            if f"data-{pod}" in claims:
                stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{pod}")
            stage.user_client.delete(POD, stage.namespace, pod, gracePeriodSeconds=0)

        return ScenarioStep(f"{pod} is lost", delete)

    return at_once(*map(act, pods))


def hidden(pods: Iterable[str]) -> ScenarioStep:
    """Hide servers from the operator alone."""
    pods = frozenset(pods)
    text = f"the operator does not reach {', '.join(sorted(pods))}" if pods else "the operator reaches all nodes"
    return ScenarioStep(text, lambda stage: setattr(stage.database, "hidden", set(pods)), unobserved=True)


def withdrawn() -> ScenarioStep:
    """Remove the confirmation from the spec, as the user does."""

    def act(stage: Stage) -> None:
        stage.database.guard.withdraw()
        stage.user_client.merge(stage.kind, stage.namespace, NAME, {"spec": {"recovery": None}})

    return ScenarioStep("the user withdraws the confirmation", act)
