"""Operators that err in one thing are caught: so harness and fake can be trusted with the one that is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from operators.redis import plan
from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client import commands
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.server import Connect
from operators.redis.instance import Instance
from operators.redis.migration import key_by_key
from operators.redis.observe import Observed
from operators.redis.settings import Settings
from operators.redis.steps import data_loss_recovery, membership_repair, provisioning, rolling_update
from shared.kubernetes.kinds import POD
from shared.runtime.plan import PASS, Apply, Step
from shared.status.reasons import Reason
from shared.steps import volumes
from shared.steps.rolling_update import RollingUpdate
from shared.testing.harness.disturbance import DISTURBANCES
from shared.testing.harness.reference_run import Course
from shared.testing.harness.scenario import Scenario, Unsafe
from shared.testing.harness.sweep import Oracle, sweep
from tests.support.pod_loss import gone
from tests.support.redis.scenarios import (
    NEW,
    REDIS,
    SCENARIOS,
    all_pods_gone,
    cluster,
    failing,
    hangs,
    in_memory,
    node,
)

Patch = Callable[[pytest.MonkeyPatch], None]

BY_NAME = {str(scenario): scenario for scenario in SCENARIOS}


def forgets_whoever_is_silent(patch: pytest.MonkeyPatch) -> None:
    """Takes silence for loss, as operators do that forget failed nodes."""
    patch.setattr(membership_repair, "_forgettable", lambda _, known: not known.answers)


def takes_silence_for_loss(patch: pytest.MonkeyPatch) -> None:
    """Replaces a master as soon as it does not answer."""
    patch.setattr(Observed, "lost", lambda self, node_id: node_id not in self.reachable)


def scales_pods_first(patch: pytest.MonkeyPatch) -> None:
    """Gives the StatefulSet no more replicas than are wanted, whoever owns slots."""
    patch.setattr(provisioning, "replicas", lambda resource, *_: resource.spec.replicas)


def rolls_masters_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """Restarts a master without a failover."""

    def restart(_resource: RedisCluster, _seen: Observed, roll: RollingUpdate[Instance], place: Instance) -> Step:
        return roll.recreate(place)

    patch.setattr(rolling_update, "_fail_over", restart)


def recovers_unasked(patch: pytest.MonkeyPatch) -> None:
    """Gives lost slots to others as soon as they are lost."""
    patch.setattr(data_loss_recovery, "_in_force", lambda *_: True)


def begins_whenever_all_are_empty(patch: pytest.MonkeyPatch) -> None:
    """Has no memory of having formed a cluster."""
    patch.setattr(RedisCluster, "formed", property(lambda resource: _all_empty_is_new(resource)))


def _all_empty_is_new(resource: RedisCluster) -> bool:
    return bool(resource.reported.get("formed")) and resource.reported.get("masters", 0) > 0


def hands_slots_over_with_their_keys(patch: pytest.MonkeyPatch) -> None:
    """Says NODE whatever MIGRATE came to."""
    empty = key_by_key.KeyByKeyPath._empty

    async def hasty(self: key_by_key.KeyByKeyPath, keys: dict[int, list[bytes]]) -> list[int]:
        await empty(self, {slot: some for slot, some in keys.items() if not some})
        return list(keys)

    patch.setattr(key_by_key.KeyByKeyPath, "_empty", hasty)


def meets_whoever_is_there(patch: pytest.MonkeyPatch) -> None:
    """Brings nodes together by the addresses that they know, too, whoever lives there by now."""
    carry_out = commands.Meet.carry_out

    async def blindly(self: commands.Meet, connect: Connect, /) -> None:
        await carry_out(self, connect)
        for endpoint in self.via:
            server = connect(endpoint, self.access)
            for known in (await inspect_node(server)).nodes:
                if not known.is_me:
                    await server.execute("CLUSTER", "MEET", known.address, known.port)

    patch.setattr(commands.Meet, "carry_out", blindly)


def empties_disks(patch: pytest.MonkeyPatch) -> None:
    """Takes any node for one that can begin anew."""

    def vacate(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
        if resource.spec.replicas == len(seen.view.members):
            return PASS
        return Step.wait(
            Reason("Emptying"), "A disk is emptied.", *volumes.replace_disk(seen.instances[0], in_use=False)
        )

    patch.setattr(plan, "join_nodes", vacate)


@pytest.mark.parametrize(
    ("sabotage", "scenario", "said"),
    [
        (
            forgets_whoever_is_silent,
            Scenario("a master away", (failing(0), gone(POD, node(0))), given=(cluster(6),)),
            "forgets .*, which owns",
        ),
        (takes_silence_for_loss, Scenario("a node hangs", (hangs(0),), given=(cluster(6),)), "takes over|forgets"),
        (scales_pods_first, Scenario("shrink", (cluster(6),), given=(cluster(6), cluster(8))), "owns 4096 slots"),
        (
            rolls_masters_as_they_are,
            Scenario("roll", (cluster(6, NEW),), given=(cluster(6),)),
            "a master that owns .* slots and serves",
        ),
        (recovers_unasked, BY_NAME["slots lost"], "which owns|nobody allowed it"),
        (
            begins_whenever_all_are_empty,
            Scenario("all lost", all_pods_gone(), given=(in_memory(6),)),
            "given slots anew, though the cluster is formed",
        ),
        (
            hands_slots_over_with_their_keys,
            Scenario("grow", (cluster(8),), given=(cluster(6),)),
            "holds .* of its keys",
        ),
        (meets_whoever_is_there, BY_NAME["two clusters swap addresses"], "two clusters become one"),
        (empties_disks, Scenario("grow", (cluster(8),), given=(cluster(6),)), "its node owns"),
    ],
)
async def test_an_operator_that_errs_is_caught(
    monkeypatch: pytest.MonkeyPatch, sabotage: Patch, scenario: Scenario, said: str
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=said):
        await Course.learn(dataclasses.replace(REDIS, name=sabotage.__name__), scenario)


def trusts_its_cache(patch: pytest.MonkeyPatch) -> None:
    """Applies what followed from an older view."""
    keep = provisioning.ensure_stateful_set

    def trusting(settings: Settings, resource: RedisCluster, seen: Assessment, now: datetime) -> Step:
        step = keep(settings, resource, seen, now)
        applied: list[Any] = [
            dataclasses.replace(action, unchanged=False) if isinstance(action, Apply) else action
            for action in step.actions
        ]
        return dataclasses.replace(step, actions=tuple(applied))

    patch.setattr(plan, "keep_stateful_set", trusting)


@pytest.mark.long
async def test_an_operator_that_trusts_its_cache_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    trusts_its_cache(monkeypatch)
    [found] = [known for known in DISTURBANCES if str(known) == "a handover, the last write lands a step later"]
    done = await sweep(dataclasses.replace(REDIS, name="trusting"), SWAYED, found)
    assert Oracle.SAFE in {failure.oracle for failure in done.failures}, "\n".join(map(str, done.failures))


SWAYED = Scenario("there and back again", (cluster(6), cluster(8)), given=(cluster(6), cluster(8)), counted=False)


@pytest.mark.long
async def test_the_operator_as_it_is_does_none_of_that() -> None:
    """The same scenarios, unsabotaged, do not end in a violation, whatever else they end in."""
    for scenario in (
        Scenario("a node hangs", (hangs(0),), given=(cluster(6),), ends="Degraded"),
        Scenario("shrink", (cluster(6),), given=(cluster(6), cluster(8))),
        Scenario("roll", (cluster(6, NEW),), given=(cluster(6),)),
        Scenario("all lost", all_pods_gone(), given=(in_memory(6),), ends="SlotsLost"),
    ):
        await Course.learn(REDIS, scenario)
