"""Scheduled backups: one per due time, one for missed times, one at a time, and the retention."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api import backup as backup_api
from operators.etcd.api import resource as api
from operators.etcd.api.backup import API, SCHEDULED, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup.snapshot import Record, beyond_retention, scheduled_name
from operators.etcd.backup.view import BackupView
from operators.etcd.client.server import CORRUPT, Alarm
from operators.etcd.objects.pod import INCONSISTENT
from operators.etcd.plan import Planner
from operators.etcd.state.observed import Observed
from operators.etcd.steps.backup_schedule import MAX_FAILED_KEPT, backup_status, failing, schedule_backups
from shared.kubernetes.kinds import Key, Obj
from shared.kubernetes.ownership import key_of
from shared.runtime.plan import PASS, Action, Apply, Delete
from shared.status.verdict import Progress
from tests.etcd.unit.backup.states import BUCKET, VOLUME
from tests.etcd.unit.world import DOWN, SETTINGS, UID, VOTER, assess, cluster, plan, seen

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
HOURLY: Obj = {"schedule": "0 * * * *", "retention": 3, "destination": VOLUME}


def resource(next_time: str | None = "2026-01-01T12:00:00Z", **backup: Any) -> Any:
    """Return a cluster whose status announces the next run."""
    status = {"backup": {"nextTime": next_time}} if next_time else {}
    return cluster(backup=HOURLY | backup, status=status)


def scheduled_backup(
    hour: int, phase: str = "Complete", day: int = 1, destination: Obj | None = None, **status: Any
) -> Obj:
    """Return an EtcdBackup of the schedule."""
    due = datetime(2026, 1, day, hour, tzinfo=UTC)
    completion: Obj = {"completedAt": f"2026-01-{day:02}T{hour:02}:00:30Z"} if phase in ("Complete", "Failed") else {}
    completion |= {"current": True} if phase == "Complete" else {}
    metadata = {"name": scheduled_name("demo", due), "uid": f"b-{day}-{hour}", "namespace": "default"}
    return {
        "kind": "EtcdBackup",
        "metadata": metadata,
        "spec": {"clusterName": "demo", "destination": destination or VOLUME},
        "status": {"phase": phase, **completion, **status} if phase else {},
    }


def world(*scheduled: Obj) -> Observed:
    return Observed(members=(), backup=BackupView(scheduled))


def changes(found: Any, *scheduled: Obj, now: datetime = NOON, **observed: Any) -> list[str]:
    """Return the EtcdBackups that the step creates and deletes."""
    seen = replace(world(*scheduled), **observed)
    return [describe(action) for action in schedule_backups(assess(found, seen, now)).actions]


def describe(action: Action) -> str:
    assert isinstance(action, Apply | Delete)
    return f"{'create' if isinstance(action, Apply) else 'delete'} {action.obj['metadata']['name']}"


def next_time(found: Any, *scheduled: Obj, now: datetime = NOON) -> str:
    status = backup_status(assess(found, world(*scheduled), now))
    assert status is not None
    return str(status["nextTime"])


def test_schedule_without_the_image_that_takes_snapshots_is_reported_before_one_is_due() -> None:
    found, without = resource("2026-01-01T13:00:00Z"), replace(SETTINGS, agent_image="")
    made = Planner(without).plan(found, seen(found, VOTER, VOTER, VOTER), NOON)
    assert (made.verdict.progress, made.verdict.reason) == (Progress.PROGRESSING, "NoAgentImage")
    assert "spec.backup: Snapshots need the image of the operator itself" in made.verdict.message
    assert made.status["phase"] == "Running", "clients are served"


# Due times.


def test_backups_are_not_changed_without_a_schedule() -> None:
    assert schedule_backups(assess(cluster(), world(*[scheduled_backup(hour) for hour in range(9)]), NOON)) == PASS
    assert backup_status(assess(cluster(), world(), NOON)) is None


def test_new_schedule_starts_with_its_next_run() -> None:
    """The time before the schedule existed is not due."""
    fresh = resource(None)
    assert changes(fresh) == []
    assert next_time(fresh) == "2026-01-01T13:00:00Z"


def test_due_backup_is_created() -> None:
    (action,) = schedule_backups(assess(resource(), world(), NOON)).actions
    assert isinstance(action, Apply)
    obj = action.obj
    assert obj["metadata"]["name"] == "demo-2601011200"
    assert obj["metadata"]["labels"][SCHEDULED] == UID
    assert "ownerReferences" not in obj["metadata"], "the EtcdBackup outlives the cluster, as its file does"
    assert EtcdBackup.parse(obj).spec == EtcdBackup.parse({"spec": {"clusterName": "demo", "destination": VOLUME}}).spec
    assert key_of(API.kind, SETTINGS.operator, API.kind, obj) == Key("default", "demo-2601011200")


def test_no_backup_is_created_before_it_is_due() -> None:
    early = NOON - timedelta(seconds=1)
    assert changes(resource(), now=early) == []
    assert schedule_backups(assess(resource(), world(), early)).requeue == 1.0, "requeued for the due time"


def test_existing_backup_is_not_created_again_and_the_next_is_announced_when_it_is_complete() -> None:
    """The name identifies the run even if the operator stopped before it updated the status."""
    for phase in ("", "Running", "Failed"):
        assert changes(resource(), scheduled_backup(12, phase)) == []
        assert next_time(resource(), scheduled_backup(12, phase)) == "2026-01-01T12:00:00Z", "it is late"
    assert next_time(resource()) == "2026-01-01T12:00:00Z", "announced until it is created"
    assert next_time(resource(), scheduled_backup(12, "Complete")) == "2026-01-01T13:00:00Z"


def test_snapshot_stays_late_while_one_after_the_other_fails() -> None:
    failed = [scheduled_backup(12, "Failed"), scheduled_backup(13, "Failed")]
    later = NOON + timedelta(hours=2)
    assert changes(resource(), *failed, now=later) == ["create demo-2601011400"]
    assert next_time(resource(), *failed, scheduled_backup(14, ""), now=later) == "2026-01-01T12:00:00Z"
    done = scheduled_backup(14, "Complete")
    assert next_time(resource(), *failed, done, now=later) == "2026-01-01T15:00:00Z"


@pytest.mark.parametrize("minutes", [-300, -5, 5, 300], ids=lambda minutes: f"{minutes} minutes")
def test_clock_of_the_node_decides_nothing(minutes: int) -> None:
    """A snapshot belongs to the due time in its name, which is of the operator's clock."""
    ended = (NOON + timedelta(minutes=minutes)).isoformat()
    taken = scheduled_backup(12, completedAt=ended)
    assert next_time(resource(), taken) == "2026-01-01T13:00:00Z", "a fresh snapshot is not late"
    former = scheduled_backup(11, completedAt=ended)
    for phase in ("", "Running", "Failed"):
        assert next_time(resource(), former, scheduled_backup(12, phase)) == "2026-01-01T12:00:00Z", "it is late"


