"""Plan of an EtcdBackup: the next action and the reported status in every state."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from operators.etcd.api.backup import RETRY_UNTIL, EtcdBackup, has_current_snapshot
from operators.etcd.backup import pods, program
from operators.etcd.backup.assessment import BACKOFF_SECONDS, MAX_ATTEMPTS
from operators.etcd.backup.observe import Observed, SnapshotSource, choose
from operators.etcd.backup.plan import Planner
from operators.etcd.client.server import CORRUPT
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import STUCK
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Apply, Delete, Plan
from shared.runtime.settings import Settings
from shared.status import conditions
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict
from tests.etcd.unit.backup.states import (
    BEGAN,
    BUCKET,
    ENDED,
    KEPT,
    at,
    backup,
    ended,
    failed,
    leaving,
    snapshot_pod,
    status_of,
    there,
)
from tests.etcd.unit.world import NOW, SETTINGS, UID, cluster, member_id

SOURCES = tuple(SnapshotSource(f"demo-{n}", status_of(n)) for n in range(3))
READY = Observed(cluster=cluster(), sources=SOURCES)
"""Observation in which everything exists and nothing has started."""


def plan(
    seen: Observed, resource: EtcdBackup | None = None, *, after: float = 0, settings: Settings = SETTINGS
) -> Plan:
    return Planner(settings).plan(resource or backup(), seen, NOW + timedelta(seconds=after))


def pod_of(made: Plan) -> Obj:
    (action,) = made.actions
    assert isinstance(action, Apply)
    return action.obj


def reported(made: Plan, resource: EtcdBackup | None = None) -> EtcdBackup:
    """Return the EtcdBackup after the status of a plan was written."""
    resource = resource or backup()
    written = conditions.compose(resource.obj, made.status, made.verdict, "2026-01-01T12:00:00Z")
    return EtcdBackup.parse(resource.obj | {"status": written})


# Taking the snapshot.


def test_snapshot_is_taken_from_a_follower() -> None:
    made = plan(READY)
    pod = pod_of(made)
    assert pod["metadata"]["name"] == "nightly-snapshot"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "b-1"
    assert (made.verdict.progress, made.verdict.reason) == (Progress.WAITING, "Running")
    assert made.verdict.message == "Attempt 1 of 3: taking the snapshot from demo-2."
    options = program._parser().parse_args(pod["spec"]["containers"][0]["args"])
    assert options.endpoint == "http://demo-2.demo.default.svc:2379"
    assert options.file == "demo-u-1/nightly-b-1.db"
    assert (options.cluster_id, options.cluster_uid, options.scheduled) == ("00000000000000c1", UID, False)


def test_nothing_else_happens_while_the_pod_runs() -> None:
    made = plan(Observed(snapshot_pod()))
    assert made.actions == ()
    assert (made.verdict.reason, made.verdict.message) == ("Running", "Taking the snapshot.")
    assert made.status == {"phase": "Running", "attempts": 1, "startedAt": BEGAN}


def test_pod_that_does_not_start_is_reported_and_awaited() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    made = plan(Observed(snapshot_pod(phase="Pending", containerStatuses=[{"name": "snapshot", **waiting}])))
    assert (made.actions, made.verdict.reason, made.verdict.warning) == ((), "ImagePullFailed", True)
    assert "nightly-snapshot cannot pull example.com/etcd-operator:1: no such image." in made.verdict.message


def test_pod_that_never_starts_is_deleted_after_a_timeout() -> None:
    pod = snapshot_pod(phase="Pending")
    seen = dataclasses.replace(READY, pod=pod)
    timeout = pod["spec"]["activeDeadlineSeconds"] + 600
    began = (NOW - at(BEGAN)).total_seconds()
    resource = backup({"phase": "Running", "attempts": 1, "startedAt": BEGAN})
    assert plan(seen, resource, after=timeout - began - 1).actions == ()
    late = plan(seen, resource, after=timeout - began + 1)
    assert [type(action) for action in late.actions] == [Delete]
    last = snapshot_pod(attempt=MAX_ATTEMPTS, phase="Pending")
    over = plan(dataclasses.replace(READY, pod=last), resource, after=timeout - began + 1)
    assert over.status["phase"] == "Failed"
    assert "did not finish within 20 minutes: it reported nothing" in over.verdict.message
    final = plan(Observed(last), reported(over, resource))
    assert [type(action) for action in final.actions] == [Delete], "the pod must not start later"


# Missing prerequisites.


@pytest.mark.parametrize(
    "seen",
    [
        Observed(problem=SecretProblem(Reason("ClusterMissing"), "EtcdCluster demo does not exist in this namespace.")),
        Observed(cluster=cluster(), problem=SecretProblem(Reason("VolumeMissing"), "there is no claim.")),
        Observed(cluster=cluster(), problem=SecretProblem(Reason("SecretMissing"), "there is no Secret.")),
    ],
)
def test_missing_prerequisite_is_reported_and_awaited(seen: Observed) -> None:
    made = plan(seen)
    assert seen.problem is not None
    assert (made.actions, made.requeue) == ((), 10.0)
    assert (made.verdict.reason, made.verdict.message) == (seen.problem.reason, seen.problem.message)
    assert (made.verdict.progress, made.verdict.warning) == (Progress.WAITING, True)
    assert made.status == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("sources", "detail"),
    [
        ((), "no member has a running pod. The operator retries."),
        (
            (SnapshotSource("demo-0", status_of(0, learner=True)),),
            "no healthy voter of this cluster answers. The operator retries.",
        ),
        (
            (SnapshotSource("demo-0", error="no route"), SnapshotSource("demo-1", error="refused")),
            "demo-0: no route; demo-1: refused. The operator retries.",
        ),
    ],
)
def test_cluster_without_a_usable_member_is_reported_and_awaited(
    sources: tuple[SnapshotSource, ...], detail: str
) -> None:
    made = plan(dataclasses.replace(READY, sources=sources))
    assert (made.actions, made.verdict.reason, made.requeue) == ((), "NoMember", 10.0)
    assert made.verdict.message == f"No member of EtcdCluster demo can provide a snapshot: {detail}"


def test_operator_without_an_agent_image_is_blocked() -> None:
    made = plan(READY, settings=Settings("etcd-operator", "etcd"))
    assert (made.actions, made.verdict.reason, made.verdict.progress) == ((), "NoAgentImage", Progress.BLOCKED)


def test_backup_with_an_invalid_spec_is_blocked() -> None:
    resource = EtcdBackup.parse(backup().obj | {"spec": {"clusterName": "demo", "destination": {}}})
    made = plan(READY, resource)
    assert (made.actions, made.verdict.reason, made.verdict.progress) == ((), "InvalidSpec", Progress.BLOCKED)
    assert "Set either volume or s3" in made.verdict.message


# After the snapshot.


def test_result_is_recorded_before_the_pod_is_deleted() -> None:
    done = Observed(snapshot_pod(**ended(KEPT)))
    made = plan(done)
    assert (made.actions, made.requeue) == ((), 0), "the status is written first"
    assert (made.verdict.done, made.verdict.reason) == (True, "Complete")
    assert (
        made.verdict.message
        == "Snapshot of revision 7 (4.0Ki) stored as volume://snapshots/etcd/demo-u-1/nightly-b-1.db."
    )
    assert made.status == {
        "phase": "Complete",
        "location": "volume://snapshots/etcd/demo-u-1/nightly-b-1.db",
        "file": "demo-u-1/nightly-b-1.db",
        "member": "demo-1",
        "revision": 7,
        "sizeBytes": 4128,
        "size": "4.0Ki",
        "sha256": "0" * 64,
        "etcdVersion": "3.6.0",
        "current": True,
        "attempts": 1,
        "startedAt": BEGAN,
        "completedAt": ENDED,
        "durationSeconds": 30.0,
    }
    final = plan(done, reported(made))
    assert [type(action) for action in final.actions] == [Delete]
    assert final.status == made.status


def test_snapshot_of_a_program_of_an_earlier_version_counts() -> None:
    """Earlier programs read linearizably without a report: during an upgrade, or with an older agentImage."""
    done = Observed(snapshot_pod(**ended({key: value for key, value in KEPT.items() if key != "current"})))
    made = plan(done)
    assert (made.verdict.done, made.verdict.reason, made.verdict.warning) == (True, "Complete", False)
    assert "linearizable" not in made.verdict.message
    assert "current" not in made.status, "the program did not report it"
    completed = reported(made)
    assert has_current_snapshot(completed.obj)
    assert plan(done, completed).status == made.status


@pytest.mark.parametrize("result", [False, None, "yes"])
def test_snapshot_that_is_not_proven_to_be_current_is_complete_with_that_reason(result: Any) -> None:
    """The member had no leader: it may be hours behind."""
    done = Observed(snapshot_pod(**ended(KEPT | {"current": result})))
    made = plan(done)
    assert (made.verdict.done, made.verdict.reason, made.verdict.warning) == (True, "NotCurrent", True)
    assert "demo-1 did not confirm by a linearizable read that it had all changes" in made.verdict.message
    assert (made.status["phase"], made.status["current"]) == ("Complete", False), "a user may restore it"
    final = plan(done, reported(made))
    assert (final.verdict.reason, final.status) == ("NotCurrent", made.status)


def test_dollar_signs_of_a_store_are_not_expanded() -> None:
    """Kubernetes replaces $(NAME) in arguments by a variable of the pod, and $$ by $."""
    given = {"s3": BUCKET["s3"] | {"prefix": "a$$b/$(KUBERNETES_SERVICE_HOST)"}}
    [container] = snapshot_pod(backup(destination=given))["spec"]["containers"]
    assert "--s3-prefix=a$$$$b/$$(KUBERNETES_SERVICE_HOST)" in container["args"]


def test_location_in_a_bucket_is_an_s3_url() -> None:
    made = plan(Observed(snapshot_pod(**ended(KEPT))), backup(destination=BUCKET))
    assert made.status["location"] == "s3://orders/etcd/demo-u-1/nightly-b-1.db"


def test_snapshot_of_etcd_3_4_has_no_version() -> None:
    assert "etcdVersion" not in plan(Observed(snapshot_pod(**ended(KEPT | {"version": ""})))).status


def test_failed_removal_of_older_snapshots_is_a_warning() -> None:
    made = plan(Observed(snapshot_pod(**ended(KEPT | {"warning": "Older snapshots are not removed: may not delete."}))))
    assert made.verdict.done
    assert made.verdict.warning
    assert made.verdict.message.endswith(" Older snapshots are not removed: may not delete.")


@pytest.mark.parametrize(
    ("size", "text"), [(512, "512"), (4128, "4.0Ki"), (5 << 20, "5.0Mi"), (1288490189, "1.2Gi"), (2 << 40, "2048.0Gi")]
)
def test_size_is_human_readable(size: int, text: str) -> None:
    assert plan(Observed(snapshot_pod(**ended(KEPT | {"size": size})))).status["size"] == text


@pytest.mark.parametrize("phase", ["Complete", "Failed"])
def test_finished_backup_never_changes(phase: str) -> None:
    """Later changes of the cluster do not affect a snapshot."""
    over = {"phase": phase, "attempts": 2, "completedAt": ENDED, "observedGeneration": 1}
    over["conditions"] = [{"type": "Ready", "reason": "StoreFull", "message": "Former message."}]
    made = plan(READY, backup(over))
    assert made.actions == ()
    assert made.status == {"phase": phase, "attempts": 2, "completedAt": ENDED}
    assert (made.verdict.reason, made.verdict.message) == ("StoreFull", "Former message.")
    assert made.verdict.progress is (Progress.DONE if phase == "Complete" else Progress.BLOCKED)
    assert made.requeue is None


# Failures.


@pytest.mark.parametrize("attempt", range(1, MAX_ATTEMPTS))
def test_next_attempt_waits_and_then_replaces_the_failed_pod(attempt: int) -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=attempt, **failed()))
    pause = BACKOFF_SECONDS[attempt - 1]
    since = (NOW - at(ENDED)).total_seconds()
    first = plan(seen, after=pause + 100)
    assert (first.actions, first.requeue) == ((), 0.0), "the failure is recorded before the pod is deleted"
    message = f"The volume is full. Attempt {attempt} of 3 failed. The operator retries."
    assert (first.verdict.reason, first.verdict.message) == ("StoreFull", message)
    resource = reported(first)
    waiting = plan(seen, resource, after=pause - since - 5)
    assert waiting.actions == ()
    assert waiting.requeue == pytest.approx(5)
    deleting = plan(seen, resource, after=pause - since + 1)
    assert [type(action) for action in deleting.actions] == [Delete]
    assert deleting.verdict == waiting.verdict, "the verdict does not change"
    terminating = plan(dataclasses.replace(seen, pod=leaving(seen.pod or {})), resource, after=pause - since + 1)
    assert (terminating.actions, terminating.requeue) == ((), 10), "a terminating pod is not deleted again"
    assert f"Pod nightly-snapshot is terminating. {STUCK} Attempt {attempt}" in terminating.verdict.message
    retry = plan(READY, reported(deleting, resource), after=pause - since + 2)
    assert pod_of(retry)["metadata"]["annotations"][pods.ATTEMPT] == str(attempt + 1)


def test_backup_fails_after_three_attempts() -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=MAX_ATTEMPTS, **failed()))
    made = plan(seen)
    assert (made.actions, made.verdict.progress) == ((), Progress.BLOCKED)
    assert (made.status["phase"], made.status["attempts"], made.status["completedAt"]) == ("Failed", 3, ENDED)
    message = "The volume is full. All 3 attempts failed. Fix the cause, then create another EtcdBackup."
    assert (made.verdict.reason, made.verdict.message) == ("StoreFull", message)
    final = plan(seen, reported(made))
    assert final.actions == (), "the last pod is kept for its log"
    assert final.verdict.message == message


def scheduled_until(until: str, **reported_status: Any) -> EtcdBackup:
    """Build a scheduled EtcdBackup whose successor is due at a time."""
    obj = backup(reported_status, scheduled=True).obj
    return EtcdBackup.parse(obj | {"metadata": obj["metadata"] | {"annotations": {RETRY_UNTIL: until}}})


@pytest.mark.parametrize("attempt", [1, 3, 4, 5, 9, 50])
def test_scheduled_backup_is_attempted_until_the_next_one_is_due(attempt: int) -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=attempt, **failed()))
    resource = scheduled_until("2026-01-02T12:00:00Z", phase="Running", attempts=attempt)
    waiting = plan(seen, resource)
    message = f"The volume is full. Attempt {attempt} failed. The operator retries."
    assert (waiting.verdict.reason, waiting.verdict.message) == ("StoreFull", message)
    assert waiting.status["phase"] == "Pending"
    pause = BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS)) - 1]
    assert (waiting.requeue or 0) <= pause <= 1800
    again = plan(READY, reported(waiting, resource), after=pause + 1)
    assert pod_of(again)["metadata"]["annotations"][pods.ATTEMPT] == str(attempt + 1)


def test_scheduled_backup_fails_when_no_attempt_fits_before_the_next_one() -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=5, **failed()))
    made = plan(seen, scheduled_until("2026-01-01T12:20:00Z", phase="Running", attempts=5))
    assert (made.status["phase"], made.verdict.reason) == ("Failed", "StoreFull")
    assert "All 5 attempts failed." in made.verdict.message
    few = dataclasses.replace(READY, pod=snapshot_pod(attempt=2, **failed()))
    made = plan(few, scheduled_until("2026-01-01T11:00:00Z", phase="Running", attempts=2))
    assert made.status["phase"] == "Failed", "however few: the next one makes its own attempts"


@pytest.mark.parametrize(
    ("seen", "options", "reason"),
    [
        (Observed(problem=SecretProblem(Reason("ClusterMissing"), "There is no cluster.")), SETTINGS, "ClusterMissing"),
        (Observed(problem=SecretProblem(Reason("PodInTheWay"), "There is a pod.")), SETTINGS, "PodInTheWay"),
        (dataclasses.replace(READY, sources=()), SETTINGS, "NoMember"),
        (READY, Settings("etcd-operator", "etcd"), "NoAgentImage"),
    ],
)
def test_scheduled_backup_ends_when_the_next_one_is_due_regardless_of_the_cause(
    seen: Observed, options: Settings, reason: str
) -> None:
    early = plan(seen, scheduled_until("2026-01-01T12:00:05Z"), settings=options)
    assert early.status["phase"] == "Pending"
    assert early.requeue == pytest.approx(5), "planned again at that time"
    late = plan(seen, scheduled_until("2026-01-01T12:00:00Z"), settings=options)
    assert (late.status["phase"], late.verdict.reason) == ("Failed", reason)
    assert late.verdict.message.endswith("No snapshot was taken before the next one was due.")
    assert late.status["completedAt"] == "2026-01-01T12:00:00Z"
    alive = plan(Observed(snapshot_pod()), scheduled_until("2026-01-01T11:00:00Z"), settings=options)
    assert alive.status["phase"] == "Running", "a snapshot that is being taken may still be complete"
    assert pod_of(plan(READY, scheduled_until("2026-01-01T11:00:00Z"))), "the operator was down until now"


def test_scheduled_backup_ends_although_its_pod_cannot_be_deleted() -> None:
    """The node is lost, or the process hangs: the next snapshot has another pod and another file."""
    seen, hour = Observed(leaving(snapshot_pod())), 3600
    resource = scheduled_until("2026-01-01T13:00:00Z", phase="Running", attempts=1, startedAt=BEGAN)
    waiting = plan(seen, resource, after=hour / 2)
    assert (waiting.status["phase"], waiting.verdict.reason, waiting.requeue) == ("Running", "PodNotStarting", 10)
    assert f"Pod nightly-snapshot is terminating. {STUCK}" in waiting.verdict.message
    late = plan(seen, reported(waiting, resource), after=hour)
    assert (late.status["phase"], late.verdict.reason) == ("Failed", "PodNotStarting")
    assert STUCK in late.verdict.message
    assert "retries" not in late.verdict.message
    assert late.verdict.message.endswith("Attempt 1 failed. No snapshot was taken before the next one was due.")


def test_scheduled_backup_whose_pod_is_refused_ends_with_the_refusal() -> None:
    resource = scheduled_until("2026-01-01T13:00:00Z")
    refused = Verdict(Progress.WAITING, "Forbidden", "pods is forbidden: exceeded quota.", warning=True)
    written = conditions.compose(resource.obj, {}, refused, "2026-01-01T12:00:00Z")
    resource = EtcdBackup.parse(resource.obj | {"status": written})
    early = plan(READY, resource, after=3590)
    assert pod_of(early)["kind"] == "Pod"
    assert early.requeue == pytest.approx(10)
    late = plan(READY, resource, after=3600)
    assert (late.actions, late.status["phase"], late.verdict.reason) == ((), "Failed", "Forbidden")
    assert late.verdict.message == f"{refused.message} No snapshot was taken before the next one was due."


def skewed(pod: Obj, hours: int) -> Obj:
    """Return a pod as the kubelet reports it, by a clock that is hours ahead of the operator's."""

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: moved(each) for key, each in value.items()}
        if isinstance(value, list):
            return [moved(each) for each in value]
        return rfc3339(at(value) + timedelta(hours=hours)) if value in (BEGAN, ENDED) else value

    return pod | {"status": moved(pod["status"])}


