"""Operators that err in one thing are caught: so harness and fake can be trusted with the one that is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from operators.etcd import plan
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.layout import Layout
from operators.etcd.membership.layout import layout as derived
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.bootstrap import Closed, New, Start
from operators.etcd.observe import Observed
from operators.etcd.steps import provisioning, quorum_recovery, rolling_update
from shared.kubernetes.kinds import POD
from shared.runtime.plan import Apply, Step
from shared.runtime.settings import Settings
from shared.testing.harness.disturbance import DISTURBANCES
from shared.testing.harness.reference_run import Course
from shared.testing.harness.scenario import Scenario, Unsafe
from shared.testing.harness.sweep import Oracle, sweep
from tests.support.etcd.scenarios import ETCD, MIDDLE, OLD, SCENARIOS, cluster, hangs, lost, member
from tests.support.etcd.scenarios import NEW as NEWEST
from tests.support.pod_loss import gone

Patch = Callable[[pytest.MonkeyPatch], None]

BY_NAME = {str(scenario): scenario for scenario in SCENARIOS}


def lets_anybody_begin(patch: pytest.MonkeyPatch) -> None:
    """Lists members under their own names, as most operators do."""
    annotated = bootstrap.annotated

    def inviting(resource: EtcdCluster, begins: Start) -> dict[str, str]:
        listed = [f"{known.name}={names.peer_url_of(resource, known.name)}" for known in resource.recorded_members]
        invited = {bootstrap.INITIAL_CLUSTER: ",".join(listed)} if isinstance(begins, Closed) else {}
        return annotated(resource, begins) | invited

    patch.setattr(bootstrap, "annotated", inviting)


def begins_whenever_nobody_answers(patch: pytest.MonkeyPatch) -> None:
    """Renders `new` where it sees no member."""

    def hasty(resource: EtcdCluster, seen: Observed) -> Layout:
        found = derived(resource, seen)
        return found if seen.members is not None else dataclasses.replace(found, start=New())

    patch.setattr(provisioning, "layout", hasty)


def scales_pods_first(patch: pytest.MonkeyPatch) -> None:
    """Gives the StatefulSet no more replicas than are wanted, whoever is a member."""

    def eager(resource: EtcdCluster, seen: Observed) -> Layout:
        found = derived(resource, seen)
        return dataclasses.replace(found, replicas=min(found.replicas, resource.spec.size))

    patch.setattr(provisioning, "layout", eager)


def takes_all_for_healthy(patch: pytest.MonkeyPatch) -> None:
    """Restarts members without a look at the others."""
    patch.setattr(Observed, "others_healthy", lambda *_: True)
    patch.setattr(Observed, "down", ())


def upgrades_as_told(patch: pytest.MonkeyPatch) -> None:
    """Takes any version for one that may follow."""
    patch.setattr(rolling_update, "upgrade_refusal", lambda *_: "")


def recovers_unasked(patch: pytest.MonkeyPatch) -> None:
    """Makes a new cluster as soon as a quorum is lost."""
    patch.setattr(quorum_recovery, "confirms", lambda *_: True)


@pytest.mark.parametrize(
    ("sabotage", "scenario", "said"),
    [
        (lets_anybody_begin, BY_NAME["one lost while nobody watches"], "comes back as a voter on an empty disk"),
        (
            begins_whenever_nobody_answers,
            Scenario("the only one lost", lost(0), given=(cluster(1),)),
            "begins a cluster on an empty disk, though the status records one",
        ),
        (scales_pods_first, Scenario("shrink", (cluster(1),), given=(cluster(3),)), "is still a member"),
        (
            takes_all_for_healthy,
            Scenario("an upgrade while one hangs", (hangs(1), cluster(3, MIDDLE)), given=(cluster(3, OLD),)),
            "which is no quorum",
        ),
        (upgrades_as_told, Scenario("two at once", (cluster(3, NEWEST),), given=(cluster(3, OLD),)), "is skipped"),
        (recovers_unasked, BY_NAME["a quorum lost"], "and nobody allowed it"),
    ],
)
async def test_an_operator_that_errs_is_caught(
    monkeypatch: pytest.MonkeyPatch, sabotage: Patch, scenario: Scenario, said: str
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=said):
        await Course.learn(dataclasses.replace(ETCD, name=sabotage.__name__), scenario)


def trusts_its_cache(patch: pytest.MonkeyPatch) -> None:
    """Applies what followed from an older view."""
    keep = provisioning.ensure_stateful_set

    def trusting(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
        step = keep(settings, resource, seen, now)
        applied: list[Any] = [
            dataclasses.replace(action, unchanged=False) if isinstance(action, Apply) else action
            for action in step.actions
        ]
        return dataclasses.replace(step, actions=tuple(applied))

    patch.setattr(plan, "ensure_stateful_set", trusting)


@pytest.mark.parametrize("disturbance", ["a stale view", "a handover, the last write lands a step later"])
async def test_an_operator_that_trusts_its_cache_is_caught(monkeypatch: pytest.MonkeyPatch, disturbance: str) -> None:
    trusts_its_cache(monkeypatch)
    [found] = [known for known in DISTURBANCES if str(known) == disturbance]
    done = await sweep(dataclasses.replace(ETCD, name="trusting"), Scenario("create two", (cluster(2),)), found)
    assert Oracle.SAFE in {failure.oracle for failure in done.failures}, "\n".join(map(str, done.failures))


async def test_the_operator_as_it_is_does_none_of_that() -> None:
    """The same scenarios, unsabotaged, do not end in a violation, whatever else they end in."""
    for scenario in (
        Scenario("shrink", (cluster(1),), given=(cluster(3),)),
        Scenario("an upgrade while one hangs", (hangs(1), cluster(3, MIDDLE)), given=(cluster(3, OLD),)),
        Scenario("one of two deleted", (gone(POD, member(1)),), given=(cluster(2),)),
    ):
        await Course.learn(ETCD, scenario)