def test_created_backup_is_retried_until_the_next_one_is_due() -> None:
    late = NOON + timedelta(hours=3, minutes=30)
    (action,) = schedule_backups(assess(resource(), world(), late)).actions
    assert isinstance(action, Apply)
    assert EtcdBackup.parse(action.obj).retry_until == NOON + timedelta(hours=4)


def test_only_the_last_of_several_missed_backups_is_created() -> None:
    late = NOON + timedelta(hours=3, minutes=30)
    assert changes(resource(), now=late) == ["create demo-2601011500"]
    assert changes(resource(), scheduled_backup(15, ""), now=late) == []
    assert next_time(resource(), scheduled_backup(15, "Complete"), now=late) == "2026-01-01T16:00:00Z"


def test_backup_that_is_being_stored_in_a_former_destination_delays_no_other_one() -> None:
    running = scheduled_backup(11, "Running")
    running["spec"]["destination"] = {"volume": {"claimName": "former"}}
    assert changes(resource(), running) == ["create demo-2601011200"]


def test_no_backup_is_created_while_another_is_in_progress() -> None:
    for phase in ("", "Pending", "Running"):
        assert changes(resource(), scheduled_backup(11, phase)) == []
        assert next_time(resource(), scheduled_backup(11, phase)) == "2026-01-01T12:00:00Z", (
            "created after the other one"
        )
    assert changes(resource(), scheduled_backup(11, "Complete")) == ["create demo-2601011200"]
    assert changes(resource(), scheduled_backup(11, "Failed")) == ["create demo-2601011200"]