@pytest.mark.parametrize("hours", [-5, 5])
def test_clock_of_the_node_only_measures_how_long_an_attempt_ran(hours: int) -> None:
    made = plan(Observed(skewed(snapshot_pod(**ended(KEPT)), hours)))
    assert (made.status["completedAt"], made.status["durationSeconds"]) == (ENDED, 30.0)
    seen = dataclasses.replace(READY, pod=skewed(snapshot_pod(attempt=4, **failed()), hours))
    resource = scheduled_until("2026-01-01T13:00:00Z", phase="Running", attempts=4, startedAt=BEGAN)
    waiting = plan(seen, resource)
    assert waiting.status["phase"] == "Pending", "there is time for another attempt"
    assert waiting.requeue == pytest.approx(BACKOFF_SECONDS[3] - (NOW - at(ENDED)).total_seconds())


@pytest.mark.parametrize("hours", [-5, 5])
def test_clock_of_the_api_server_does_not_end_an_attempt(hours: int) -> None:
    """The pod records when the operator created it."""
    pod = there(pod_of(plan(READY)), "p-1")
    pod["metadata"]["creationTimestamp"] = rfc3339(NOW + timedelta(hours=hours))
    running = plan(Observed(pod), after=60)
    assert (running.status["phase"], running.status["startedAt"]) == ("Running", rfc3339(NOW))
    timeout = pod["spec"]["activeDeadlineSeconds"] + 600
    assert plan(Observed(pod), reported(running), after=timeout - 1).verdict.reason == "Running"
    assert plan(Observed(pod), reported(running), after=timeout + 1).verdict.reason == "PodNotStarting"


