"""What is done next about an EtcdBackup, and what is said of it, in every state that it can be in."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from operators.etcd.api.backup import EtcdBackup
from operators.etcd.backup import pods, program
from operators.etcd.backup.observe import Observed, SnapshotSource, choose
from operators.etcd.backup.plan import BACKOFF_SECONDS, Planner
from operators.etcd.backup.report import MAX_ATTEMPTS
from operators.etcd.client.server import CORRUPT
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Apply, Delete, Plan
from shared.runtime.settings import Settings
from shared.status import conditions
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.unit.etcd.backup.states import (
    BEGAN,
    BUCKET,
    ENDED,
    KEPT,
    at,
    backup,
    ended,
    failed,
    leaving,
    said_by,
    snapshot_pod,
)
from tests.unit.etcd.world import NOW, SETTINGS, UID, cluster, member_id

SOURCES = tuple(SnapshotSource(f"demo-{n}", said_by(n)) for n in range(3))
READY = Observed(cluster=cluster(), sources=SOURCES)
"""Everything is there, and nothing was begun."""


def plan(
    seen: Observed, resource: EtcdBackup | None = None, *, after: float = 0, settings: Settings = SETTINGS
) -> Plan:
    return Planner(settings).plan(resource or backup(), seen, NOW + timedelta(seconds=after))


def pod_of(made: Plan) -> Obj:
    (action,) = made.actions
    assert isinstance(action, Apply)
    return action.obj


def reported(made: Plan, resource: EtcdBackup | None = None) -> EtcdBackup:
    """The same EtcdBackup, once the status of a plan is written."""
    resource = resource or backup()
    written = conditions.compose(resource.obj, made.status, made.verdict, "2026-01-01T12:00:00Z")
    return EtcdBackup.parse(resource.obj | {"status": written})


# Taking it.


def test_a_snapshot_is_taken_of_a_follower() -> None:
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


def test_while_it_is_taken_nothing_else_happens() -> None:
    made = plan(Observed(snapshot_pod()))
    assert made.actions == ()
    assert (made.verdict.reason, made.verdict.message) == ("Running", "It gives it.")
    assert made.status == {"phase": "Running", "attempts": 1, "startedAt": BEGAN}


def test_a_pod_that_does_not_start_is_told_and_waited_for() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    made = plan(Observed(snapshot_pod(phase="Pending", containerStatuses=[{"name": "snapshot", **waiting}])))
    assert (made.actions, made.verdict.reason, made.verdict.warning) == ((), "PodNotStarting", True)
    assert "nightly-snapshot does not start: ImagePullBackOff: no such image" in made.verdict.message


def test_a_pod_that_never_starts_is_given_up() -> None:
    pod = snapshot_pod(phase="Pending")
    seen = dataclasses.replace(READY, pod=pod)
    patience = pod["spec"]["activeDeadlineSeconds"] + 600
    began = (NOW - at(BEGAN)).total_seconds()
    resource = backup({"phase": "Running", "attempts": 1, "startedAt": BEGAN})
    assert plan(seen, resource, after=patience - began - 1).actions == ()
    late = plan(seen, resource, after=patience - began + 1)
    assert [type(action) for action in late.actions] == [Delete]
    last = snapshot_pod(attempt=MAX_ATTEMPTS, phase="Pending")
    over = plan(dataclasses.replace(READY, pod=last), resource, after=patience - began + 1)
    assert over.status["phase"] == "Failed"
    assert "did not finish within 20 minutes: it reported nothing" in over.verdict.message
    rests = plan(Observed(last), reported(over, resource))
    assert [type(action) for action in rests.actions] == [Delete], "it must not begin after all"


# What is missing is waited for.


@pytest.mark.parametrize(
    "seen",
    [
        Observed(problem=SecretProblem(Reason("ClusterMissing"), "EtcdCluster demo does not exist in this namespace.")),
        Observed(cluster=cluster(), problem=SecretProblem(Reason("VolumeMissing"), "there is no claim.")),
        Observed(cluster=cluster(), problem=SecretProblem(Reason("SecretMissing"), "there is no Secret.")),
    ],
)
def test_what_is_missing_is_waited_for_and_named(seen: Observed) -> None:
    made = plan(seen)
    assert seen.problem is not None
    assert (made.actions, made.requeue) == ((), 10.0)
    assert (made.verdict.reason, made.verdict.message) == (seen.problem.reason, seen.problem.message)
    assert (made.verdict.progress, made.verdict.warning) == (Progress.WAITING, True)
    assert made.status == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ((), "no member has a running pod. The operator retries."),
        (
            (SnapshotSource("demo-0", said_by(0, learner=True)),),
            "no healthy voter of this cluster answers. The operator retries.",
        ),
        (
            (SnapshotSource("demo-0", error="no route"), SnapshotSource("demo-1", error="refused")),
            "demo-0: no route; demo-1: refused. The operator retries.",
        ),
    ],
)
def test_a_cluster_of_which_nobody_can_give_one_is_waited_for(sources: tuple[SnapshotSource, ...], said: str) -> None:
    made = plan(dataclasses.replace(READY, sources=sources))
    assert (made.actions, made.verdict.reason, made.requeue) == ((), "NoMember", 10.0)
    assert made.verdict.message == f"No member of EtcdCluster demo can provide a snapshot: {said}"


def test_an_operator_that_does_not_know_its_image_says_so() -> None:
    made = plan(READY, settings=Settings("etcd-operator", "etcd"))
    assert (made.actions, made.verdict.reason, made.verdict.progress) == ((), "NoAgentImage", Progress.BLOCKED)


def test_a_spec_that_contradicts_itself_takes_none() -> None:
    resource = EtcdBackup.parse(backup().obj | {"spec": {"clusterName": "demo", "destination": {}}})
    made = plan(READY, resource)
    assert (made.actions, made.verdict.reason, made.verdict.progress) == ((), "InvalidSpec", Progress.BLOCKED)
    assert "Set either volume or s3" in made.verdict.message


# Once it is taken.


def test_what_was_taken_is_told_and_then_its_pod_goes() -> None:
    done = Observed(snapshot_pod(**ended(KEPT)))
    made = plan(done)
    assert (made.actions, made.requeue) == ((), 0), "first it is written down"
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
        "attempts": 1,
        "startedAt": BEGAN,
        "completedAt": ENDED,
        "durationSeconds": 30.0,
    }
    rests = plan(done, reported(made))
    assert [type(action) for action in rests.actions] == [Delete]
    assert rests.status == made.status


def test_a_bucket_is_told_by_its_own_name() -> None:
    made = plan(Observed(snapshot_pod(**ended(KEPT))), backup(destination=BUCKET))
    assert made.status["location"] == "s3://orders/etcd/demo-u-1/nightly-b-1.db"


def test_a_snapshot_of_before_3_5_names_no_version() -> None:
    assert "etcdVersion" not in plan(Observed(snapshot_pod(**ended(KEPT | {"version": ""})))).status


def test_older_snapshots_that_could_not_be_removed_are_told() -> None:
    made = plan(Observed(snapshot_pod(**ended(KEPT | {"warning": "Older snapshots are not removed: may not delete."}))))
    assert made.verdict.done
    assert made.verdict.warning
    assert made.verdict.message.endswith(" Older snapshots are not removed: may not delete.")


@pytest.mark.parametrize(
    ("size", "told"), [(512, "512"), (4128, "4.0Ki"), (5 << 20, "5.0Mi"), (1288490189, "1.2Gi"), (2 << 40, "2048.0Gi")]
)
def test_sizes_are_told_as_people_say_them(size: int, told: str) -> None:
    assert plan(Observed(snapshot_pod(**ended(KEPT | {"size": size})))).status["size"] == told


@pytest.mark.parametrize("phase", ["Complete", "Failed"])
def test_what_is_over_stays_as_it_is(phase: str) -> None:
    """Whatever becomes of the cluster: a snapshot is one moment's."""
    over = {"phase": phase, "attempts": 2, "completedAt": ENDED, "observedGeneration": 1}
    over["conditions"] = [{"type": "Ready", "reason": "StoreFull", "message": "As it was."}]
    made = plan(READY, backup(over))
    assert made.actions == ()
    assert made.status == {"phase": phase, "attempts": 2, "completedAt": ENDED}
    assert (made.verdict.reason, made.verdict.message) == ("StoreFull", "As it was.")
    assert made.verdict.progress is (Progress.DONE if phase == "Complete" else Progress.BLOCKED)
    assert made.requeue is None


