"""Servers of deleted pods that got no SIGTERM: which are shut down, which are killed earlier, and which are left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operators.redis.client.commands import ShutDown
from operators.redis.objects.names import CONTAINER
from operators.redis.state.observed import Observed
from operators.redis.steps.configuration import ensure_config_map
from operators.redis.steps.deleted_pods import stop_servers
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Delete, Step
from tests.redis.unit.world import NOW, At, assess, cluster, formed, of, stored, world

SHARDS = formed()
SNAPSHOTS: Obj = {"appendonly": "no"}
VOLATILE: Obj = {"appendonly": "no", "save": ""}
LOG: Obj = {"appendonly": "yes", "save": ""}


def at(seconds: float) -> str:
    """Return a time as the API has it, in seconds from now."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def step(
    *nodes: At,
    deleted: float = 60,
    settings: Obj | None = None,
    error: float = 0,
    grace: int = 300,
    started: float = -70,
    unready: float = -71,
    ready: str = "False",
    **more: Any,
) -> Step:
    """Return the step for a cluster of which pod 3, a replica, was deleted some seconds ago.

    Args:
        error: seconds by which the clock of the operator is ahead.
    """
    config_map = more.pop("config_map", None)
    resource, seen = world(*(nodes or SHARDS), **more)
    instances = list(seen.instances)
    pod_obj = instances[3].pod_obj
    assert pod_obj
    status = {
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(unready)}],
        "containerStatuses": [{"name": CONTAINER, "state": {"running": {"startedAt": at(started)}}}],
    }
    metadata = {"deletionTimestamp": at(grace - deleted), "deletionGracePeriodSeconds": grace}
    pod_obj = pod_obj | {"metadata": pod_obj["metadata"] | metadata, "status": pod_obj["status"] | status}
    report = instances[3].report and replace(instances[3].report, settings=settings or {})
    pod = Pod.of(pod_obj, container=CONTAINER)
    instances[3] = replace(instances[3], pod_obj=pod_obj, pod=pod, report=report, deleted_seconds=deleted)
    now = NOW + timedelta(seconds=error)
    return stop_servers(assess(resource, replace(seen, instances=tuple(instances), config_map=config_map), now))


def unreachable() -> tuple[At, ...]:
    nodes = list(SHARDS)
    nodes[3] = replace(nodes[3], up=False)
    return tuple(nodes)


def test_pods_that_are_not_deleted_are_left() -> None:
    resource, seen = world(*SHARDS)
    assert stop_servers(assess(resource, seen)) is PASS


@pytest.mark.parametrize("error", [-30, 0, 30])
def test_server_that_answers_is_shut_down_once_it_must_have_got_the_signal(error: float) -> None:
    assert step(deleted=10, error=error) == Step(requeue=10)
    [call] = step(deleted=20, error=error).actions
    assert isinstance(call, ShutDown)
    assert call.at.name == "demo-3"


def test_server_that_was_never_ready_is_killed_earlier() -> None:
    assert step(*unreachable(), deleted=20) == Step(requeue=10)
    [deletion] = step(*unreachable(), deleted=30, started=-29, unready=-29).actions
    assert isinstance(deletion, Delete)
    assert (deletion.obj["metadata"]["name"], deletion.grace_seconds) == ("demo-3", 10)
    assert deletion.unchanged, "it may have become ready meanwhile"


@pytest.mark.parametrize(
    "given",
    [
        {"unready": -69},
        {"ready": "True"},
        {"ready": "Unknown"},
        {"deleted": 301},
        {"grace": 10, "deleted": 31},
        {"config": SNAPSHOTS},
        {"config": VOLATILE},
    ],
    ids=["was ready", "is ready", "lost host", "overdue", "short grace", "snapshots", "pod with other settings"],
)
def test_other_pods_keep_their_grace_period(given: Obj) -> None:
    assert step(*unreachable(), **given) is PASS


def test_only_copy_is_not_shut_down() -> None:
    """Replica 3 took over in memory, and no other node has its keys yet."""
    nodes = [replace(SHARDS[0], of=3, slots="", synced=False, copied=False), *SHARDS[1:]]
    nodes[3] = replace(SHARDS[0])
    assert step(*nodes, settings=VOLATILE, config=VOLATILE) is PASS
    assert len(step(*nodes, settings=LOG).actions) == 1, "its volume has them"
    nodes[3] = replace(nodes[3], claim_leaving=True)
    assert step(*nodes, settings=LOG) is PASS, "its claim ends with the pod"


@pytest.mark.parametrize(("settings", "stops"), [(VOLATILE, 0), ({}, 0), (LOG, 1), (SNAPSHOTS | {"save": "60 1"}, 1)])
@pytest.mark.parametrize(("config", "stays"), [({}, 1), (VOLATILE, 0)], ids=["switched on", "switched off"])
def test_running_server_has_the_only_copy_by_what_it_writes_itself(
    settings: Obj, stops: int, config: Obj, stays: int
) -> None:
    """The spec may have changed since, and the server runs with its former settings; the next pod may ignore files."""
    nodes = [replace(SHARDS[0], of=3, slots="", synced=False, copied=False), *SHARDS[1:]]
    nodes[3] = replace(SHARDS[0])
    [file] = of(ensure_config_map(assess(cluster(*nodes, config=settings), Observed())).actions, "Apply")
    assert len(step(*nodes, settings=settings, config=config, config_map=stored(file.obj)).actions) == stops * stays
