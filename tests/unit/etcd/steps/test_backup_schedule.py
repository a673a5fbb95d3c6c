"""Snapshots by the clock: one a moment, the last missed one made up for, no two at once, none kept too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api import backup as backup_api
from operators.etcd.api import resource as api
from operators.etcd.api.backup import API, SCHEDULED, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup.snapshot import scheduled_name
from operators.etcd.backup.view import BackupView
from operators.etcd.observe import Observed
from operators.etcd.steps.backup_schedule import MAX_FAILED_KEPT, backup_status, failing, schedule_backups
from shared.kubernetes.kinds import Key, Obj
from shared.kubernetes.ownership import key_of
from shared.runtime.plan import PASS, Action, Apply, Delete
from tests.unit.etcd.backup.states import VOLUME
from tests.unit.etcd.world import SETTINGS, UID, VOTER, cluster, plan, seen

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
HOURLY: Obj = {"schedule": "0 * * * *", "retention": 3, "destination": VOLUME}


def resource(next_time: str | None = "2026-01-01T12:00:00Z", **backup: Any) -> Any:
    """A cluster whose status announces the next moment."""
    status = {"backup": {"nextTime": next_time}} if next_time else {}
    return cluster(backup=HOURLY | backup, status=status)


def made(hour: int, phase: str = "Complete", day: int = 1, **status: Any) -> Obj:
    """An EtcdBackup that the schedule asked for."""
    due = datetime(2026, 1, day, hour, tzinfo=UTC)
    over = {"completedAt": f"2026-01-{day:02}T{hour:02}:00:30Z"} if phase in ("Complete", "Failed") else {}
    metadata = {"name": scheduled_name("demo", due), "uid": f"b-{day}-{hour}", "namespace": "default"}
    return {"kind": "EtcdBackup", "metadata": metadata, "status": {"phase": phase, **over, **status} if phase else {}}


def world(*scheduled: Obj) -> Observed:
    return Observed(backup=BackupView(scheduled))


def decided(found: Any, *scheduled: Obj, now: datetime = NOON) -> list[str]:
    """What is made and deleted."""
    return [said(action) for action in schedule_backups(SETTINGS, found, world(*scheduled), now).actions]


def said(action: Action) -> str:
    assert isinstance(action, Apply | Delete)
    return f"{'make' if isinstance(action, Apply) else 'delete'} {action.obj['metadata']['name']}"


def next_time(found: Any, *scheduled: Obj, now: datetime = NOON) -> str:
    status = backup_status(found, world(*scheduled), now)
    assert status is not None
    return str(status["nextTime"])


# When.


def test_without_a_schedule_nothing_is_made_nor_deleted() -> None:
    assert schedule_backups(SETTINGS, cluster(), world(*[made(hour) for hour in range(9)]), NOON) == PASS
    assert backup_status(cluster(), world(), NOON) is None


def test_a_schedule_begins_when_it_is_heard_of() -> None:
    """The moment before was nobody's wish."""
    fresh = resource(None)
    assert decided(fresh) == []
    assert next_time(fresh) == "2026-01-01T13:00:00Z"


def test_what_is_due_is_made() -> None:
    (action,) = schedule_backups(SETTINGS, resource(), world(), NOON).actions
    assert isinstance(action, Apply)
    obj = action.obj
    assert obj["metadata"]["name"] == "demo-2601011200"
    assert obj["metadata"]["labels"][SCHEDULED] == UID
    assert "ownerReferences" not in obj["metadata"], "it outlives the cluster, as its file does"
    assert EtcdBackup.parse(obj).spec == EtcdBackup.parse({"spec": {"clusterName": "demo", "destination": VOLUME}}).spec
    assert key_of(API.kind, SETTINGS.operator, API.kind, obj) == Key("default", "demo-2601011200")


def test_nothing_is_made_before_its_time() -> None:
    early = NOON - timedelta(seconds=1)
    assert decided(resource(), now=early) == []
    assert schedule_backups(SETTINGS, resource(), world(), early).requeue == 1.0, "then it is looked at again"


def test_what_is_made_is_not_made_again_and_the_next_one_is_announced() -> None:
    """The operator was stopped before it could write that down: the name tells it."""
    there = made(12, "")
    assert decided(resource(), there) == []
    assert next_time(resource()) == "2026-01-01T12:00:00Z", "as long as it is owed"
    assert next_time(resource(), there) == "2026-01-01T13:00:00Z"


def test_of_those_missed_the_last_one_is_made_up_for_once() -> None:
    late = NOON + timedelta(hours=3, minutes=30)
    assert decided(resource(), now=late) == ["make demo-2601011500"]
    assert decided(resource(), made(15, ""), now=late) == []
    assert next_time(resource(), made(15, ""), now=late) == "2026-01-01T16:00:00Z"


def test_while_one_is_under_way_no_other_is_made() -> None:
    for phase in ("", "Pending", "Running"):
        assert decided(resource(), made(11, phase)) == []
        assert next_time(resource(), made(11, phase)) == "2026-01-01T12:00:00Z", "it is made up for"
    assert decided(resource(), made(11, "Complete")) == ["make demo-2601011200"]
    assert decided(resource(), made(11, "Failed")) == ["make demo-2601011200"]


def test_what_another_schedule_announced_does_not_count() -> None:
    changed = resource("2026-01-01T11:30:00Z")
    assert decided(changed) == []
    assert next_time(changed) == "2026-01-01T13:00:00Z"


def test_a_cluster_that_has_not_begun_is_not_backed_up() -> None:
    status = {"backup": {"nextTime": "2026-01-01T12:00:00Z"}}
    assert decided(cluster(recorded=None, backup=HOURLY, status=status)) == []