def test_run_that_a_former_schedule_announced_is_not_due() -> None:
    changed = resource("2026-01-01T11:30:00Z")
    assert changes(changed) == []
    assert next_time(changed) == "2026-01-01T13:00:00Z"


def test_cluster_that_is_not_bootstrapped_is_not_backed_up() -> None:
    status = {"backup": {"nextTime": "2026-01-01T12:00:00Z"}}
    assert changes(cluster(recorded=None, backup=HOURLY, status=status)) == []


def test_unhealthy_cluster_is_backed_up() -> None:
    """A refused upgrade or a member that is down can last for days."""
    status = {"backup": {"nextTime": "2026-01-01T12:00:00Z"}}
    refused = cluster(backup=HOURLY, status=status, version="3.4.37")
    result = plan(refused, seen(refused, VOTER, VOTER, VOTER))
    assert not result.verdict.done
    assert "create demo-2601011200" in [describe(action) for action in result.actions if isinstance(action, Apply)]


def test_longest_cluster_name_fits_with_the_timestamp() -> None:
    name = "c" * 52
    longest = EtcdCluster.parse({"metadata": {"name": name}, "spec": {"size": 1, "version": "3.6.8"}})
    spec = {"clusterName": name, "destination": VOLUME}
    due = EtcdBackup.parse({"metadata": {"name": scheduled_name(name, NOON)}, "spec": spec})
    assert (api.validate(longest), backup_api.validate(due)) == ([], [])
    too_long = EtcdCluster.parse({"metadata": {"name": f"{name}c"}, "spec": {"size": 1, "version": "3.6.8"}})
    assert api.validate(too_long) != []


MINUTES = st.lists(st.integers(0, 600), min_size=1, max_size=40).map(sorted)


@given(MINUTES, st.booleans())
def test_each_due_time_has_one_backup_at_most_and_the_last_always_has(minutes: list[int], written: bool) -> None:
    """Holds for any intervals between reconciles, and even if the status is never written."""
    found, there = resource(), [scheduled_backup(11)]
    for minute in minutes:
        now = NOON + timedelta(minutes=minute)
        for action in schedule_backups(assess(found, world(*there), now)).actions:
            if isinstance(action, Apply):
                name = action.obj["metadata"]["name"]
                assert name not in [obj["metadata"]["name"] for obj in there]
                completion = {"phase": "Complete", "completedAt": now.isoformat(), "current": True}
                there.append({**action.obj, "metadata": action.obj["metadata"] | {"uid": name}, "status": completion})
        due = now.replace(minute=0)
        assert scheduled_name("demo", due) in [obj["metadata"]["name"] for obj in there]
        if written:
            found = resource(next_time(found, *there, now=now))


# Retention.


def test_oldest_backups_beyond_the_retention_are_deleted() -> None:
    there = [scheduled_backup(hour) for hour in (9, 11, 7, 12, 8)]
    assert changes(resource(), *there) == ["delete demo-2601010700", "delete demo-2601010800"]


