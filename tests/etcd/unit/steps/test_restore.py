"""Restore: a new cluster starts with the data of a snapshot, and survives operator restarts at any step."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.backup import pods
from operators.etcd.backup.view import BackupView, Snapshot
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import Closed, New
from operators.etcd.state.observed import Observed
from operators.etcd.steps.restore import FINAL, RETRY_SECONDS, restore_data, restore_status
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import POD, Obj
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Action, Apply, Delete, Step
from shared.runtime.settings import Settings
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.etcd.unit.backup.states import at, ended, failed, leaving, there
from tests.etcd.unit.world import (
    ABSENT,
    DOWN,
    NOW,
    SETTINGS,
    UID,
    VOTER,
    assess,
    cluster,
    plan,
    replicas_and_start,
    seen,
)

STORE = VolumeStore(claim_name="snapshots", path="etcd")
SNAPSHOT = Snapshot(STORE, "demo-u-9/a.db")
SPEC: Obj = {"from": {"volume": {"claimName": "snapshots", "path": "etcd"}, "file": SNAPSHOT.file}}
SEALED: Obj = {"token": "t", "revision": 1_000_000_007}
WHERE = "volume://snapshots/etcd/demo-u-9/a.db"


def new(**status: Any) -> EtcdCluster:
    """Return a cluster that is to be restored from a snapshot and is not bootstrapped."""
    return cluster(recorded=None, restore=SPEC, status=status)


FOUND: Obj = {"source": WHERE, "phase": "Pending"}
RESTORED: Obj = {"source": WHERE, "phase": "Complete", "revision": 1_000_000_007}


def restore_pod(snapshot: Snapshot = SNAPSHOT, resource: EtcdCluster | None = None, **status: Any) -> Obj:
    return there(pods.restore_pod(SETTINGS, resource or new(), snapshot.store, snapshot.file), "r-1", **status)


def world(
    pod: Obj | None = None, snapshot: Snapshot | None = SNAPSHOT, problem: SecretProblem | None = None
) -> Observed:
    """Return a world without a seed, with an optional restore pod."""
    job_pods = {pod["metadata"]["name"]: pod} if pod else {}
    return Observed(backup=BackupView((), snapshot, problem), job_pods=job_pods)


def step(found: Observed, resource: EtcdCluster | None = None, *, after: float = 0) -> Step:
    resource = resource or new()
    return restore_data(assess(resource, found, NOW + timedelta(seconds=after)))


def reported(resource: EtcdCluster, found: Observed) -> Obj | None:
    return restore_status(assess(resource, found))


def changes(actions: tuple[Action, ...]) -> list[str]:
    return [f"{type(action).__name__} {action.obj['metadata']['name']}" for action in actions if hasattr(action, "obj")]


# Before the seed exists.


def test_cluster_without_a_snapshot_is_not_restored() -> None:
    assert step(world(), cluster(recorded=None)) == PASS


def test_restore_pod_writes_to_the_volume_of_the_seed() -> None:
    made = step(world())
    assert changes(made.actions) == ["Apply data-demo-0", "Apply demo-restore"]
    assert (made.progress, made.reason) == (Progress.WAITING, "Restoring"), "the seed is not created before"
    assert all(action.unchanged for action in made.actions if isinstance(action, Apply)), (
        "an outdated plan must not apply them"
    )
    claim, pod = [action.obj for action in made.actions if isinstance(action, Apply)]
    assert claim["metadata"]["labels"]["etcd.ydzs.io/cluster-uid"] == UID
    assert "ownerReferences" not in claim["metadata"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "data-demo-0"}
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["fetch", "restore"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "restore", "no Service selects the pod"


@pytest.mark.parametrize("resource", [new(), cluster(recorded=None)], ids=["restored", "created empty"])
def test_restore_pod_of_another_owner_is_neither_used_nor_deleted_and_no_member_starts(resource: EtcdCluster) -> None:
    """W10: a pod with the labels and the name was taken for a restore that had succeeded."""
    pod = restore_pod(**ended(SEALED))
    pod["metadata"]["ownerReferences"] = []
    made = plan(resource, replace(world(), stray_pods={"demo-restore": pod}))
    applied = [action.obj["kind"] for action in made.actions if isinstance(action, Apply)]
    assert (made.verdict.progress, made.verdict.reason) == (Progress.BLOCKED, "ForeignObject")
    assert made.verdict.message.startswith("Pod demo-restore is not controlled by this EtcdCluster.")
    assert not any(isinstance(action, Delete) for action in made.actions)
    assert not {"StatefulSet", "PersistentVolumeClaim", "Pod"}.intersection(applied)
    assert reported(resource, replace(world(), stray_pods={"demo-restore": pod})) in (None, FOUND)


def test_claim_equals_the_stateful_sets_claim_template() -> None:
    resource = new()
    made = plan(cluster(recorded=None), Observed())
    (stateful_set,) = [
        action.obj for action in made.actions if isinstance(action, Apply) and action.obj["kind"] == "StatefulSet"
    ]
    (template,) = stateful_set["spec"]["volumeClaimTemplates"]
    claim = pods.seed_volume(SETTINGS, resource)
    assert claim["spec"] == template["spec"]
    assert claim["metadata"]["labels"] == template["metadata"]["labels"]


def test_etcdutl_of_the_members_version_restores_the_data() -> None:
    pod = pods.restore_pod(SETTINGS, new(), STORE, SNAPSHOT.file)
    restore = pod["spec"]["initContainers"][1]
    assert (restore["image"], restore["command"]) == ("example.com/etcd:v3.6.8", ["etcdutl"])
    assert f"--initial-cluster-token={UID}" in restore["args"]
    assert {"--bump-revision=1000000000", "--mark-compacted"} <= set(restore["args"])
    assert "--skip-hash-check=true" not in restore["args"]


def test_store_is_mounted_read_only_for_a_restore() -> None:
    fetch = pods.restore_pod(SETTINGS, new(), STORE, SNAPSHOT.file)["spec"]["initContainers"][0]
    (mount,) = [mount for mount in fetch["volumeMounts"] if mount["name"] == "store"]
    assert mount["readOnly"] is True


def test_no_seed_is_created_during_a_restore() -> None:
    resource = new()
    for found in (world(), world(restore_pod()), world(None, None), world(restore_pod(**failed()))):
        kinds = [action.obj["kind"] for action in plan(resource, found).actions if isinstance(action, Apply)]
        assert "StatefulSet" not in kinds


def test_status_reports_the_phase_of_the_restore() -> None:
    resource = new()
    expected = [
        (None, {"source": WHERE, "phase": "Pending"}),
        (restore_pod(), {"source": WHERE, "phase": "Running"}),
        (restore_pod(**failed()), {"source": WHERE, "phase": "Failed"}),
        (restore_pod(**ended(SEALED)), RESTORED),
    ]
    assert [reported(resource, world(pod)) for pod, _ in expected] == [status for _, status in expected]
    assert plan(resource, world(restore_pod())).status["phase"] == "Restoring"


def test_restore_pod_that_does_not_start_is_reported() -> None:
    waiting = {"name": "fetch", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "none"}}}
    made = step(world(restore_pod(phase="Pending", initContainerStatuses=[waiting])))
    assert (made.actions, made.warning) == ((), True)
    assert made.message.endswith("demo-restore cannot pull example.com/etcd-operator:1: none.")


@pytest.mark.parametrize(
    "problem",
    [
        SecretProblem(Reason("BackupMissing"), "there is none."),
        SecretProblem(Reason("SecretMissing"), "there is no Secret."),
    ],
)
def test_missing_backup_or_secret_keeps_the_restore_waiting(problem: SecretProblem) -> None:
    made = step(world(None, None, problem))
    assert (made.actions, made.reason, made.message) == ((), problem.reason, problem.message)
    assert (made.progress, made.requeue) == (Progress.WAITING, 10.0)


def test_missing_agent_image_blocks_the_restore() -> None:
    made = restore_data(assess(new(), world(), settings=Settings("etcd-operator", "etcd")))
    assert (made.actions, made.reason, made.progress) == ((), "NoAgentImage", Progress.BLOCKED)


# The operator restarts at any step.


def test_completion_is_recorded_before_any_other_step() -> None:
    found = world(restore_pod(**ended(SEALED)))
    made = plan(new(), found)
    assert not any(isinstance(action, Delete) for action in made.actions), "only the pod proves the completion so far"
    assert (made.verdict.reason, made.requeue) == ("Recording", 0)
    assert made.status["restore"] == RESTORED


def test_completion_is_read_from_the_pod_after_an_operator_restart() -> None:
    pod = restore_pod(**ended(SEALED))
    assert reported(new(restore={"source": WHERE, "phase": "Running"}), world(pod)) == RESTORED


def test_pod_deleted_before_completion_is_recorded_is_recreated() -> None:
    """The data is complete by then: the seal step finds its token and changes nothing."""
    assert changes(step(world()).actions) == ["Apply data-demo-0", "Apply demo-restore"]
    assert reported(new(), world(leaving(restore_pod(**ended(SEALED))))) == {"source": WHERE, "phase": "Pending"}


def test_seed_may_not_bootstrap_empty_after_a_recorded_restore() -> None:
    resource = new(restore=RESTORED)
    made = plan(resource, world(restore_pod(**ended(SEALED)), None))
    assert changes(tuple(action for action in made.actions if isinstance(action, Delete))) == ["Delete demo-restore"]
    assert replicas_and_start(made) == (1, "existing")
    assert made.status["restore"] == RESTORED


def test_no_member_starts_while_a_restore_pod_may_write_to_its_volume() -> None:
    resource = new(restore=RESTORED)
    runs = step(world(restore_pod(), None), resource)
    assert (changes(runs.actions), runs.progress) == (["Delete demo-restore"], Progress.WAITING)
    goes = step(world(leaving(restore_pod()), None), resource)
    assert (goes.actions, goes.progress) == ((), Progress.WAITING)
    over = step(world(leaving(restore_pod(**ended(SEALED))), None), resource)
    assert (over.actions, over.progress) == ((), Progress.DONE)


def test_restored_seed_that_lost_its_volume_does_not_bootstrap_empty() -> None:
    resource = new(restore=RESTORED)
    empty_seed = replace(DOWN, empty_data_dir=True, disk="another")
    made = plan(resource, seen(resource, empty_seed, ABSENT, ABSENT, known=False))
    assert replicas_and_start(made) == (1, "existing")


def test_restore_spec_is_ignored_once_the_cluster_is_recorded() -> None:
    resource = cluster(restore=SPEC, status={"restore": RESTORED})
    found = seen(resource, VOTER, VOTER, VOTER)
    assert step(found, resource) == PASS
    assert reported(resource, found) == RESTORED


def test_restore_removed_from_the_spec_deletes_the_pod_before_the_bootstrap() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, world(restore_pod(), None))
    assert changes(tuple(action for action in made.actions if isinstance(action, Delete))) == ["Delete demo-restore"]
    assert made.verdict.reason == "Restoring"
    assert replicas_and_start(plan(resource, world(None, None)))[1] == "new demo-0"


# Failures.


@pytest.mark.parametrize("reason", sorted(FINAL))
def test_final_failure_names_the_file_and_the_remedy(reason: str) -> None:
    made = step(world(restore_pod(**failed(reason, "bad.db in the store: its checksum is another."))))
    assert (made.actions, made.progress, made.reason) == ((), Progress.BLOCKED, reason)
    assert made.message == (
        "bad.db in the store: its checksum is another. Change spec.restore, or fix the snapshot at its source "
        "and delete Pod demo-restore."
    )


@pytest.mark.parametrize("reason", ["StoreUnreachable", "AccessDenied", "ProgramFailed", "Evicted", "SnapshotMissing"])
def test_transient_failure_is_retried_after_a_delay(reason: str) -> None:
    pod = restore_pod(**failed(reason, "No answer."))
    since = (NOW - at("2026-01-01T11:59:30Z")).total_seconds()
    waits = step(world(pod), after=RETRY_SECONDS - since - 5)
    assert (waits.actions, waits.reason, waits.requeue) == ((), reason, 5)
    assert waits.message == "No answer. The operator retries."
    assert changes(step(world(pod), after=RETRY_SECONDS - since + 1).actions) == ["Delete demo-restore"]
    again = step(world(leaving(pod)), after=RETRY_SECONDS - since + 2)
    assert (again.actions, again.progress) == ((), Progress.WAITING)


@pytest.mark.parametrize("hours", [-1, 1])
def test_pause_after_a_failure_does_not_depend_on_the_clock_of_the_api_server(hours: int) -> None:
    """E7: with a clock ahead, it lasted an hour longer; with one behind, the log of the pod was deleted at once."""
    [pod] = [act.obj for act in step(world()).actions if isinstance(act, Apply) and act.kind == POD]
    pod = there(pod, "r-1", **failed("StoreUnreachable", "No answer."))
    pod["metadata"]["creationTimestamp"] = rfc3339(NOW + timedelta(hours=hours))
    waits = step(world(pod), after=35)  # it ran for 30 seconds
    assert (waits.actions, waits.requeue) == ((), RETRY_SECONDS - 5)
    assert changes(step(world(pod), after=61).actions) == ["Delete demo-restore"]


@pytest.mark.parametrize("text", ["", "2030-01-01T00:00:00Z"])
def test_failed_pod_without_a_usable_time_is_deleted_at_once(text: str) -> None:
    pod = restore_pod(**failed("StoreUnreachable", "No answer."))
    pod["metadata"] |= {"annotations": pod["metadata"]["annotations"] | {pods.STARTED: text}}
    pod["metadata"]["creationTimestamp"] = rfc3339(NOW + timedelta(hours=1))
    assert changes(step(world(pod)).actions) == ["Delete demo-restore"]


OTHER = Snapshot(STORE, "demo-u-9/good.db")


@pytest.mark.parametrize(
    "status", [{}, failed("SnapshotCorrupt"), ended(SEALED)], ids=["running", "failed", "complete"]
)
def test_another_snapshot_in_the_spec_is_restored_at_once(status: Obj) -> None:
    """Applies to a complete restore too, until the status records it."""
    pod = restore_pod(**status)
    made = step(world(pod, OTHER))
    assert changes(made.actions) == ["Delete demo-restore"]
    assert made.progress is Progress.WAITING
    assert reported(new(), world(pod, OTHER)) == {
        "source": "volume://snapshots/etcd/demo-u-9/good.db",
        "phase": "Pending",
    }
    (_, again) = step(world(None, OTHER)).actions
    assert isinstance(again, Apply)
    assert "--file=demo-u-9/good.db" in again.obj["spec"]["initContainers"][0]["args"]


def test_another_version_in_the_spec_is_tried_at_once() -> None:
    """A newer version resolves SnapshotTooNew."""
    pod = restore_pod(**failed("SnapshotTooNew"))
    newer = cluster(recorded=None, restore=SPEC, version="3.7.0")
    assert changes(step(world(pod), newer).actions) == ["Delete demo-restore"]


def test_restore_token_differs_by_cluster_store_and_file() -> None:
    bucket = S3(bucket="orders", credentials_secret="keys")
    tokens = {
        pods.restore_token(resource, store, file)
        for resource in (new(), EtcdCluster.parse(new().obj | {"metadata": new().obj["metadata"] | {"uid": "u-2"}}))
        for store in (STORE, VolumeStore(claim_name="snapshots"), bucket)
        for file in ("a.db", "b.db")
    }
    assert len(tokens) == 12


# Restores requested too late.


def with_stateful_set(how: bootstrap.Start, **more: Any) -> Observed:
    """Return a world in which the StatefulSet exists."""
    template = {"metadata": {"annotations": bootstrap.annotated(cluster(), how)}}
    return replace(world(), stateful_set={"spec": {"replicas": 1, "template": template}}, **more)


def test_restore_is_refused_after_the_seed_may_have_bootstrapped() -> None:
    """The seed may already have acknowledged writes, so its volume is not changed."""
    made = step(with_stateful_set(New()))
    assert (made.actions, made.progress, made.reason) == ((), Progress.BLOCKED, "RestoreTooLate")
    assert "delete this resource and PersistentVolumeClaim data-demo-0" in made.message


def test_seed_that_answers_is_recorded_despite_a_restore_spec() -> None:
    assert step(with_stateful_set(New(), cluster_id=0xC1)) == PASS


def test_lost_status_does_not_cause_a_second_restore() -> None:
    assert step(with_stateful_set(Closed())) == PASS
