"""A new version of the operator restarts no member for parts of the template that can wait."""

from __future__ import annotations

import pytest

from operators.etcd.objects import pod
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, STATEFUL_SET, Obj
from shared.status import conditions
from tests.harness.scenario import operator_down
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, MIDDLE, cluster, lost

SMALL, LARGE = 180.0, 640.0


def pods(play: ScenarioRun) -> dict[str, str]:
    return {found["metadata"]["name"]: found["metadata"]["uid"] for found in play.stage.find(POD)}


def thresholds(play: ScenarioRun) -> list[int]:
    """Return the failure thresholds of the liveness probes of the template and of the pods."""
    [template] = [found["spec"]["template"] for found in play.stage.find(STATEFUL_SET)]
    specs: list[Obj] = [template["spec"], *(found["spec"] for found in play.stage.find(POD))]
    return [spec["containers"][0]["livenessProbe"]["failureThreshold"] for spec in specs]


async def upgraded(monkeypatch: pytest.MonkeyPatch) -> ScenarioRun:
    """Return a cluster of a former operator, after the start of one with another liveness probe."""
    monkeypatch.setattr(pod, "_hang_seconds", lambda _: SMALL)
    play = ScenarioRun(World(ETCD))
    await play.run_steps((cluster(3, MIDDLE),))
    monkeypatch.setattr(pod, "_hang_seconds", lambda _: LARGE)
    return play


async def test_another_liveness_probe_alone_restarts_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    play = await upgraded(monkeypatch)
    before = pods(play)
    await play.run_steps(operator_down(cluster(3, MIDDLE)))
    assert (pods(play), thresholds(play)) == (before, [9] * 4)
    [found] = play.stage.find()
    assert accessors.condition(found, conditions.READY)["reason"] == "Ready"


async def test_replaced_member_alone_does_not_adopt_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template changes with the list of members, but no pod is outdated for that."""
    play = await upgraded(monkeypatch)
    before = pods(play)
    await play.run_steps(lost(1))
    after = pods(play)
    assert {name: uid for name, uid in after.items() if before[name] == uid}.keys() == {"cache-0", "cache-2"}
    assert thresholds(play) == [9] * 4


async def test_change_that_restarts_members_adopts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    play = await upgraded(monkeypatch)
    before = pods(play)
    await play.run_steps((cluster(3, MIDDLE, extraArgs=["--max-txn-ops=256"]),))
    assert not set(before.values()) & set(pods(play).values())
    assert thresholds(play) == [32] * 4
