"""Outdated pods are recreated one at a time; a gate or a failing updated pod blocks the next one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from shared.kubernetes.pods import Pod
from shared.runtime.plan import Delete, Evict, Step
from shared.status.reasons import Reason
from shared.steps import rolling_update
from shared.steps.rolling_update import RETURN_TIMEOUT, RollingUpdate, is_returning

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def instance(number: int, *, old: bool = True, problem: str = "", runs: bool = True, leaving: bool = False) -> Any:
    name = f"demo-{number}"
    pod = Pod(name, "10.0.0.1", "StatefulSet", ready=runs, leaving=leaving, ended=False, problem=problem)
    metadata = {"name": name, "creationTimestamp": NOW.isoformat()}
    return SimpleNamespace(name=name, pod=pod, pod_obj={"metadata": metadata}, volume=None, runs=runs, old=old)


def roll(*instances: Any) -> RollingUpdate[Any]:
    stale = [each for each in instances if each.old]
    return RollingUpdate(instances, lambda each: each.old, stale, Reason("Updating"), Reason("UpgradeBlocked"), 10.0)


def test_lowest_rank_is_recreated_first_and_alone() -> None:
    step = roll(instance(0), instance(1), instance(2, old=False)).next(rank=lambda each: -int(each.name[-1]), gates=())
    (action,) = step.actions
    assert isinstance(action, Evict)
    assert action.obj["metadata"]["name"] == "demo-1"
    assert step.message == "Rolling update: 2 of 3 pods are outdated; demo-1 is being recreated."


@pytest.mark.parametrize(
    ("runs", "evicts", "action"), [(True, True, Evict), (True, False, Delete), (False, True, Delete)]
)
def test_only_a_pod_that_serves_is_evicted(*, runs: bool, evicts: bool, action: type) -> None:
    assert isinstance(rolling_update.stop(instance(0, runs=runs), evicts=evicts), action)


def test_first_gate_with_a_step_decides() -> None:
    calls: list[str] = []

    def passes(each: Any) -> None:
        calls.append(each.name)

    blocked = Step.wait(Reason("Held"), "No.")
    gates = (passes, lambda _: blocked, lambda _: pytest.fail("an earlier gate has decided"))
    assert roll(instance(0)).next(rank=lambda _: 0, gates=gates) is blocked
    assert calls == ["demo-0"]


@pytest.mark.parametrize(("with_problem", "quoted"), [(False, "updated. Fix"), (True, "does not start: Crash. Fix")])
def test_failing_updated_pod_is_named(with_problem: bool, quoted: str) -> None:
    step = roll(instance(0), instance(1, old=False, problem="Crash.")).block(
        instance(0), "Why.", with_problem=with_problem
    )
    assert (step.reason, step.warning, step.actions, step.requeue) == ("UpgradeBlocked", True, (), 10.0)
    assert "demo-1 is already updated" in step.message
    assert quoted in step.message


def test_only_outdated_pods_without_a_running_server_are_broken() -> None:
    instances = [
        instance(0),
        instance(1, runs=False),
        instance(2, runs=False, old=False),
        instance(3, runs=False, leaving=True),
    ]
    assert rolling_update.broken(instances, lambda each: each.old) == [instances[1]]


def test_recreated_pod_has_time_to_return_unless_it_has_a_problem() -> None:
    assert is_returning(instance(0), NOW + RETURN_TIMEOUT)
    assert not is_returning(instance(0), NOW + RETURN_TIMEOUT + timedelta(seconds=1))
    assert not is_returning(instance(0, problem="Crash."), NOW)
