"""Hibernation of a RedisCluster: when pods stop, in which order, what is kept meanwhile, and how they return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.objects import redis_conf
from operators.redis.objects.redis_conf import CONFIG_KEY
from operators.redis.plan import Planner
from operators.redis.state.observed import ConfigTemplate, Observed
from operators.redis.steps.hibernation import why_running
from shared.kubernetes.accessors import annotation
from shared.kubernetes.encoding import canonical
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from shared.steps.database import HIBERNATION
from shared.steps.hibernation import WAKES, record
from tests.redis.unit.world import (
    NOW,
    SETTINGS,
    At,
    acts,
    assess,
    cluster,
    edited,
    formed,
    of,
    plan,
    planned,
    replica,
    requested_replicas,
    seen,
    stored,
)
from tests.support.hibernating import annotated

P0, P1, P2, R0, R1, R2 = formed()
SIZE = {"replicas": 6, "replicas_per_master": 1}
ANNOUNCED: Obj = {"conditions": [{"type": "Ready", "status": "False", "reason": "Hibernating", "message": ""}]}


def podless(at: At) -> At:
    """Return a node without a pod, on its volume."""
    return replace(at, up=False, pod=False)


ASLEEP = [podless(at) for at in formed()]


STOPPED, WAKING = SIZE | {WAKES: 0}, SIZE | {WAKES: 1}


def recorded(found: Observed, *, wakes: bool = False, size: dict[str, int] | None = None) -> Observed:
    """Return an observed state whose StatefulSet records a hibernation."""
    assert found.stateful_set is not None
    note = canonical((size or SIZE) | {WAKES: int(wakes)}).decode()
    return replace(found, stateful_set=annotated(found.stateful_set, note))


def hibernating(
    *at: At, pods: int | None = None, wakes: bool = False, size: dict[str, int] | None = None, **spec: Any
) -> Plan:
    """Return the plan of a cluster that records a hibernation.

    Args:
        pods: replicas of the StatefulSet; by default 6 once the pods return.
    """
    resource = cluster(*at, **{"hibernate": not wakes} | spec)
    count = 6 * wakes if pods is None else pods
    return plan(resource, recorded(seen(resource, *at, replicas=count), wakes=wakes, size=size))


def record_of(made: Plan) -> dict[str, int]:
    """Return the record in the StatefulSet that is applied last."""
    return record(_applied(made))


def applied_replicas(made: Plan) -> int:
    return int(_applied(made)["spec"]["replicas"])


def _applied(made: Plan) -> Obj:
    """Return the StatefulSet that is applied last; a dry run applies nothing."""
    applies = (each for each in of(made.actions, "Apply") if not each.dry_run)
    *_, last = (each.obj for each in applies if each.obj["kind"] == "StatefulSet")
    found: Obj = last
    return found


def test_hibernation_is_reported_before_anything_stops() -> None:
    made = planned(*formed(), hibernate=True)
    assert (made.verdict.reason, made.verdict.progress) == ("Hibernating", Progress.WAITING)
    assert (acts(made.actions), record_of(made), made.requeue) == ([], {}, 0)
    assert made.health is not None
    assert made.health.available is not None
    assert made.health.available.holds, "the pods still serve"


def with_delay(found: Observed, seconds: int) -> Observed:
    """Return the observed state whose pods sleep before their servers get SIGTERM."""
    server: Obj = {"name": "redis", "lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}
    pods = ((each, each.pod_obj or {}) for each in found.instances)
    instances = (replace(each, pod_obj=pod | {"spec": {"containers": [server]}}) for each, pod in pods)
    return replace(found, instances=tuple(instances))


@pytest.mark.parametrize(("delay", "pause"), [(5, "2"), (2, "1"), (1, "0.5"), (0, "0.5")])
def test_all_pods_stop_with_the_record_and_replicas_some_time_earlier(delay: int, pause: str) -> None:
    """One chain, by one monotonic clock: if an action fails, or the operator ends, the replicas return.

    The StatefulSet would create a replica again that ends before the primaries are deleted.
    """
    resource = cluster(*formed(), hibernate=True, status=ANNOUNCED)
    made = plan(resource, with_delay(seen(resource, *formed()), delay))
    *_, last = made.chains
    deletions = [f"delete Pod demo-{number}" for number in (3, 4, 5)]
    assert acts(last) == acts(made.actions) == [*deletions, f"wait {pause} s, so that replicas stop before primaries"]
    assert [type(action).__name__ for action in last] == ["Apply", *["Delete"] * 3, "Pause", "Apply"]
    judged, applied = of(last, "Apply")
    assert (judged.dry_run, applied.dry_run, judged.obj) == (True, False, applied.obj)
    assert (applied_replicas(made), record_of(made), made.verdict.reason) == (0, STOPPED, "Hibernating")


def test_nodes_that_are_replicas_now_stop_first() -> None:
    """A failover may have followed the status that records their roles."""
    now = [replica(3, keys=10), P1, P2, P0, R1, R2]
    resource = cluster(*formed(), hibernate=True, status=ANNOUNCED)
    assert acts(plan(resource, seen(resource, *now)).actions)[:3] == [
        f"delete Pod demo-{number}" for number in (0, 4, 5)
    ]


def test_pods_of_a_stopping_cluster_are_awaited() -> None:
    made = hibernating(*(replace(each, leaving=True) for each in formed()))
    assert (made.verdict.reason, acts(made.actions), applied_replicas(made)) == ("Hibernating", [], 0)


UNAPPLIED: list[Obj] = [{"pause": True}, {"pause": True, "hibernate": False}, {"config": {"port": "1"}}]


@pytest.mark.parametrize("spec", UNAPPLIED, ids=["paused", "paused and withdrawn", "invalid"])
def test_pods_that_another_client_starts_are_repaired_although_the_spec_is_not_applied(spec: Obj) -> None:
    made = hibernating(*formed(), pods=6, **spec)
    assert made.verdict.reason in ("Paused", "InvalidSpec")
    assert made.health is not None
    assert made.health.available is not None
    assert made.health.available.holds
    lost = replace(P0, up=False, disk="another", failed=True)
    assert acts(hibernating(lost, P1, P2, R0, R1, R2, pods=6, **spec).actions)


def test_pods_that_another_client_starts_return_before_they_stop_again() -> None:
    """The pods may have served for hours: what is in progress is over first."""
    made = hibernating(*ASLEEP, pods=2)
    assert (acts(made.actions), applied_replicas(made), record_of(made)) == ([], 6, WAKING)


FORGED = [
    '{"replicas":6,"replicas_per_master":1,"wakes":0}',
    '{"replicas":6,"replicas_per_master":1,"wakes":1}',
    '{"replicas":4,"replicas_per_master":1,"wakes":1}',
    '{"replicas":-1,"wakes":1}',
    '{"storage":1,"wakes":1}',
]


@pytest.mark.parametrize("text", FORGED)
@pytest.mark.parametrize("hibernate", [False, True])
def test_record_that_the_operator_did_not_write_changes_nothing(text: str, hibernate: bool) -> None:
    """A backup tool or kubectl restored a former StatefulSet, or a person edited it."""
    at = formed(4)
    resource = cluster(*at, hibernate=hibernate)
    found = seen(resource, *at)
    assert found.stateful_set is not None
    made = plan(resource, replace(found, stateful_set=annotated(found.stateful_set, text, by="kubectl")))
    expected = plan(resource, found)
    assert (made.verdict, acts(made.actions)) == (expected.verdict, acts(expected.actions))
    assert (applied_replicas(made), record_of(made)) == (8, {})


def test_stopped_cluster_is_at_rest_and_loses_nothing() -> None:
    made = hibernating(*ASLEEP, pods=0)
    assert (made.verdict.reason, made.verdict.progress, made.verdict.ready) == ("Hibernated", Progress.PAUSED, False)
    assert (acts(made.actions), applied_replicas(made), record_of(made)) == ([], 0, STOPPED)
    status = made.status
    assert (status["phase"], status.get("recovery"), status.get("progress")) == ("Hibernated", None, None)
    assert {(each["status"], each["reason"]) for each in status["nodes"]} == {("False", "Hibernated")}
    former = cluster(*ASLEEP).reported["nodes"]
    assert [each["nodeId"] for each in status["nodes"]] == [each["nodeId"] for each in former]
    assert [each.get("slots") for each in status["nodes"][:3]] == [each.slots for each in (P0, P1, P2)]
    assert made.health is not None
    found = (made.health.available, made.health.degraded)
    assert [(each.holds, each.reason) for each in found if each] == [(False, "Hibernated")] * 2


def test_scaled_down_spec_removes_nothing_while_the_pods_are_stopped() -> None:
    larger = [*ASLEEP, podless(At(up=False)), podless(At(up=False))]
    size = SIZE | {"replicas": 8}
    made = hibernating(*larger, pods=0, size=size, replicas=6)
    assert (acts(made.actions), applied_replicas(made)) == ([], 0)


@pytest.mark.parametrize("replicas", [3, 6, 9])
def test_pods_return_with_the_size_at_which_they_stopped(replicas: int) -> None:
    made = hibernating(*ASLEEP, pods=0, hibernate=False, replicas=replicas, replicasPerMaster=replicas // 6)
    assert (acts(made.actions), applied_replicas(made), record_of(made)) == ([], 6, WAKING)


def test_size_of_the_spec_waits_until_all_nodes_are_back() -> None:
    made = hibernating(P0, P1, P2, R0, R1, podless(R2), wakes=True, replicas=3, replicasPerMaster=0)
    assert (acts(made.actions), applied_replicas(made), record_of(made)) == ([], 6, WAKING)
    assert (made.verdict.reason, made.status["phase"]) == ("WakingUp", "WakingUp")
    assert "demo-5 is unreachable" in made.verdict.message


def test_record_is_removed_once_all_nodes_are_back() -> None:
    made = hibernating(*formed(), wakes=True, replicas=8)
    assert (applied_replicas(made), record_of(made)) == (6, {})
    assert made.verdict.reason == "WakingUp"


def test_hibernation_that_is_requested_again_waits_until_all_nodes_are_back() -> None:
    back = hibernating(P0, P1, P2, R0, R1, podless(R2), wakes=True, hibernate=True)
    assert (applied_replicas(back), record_of(back)) == (6, WAKING)


def test_withdrawn_hibernation_returns_the_pods_before_all_have_stopped() -> None:
    at = (*(replace(each, leaving=True) for each in (P0, P1, P2)), podless(R0), podless(R1), podless(R2))
    made = hibernating(*at, hibernate=False)
    assert (acts(made.actions), applied_replicas(made), record_of(made)) == ([], 6, WAKING)


@pytest.mark.parametrize("hibernate", [False, True])
def test_stopped_pods_neither_return_nor_are_missed_while_the_cluster_is_paused(*, hibernate: bool) -> None:
    made = hibernating(*ASLEEP, pods=0, pause=True, hibernate=hibernate)
    assert (made.actions, made.verdict.reason, made.status["phase"]) == ((), "Paused", "Hibernated")
    assert made.health is not None
    assert made.health.available is not None
    assert made.health.available.reason == "Hibernated"


MEMORY = {"appendonly": "no", "save": ""}
SNAPSHOTS = {"appendonly": "no", "save": "3600 1"}


@pytest.mark.parametrize(
    ("spec", "text", "settings", "why"),
    [
        ({"pod": [{"configmap": "mine"}]}, 'appendonly no\nsave ""\n', MEMORY, "the keys are only in memory"),
        ({"config": MEMORY}, "", MEMORY, "the keys are only in memory"),
        (
            {"config": SNAPSHOTS},
            "",
            {**SNAPSHOTS, "shutdown-on-sigterm": "nosave force"},
            "with shutdown-on-sigterm nosave, no snapshot is written",
        ),
    ],
    ids=["the user's file", "spec.config", "no snapshot on SIGTERM"],
)
def test_nodes_that_keep_no_data_do_not_stop(spec: Obj, text: str, settings: Obj, why: str) -> None:
    at = [replace(each, settings=settings) for each in formed()]
    resource = cluster(*at, hibernate=True, **spec)
    found = seen(resource, *at, config=ConfigTemplate(text))
    assert why_running(assess(resource, found)) == f"6 of 6 pods would lose keys ({why})."


@pytest.mark.parametrize(
    "config",
    [{"appendonly": "no"}, {"appendonly": "no", "shutdown-on-sigterm": "save"}, {"shutdown-on-sigterm": "nosave"}],
)
def test_nodes_that_write_their_data_when_they_end_may_stop(config: Obj) -> None:
    resource = cluster(*formed(), hibernate=True, config=config)
    assert why_running(assess(resource, seen(resource, *formed()))) == ""


def test_hibernation_waits_while_a_node_cannot_write_snapshots() -> None:
    at = (P0, replace(P1, save_failed=True), P2, R0, R1, R2)
    made = planned(*at, hibernate=True, status=ANNOUNCED, config=SNAPSHOTS)
    assert (record_of(made), made.verdict.reason) == ({}, "Hibernating")
    assert "demo-1 would lose keys (the last snapshot failed: check the space on the volume" in made.verdict.message
    assert record_of(planned(*at, hibernate=True, status=ANNOUNCED)) != {}, "nodes read no snapshot"


def test_pods_whose_claims_are_being_deleted_do_not_stop() -> None:
    """Each volume ends with the pod."""
    made = planned(replace(P0, claim_leaving=True), P1, P2, R0, R1, R2, hibernate=True, status=ANNOUNCED)
    assert (record_of(made), acts(made.actions), made.verdict.reason) == ({}, [], "VolumesTerminating")


def _file(text: str) -> Obj:
    return stored({"kind": "ConfigMap", "metadata": {"name": "demo-config"}, "data": {CONFIG_KEY: text}})


@pytest.mark.parametrize("wakes", [False, True])
def test_nodes_start_with_the_persistence_with_which_they_stopped(wakes: bool) -> None:
    former = cluster(*ASLEEP)
    resource = cluster(*ASLEEP, hibernate=not wakes, config={"appendonly": "no"})
    found = replace(seen(resource, *ASLEEP, replicas=0), config_map=_file(redis_conf.render(former)))
    view = Planner._view(resource, recorded(found, wakes=wakes), SETTINGS, NOW)
    assert (view.resource.spec.config["appendonly"], view.resource.spec.replicas) == ("yes", 6)
    assert Planner._view(resource, found, SETTINGS, NOW).resource.spec.config["appendonly"] == "no", "without a record"


@pytest.mark.parametrize("text", [None, 'appendonly no\nsave ""\n'], ids=["deleted", "edited"])
@pytest.mark.parametrize("stopped", [{}, {"appendonly": "no"}], ids=["log", "snapshots"])
def test_persistence_of_stopped_nodes_stays_although_the_file_is_changed_by_hand(
    stopped: dict[str, str], text: str | None
) -> None:
    """Servers that start with another one ignore the files on their volumes."""
    former, resource = cluster(*ASLEEP, hibernate=True, config=stopped), cluster(*ASLEEP, hibernate=True)
    found = recorded(seen(former, *ASLEEP, replicas=0))
    made = {each.obj["kind"]: each.obj for each in of(plan(former, found).actions, "Apply")}
    file = edited(stored(made["ConfigMap"]), **{CONFIG_KEY: text}) if text else None
    found = replace(found, stateful_set=stored(made["StatefulSet"]), config_map=file)
    (file,) = (each.obj for each in of(plan(resource, found).actions, "Apply") if each.obj["kind"] == "ConfigMap")
    assert file["data"] == made["ConfigMap"]["data"]


def test_unchanged_persistence_changes_no_object() -> None:
    resource = cluster(*ASLEEP, hibernate=True)
    found = replace(seen(resource, *ASLEEP, replicas=0), config_map=_file(redis_conf.render(resource)))
    view = Planner._view(resource, recorded(found), SETTINGS, NOW)
    assert view.resource.spec.config == resource.spec.config


def test_node_that_another_client_scaled_away_is_not_removed() -> None:
    """Someone removed the record: zero replicas are no decision about any node."""
    resource = cluster(*ASLEEP, hibernate=True)
    made = plan(resource, seen(resource, *ASLEEP, replicas=0))
    assert (acts(made.actions), requested_replicas(made)) == ([], 6)
    assert annotation(next(iter(of(made.actions, "Apply"))).obj, HIBERNATION) == ""
