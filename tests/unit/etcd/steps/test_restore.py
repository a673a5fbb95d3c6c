"""A cluster begins with a snapshot's data or not at all, and wherever its operator is stopped, the work goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.assessment import Assessment
from operators.etcd.backup import pods
from operators.etcd.backup.view import BackupView, Snapshot
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import Closed, New
from operators.etcd.observe import Observed
from operators.etcd.steps.restore import FINAL, RETRY_SECONDS, restore_data, restore_status
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Action, Apply, Delete, Step
from shared.runtime.settings import Settings
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.unit.etcd.backup.states import at, ended, failed, leaving, there
from tests.unit.etcd.world import (
    ABSENT,
    DOWN,
    NOW,
    SETTINGS,
    UID,
    VOTER,
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
    """A cluster that is to begin with a snapshot, and has not."""
    return cluster(recorded=None, restore=SPEC, status=status)


RESTORED: Obj = {"source": WHERE, "phase": "Complete", "revision": 1_000_000_007}


def restore_pod(snapshot: Snapshot = SNAPSHOT, resource: EtcdCluster | None = None, **status: Any) -> Obj:
    return there(pods.restore_pod(SETTINGS, resource or new(), snapshot.store, snapshot.file), "r-1", **status)


def world(
    pod: Obj | None = None, snapshot: Snapshot | None = SNAPSHOT, problem: SecretProblem | None = None
) -> Observed:
    """No seed yet, and maybe a pod that works on its data."""
    job_pods = {pod["metadata"]["name"]: pod} if pod else {}
    return Observed(backup=BackupView((), snapshot, problem), job_pods=job_pods)


def step(found: Observed, resource: EtcdCluster | None = None, *, after: float = 0) -> Step:
    resource = resource or new()
    return restore_data(SETTINGS, resource, Assessment.of(resource, found), NOW + timedelta(seconds=after))


def reported(resource: EtcdCluster, found: Observed) -> Obj | None:
    return restore_status(resource, Assessment.of(resource, found))


def done(actions: tuple[Action, ...]) -> list[str]:
    return [f"{type(action).__name__} {action.obj['metadata']['name']}" for action in actions if hasattr(action, "obj")]


# Before there is a seed.


def test_a_cluster_without_a_snapshot_is_not_concerned() -> None:
    assert step(world(), cluster(recorded=None)) == PASS


def test_a_pod_makes_the_data_on_the_volume_that_the_seed_will_have() -> None:
    made = step(world())
    assert done(made.actions) == ["Apply data-demo-0", "Apply demo-restore"]
    assert (made.progress, made.reason) == (Progress.WAITING, "Restoring"), "no seed comes before it"
    assert all(action.unchanged for action in made.actions if isinstance(action, Apply)), "no old wish does it"
    claim, pod = [action.obj for action in made.actions if isinstance(action, Apply)]
    assert claim["metadata"]["labels"]["etcd.ydzs.io/cluster-uid"] == UID
    assert "ownerReferences" not in claim["metadata"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "data-demo-0"}
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["fetch", "restore"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "restore", "no Service takes it for a member"


def test_the_claim_is_as_the_stateful_set_would_make_it() -> None:
    resource = new()
    made = plan(cluster(recorded=None), Observed())
    (stateful_set,) = [
        action.obj for action in made.actions if isinstance(action, Apply) and action.obj["kind"] == "StatefulSet"
    ]
    (template,) = stateful_set["spec"]["volumeClaimTemplates"]
    claim = pods.seed_volume(SETTINGS, resource)
    assert claim["spec"] == template["spec"]
    assert claim["metadata"]["labels"] == template["metadata"]["labels"]


def test_etcds_own_program_of_the_members_version_makes_the_data() -> None:
    pod = pods.restore_pod(SETTINGS, new(), STORE, SNAPSHOT.file)
    restore = pod["spec"]["initContainers"][1]
    assert (restore["image"], restore["command"]) == ("example.com/etcd:v3.6.8", ["etcdutl"])
    assert f"--initial-cluster-token={UID}" in restore["args"]
    assert {"--bump-revision=1000000000", "--mark-compacted"} <= set(restore["args"])
    assert "--skip-hash-check=true" not in restore["args"]


def test_what_only_reads_snapshots_cannot_write_them() -> None:
    fetch = pods.restore_pod(SETTINGS, new(), STORE, SNAPSHOT.file)["spec"]["initContainers"][0]
    (mount,) = [mount for mount in fetch["volumeMounts"] if mount["name"] == "store"]
    assert mount["readOnly"] is True


def test_while_it_works_no_seed_comes() -> None:
    resource = new()
    for found in (world(), world(restore_pod()), world(None, None), world(restore_pod(**failed()))):
        kinds = [action.obj["kind"] for action in plan(resource, found).actions if isinstance(action, Apply)]
        assert "StatefulSet" not in kinds


def test_how_far_it_is_is_told() -> None:
    resource = new()
    told = [
        (None, {"source": WHERE, "phase": "Pending"}),
        (restore_pod(), {"source": WHERE, "phase": "Running"}),
        (restore_pod(**failed()), {"source": WHERE, "phase": "Failed"}),
        (restore_pod(**ended(SEALED)), RESTORED),
    ]
    assert [reported(resource, world(pod)) for pod, _ in told] == [status for _, status in told]
    assert plan(resource, world(restore_pod())).status["phase"] == "Restoring"


def test_a_pod_that_does_not_start_is_told() -> None:
    waiting = {"name": "fetch", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "none"}}}
    made = step(world(restore_pod(phase="Pending", initContainerStatuses=[waiting])))
    assert (made.actions, made.warning) == ((), True)
    assert made.message.endswith("demo-restore does not start: ImagePullBackOff: none")


@pytest.mark.parametrize(
    "problem",
    [
        SecretProblem(Reason("BackupMissing"), "there is none."),
        SecretProblem(Reason("SecretMissing"), "there is no Secret."),
    ],
)
def test_what_is_missing_is_waited_for(problem: SecretProblem) -> None:
    made = step(world(None, None, problem))
    assert (made.actions, made.reason, made.message) == ((), problem.reason, problem.message)
    assert (made.progress, made.requeue) == (Progress.WAITING, 10.0)


def test_an_operator_that_does_not_know_its_image_says_so() -> None:
    made = restore_data(Settings("etcd-operator", "etcd"), new(), Assessment.of(new(), world()), NOW)
    assert (made.actions, made.reason, made.progress) == ((), "NoAgentImage", Progress.BLOCKED)


# The operator is stopped anywhere, and goes on.


def test_that_it_is_done_is_written_down_before_anything_else() -> None:
    found = world(restore_pod(**ended(SEALED)))
    made = plan(new(), found)
    assert not any(isinstance(action, Delete) for action in made.actions), "the pod is what tells it so far"
    assert (made.verdict.reason, made.requeue) == ("Recording", 0)
    assert made.status["restore"] == RESTORED


def test_stopped_before_it_was_written_down_the_pod_still_tells_it() -> None:
    pod = restore_pod(**ended(SEALED))
    assert reported(new(restore={"source": WHERE, "phase": "Running"}), world(pod)) == RESTORED


def test_if_the_pod_goes_before_it_is_written_down_it_is_made_again() -> None:
    """The data is there by then: sealing finds its token, and changes nothing."""
    assert done(step(world()).actions) == ["Apply data-demo-0", "Apply demo-restore"]
    assert reported(new(), world(leaving(restore_pod(**ended(SEALED))))) == {"source": WHERE, "phase": "Pending"}


def test_once_it_is_written_down_its_pod_goes_and_the_seed_comes_as_one_that_may_not_begin_empty() -> None:
    resource = new(restore=RESTORED)
    made = plan(resource, world(restore_pod(**ended(SEALED)), None))
    assert done(tuple(action for action in made.actions if isinstance(action, Delete))) == ["Delete demo-restore"]
    assert replicas_and_start(made) == (1, "existing")
    assert made.status["restore"] == RESTORED


def test_no_member_starts_while_a_pod_could_still_write_to_its_volume() -> None:
    resource = new(restore=RESTORED)
    runs = step(world(restore_pod(), None), resource)
    assert (done(runs.actions), runs.progress) == (["Delete demo-restore"], Progress.WAITING)
    goes = step(world(leaving(restore_pod()), None), resource)
    assert (goes.actions, goes.progress) == ((), Progress.WAITING)
    over = step(world(leaving(restore_pod(**ended(SEALED))), None), resource)
    assert (over.actions, over.progress) == ((), Progress.DONE)


def test_a_restored_cluster_whose_seed_lost_its_disk_does_not_begin_empty() -> None:
    resource = new(restore=RESTORED)
    barren = replace(DOWN, empty_data_dir=True, disk="another")
    made = plan(resource, seen(resource, barren, ABSENT, ABSENT, known=False))
    assert replicas_and_start(made) == (1, "existing")


def test_once_the_cluster_is_recorded_the_spec_is_of_no_effect() -> None:
    resource = cluster(restore=SPEC, status={"restore": RESTORED})
    found = seen(resource, VOTER, VOTER, VOTER)
    assert step(found, resource) == PASS
    assert reported(resource, found) == RESTORED


def test_taking_the_wish_back_ends_the_pod_before_the_cluster_begins_empty() -> None:
    resource = cluster(recorded=None)
    made = plan(resource, world(restore_pod(), None))
    assert done(tuple(action for action in made.actions if isinstance(action, Delete))) == ["Delete demo-restore"]
    assert made.verdict.reason == "Restoring"
    assert replicas_and_start(plan(resource, world(None, None)))[1] == "new demo-0"


# When it fails.


@pytest.mark.parametrize("reason", sorted(FINAL))
def test_what_no_second_try_mends_is_said_with_the_file_and_what_to_do(reason: str) -> None:
    made = step(world(restore_pod(**failed(reason, "bad.db in the store: its checksum is another."))))
    assert (made.actions, made.progress, made.reason) == ((), Progress.BLOCKED, reason)
    assert made.message == (
        "bad.db in the store: its checksum is another. Change spec.restore, or fix the snapshot at its source "
        "and delete Pod demo-restore."
    )


@pytest.mark.parametrize("reason", ["StoreUnreachable", "AccessDenied", "ProgramFailed", "Evicted", "SnapshotMissing"])
def test_what_may_go_better_is_tried_again_after_a_while(reason: str) -> None:
    pod = restore_pod(**failed(reason, "No answer."))
    since = (NOW - at("2026-01-01T11:59:30Z")).total_seconds()
    waits = step(world(pod), after=RETRY_SECONDS - since - 5)
    assert (waits.actions, waits.reason, waits.requeue) == ((), reason, 5)
    assert waits.message == "No answer. The operator retries."
    assert done(step(world(pod), after=RETRY_SECONDS - since + 1).actions) == ["Delete demo-restore"]
    again = step(world(leaving(pod)), after=RETRY_SECONDS - since + 2)
    assert (again.actions, again.progress) == ((), Progress.WAITING)


OTHER = Snapshot(STORE, "demo-u-9/good.db")


@pytest.mark.parametrize("status", [{}, failed("SnapshotCorrupt"), ended(SEALED)], ids=["works", "failed", "done"])
def test_a_spec_that_names_another_snapshot_is_tried_at_once(status: Obj) -> None:
    """Also what is done already, as long as it is not written down: it is not what is wanted any more."""
    pod = restore_pod(**status)
    made = step(world(pod, OTHER))
    assert done(made.actions) == ["Delete demo-restore"]
    assert made.progress is Progress.WAITING
    assert reported(new(), world(pod, OTHER)) == {
        "source": "volume://snapshots/etcd/demo-u-9/good.db",
        "phase": "Pending",
    }
    (_, again) = step(world(None, OTHER)).actions
    assert isinstance(again, Apply)
    assert "--file=demo-u-9/good.db" in again.obj["spec"]["initContainers"][0]["args"]


def test_a_spec_with_another_version_to_read_it_is_tried_at_once() -> None:
    """SnapshotTooNew is mended so."""
    pod = restore_pod(**failed("SnapshotTooNew"))
    newer = cluster(recorded=None, restore=SPEC, version="3.7.0")
    assert done(step(world(pod), newer).actions) == ["Delete demo-restore"]


def test_data_is_told_apart_by_where_it_came_from() -> None:
    bucket = S3(bucket="orders", credentials_secret="keys")
    tokens = {
        pods.restore_token(resource, store, file)
        for resource in (new(), EtcdCluster.parse(new().obj | {"metadata": new().obj["metadata"] | {"uid": "u-2"}}))
        for store in (STORE, VolumeStore(claim_name="snapshots"), bucket)
        for file in ("a.db", "b.db")
    }
    assert len(tokens) == 12


# When it is asked for too late.


def begun(how: bootstrap.Start, **more: Any) -> Observed:
    """There is a StatefulSet already."""
    template = {"metadata": {"annotations": bootstrap.annotated(cluster(), how)}}
    return replace(world(), stateful_set={"spec": {"replicas": 1, "template": template}}, **more)


def test_a_snapshot_for_a_seed_that_was_let_begin_empty_is_refused() -> None:
    """It may have begun, and hold writes: its disk is not touched."""
    made = step(begun(New()))
    assert (made.actions, made.progress, made.reason) == ((), Progress.BLOCKED, "RestoreTooLate")
    assert "delete this resource and PersistentVolumeClaim data-demo-0" in made.message


def test_a_seed_that_answers_is_recorded_whatever_the_spec_says() -> None:
    assert step(begun(New(), cluster_id=0xC1)) == PASS


def test_a_status_that_was_lost_is_no_reason_to_restore_again() -> None:
    assert step(begun(Closed())) == PASS
