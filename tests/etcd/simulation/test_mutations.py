"""Sabotaged operators, each with one defect: the harness and the simulated etcd must catch every one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from operators.etcd import plan
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import Version
from operators.etcd.facts import assessment
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership import evidence, raft_log
from operators.etcd.membership.layout import Layout
from operators.etcd.membership.layout import layout as derived
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.bootstrap import Closed, New, Start
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps import (
    connection_secret,
    credentials,
    quorum_recovery,
    rolling_update,
    version_change,
)
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from shared.runtime.plan import PASS, Apply, Step, StepOf
from tests.harness.disturbance import DISTURBANCES
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario, Unsafe, delete, edit, later
from tests.harness.sweep import Oracle, sweep
from tests.support.etcd.scenarios import ETCD, MIDDLE, NAME, OLD, SCENARIOS, cluster, hangs, lost, member
from tests.support.etcd.scenarios import NEW as NEWEST
from tests.support.hibernating import forged, obeys_records_of_others
from tests.support.plays import played
from tests.support.pod_loss import delete_now

Patch = Callable[[pytest.MonkeyPatch], None]

ARGUMENTS: Obj = {"extraArgs": ["--max-txn-ops=256"]}

BY_NAME = {str(scenario): scenario for scenario in SCENARIOS}


def lists_every_member_to_bootstrap(patch: pytest.MonkeyPatch) -> None:
    """List members under their own names, as most operators do."""
    annotated = bootstrap.annotated

    def listing(resource: EtcdCluster, begins: Start) -> dict[str, str]:
        listed = [f"{known.name}={names.peer_url_of(resource, known.name)}" for known in resource.recorded_members]
        additions = {bootstrap.INITIAL_CLUSTER: ",".join(listed)} if isinstance(begins, Closed) else {}
        return annotated(resource, begins) | additions

    patch.setattr(bootstrap, "annotated", listing)


def bootstraps_without_a_member_list(patch: pytest.MonkeyPatch) -> None:
    """Render `new` whenever the member list is unknown."""

    def bootstrapping(resource: EtcdCluster, seen: Observed) -> Layout:
        found = derived(resource, seen)
        return found if seen.members is not None else dataclasses.replace(found, start=New())

    patch.setattr(assessment, "layout", bootstrapping)


def scales_pods_before_members(patch: pytest.MonkeyPatch) -> None:
    """Scale the StatefulSet to spec.size regardless of the members."""

    def scaled_down(resource: EtcdCluster, seen: Observed) -> Layout:
        found = derived(resource, seen)
        return dataclasses.replace(found, replicas=min(found.replicas, resource.spec.size))

    patch.setattr(assessment, "layout", scaled_down)


def ignores_unhealthy_members(patch: pytest.MonkeyPatch) -> None:
    """Restart members without checking the health of the others, and regardless of the budget, which checks it too."""
    patch.setattr(Observed, "others_healthy", lambda *_: True)
    patch.setattr(Observed, "down", ())
    patch.setattr(rolling_update, "may_evict", lambda *_: False)


def accepts_any_version(patch: pytest.MonkeyPatch) -> None:
    """Accept any version as an upgrade."""
    patch.setattr(version_change, "hold", lambda *_: None)
    patch.setattr(rolling_update, "may_start", lambda *_: evidence.GOOD)


def takes_unreachable_members_for_ready(patch: pytest.MonkeyPatch) -> None:
    """Let a member that does not answer count as good, as the first release did with its log."""
    readable, cluster_version = raft_log.readable, version_change._cluster_version

    def judged(resource: EtcdCluster, instance: Instance, target: tuple[int, int]) -> evidence.Finding:
        return evidence.GOOD if instance.status is None else readable(resource, instance, target)

    patch.setattr(version_change, "readable", judged)
    patch.setattr(version_change, "unknown", lambda *_: evidence.GOOD)
    patch.setattr(version_change, "_cluster_version", lambda seen: cluster_version(seen) or Version(3, 6, 11))


def skips_the_conversion(patch: pytest.MonkeyPatch) -> None:
    """Start an earlier version without etcd's downgrade."""
    patch.setattr(version_change, "hold", lambda *_: None)
    patch.setattr(plan, "change_downgrade", lambda *_: PASS)


def recovers_without_consent(patch: pytest.MonkeyPatch) -> None:
    """Recover as soon as a quorum is lost."""
    patch.setattr(quorum_recovery, "is_in_force", lambda *_: True)


def stops_pods_whose_claims_are_deleted(patch: pytest.MonkeyPatch) -> None:
    """Hibernate while claims are being deleted, which end with their pods."""
    patch.setattr(plan, "report_terminating_claims", lambda _: PASS)


def gives_root_to_applications(patch: pytest.MonkeyPatch) -> None:
    """Give applications root, as versions without the user `client` did."""
    for module in (credentials, connection_secret):
        patch.setattr(module, "user_for_clients", lambda *_: "root")


def gives_applications_the_role_root(patch: pytest.MonkeyPatch) -> None:
    """Give the user of applications the role root."""
    patch.setattr(credentials, "CLIENT_ROLE", "root")


def volumes_lost(*numbers: int, size: int = 3) -> Scenario:
    """Return a scenario in which volumes are lost while all pods are stopped, before the wake-up."""
    claims = (delete_now(PERSISTENT_VOLUME_CLAIM, f"data-{member(number)}") for number in numbers)
    steps = (cluster(size, hibernate=True), *claims, cluster(size), later(60))
    return Scenario(f"{len(numbers)} of {size} volumes are lost during a hibernation", steps, given=(cluster(size),))