UNUSABLE_TIMES = ["yesterday", "", "2026-01-01T12:00:00", "0001-01-01T00:00:00+23:59", "2030-01-01T00:00:00Z"]


@pytest.mark.parametrize("text", ["9" * 5000, "99999999999", "-1", "first"])
def test_edited_number_of_an_attempt_counts_as_none(text: str) -> None:
    """E6: the API server refuses a status above 31 bits, so that the EtcdBackup never ended, and no other one began."""
    pod = snapshot_pod(**ended(KEPT))
    pod["metadata"]["annotations"][pods.ATTEMPT] = text
    done = plan(dataclasses.replace(READY, pod=pod), backup(RAN | {"attempts": 2}))
    assert (done.verdict.done, done.status["attempts"]) == (True, 2)


@pytest.mark.parametrize("text", UNUSABLE_TIMES)
def test_pod_whose_start_time_was_edited_has_that_of_its_creation(text: str) -> None:
    """The annotation can be edited; a time in the future delayed the retry until then."""
    pod = snapshot_pod(attempt=1, **failed())
    pod["metadata"]["annotations"][pods.STARTED] = text
    seen = dataclasses.replace(READY, pod=pod)
    waiting = plan(seen)
    assert (waiting.verdict.reason, waiting.status["startedAt"]) == ("StoreFull", BEGAN)
    since = (NOW - at(ENDED)).total_seconds()
    deleting = plan(seen, reported(waiting), after=BACKOFF_SECONDS[0] - since + 1)
    assert [type(action) for action in deleting.actions] == [Delete]