@pytest.mark.parametrize(
    "observed", [{"members": None}, {"alarms": (Alarm(1, CORRUPT),)}], ids=["no quorum", "corrupt"]
)
def test_no_backup_is_deleted_while_snapshots_may_have_less_or_other_data(observed: dict[str, Any]) -> None:
    """The files of complete ones are kept, too; failed ones have none."""
    there = [scheduled_backup(hour) for hour in (8, 9, 10, 11, 12)]
    failed = [scheduled_backup(hour, "Failed") for hour in range(MAX_FAILED_KEPT + 1)]
    assert changes(resource(), *there, *failed, **observed) == ["delete demo-2601010000"]


def test_backups_are_deleted_as_their_files_are_while_a_quorum_is_missing() -> None:
    """E3: the first due times of an outage named files that were deleted; a member provides snapshots nevertheless."""
    there = [scheduled_backup(hour, revision=9, current=hour < 9) for hour in range(7, 12)]
    found = resource("2026-01-01T13:00:00Z")
    members = seen(found, VOTER, known=False, leader=None).instances
    assert changes(found, *there, members=None, instances=members) == [f"delete demo-260101{n}00" for n in ("09", "10")]
    errors = ("memberID:1 alarm:CORRUPT ",)
    corrupt = [replace(each, status=replace(each.status, errors=errors)) for each in members if each.status]
    assert changes(found, *there, members=None, instances=tuple(corrupt)) == []


@pytest.mark.parametrize(("revisions", "deleted"), [((5, 6, 6, 6), [2, 3]), ((7, 7, 6, 5), [1])])
def test_backup_that_is_not_current_is_deleted_if_a_later_one_has_the_same_data(
    revisions: tuple[int, ...], deleted: list[int]
) -> None:
    """The files follow the same rule."""
    there = [scheduled_backup(n, revision=revision, current=False) for n, revision in enumerate(revisions, start=1)]
    assert changes(resource("2026-01-01T13:00:00Z"), *there) == [f"delete demo-260101{n:02}00" for n in deleted]
    named = [
        Record(f"{n}", 1, "", revision, "", "c1", "", f"{n}", "", "", f"{n}", True, False)
        for n, revision in enumerate(revisions, start=1)
    ]
    assert sorted(int(each.file) for each in beyond_retention([(each, True) for each in named], 3)) == deleted


def test_backup_that_is_not_current_stays_although_one_of_another_member_has_the_same_revision() -> None:
    there = [scheduled_backup(n, revision=5, current=False, member=f"demo-{n % 2}") for n in (8, 9, 11)]
    assert changes(resource("2026-01-01T13:00:00Z"), *there) == ["delete demo-2601010900"]


def test_last_backup_of_each_member_stays_until_one_is_current() -> None:
    """The same rule as for their files (`beyond_retention`)."""
    there = [scheduled_backup(n, revision=5, current=False, member=f"demo-{n % 4}") for n in range(4, 12)]
    found = resource("2026-01-01T13:00:00Z", retention=1)
    assert changes(found, *there) == [f"delete demo-260101{n:02}00" for n in range(4, 8)]
    later = [scheduled_backup(12, revision=5)]
    assert changes(found, *there, *later) == [f"delete demo-260101{n:02}00" for n in range(4, 12)]


def test_no_backup_is_deleted_while_a_member_that_differed_is_not_ready() -> None:
    """Without a quorum, its member is unknown; with one, a member that runs again is not suspected."""
    there = [scheduled_backup(hour) for hour in (8, 9, 10, 11, 12)]
    for known in (True, False):
        members = seen(resource(), VOTER, DOWN, VOTER, known=known).instances
        ended = {"name": "etcd", "lastState": {"terminated": {"message": f'"error":"a0 {INCONSISTENT}"'}}}
        pod = {**(members[1].pod_obj or {}), "status": {"containerStatuses": [ended]}}
        assert changes(resource(), *there, instances=members) != []
        assert changes(resource(), *there, instances=(members[0], replace(members[1], pod_obj=pod))) == []


