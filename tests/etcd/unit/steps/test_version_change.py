"""Downgrades: enabled in etcd, waited for, carried out pod by pod, and cancelled when the spec changes."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from operators.etcd.api.catalogue import ETCD
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.plan import Planner
from operators.etcd.state.observed import Observed
from operators.etcd.steps.version_change import hold, running_version
from shared.kubernetes.kinds import Obj
from tests.etcd.unit.steps.test_rolling_update import image
from tests.etcd.unit.world import ABSENT, DOWN, LEARNER, NOW, SETTINGS, VOTER, At, acts, assess, cluster, plan, seen

RUNS, WANTS = "example.com/etcd:v3.6.11", "example.com/etcd:v3.5.26"
LATER = At(version="3.6.11", storage="3.6.0")
CONVERTED = replace(LATER, storage="3.5.0", downgrade="3.5.0")
EARLIER = At(version="3.5.26")
LOG: Obj = {"clusterID": "00000000000000c1", "series": "3.5", "sinceIndex": 900, "after": "3.6"}


def world(*at: At, runs_as: str = "3.6.0", image: str = RUNS, version: str = "3.5.26") -> tuple[EtcdCluster, Observed]:
    resource = cluster(version=version, status={"runsAs": LOG, "version": "3.6.11"})
    return resource, replace(seen(resource, *at, image=image), cluster_version=runs_as)


def test_downgrade_is_enabled_before_any_member_runs_the_earlier_version() -> None:
    resource, found = world(LATER, LATER, LATER)
    made = plan(resource, found)
    assert (acts(made.actions), image(made)) == (["enable the downgrade to 3.5"], RUNS)
    assert (made.verdict.reason, made.status["phase"]) == ("Downgrading", "Updating")


def test_downgrade_is_not_enabled_while_a_member_is_missing() -> None:
    for other, why in (
        (DOWN, "demo-1 does not answer the operator"),
        (replace(LEARNER, version="3.6.11"), "is a learner"),
    ):
        resource, found = world(LATER, other, LATER)
        made = plan(resource, found)
        assert "enable the downgrade to 3.5" not in acts(made.actions)
        assert image(made) == RUNS
        assert why in str(hold(assess(resource, found)))


def test_members_are_recreated_once_all_have_converted_their_data() -> None:
    enabled = replace(LATER, downgrade="3.5.0")
    resource, found = world(enabled, enabled, enabled)
    made = plan(resource, found)
    assert (acts(made.actions), image(made), made.verdict.reason) == ([], RUNS, "Downgrading")
    for last, why in ((enabled, "demo-2 still has data in the format of 3.6.0"), (DOWN, "demo-2 does not answer")):
        resource, found = world(CONVERTED, CONVERTED, last, runs_as="3.5.0")
        made = plan(resource, found)
        assert (acts(made.actions), image(made)) == ([], RUNS)
        assert why in str(hold(assess(resource, found)))
    resource, found = world(CONVERTED, CONVERTED, CONVERTED, runs_as="3.5.0")
    assert image(plan(resource, found)) == WANTS
    resource, found = world(*[replace(CONVERTED, old=True)] * 3, runs_as="3.5.0", image=WANTS)
    assert acts(plan(resource, found).actions) == ["evict Pod demo-1 (pod-1)"]


def test_conversion_is_required_after_the_downgrade_was_cancelled_as_well() -> None:
    resource, found = world(EARLIER, LATER, replace(CONVERTED, downgrade=""), runs_as="3.5.0")
    assert "demo-1 still has data in the format of 3.6.0" in str(hold(assess(resource, found)))


def test_downgrade_is_cancelled_when_the_spec_changes_back() -> None:
    resource, found = world(CONVERTED, CONVERTED, CONVERTED, runs_as="3.5.0", version="3.6.11")
    assert acts(plan(resource, found).actions) == ["cancel the downgrade"]
    broken = replace(DOWN, old=True, problem="ImagePullBackOff: no such image")
    resource, found = world(CONVERTED, EARLIER, broken, runs_as="3.5.0", version="3.6.11", image=WANTS)
    assert acts(plan(resource, found).actions) == ["cancel the downgrade"]
    cancelled = replace(CONVERTED, downgrade="")
    resource, found = world(cancelled, EARLIER, broken, runs_as="3.5.0", version="3.6.11", image=WANTS)
    assert image(plan(resource, found)) == RUNS, "the pod that does not start is of a version that 3.6 can follow"


def test_downgrade_is_not_enabled_while_a_member_runs_a_later_series_than_the_cluster() -> None:
    """A user did not wait for the end of a downgrade from 3.7; etcd itself would enable the next one."""
    later = replace(LATER, version="3.7.0")
    resource, found = world(LATER, later, LATER)
    assert "enable the downgrade to 3.5" not in acts(plan(resource, found).actions)
    assert "demo-1 runs 3.7.0" in str(hold(assess(resource, found)))


def test_downgrade_that_pods_start_with_is_not_cancelled_for_an_earlier_version() -> None:
    """The data would be converted back, and 3.6 could not read it."""
    begun = At(version="3.7.0", storage="3.6.0", downgrade="3.6.0")
    resource, found = world(begun, begun, begun, version="3.5.26")
    assert "cancel the downgrade" not in acts(plan(resource, found).actions)
    resource, found = world(begun, begun, begun, version="3.5.26", image="example.com/etcd:v3.7.0")
    assert acts(plan(resource, found).actions) == ["cancel the downgrade"], "no pod starts as 3.6"


def test_upgrade_that_every_member_has_made_is_reverted_as_a_downgrade() -> None:
    """The version of the cluster rises within seconds: a pod of the earlier version could not start any more."""
    later = At(version="3.7.0", storage="3.6.0")
    earlier = At(version="3.6.11", storage="3.6.0")
    starts, broken = replace(DOWN, old=True), replace(DOWN, old=True, problem="ImagePullBackOff: no such image")
    for last, waits in ((later, True), (starts, True), (earlier, False), (broken, False)):
        resource, found = world(later, later, last, version="3.6.11", image="example.com/etcd:v3.7.0")
        assert ("becomes a downgrade" in str(hold(assess(resource, found)))) is waits, last
        assert (image(plan(resource, found)) == "example.com/etcd:v3.7.0") is waits, last


def test_no_member_is_added_during_a_downgrade() -> None:
    resource, found = world(CONVERTED, CONVERTED, ABSENT, runs_as="3.5.0", image=WANTS)
    made = plan(resource, found)
    assert acts(made.actions) == []
    assert "the cluster is being downgraded to 3.5.0" in made.verdict.message


def test_version_of_the_template_is_recorded_with_the_stateful_set() -> None:
    """The tag of an image may not show the version."""
    resource = cluster(version="3.6.11", image=f"example.com/etcd@sha256:{'0' * 64}")
    found = seen(resource, DOWN, DOWN, DOWN, known=False, leader=None)
    changed = cluster(version="3.7.0", image=f"example.com/etcd@sha256:{'1' * 64}", status={"version": "3.6.11"})
    assert str(running_version(assess(changed, found))) == "3.6.11"
    assert image(plan(changed, found)) == f"example.com/etcd@sha256:{'0' * 64}"
    assert hold(assess(changed, seen(changed, VOTER, VOTER, VOTER, stateful_set=False)))


def test_untagged_image_of_an_earlier_release_runs_the_latest_version_of_a_member() -> None:
    resource = cluster(version="3.6.11", image=f"example.com/etcd@sha256:{'0' * 64}", status={"version": "3.5.26"})
    found = replace(seen(resource, EARLIER, LATER, EARLIER), cluster_version="3.5.0")
    assert found.stateful_set is not None
    del found.stateful_set["metadata"]["annotations"]
    assert str(running_version(assess(resource, found))) == "3.6.11"
    assert hold(assess(resource, found)) is None, "the template was changed before"


def test_recreated_stateful_set_keeps_the_image_of_the_pods() -> None:
    resource = cluster(version="3.7.0", image="other.example.com/etcd:v3.7.0", status={"version": "3.6.11"})
    own = replace(DOWN, version="3.6.11")
    before = seen(resource, own, own, own, known=False, leader=None, image="other.example.com/etcd:v3.6.11")
    assert image(plan(resource, replace(before, stateful_set=None))) == "other.example.com/etcd:v3.6.11"


def test_downgrade_in_memory_is_refused() -> None:
    """Each member would have to leave and join again, which etcd rejects during a downgrade."""
    resource = cluster(version="3.5.26", storage={"medium": "Memory"}, status={"version": "3.6.11"})
    found = replace(seen(resource, LATER, LATER, LATER, image=RUNS), cluster_version="3.6.0")
    made = plan(resource, found)
    assert (acts(made.actions), made.verdict.reason, image(made)) == ([], "UpgradeRefused", RUNS)
    assert "etcd lets no member join during a downgrade" in made.verdict.message


@pytest.mark.parametrize(
    ("repository", "runs", "wants"),
    [
        (ETCD.image, "etcd:v3.6.8", f"{ETCD.image}:v3.6.11"),
        (ETCD.image, "mirror.example.com/etcd:v3.6.11", f"{ETCD.image}:v3.6.11"),
        ("mirror.example.com/etcd", "etcd:v3.6.11", "mirror.example.com/etcd:v3.6.11"),  # requested
    ],
)
@pytest.mark.parametrize("stateful_set", [True, False])
def test_members_run_from_the_repository_of_the_options(
    repository: str, runs: str, wants: str, stateful_set: bool
) -> None:
    resource = cluster(version="3.6.11", status={"version": "3.6.11"})
    own = replace(VOTER, version="3.6.11")
    found = seen(resource, own, own, own, image=runs)
    found = found if stateful_set else replace(found, stateful_set=None)
    planner = Planner(replace(SETTINGS, image_repository=repository))
    made = planner.plan(resource, found, NOW)
    assert image(made) == wants
    assert made.status["image"] == wants


def test_container_that_was_renamed_by_hand_is_restored() -> None:
    """E12: the plan ended with StopIteration, so that the edit was never reverted."""
    resource = cluster(3)
    world = seen(resource, VOTER, VOTER, VOTER)
    assert world.stateful_set is not None
    world.stateful_set["spec"]["template"]["spec"]["containers"][0]["name"] = "renamed"
    applied = [getattr(action, "obj", {}) for action in plan(resource, world).actions]
    [made] = [obj for obj in applied if obj.get("kind") == "StatefulSet"]
    [container] = made["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("etcd", "example.com/etcd:v3.6.8")


@pytest.mark.parametrize("paused", [False, True])
def test_renamed_container_and_a_refused_version_keep_the_image_of_the_pods(*, paused: bool) -> None:
    """E5: members from a mirror would restart with the default image, which their nodes may not be able to pull."""
    resource = cluster(3, version="3.4.33", paused=paused)
    world = seen(resource, VOTER, VOTER, VOTER, image="mirror.example.com/custom:v3.6.8")
    assert world.stateful_set is not None
    template = copy.deepcopy(world.stateful_set)
    template["spec"]["template"]["spec"]["containers"][0]["name"] = "renamed"
    made = plan(resource, replace(world, stateful_set=template))
    assert made.verdict.reason == ("Paused" if paused else "UpgradeRefused")
    if not paused:
        assert image(made) == "mirror.example.com/custom:v3.6.8"
    assert made.status["image"] == "mirror.example.com/custom:v3.6.8"
