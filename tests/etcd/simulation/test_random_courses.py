"""Random courses (`courses`), and what their judges find: operators with one defect, and untrue values of a status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from operators.etcd import observe
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client import commands
from operators.etcd.client.errors import Unreachable
from operators.etcd.client.server import Access, Endpoint
from operators.etcd.state.observed import Instance
from operators.etcd.steps import backup_schedule, quorum_recovery
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS
from shared.steps.database import StoredDatabase
from tests.etcd.simulation.courses import (
    CLAIM_GIVEN,
    CLAIM_TAKEN,
    CONFIRMED,
    DAY,
    MOUNTED,
    STATUS_LOST,
    THEMES,
    Course,
    Kind,
    check,
    judge_backups,
    judge_status,
    majority_away,
    own_cluster,
    squatted,
    unreachable,
)
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import Unsafe, later
from tests.support.course_runner import numbers, undetected
from tests.support.etcd.scenarios import MIDDLE, member

PLAIN = Kind(3, MIDDLE, tls=False, has_backups=False)
LARGE = Kind(5, MIDDLE, tls=False, has_backups=False)
WHOLE = Kind(3, MIDDLE, tls=True, has_backups=True)


@pytest.mark.parametrize("theme", ["losses", "everything"])
async def test_random_course(theme: str) -> None:
    await check(0, theme)


@pytest.mark.nightly
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("number", numbers(1, 4))
async def test_some_random_courses(number: int, theme: str) -> None:
    await check(number, theme)


@pytest.mark.weekly
@pytest.mark.parametrize("number", numbers(5, 800))
async def test_many_random_courses(number: int) -> None:
    await check(number)


async def begun(kind: Kind) -> Course:
    """Return a course of a kind of cluster that is Ready."""
    course = Course(0)
    course.kind = kind
    await course.begin()
    return course


def certificates_are_never_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredDatabase, "renew_secrets", lambda *_: PASS)


def schedule_waits_for_a_failed_snapshot(patch: pytest.MonkeyPatch) -> None:
    is_over = backup_schedule._is_over
    patch.setattr(backup_schedule, "_is_over", lambda obj: is_over(obj) and backup_schedule._phase(obj) != "Failed")


def any_confirmation_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_recovery, "is_in_force", lambda resource, _: bool((resource.spec.recovery or _None).confirm))


class _None:
    confirm = ""


def confirmed_recovery_is_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        EtcdCluster, "released_recovery", property(lambda resource: (resource.spec.recovery or _None).confirm or "")
    )


def any_server_counts_as_member(patch: pytest.MonkeyPatch) -> None:
    def first(_: EtcdCluster, instances: tuple[Instance, ...]) -> int:
        return next((each.status.cluster_id for each in instances if each.status), 0)

    patch.setattr(observe, "_cluster_id", first)


def calls_trust_an_address(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "_require_own", lambda *_: None)


async def months_pass(course: Course) -> None:
    for _ in range(5):
        await course.go(later(20 * DAY))


async def snapshots_have_no_volume_for_days(course: Course) -> None:
    await course.go(CLAIM_TAKEN)
    await course.go(later(DAY))
    await course.go(later(DAY))
    await course.go(CLAIM_GIVEN)
    await course.end()


async def quorum_is_lost(course: Course) -> None:
    await course.go(majority_away(frozenset({1, 2})))
    for seconds in (30, 150):
        await course.go(later(seconds))
    assert course.ready["reason"] == "QuorumLost", course.ready


async def same_loss_comes_again(course: Course) -> None:
    """Mount the disks before a confirmation counts, which stays in the spec."""
    await quorum_is_lost(course)
    course.play.end()
    for step in (CONFIRMED, MOUNTED):
        step.act(course.play.stage)
    course._start()
    await course.go(later(60))
    course.etcd.written(50_000)
    await course.go(later(30 * DAY))
    await quorum_is_lost(course)


async def more_is_lost_than_was_confirmed(course: Course) -> None:
    """Confirm a loss after another disk is lost, too, which the operator did not observe."""
    await course.go(majority_away(frozenset({1, 2, 3})))
    for seconds in (30, 150):
        await course.go(later(seconds))
    assert course.ready["reason"] == "QuorumLost", course.ready
    course.play.end()
    for step in (majority_away(frozenset({4})), CONFIRMED):
        step.act(course.play.stage)
    course._start()
    for _ in range(4):
        await course.go(later(60))


async def recovery_is_confirmed(course: Course) -> None:
    await quorum_is_lost(course)
    await course.go(CONFIRMED)
    for _ in range(3):
        await course.go(later(60))


async def another_tenant_answers(course: Course) -> None:
    """Let only the foreign member answer, while the status has no id."""
    for number in (1, 2):
        await course.go(unreachable(number))
    await course.go(squatted(0))
    await course.go(STATUS_LOST)
    await course.go(later(60))


async def address_is_reused_before_a_call(course: Course) -> None:
    """Execute a call after another tenant got the address for which it was planned."""
    etcd = course.etcd
    process = next(each for each in etcd.running if each.pod == member(0))
    [url] = process.command.initial[process.command.name]
    endpoint = Endpoint(process.pod, process.address, str(urlsplit(url).hostname))
    await course.go(squatted(0), 0)
    with suppress(Unreachable):
        await commands.execute(etcd.connect, commands.AddLearner((endpoint,), Access(), "http://new:2380"))


DEFECTS = (
    (certificates_are_never_renewed, WHOLE, months_pass, "would reject each other's certificates"),
    (
        schedule_waits_for_a_failed_snapshot,
        WHOLE,
        snapshots_have_no_volume_for_days,
        "the last snapshots are of",
    ),
    (any_confirmation_counts, PLAIN, same_loss_comes_again, "without consent"),
    (any_confirmation_counts, LARGE, more_is_lost_than_was_confirmed, "without consent"),
    (confirmed_recovery_is_released, PLAIN, recovery_is_confirmed, "no user released it"),
    (any_server_counts_as_member, PLAIN, another_tenant_answers, "of another tenant's cluster"),
    (calls_trust_an_address, PLAIN, address_is_reused_before_a_call, "changes a foreign cluster"),
)


@pytest.mark.parametrize(("sabotage", "kind", "happens", "violation"), DEFECTS)
async def test_judges_detect_an_operator_with_one_defect(
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[[pytest.MonkeyPatch], None],
    kind: Kind,
    happens: Callable[[Course], Awaitable[None]],
    violation: str,
) -> None:
    course = await begun(kind)
    sabotage(monkeypatch)
    with pytest.raises((Unsafe, AssertionError), match=violation):
        await happens(course)


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "happens"), [(kind, happens) for _, kind, happens, _ in DEFECTS])
async def test_judges_accept_the_unmodified_operator(kind: Kind, happens: Callable[[Course], Awaitable[None]]) -> None:
    await happens(await begun(kind))


def cluster_of(found: Obj, etcd: FakeEtcd) -> object:
    return own_cluster(etcd, found)


UNTRUE: dict[str, Callable[[Obj, FakeEtcd], object]] = {
    "another id": lambda found, _: found["status"].update(clusterID="0" * 16),
    "another tenant's id": lambda found, etcd: setattr(cluster_of(found, etcd), "foreign", True),
    "no id": lambda found, _: found["status"].update(clusterID=None),
    "the operator reaches no member": lambda _, etcd: setattr(etcd, "cut_off", True),
    "a member ended": lambda _, etcd: setattr(etcd.running[0], "exit_message", "killed"),
    "no leader": lambda found, etcd: setattr(cluster_of(found, etcd), "leader", 0),
    "no endpoint": lambda _, etcd: setattr(etcd, "objects", lambda _: []),
    "another size": lambda found, _: found["spec"].update(size=4),
}


async def test_judge_finds_each_untrue_value_of_a_status() -> None:
    course = await begun(PLAIN)
    judge_status(course.etcd, course.mine)
    assert not list(undetected(UNTRUE, judge_status, course.etcd, course.mine))


async def test_files_of_snapshots_follow_the_retention_also_without_a_quorum() -> None:
    """E3: each due time of an outage added a file, until the store was full."""
    course = await begun(WHOLE)
    for _ in range(4):
        await course.go(later(DAY))
    assert len(course.etcd.snapshots) == 2
    await course.go(majority_away(frozenset({1, 2})))
    for _ in range(4):
        await course.go(later(DAY))
    stale = course.etcd.stale_snapshots & course.etcd.snapshots.keys()
    assert (len(stale), len(course.etcd.snapshots), course.ready["reason"]) == (1, 3, "NoQuorum")
    assert {each["status"]["file"] for each in course.snapshots} == course.etcd.snapshots.keys()
    await course.go(MOUNTED)
    for _ in range(3):
        await course.go(later(DAY))
    assert (len(course.etcd.snapshots), course.ready["reason"]) == (2, "Ready")


async def test_judge_finds_snapshots_that_are_not_stored_or_stale() -> None:
    course = await begun(WHOLE)
    for _ in range(2):
        await course.go(later(DAY))
    [first, *_] = course.snapshots
    judge_backups(course.etcd, [first])
    file, name = first["status"]["file"], first["metadata"]["name"]
    course.etcd.stale_snapshots.add(file)
    with pytest.raises(AssertionError, match="reports True, and is is_stale=True"):
        judge_backups(course.etcd, [first])
    stale = first | {"status": first["status"] | {"current": False}}
    judge_backups(course.etcd, [stale], "another")
    with pytest.raises(AssertionError, match="counts as the last snapshot"):
        judge_backups(course.etcd, [stale], name)
    course.etcd.stale_snapshots.clear()
    course.etcd.snapshots[file] += 1
    with pytest.raises(AssertionError, match="has revision"):
        judge_backups(course.etcd, [first])
    course.etcd.snapshots.clear()
    with pytest.raises(AssertionError, match="is not stored"):
        judge_backups(course.etcd, [first])