def test_backup_with_newer_data_than_all_later_ones_stays() -> None:
    """The later ones are of a member that lagged; the file stays, too."""
    revisions = (100, 101, 102, 50, 50, 50)
    there = [scheduled_backup(hour, revision=revision) for hour, revision in enumerate(revisions, start=7)]
    assert changes(resource(), *there) == ["delete demo-2601010700", "delete demo-2601010800"]


@pytest.mark.parametrize(
    ("taken", "deleted"),
    [
        ("AB--", []),
        ("AB---", [3]),
        ("AB--C", [1, 3]),
        ("AB--CD", [1, 2, 3, 4]),
        ("A-B-C-", [1, 2, 4]),
    ],
)
def test_backup_that_is_not_current_makes_no_current_one_surplus(taken: str, deleted: list[int]) -> None:
    """Current ones are letters. The others, taken while a quorum was missing, may lack changes."""
    there = [scheduled_backup(hour, revision=hour, current=each != "-") for hour, each in enumerate(taken, start=1)]
    found = resource("2026-01-01T13:00:00Z", retention=2)
    assert changes(found, *there) == [f"delete demo-260101{hour:02}00" for hour in deleted]


@pytest.mark.parametrize("revision", [1, 9])
def test_backup_that_is_not_current_stays_while_it_has_newer_data_than_all_later_ones(revision: int) -> None:
    later = [scheduled_backup(hour, revision=5) for hour in (3, 4)]
    stale = scheduled_backup(2, revision=revision, current=False)
    found = resource("2026-01-01T13:00:00Z", retention=2)
    assert changes(found, stale, *later) == ([] if revision == 9 else ["delete demo-2601010200"])


def test_oldest_backup_is_found_by_time_not_by_name() -> None:
    there = [scheduled_backup(3, day=day) for day in (2, 10, 9)]
    assert changes(resource("2026-01-10T13:00:00Z", retention=2), *there) == ["delete demo-2601020300"]


def test_failed_backups_are_counted_separately() -> None:
    """Failed backups have no snapshot, so they do not displace complete ones."""
    complete, failed = (
        [scheduled_backup(hour) for hour in (1, 2, 3)],
        [scheduled_backup(hour, "Failed") for hour in range(4, 12)],
    )
    deleted = [f"delete demo-260101{hour:02}00" for hour in range(4, 12 - MAX_FAILED_KEPT)]
    assert changes(resource(), scheduled_backup(12), *complete, *failed) == ["delete demo-2601010100", *deleted]


def test_unfinished_backup_is_not_deleted() -> None:
    there = [
        scheduled_backup(hour, phase) for hour, phase in enumerate(["Pending", "Running", "", "Complete", "Complete"])
    ]
    assert changes(resource(retention=1), *there) == ["delete demo-2601010300"]


@pytest.mark.parametrize("phase", ["", "Pending"])
@pytest.mark.parametrize("former", [BUCKET, {"volume": {"claimName": "snapshtos"}}, {"volume": 7}])
def test_backup_that_waits_for_a_former_destination_is_deleted_and_then_created_again(phase: str, former: Obj) -> None:
    waits = scheduled_backup(12, phase, destination=former)
    assert changes(resource(), waits) == ["delete demo-2601011200"]
    (action,) = schedule_backups(assess(resource(), world(waits), NOON)).actions
    assert isinstance(action, Delete)
    assert action.unchanged, "it may have begun since"
    assert changes(resource()) == ["create demo-2601011200"]
    for later in ("Running", "Complete", "Failed"):
        assert changes(resource(), scheduled_backup(12, later, destination=former)) == []


def test_same_destination_is_recognized_with_and_without_defaults() -> None:
    store: Obj = {"volume": {"claimName": "snapshots", "path": ""}}
    short: Obj = {"volume": {"claimName": "snapshots"}}
    assert changes(resource(destination=short), scheduled_backup(12, "Pending", destination=store)) == []


# Status and message.