def test_a_cluster_that_is_not_well_is_backed_up_all_the_same() -> None:
    """A refused upgrade, or a member that is down, may stay so for days."""
    status = {"backup": {"nextTime": "2026-01-01T12:00:00Z"}}
    refused = cluster(backup=HOURLY, status=status, version="3.4.37")
    made = plan(refused, seen(refused, VOTER, VOTER, VOTER))
    assert not made.verdict.done
    assert "make demo-2601011200" in [said(action) for action in made.actions if isinstance(action, Apply)]


def test_the_longest_name_of_a_cluster_leaves_room_for_the_moment() -> None:
    name = "c" * 52
    longest = EtcdCluster.parse({"metadata": {"name": name}, "spec": {"size": 1, "version": "3.6.8"}})
    spec = {"clusterName": name, "destination": VOLUME}
    due = EtcdBackup.parse({"metadata": {"name": scheduled_name(name, NOON)}, "spec": spec})
    assert (api.validate(longest), backup_api.validate(due)) == ([], [])
    too_long = EtcdCluster.parse({"metadata": {"name": f"{name}c"}, "spec": {"size": 1, "version": "3.6.8"}})
    assert api.validate(too_long) != []


MOMENTS = st.lists(st.integers(0, 600), min_size=1, max_size=40).map(sorted)


@given(MOMENTS, st.booleans())
def test_whenever_it_is_looked_at_each_moment_has_at_most_one_and_the_last_one_is_never_missed(
    minutes: list[int], written: bool
) -> None:
    """However often, and with whatever pauses; and even if the status could never be written in between."""
    found, there = resource(), [made(11)]
    for minute in minutes:
        now = NOON + timedelta(minutes=minute)
        for action in schedule_backups(SETTINGS, found, world(*there), now).actions:
            if isinstance(action, Apply):
                name = action.obj["metadata"]["name"]
                assert name not in [obj["metadata"]["name"] for obj in there]
                over = {"phase": "Complete", "completedAt": now.isoformat()}
                there.append({**action.obj, "metadata": action.obj["metadata"] | {"uid": name}, "status": over})
        due = now.replace(minute=0)
        assert scheduled_name("demo", due) in [obj["metadata"]["name"] for obj in there]
        if written:
            found = resource(next_time(found, *there, now=now))


# How many are kept.


def test_only_as_many_as_wanted_are_kept_the_oldest_go() -> None:
    there = [made(hour) for hour in (9, 11, 7, 12, 8)]
    assert decided(resource(), *there) == ["delete demo-2601010700", "delete demo-2601010800"]


def test_the_oldest_goes_by_its_time_not_by_its_text() -> None:
    there = [made(3, day=day) for day in (2, 10, 9)]
    assert decided(resource("2026-01-10T13:00:00Z", retention=2), *there) == ["delete demo-2601020300"]


def test_those_that_failed_are_counted_by_themselves() -> None:
    """They have no snapshot: they push none out that has."""
    complete, failed = [made(hour) for hour in (1, 2, 3)], [made(hour, "Failed") for hour in range(4, 12)]
    gone = [f"delete demo-260101{hour:02}00" for hour in range(4, 12 - MAX_FAILED_KEPT)]
    assert decided(resource(), made(12), *complete, *failed) == ["delete demo-2601010100", *gone]


def test_what_is_not_over_is_not_deleted() -> None:
    there = [made(hour, phase) for hour, phase in enumerate(["Pending", "Running", "", "Complete", "Complete"])]
    assert decided(resource(retention=1), *there) == ["delete demo-2601010300"]


# What is said.


def test_the_last_complete_one_is_told() -> None:
    status = backup_status(resource(), world(made(10), made(11), made(12, "Failed")), NOON)
    assert status == {
        "lastTime": "2026-01-01T11:00:30Z",
        "lastName": "demo-2601011100",
        "nextTime": "2026-01-01T13:00:00Z",
    }


def test_what_was_told_stays_when_a_person_deletes_it() -> None:
    before = {"lastTime": "2026-01-01T11:00:30Z", "lastName": "demo-2601011100", "nextTime": "2026-01-01T13:00:00Z"}
    assert backup_status(cluster(backup=HOURLY, status={"backup": before}), world(), NOON) == before


def conditions(message: str) -> Obj:
    return {"conditions": [{"type": "Ready", "status": "False", "reason": "StoreFull", "message": message}]}


def test_a_cluster_whose_last_snapshot_failed_says_so() -> None:
    lost = made(12, "Failed", **conditions("The volume is full."))
    assert failing(world(made(11), lost)) == "Backup demo-2601011200 failed: The volume is full."
    assert failing(world(made(11, "Failed", **conditions("Once.")), made(12))) == "", "it is over"
    healthy = resource("2026-01-01T13:00:00Z")
    found = plan(healthy, replace(seen(healthy, VOTER, VOTER, VOTER), backup=BackupView((lost,))))
    told = "3 of 3 members are healthy. Backup demo-2601011200 failed: The volume is full."
    assert (found.verdict.done, found.verdict.message) == (True, told)


def test_a_cluster_whose_snapshot_cannot_be_taken_says_so() -> None:
    """While one waits, no other is made: somebody must learn of it where they look."""
    waits = made(12, "Pending", **conditions("there is no claim."))
    assert failing(world(made(11), waits)) == "Backup demo-2601011200 is waiting: there is no claim."
    assert failing(world(made(12, "Running", **conditions("Attempt 1 of 3.")))) == ""
    assert failing(world(made(12, ""))) == failing(world()) == ""