@pytest.mark.parametrize("text", UNUSABLE_TIMES)
def test_next_attempt_follows_also_without_any_usable_start_time(text: str) -> None:
    """The pod is missing, and the status has what an earlier version read from the annotation."""
    before = backup({"phase": "Running", "attempts": 1, "startedAt": text})
    waiting = plan(READY, before)
    assert (waiting.verdict.reason, waiting.status["startedAt"]) == ("PodDeleted", rfc3339(NOW))
    again = plan(READY, reported(waiting, before), after=BACKOFF_SECONDS[0] + 1)
    assert pod_of(again)["metadata"]["annotations"][pods.ATTEMPT] == "2"


@pytest.mark.parametrize("text", UNUSABLE_TIMES[:-1])
def test_scheduled_backup_whose_end_was_edited_has_three_attempts(text: str) -> None:
    assert plan(READY, scheduled_until(text)).verdict.message.startswith("Attempt 1 of 3: ")


def test_attempt_did_not_end_in_the_future() -> None:
    """A clock that is set forward while the attempt runs makes it look longer."""
    pod = snapshot_pod(**ended(KEPT, finished="2026-01-02T12:00:00Z"))
    assert plan(Observed(pod)).status["completedAt"] == rfc3339(NOW)


def test_failure_is_reported_once_for_all_attempts() -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=1, **failed()))
    first = plan(seen)
    resource = reported(first)
    again = plan(READY, resource, after=100)
    assert (again.verdict.reason, again.verdict.warning) == ("StoreFull", True), "no event for each attempt"
    assert again.verdict.message == first.verdict.message
    resource = reported(again, resource)
    running = plan(Observed(snapshot_pod(attempt=2)), resource, after=110)
    assert running.verdict.reason == "StoreFull"
    done = plan(Observed(snapshot_pod(attempt=2, **ended(KEPT))), resource, after=120)
    assert done.verdict.reason == "Complete"