# When it fails.


@pytest.mark.parametrize("attempt", range(1, MAX_ATTEMPTS))
def test_after_a_failure_the_next_try_waits_and_then_the_former_pod_goes(attempt: int) -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=attempt, **failed()))
    pause = BACKOFF_SECONDS[attempt - 1]
    since = (NOW - at(ENDED)).total_seconds()
    first = plan(seen, after=pause + 100)
    assert (first.actions, first.requeue) == ((), 0.0), "that it failed is written down before its pod goes"
    told = f"The volume is full. Attempt {attempt} of 3 failed; the operator retries."
    assert (first.verdict.reason, first.verdict.message) == ("StoreFull", told)
    resource = reported(first)
    waits = plan(seen, resource, after=pause - since - 5)
    assert waits.actions == ()
    assert waits.requeue == pytest.approx(5)
    goes = plan(seen, resource, after=pause - since + 1)
    assert [type(action) for action in goes.actions] == [Delete]
    assert goes.verdict == waits.verdict, "nothing new is to be told"
    lingers = plan(dataclasses.replace(seen, pod=leaving(seen.pod or {})), resource, after=pause - since + 1)
    assert (lingers.actions, lingers.requeue) == ((), 1), "it is not deleted twice"
    again = plan(READY, reported(goes, resource), after=pause - since + 2)
    assert pod_of(again)["metadata"]["annotations"][pods.ATTEMPT] == str(attempt + 1)


