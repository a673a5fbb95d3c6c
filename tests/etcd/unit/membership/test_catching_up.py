"""Progress of a learner: which evidence counts, and how long it may take."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import RaftProgress
from operators.etcd.membership.catching_up import RECORD_SECONDS, allowed_seconds, progress
from operators.etcd.state.observed import Observed
from shared.kubernetes.kinds import Obj
from tests.etcd.unit.world import ABSENT, LEARNER, NOW, SETTINGS, VOTER, At, acts, cluster, member_id, plan, seen

PATIENCE = SETTINGS.create_timeout
GIB = 2**30
LAST_YEAR = "2025-01-01T00:00:00Z"
STARTING = At(learner=True, up=False, runs=True, ready=False, made=LAST_YEAR)


def recorded(index: int, ago: float) -> EtcdCluster:
    """Return a cluster whose status has the progress of the learner demo-1."""
    resource = cluster(recorded=[0, 1])
    since = (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    resource.obj["status"]["members"][1]["progress"] = {"index": index, "since": since}
    resource.obj["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "LearnerStuck"}]
    return resource


def world(resource: EtcdCluster, learner: At, db_size: int = 4096, metrics: RaftProgress | None = None) -> Observed:
    found = seen(resource, VOTER, learner, ABSENT)
    leader, joining, *others = found.instances
    assert leader.status is not None
    leader = replace(leader, status=replace(leader.status, db_size=db_size))
    if joining.volume is not None:
        joining.volume["metadata"]["creationTimestamp"] = LAST_YEAR
    return replace(found, instances=(leader, replace(joining, progress=metrics), *others))


def metrics(applied: int = 0, *, receiving: bool = False) -> RaftProgress:
    return RaftProgress(member_id(1), applied, 1, receiving=receiving)


@pytest.mark.parametrize(
    ("learner", "found", "seconds"),
    [
        (replace(LEARNER, applied=10), None, PATIENCE),
        (STARTING, metrics(), PATIENCE),
        (STARTING, metrics(receiving=True), PATIENCE + 8 * GIB / 1e6),
        (STARTING, None, PATIENCE + 8 * GIB / 1e6),
        (At(learner=True, up=False, problem="CrashLoopBackOff: back-off"), None, PATIENCE),
    ],
    ids=["catches up", "serves metrics only", "receives a snapshot", "does not answer", "does not run"],
)
def test_time_without_progress_depends_on_the_size_only_during_a_copy(
    learner: At, found: RaftProgress | None, seconds: float
) -> None:
    resource = recorded(10, seconds - 1)
    assert acts(plan(resource, world(resource, learner, 8 * GIB, found)).actions) == []
    resource = recorded(10, seconds + 1)
    made = plan(resource, world(resource, learner, 8 * GIB, found))
    assert acts(made.actions) == ["remove demo-1"]
    assert made.verdict.message.startswith(f"demo-1 made no progress for {seconds:.0f} s")


def test_slow_learner_is_kept_while_its_index_grows() -> None:
    """Before, it was removed after --create-timeout, began again at zero, and never joined."""
    resource = recorded(10, 3600)
    for learner, found in ((replace(LEARNER, applied=11), None), (STARTING, metrics(11))):
        made = plan(resource, world(resource, learner, metrics=found))
        assert acts(made.actions) == []
        assert made.status["members"][1]["progress"] == {"index": 11, "since": "2026-01-01T12:00:00Z"}


def test_learner_is_not_judged_before_its_progress_is_recorded() -> None:
    resource = cluster(recorded=[0, 1])
    old = replace(LEARNER, applied=10, made=LAST_YEAR)
    made = plan(resource, world(resource, old))
    assert acts(made.actions) == []
    assert made.status["members"][1]["progress"] == {"index": 10, "since": "2026-01-01T12:00:00Z"}


def test_time_before_the_pod_was_created_does_not_count() -> None:
    resource = recorded(10, 10 * PATIENCE)
    assert (
        acts(plan(resource, world(resource, replace(LEARNER, applied=10, made="2026-01-01T11:55:00Z"))).actions) == []
    )


def test_learner_whose_pod_is_never_created_is_removed() -> None:
    """A quota may refuse the pod; before, such a learner stayed forever, and was never reported as stuck."""
    absent = At(learner=True, started=False, up=False, pod=False, disk="")
    resource = cluster(recorded=[0, 1])
    made = plan(resource, world(resource, absent))
    assert made.status["members"][1]["progress"] == {"index": 0, "since": "2026-01-01T12:00:00Z"}
    for seconds, actions in ((PATIENCE - 1, []), (PATIENCE + 1, ["remove http://demo-1.demo.default.svc:2380"])):
        resource = recorded(0, seconds)
        assert acts(plan(resource, world(resource, absent)).actions) == actions


def test_progress_of_a_former_member_of_the_name_does_not_count() -> None:
    resource = recorded(10, 10 * PATIENCE)
    resource.obj["status"]["members"][1]["id"] = f"{member_id(9):016x}"
    assert acts(plan(resource, world(resource, replace(LEARNER, applied=10))).actions) == []


@pytest.mark.parametrize(
    ("index", "after", "expected"), [(10, 600, 10), (11, RECORD_SECONDS - 1, 10), (11, RECORD_SECONDS, 11)]
)
def test_status_is_not_written_for_every_entry(index: int, after: float, expected: int) -> None:
    before: Obj = {"index": 10, "since": "2026-01-01T12:00:00Z"}
    learner = world(recorded(10, 0), replace(LEARNER, applied=index)).instances[1]
    made = progress(learner, before, NOW + timedelta(seconds=after))
    assert made["index"] == expected
    assert datetime.fromisoformat(made["since"]) == (NOW if expected == 10 else NOW + timedelta(seconds=after))


def test_promoted_member_has_no_progress_in_the_status() -> None:
    resource: Any = recorded(10, 0)
    made = plan(resource, seen(resource, VOTER, VOTER, ABSENT))
    assert "progress" not in made.status["members"][1]


def test_size_is_that_of_the_leader() -> None:
    found = world(recorded(1, 0), STARTING, 2 * GIB)
    assert allowed_seconds(found, found.instances[1], PATIENCE) == PATIENCE + 2 * GIB / 1e6