RAN: Obj = {"phase": "Running", "attempts": 1, "startedAt": "2026-01-01T11:59:55Z"}


def test_missing_pod_is_a_failure_with_the_usual_backoff() -> None:
    """The drain of a node removes the pod and its partial snapshot."""
    first = plan(READY, backup(RAN))
    assert (first.actions, first.verdict.reason) == ((), "PodDeleted")
    assert first.requeue == pytest.approx(10)
    then = reported(first, backup(RAN))
    assert plan(READY, then, after=5).actions == (), "the changed phase does not shorten the backoff"
    assert pod_of(plan(READY, then, after=11))["metadata"]["annotations"][pods.ATTEMPT] == "2"


def test_missing_pod_counts_as_an_attempt() -> None:
    made = plan(READY, backup(RAN | {"attempts": MAX_ATTEMPTS}))
    assert (made.status["phase"], made.verdict.reason, made.actions) == ("Failed", "PodDeleted", ())


def test_snapshot_of_the_last_attempt_completes_the_backup() -> None:
    made = plan(Observed(snapshot_pod(attempt=MAX_ATTEMPTS, **ended(KEPT))), backup(RAN | {"attempts": 2}))
    assert made.status["phase"] == "Complete"


@pytest.mark.parametrize("pod_status", [{"phase": "Running"}, ended(KEPT), failed(finished="2026-01-01T12:00:00Z")])
def test_status_is_stable_without_changes(pod_status: Obj) -> None:
    pod = snapshot_pod(**pod_status)
    first = reported(plan(Observed(pod)))
    assert reported(plan(Observed(pod), first, after=1), first).reported == first.reported