def test_status_has_the_last_complete_backup() -> None:
    status = backup_status(
        assess(resource(), world(scheduled_backup(10), scheduled_backup(11), scheduled_backup(12, "Failed")), NOON)
    )
    assert status == {
        "lastTime": "2026-01-01T11:00:30Z",
        "lastName": "demo-2601011100",
        "nextTime": "2026-01-01T12:00:00Z",
    }, "the snapshot of 12:00 is missing"


def test_snapshot_of_an_earlier_version_counts() -> None:
    """An earlier version does not report whether a snapshot is current."""
    earlier = scheduled_backup(12)
    del earlier["status"]["current"]
    status = backup_status(assess(resource(), world(earlier), NOON))
    assert status is not None
    assert (status["lastName"], status["nextTime"]) == ("demo-2601011200", "2026-01-01T13:00:00Z")


@pytest.mark.parametrize("current", [False, "yes"])
def test_snapshot_that_is_not_proven_to_be_current_does_not_count(current: Any) -> None:
    """A member without a leader serves old data: a snapshot of it may be hours behind."""
    stale = scheduled_backup(12, current=current, **conditions("Snapshot of revision 7. No leader.", "NotCurrent"))
    found = world(scheduled_backup(11), stale)
    status = backup_status(assess(resource(), found, NOON))
    assert status == {
        "lastTime": "2026-01-01T11:00:30Z",
        "lastName": "demo-2601011100",
        "nextTime": "2026-01-01T12:00:00Z",
    }, "it is late"
    assert failing(found) == "Backup demo-2601011200 may lack changes: Snapshot of revision 7. No leader."
    assert changes(resource(), scheduled_backup(11), stale) == [], "the next one is taken when it is due"
    later = NOON + timedelta(hours=1)
    assert changes(resource(), scheduled_backup(11), stale, now=later) == ["create demo-2601011300"]
    both = scheduled_backup(11), stale, scheduled_backup(13)
    assert next_time(resource(), *both, now=later) == "2026-01-01T14:00:00Z"


def test_status_keeps_the_last_backup_after_it_is_deleted() -> None:
    before = {"lastTime": "2026-01-01T11:00:30Z", "lastName": "demo-2601011100", "nextTime": "2026-01-01T13:00:00Z"}
    assert backup_status(assess(cluster(backup=HOURLY, status={"backup": before}), world(), NOON)) == before


def conditions(message: str, reason: str = "StoreFull") -> Obj:
    return {"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": message}]}


def test_message_names_the_last_failed_backup() -> None:
    lost = scheduled_backup(12, "Failed", **conditions("The volume is full."))
    assert failing(world(scheduled_backup(11), lost)) == "Backup demo-2601011200 failed: The volume is full."
    assert failing(world(scheduled_backup(11, "Failed", **conditions("Once.")), scheduled_backup(12))) == "", (
        "a later backup is complete"
    )
    healthy = resource("2026-01-01T13:00:00Z")
    found = plan(healthy, replace(seen(healthy, VOTER, VOTER, VOTER), backup=BackupView((lost,))))
    message_with_failure = "3 of 3 members are healthy. Backup demo-2601011200 failed: The volume is full."
    assert (found.verdict.done, found.verdict.message) == (True, message_with_failure)


def test_message_names_a_backup_that_waits() -> None:
    """No other backup is created while one waits, so the cluster's message must name it."""
    waits = scheduled_backup(12, "Pending", **conditions("there is no claim."))
    assert failing(world(scheduled_backup(11), waits)) == "Backup demo-2601011200 is waiting: there is no claim."
    takes = conditions("Attempt 1.", "Running")
    assert failing(world(scheduled_backup(12, "Running", **takes))) == ""
    retries = conditions("The volume is full. Attempt 4 failed. The operator retries.")
    assert "Attempt 4 failed" in failing(world(scheduled_backup(12, "Running", **retries)))
    assert failing(world(scheduled_backup(12, ""))) == failing(world()) == ""