def test_the_third_failure_is_the_last() -> None:
    seen = dataclasses.replace(READY, pod=snapshot_pod(attempt=MAX_ATTEMPTS, **failed()))
    made = plan(seen)
    assert (made.actions, made.verdict.progress) == ((), Progress.BLOCKED)
    assert (made.status["phase"], made.status["attempts"], made.status["completedAt"]) == ("Failed", 3, ENDED)
    told = "The volume is full. All 3 attempts failed. Fix the cause, then create another EtcdBackup."
    assert (made.verdict.reason, made.verdict.message) == ("StoreFull", told)
    rests = plan(seen, reported(made))
    assert rests.actions == (), "its pod stays, for its log"
    assert rests.verdict.message == told


RAN: Obj = {"phase": "Running", "attempts": 1, "startedAt": "2026-01-01T11:59:55Z"}


def test_a_pod_that_is_gone_has_failed_and_the_next_try_waits_as_after_any_failure() -> None:
    """A node was drained: what it had written so far is nowhere."""
    first = plan(READY, backup(RAN))
    assert (first.actions, first.verdict.reason) == ((), "PodGone")
    assert first.requeue == pytest.approx(10)
    then = reported(first, backup(RAN))
    assert plan(READY, then, after=5).actions == (), "though its phase is another by now"
    assert pod_of(plan(READY, then, after=11))["metadata"]["annotations"][pods.ATTEMPT] == "2"


def test_a_pod_that_is_gone_counts_as_a_try() -> None:
    made = plan(READY, backup(RAN | {"attempts": MAX_ATTEMPTS}))
    assert (made.status["phase"], made.verdict.reason, made.actions) == ("Failed", "PodGone", ())


def test_a_snapshot_that_was_taken_counts_though_it_was_the_last_try() -> None:
    made = plan(Observed(snapshot_pod(attempt=MAX_ATTEMPTS, **ended(KEPT))), backup(RAN | {"attempts": 2}))
    assert made.status["phase"] == "Complete"


@pytest.mark.parametrize("told", [{"phase": "Running"}, ended(KEPT), failed(finished="2026-01-01T12:00:00Z")])
def test_the_status_does_not_move_by_itself(told: Obj) -> None:
    pod = snapshot_pod(**told)
    first = reported(plan(Observed(pod)))
    assert reported(plan(Observed(pod), first, after=1), first).reported == first.reported


# Who gives it.