# Choice of the member.


def alarmed(number: int) -> Any:
    return status_of(number, errors=(f"memberID:{member_id(number)} alarm:{CORRUPT} ",))


@pytest.mark.parametrize(
    ("statuses", "chosen"),
    [
        ([status_of(0), status_of(1), status_of(2)], "demo-2"),
        ([status_of(0), status_of(1, applied=1001), status_of(2)], "demo-1"),
        ([status_of(0, leader=2), status_of(1, leader=2), status_of(2, leader=2)], "demo-1"),
        ([status_of(0), None, None], "demo-0"),
        ([status_of(0), status_of(1), status_of(2, learner=True)], "demo-1"),
        ([status_of(0), status_of(1), alarmed(2)], "demo-1"),
        ([status_of(0), status_of(1), status_of(2, cluster_id=0xBAD)], "demo-1"),
        ([status_of(0), status_of(1), status_of(2, cluster_id=0)], "demo-1"),
        ([None, status_of(1, leader=-1, applied=900), status_of(2, leader=-1, applied=800)], "demo-1"),
        ([status_of(0, leader=-1, applied=9000), status_of(1), status_of(2)], "demo-2"),
        ([None, None, None], None),
        ([status_of(0, cluster_id=0xBAD), None, None], None),
    ],
    ids=[
        "a follower",
        "most applied",
        "not the leader if others are up to date",
        "leader if alone",
        "no learner",
        "no corrupt member",
        "no member of another cluster",
        "no server without a cluster",
        "most applied without a quorum",
        "no isolated member if others have a leader",
        "no reachable member",
        "no member of this cluster",
    ],
)
def test_choice_of_the_member_that_is_snapshotted(statuses: list[Any], chosen: str | None) -> None:
    sources = tuple(SnapshotSource(f"demo-{n}", each, "" if each else "away") for n, each in enumerate(statuses))
    found = choose(cluster(), sources)
    assert (found.name if found else None) == chosen