HIBERNATIONS: list[tuple[Patch, Scenario, str]] = [
    (
        stops_pods_whose_claims_are_deleted,
        Scenario(
            "hibernate while a claim is being deleted",
            (delete(PERSISTENT_VOLUME_CLAIM, f"data-{member(1)}"), cluster(3, hibernate=True)),
            given=(cluster(3),),
        ),
        "with which data-cache-1 and the data are deleted",
    ),
    (
        obeys_records_of_others,
        Scenario("a person records a hibernation", (forged(NAME, size=1, wakes=1), later(60)), given=(cluster(3),)),
        "obeys a record of cache by another: {'size': 1}",
    ),
    (
        obeys_records_of_others,
        Scenario(
            "a former StatefulSet is restored",
            (forged(NAME, size=3, wakes=0), edit(STATEFUL_SET, {"spec": {"replicas": 0}}, NAME), later(60)),
            given=(cluster(3),),
        ),
        "obeys a record of cache by another: {'size': 3}",
    ),
    (bootstraps_without_a_member_list, volumes_lost(0, size=1), "bootstraps a cluster on an empty disk"),
    (lists_every_member_to_bootstrap, volumes_lost(1), "cache-1 restarts as a voter on an empty disk"),
    (recovers_without_consent, volumes_lost(0, 1), "without consent"),
]


@pytest.mark.parametrize(
    ("sabotage", "scenario", "violation"),
    [
        *HIBERNATIONS,
        (
            lists_every_member_to_bootstrap,
            BY_NAME["a member lost without an operator"],
            "restarts as a voter on an empty disk",
        ),
        (
            bootstraps_without_a_member_list,
            Scenario("the only member lost", lost(0), given=(cluster(1),)),
            "bootstraps a cluster on an empty disk, but the status records one",
        ),
        (scales_pods_before_members, Scenario("scale down", (cluster(1),), given=(cluster(3),)), "is still a member"),
        (
            ignores_unhealthy_members,
            Scenario("roll while a member hangs", (hangs(1), cluster(3, **ARGUMENTS)), given=(cluster(3),)),
            "which is no quorum",
        ),
        (
            accepts_any_version,
            Scenario("upgrade by two minor versions", (cluster(3, NEWEST),), given=(cluster(3, OLD),)),
            "is skipped",
        ),
        (
            takes_unreachable_members_for_ready,
            BY_NAME["second upgrade requested while the operator is cut off"],
            "whose log has entries that 3.5 wrote",
        ),
        (
            skips_the_conversion,
            Scenario("downgrade", (cluster(3, OLD),), given=(cluster(3, MIDDLE),)),
            "has data in the format of 3.6",
        ),
        (recovers_without_consent, BY_NAME["lost quorum"], "without consent"),
        (gives_root_to_applications, Scenario("create with users", (cluster(1, auth={}),)), "has the role root"),
        (gives_applications_the_role_root, Scenario("create with users", (cluster(1, auth={}),)), "has the role root"),
    ],
)
async def test_sabotaged_operator_is_caught(
    monkeypatch: pytest.MonkeyPatch, sabotage: Patch, scenario: Scenario, violation: str
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=violation):
        await played(ETCD, scenario)


def applies_stale_plans(patch: pytest.MonkeyPatch) -> None:
    """Apply plans that were made from a stale view."""

    def stale(original: StepOf[Assessment]) -> StepOf[Assessment]:
        def applying(seen: Assessment) -> Step:
            step = original(seen)
            applied: list[Any] = [
                dataclasses.replace(action, unchanged=False) if isinstance(action, Apply) else action
                for action in step.actions
            ]
            return dataclasses.replace(step, actions=tuple(applied))

        return applying

    for name in ("create_stateful_set", "ensure_stateful_set"):
        patch.setattr(plan, name, stale(getattr(plan, name)))


@pytest.mark.parametrize("disturbance", ["stale view", "leader change, last write lands a step later"])
async def test_operator_that_applies_stale_plans_is_caught(monkeypatch: pytest.MonkeyPatch, disturbance: str) -> None:
    applies_stale_plans(monkeypatch)
    [found] = [known for known in DISTURBANCES if str(known) == disturbance]
    done = await sweep(dataclasses.replace(ETCD, name="stale-plans"), Scenario("create two", (cluster(2),)), found)
    assert Oracle.SAFE in {failure.oracle for failure in done.failures}, "\n".join(map(str, done.failures))


@pytest.mark.parametrize("scenario", [scenario for _, scenario, _ in HIBERNATIONS], ids=str)
async def test_unmodified_operator_hibernates_without_a_violation(scenario: Scenario) -> None:
    run = await played(ETCD, scenario)
    run.world.require_safe()


async def test_unmodified_operator_causes_no_violation() -> None:
    """The same scenarios cause no violation without the sabotage."""
    for scenario in (
        Scenario("scale down", (cluster(1),), given=(cluster(3),)),
        Scenario("roll while a member hangs", (hangs(1), cluster(3, **ARGUMENTS)), given=(cluster(3),)),
        Scenario("one of two pods deleted", (delete_now(POD, member(1)),), given=(cluster(2),)),
    ):
        await ReferenceRun.record(ETCD, scenario)