def alarmed(number: int) -> Any:
    return said_by(number, errors=(f"memberID:{member_id(number)} alarm:{CORRUPT} ",))


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ([said_by(0), said_by(1), said_by(2)], "demo-2"),
        ([said_by(0), said_by(1, applied=1001), said_by(2)], "demo-1"),
        ([said_by(0, leader=2), said_by(1, leader=2), said_by(2, leader=2)], "demo-1"),
        ([said_by(0), None, None], "demo-0"),
        ([said_by(0), said_by(1), said_by(2, learner=True)], "demo-1"),
        ([said_by(0), said_by(1), alarmed(2)], "demo-1"),
        ([said_by(0), said_by(1), said_by(2, cluster_id=0xBAD)], "demo-1"),
        ([None, said_by(1, leader=-1, applied=900), said_by(2, leader=-1, applied=800)], "demo-1"),
        ([said_by(0, leader=-1, applied=9000), said_by(1), said_by(2)], "demo-2"),
        ([None, None, None], None),
        ([said_by(0, cluster_id=0xBAD), None, None], None),
    ],
    ids=[
        "a follower",
        "the one that has most",
        "not the leader",
        "the leader, if alone",
        "no learner",
        "nobody corrupt",
        "nobody of another cluster",
        "without a quorum, who has most",
        "nobody who is cut off, if others are led",
        "nobody",
        "none of this cluster",
    ],
)
def test_who_gives_the_snapshot(said: list[Any], chosen: str | None) -> None:
    sources = tuple(SnapshotSource(f"demo-{n}", each, "" if each else "away") for n, each in enumerate(said))
    found = choose(cluster(), sources)
    assert (found.name if found else None) == chosen


def test_of_a_cluster_that_is_not_recorded_yet_none_is_taken() -> None:
    assert choose(cluster(recorded=None), SOURCES) is None


def test_a_snapshot_without_a_quorum_comes_with_a_caution() -> None:
    sources = (SnapshotSource("demo-0", said_by(0, leader=-1)), SnapshotSource("demo-1", error="away"))
    made = plan(dataclasses.replace(READY, sources=sources))
    assert (
        "The cluster has no leader: demo-0 has applied the most entries of the 1 members that answer"
        in made.verdict.message
    )
    assert pod_of(made)["metadata"]["annotations"][pods.MESSAGE] == made.verdict.message


# What the pod is told.


def arguments(resource: EtcdBackup, **spec: Any) -> Any:
    made = plan(dataclasses.replace(READY, cluster=cluster(**spec)), resource)
    pod = pod_of(made)
    (container,) = pod["spec"]["containers"]
    known = {mount["name"] for mount in container["volumeMounts"]}
    assert known == {volume["name"] for volume in pod["spec"]["volumes"]}, "what is mounted is there"
    return program._parser().parse_args(container["args"])


def test_with_tls_and_users_it_brings_what_lets_in() -> None:
    found = arguments(backup(), tls={"mode": "self"}, auth={"rootSecretName": "root"})
    assert found.endpoint == "https://demo-2.demo.default.svc:2379"
    assert str(found.tls_ca) == "/etc/etcd/tls/client/ca.crt"
    assert str(found.tls_key) == "/etc/etcd/tls/client/tls.key"
    assert (found.user, str(found.password_file)) == ("root", "/etc/etcd/auth/password")


SCHEDULE: Obj = {"schedule": "0 3 * * *", "retention": 4, "destination": BUCKET}


def test_only_what_the_schedule_asked_for_removes_what_is_older() -> None:
    asked = backup(scheduled=True, destination=BUCKET)
    found = arguments(asked, backup=SCHEDULE)
    assert (found.scheduled, found.keep) == (True, 4)
    assert not arguments(backup(destination=BUCKET), backup=SCHEDULE).scheduled
    foreign = EtcdBackup.parse(
        asked.obj | {"metadata": asked.obj["metadata"] | {"labels": {"etcd.ydzs.io/scheduled": "u"}}}
    )
    assert not arguments(foreign, backup=SCHEDULE).scheduled, "of an earlier cluster of that name"


def test_where_the_schedule_keeps_them_elsewhere_by_now_nothing_is_removed() -> None:
    found = arguments(backup(scheduled=True), backup=SCHEDULE)
    assert (found.scheduled, found.keep) == (True, 0)
    assert arguments(backup(scheduled=True)).keep == 0, "or has no schedule any more"


def test_a_large_database_is_given_more_time() -> None:
    large = dataclasses.replace(said_by(2), db_size=8 << 30)
    made = plan(dataclasses.replace(READY, sources=(SnapshotSource("demo-2", large),)))
    assert pod_of(made)["spec"]["activeDeadlineSeconds"] == 600 + 8192