def test_no_member_is_chosen_before_the_cluster_id_is_recorded() -> None:
    assert choose(cluster(recorded=None), SOURCES) is None


def test_message_warns_about_a_snapshot_without_a_quorum() -> None:
    sources = (SnapshotSource("demo-0", status_of(0, leader=-1)), SnapshotSource("demo-1", error="away"))
    made = plan(dataclasses.replace(READY, sources=sources))
    assert (
        "The cluster had no leader when demo-0 was chosen: it had applied the most entries of the 1 members that "
        "answered." in made.verdict.message
    )
    assert pod_of(made)["metadata"]["annotations"][pods.MESSAGE] == made.verdict.message


# Arguments of the pod.


def arguments(resource: EtcdBackup, **spec: Any) -> Any:
    password_secret = "root" if "auth" in spec else ""
    made = plan(dataclasses.replace(READY, cluster=cluster(**spec), password_secret=password_secret), resource)
    pod = pod_of(made)
    (container,) = pod["spec"]["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}, "every mount has a volume"
    return program._parser().parse_args(container["args"])


def test_pod_gets_the_certificates_and_the_password() -> None:
    found = arguments(backup(), tls={"mode": "self"}, auth={"rootSecretName": "root"})
    assert found.endpoint == "https://demo-2.demo.default.svc:2379"
    assert str(found.tls_ca) == "/etc/etcd/tls/client/ca.crt"
    assert str(found.tls_key) == "/etc/etcd/tls/client/tls.key"
    assert (found.user, str(found.password_file)) == ("root", "/etc/etcd/auth/password")


SCHEDULE: Obj = {"schedule": "0 3 * * *", "retention": 4, "destination": BUCKET}


def test_only_scheduled_backups_remove_older_snapshots() -> None:
    scheduled_backup = backup(scheduled=True, destination=BUCKET)
    found = arguments(scheduled_backup, backup=SCHEDULE)
    assert (found.scheduled, found.keep) == (True, 4)
    assert not arguments(backup(destination=BUCKET), backup=SCHEDULE).scheduled
    foreign = EtcdBackup.parse(
        scheduled_backup.obj
        | {"metadata": scheduled_backup.obj["metadata"] | {"labels": {"etcd.ydzs.io/scheduled": "u"}}}
    )
    assert not arguments(foreign, backup=SCHEDULE).scheduled, "the label names an earlier cluster of the same name"


@pytest.mark.parametrize(
    ("statuses", "caution", "keep"),
    [
        ([status_of(0, leader=-1)], "The cluster had no leader when demo-0 was chosen: it had applied the most", 4),
        (
            [status_of(0), alarmed(1)],
            "The data of members may differ (alarm CORRUPT), and it is unknown whose is right.",
            0,
        ),
    ],
    ids=["no leader", "corrupt"],
)
def test_nothing_is_removed_while_a_snapshot_may_have_other_data(statuses: list[Any], caution: str, keep: int) -> None:
    """E3: without a leader, nothing was removed either, until the store was full. Current ones stay in any case."""
    sources = tuple(SnapshotSource(f"demo-{n}", each) for n, each in enumerate(statuses))
    taken = backup(scheduled=True, destination=BUCKET)
    made = plan(Observed(cluster=cluster(backup=SCHEDULE), sources=sources), taken)
    assert caution in made.verdict.message
    all_stay = "Scheduled snapshots beyond spec.backup.retention are kept." in made.verdict.message
    (container,) = pod_of(made)["spec"]["containers"]
    assert (program._parser().parse_args(container["args"]).keep, all_stay) == (keep, keep == 0)
    pod = pod_of(made)
    done = plan(Observed(pod | there(pod, "p-1", **ended(KEPT | {"member": "demo-0"}))), taken)
    assert (done.verdict.done, done.verdict.warning) == (True, True)
    assert caution in done.verdict.message, "a user may restore this snapshot"


def test_nothing_is_removed_while_a_member_that_differed_is_not_ready() -> None:
    """Without an alarm, the last message of the pod is the only trace, also while the member provides the snapshot."""
    statuses = [status_of(0), status_of(1, leader=-1), None]
    for differs in range(3):
        why = {differs: "ended because of that"}
        sources = tuple(SnapshotSource(f"demo-{n}", each, differed=why.get(n, "")) for n, each in enumerate(statuses))
        made = plan(
            Observed(cluster=cluster(backup=SCHEDULE), sources=sources), backup(scheduled=True, destination=BUCKET)
        )
        assert f"The data of members may differ (demo-{differs} ended because of that)" in made.verdict.message
        (container,) = pod_of(made)["spec"]["containers"]
        assert program._parser().parse_args(container["args"]).keep == 0


def test_nothing_is_removed_after_the_schedule_changed_its_destination() -> None:
    found = arguments(backup(scheduled=True), backup=SCHEDULE)
    assert (found.scheduled, found.keep) == (True, 0)
    assert arguments(backup(scheduled=True)).keep == 0, "a cluster without a schedule"


def test_deadline_grows_with_the_size_of_the_database() -> None:
    large = dataclasses.replace(status_of(2), db_size=8 << 30)
    made = plan(dataclasses.replace(READY, sources=(SnapshotSource("demo-2", large),)))
    assert pod_of(made)["spec"]["activeDeadlineSeconds"] == 600 + 8192
