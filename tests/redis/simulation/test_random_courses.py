"""Random courses (`courses`), and what their judges find: operators with one defect, and untrue values of a status."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable

import pytest

from operators.redis.steps import data_loss_recovery
from shared.kubernetes.kinds import Obj
from shared.status.conditions import READY
from tests.harness.scenario import Unsafe, later
from tests.redis.simulation.courses import (
    THEMES,
    Course,
    Kind,
    check,
    of_mine,
    world_of,
)
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.judges import judge_owners, judge_status
from tests.redis.simulation.losses import destroyed, shard_of
from tests.support.course_runner import numbers, undetected
from tests.support.redis.scenarios import NAME, recovery_confirmed

VOLUMES = Kind("volumes", 1, "redis", tenants=False)
WITH_TENANT = Kind("volumes", 1, "redis", tenants=True)


async def test_random_course() -> None:
    await check(0, "losses")


@pytest.mark.nightly
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("number", numbers(1, 4))
async def test_some_random_courses(number: int, theme: str) -> None:
    await check(number, theme)


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("number", "theme"), [*((each, "") for each in numbers(5, 400)), *((each, "variants") for each in numbers(5, 100))]
)
async def test_many_random_courses(number: int, theme: str) -> None:
    await check(number, theme)


async def begun(kind: Kind = VOLUMES) -> Course:
    """Return a course of a kind of cluster that is Ready."""
    course = Course(0)
    course.kind = course.desired.kind = kind
    course.desired.replicas = kind.least
    await course.begin()
    return course


def any_confirmation_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        data_loss_recovery, "_is_confirmed", lambda resource, _: bool((resource.spec.recovery or _None).confirm)
    )


class _None:
    confirm = ""


def cluster_is_reported_as_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_loss_recovery, "restarts_empty", lambda *_: True)


async def replica_is_led_astray(course: Course) -> None:
    await course._lead_astray(is_hostile=True)


async def finalizers_are_emptied(course: Course) -> None:
    course.desired.keeps = True
    await course.go(course.desired.step())


async def shards_are_lost_months_apart(course: Course) -> None:
    for number in range(2):
        await course.go(*destroyed(shard_of(course.redis, number)), later(30))
        if not number:
            await course.go(of_mine(recovery_confirmed()), later(60))
            assert course.ready["reason"] == "Ready"


async def time_passes(course: Course) -> None:
    await course.go(later(60))


@pytest.mark.parametrize(
    ("sabotage", "happens", "violation"),
    [
        (any_confirmation_counts, shards_are_lost_months_apart, "without consent|which owns"),
        (cluster_is_reported_as_new, time_passes, "is not formed, though the disks"),
    ],
)
async def test_judges_detect_an_operator_with_one_defect(
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[[pytest.MonkeyPatch], None],
    happens: Callable[[Course], Awaitable[None]],
    violation: str,
) -> None:
    await world_of(VOLUMES)
    sabotage(monkeypatch)
    course = await _begun_or_judged(violation)
    if course is not None:
        with pytest.raises((Unsafe, AssertionError), match=violation):
            await happens(course)


@pytest.mark.nightly
@pytest.mark.parametrize("happens", [replica_is_led_astray, finalizers_are_emptied, shards_are_lost_months_apart])
async def test_judges_accept_the_unmodified_operator(happens: Callable[[Course], Awaitable[None]]) -> None:
    await happens(await begun(WITH_TENANT))


async def _begun_or_judged(violation: str) -> Course | None:
    """Return a course, or None if the judges have found the violation at its beginning."""
    try:
        return await begun()
    except Unsafe as error:
        assert violation.partition("|")[0] in str(error)  # noqa: PT017
        return None


def entry(name: str, value: object) -> Callable[[Obj, FakeRedis], None]:
    """Return a change of a value of all entries of status.nodes."""

    def change(found: Obj, _: FakeRedis) -> None:
        for each in found["status"]["nodes"]:
            each[name] = value

    return change


def _primary(redis: FakeRedis) -> object:
    return next(each for each in redis.running if each.cluster == NAME and each.node.me.slots)


UNTRUE: dict[str, Callable[[Obj, FakeRedis], None]] = {
    "node id": entry("nodeId", "0" * 40),
    "address": entry("address", "10.9.9.9:6379"),
    "disk": entry("disk", "another"),
    "slots": entry("slots", "0-16383"),
    "role": entry("role", "primary"),
    "primary": entry("primaryId", "0" * 40),
    "copy": entry("copyOf", None),
    "sync": entry("inSync", "Unknown"),
    "a node is missing": lambda found, _: found["status"]["nodes"].pop(),
    "shards": lambda found, _: found["status"]["shards"][0]["replicas"].clear(),
    "primaries": lambda found, _: found["status"].update(masters=6),
    "ready replicas": lambda found, _: found["status"].update(readyReplicas=5),
    "a node is hidden": lambda _, redis: redis.hidden.add(f"{NAME}-0"),
    "a replica is elsewhere": lambda _, redis: _lead_elsewhere(redis),
    "a primary does not serve": lambda _, redis: setattr(_primary(redis), "serves", False),
    "a primary ended": lambda _, redis: setattr(_primary(redis), "exit_message", "killed"),
}


def hidden(change: Callable[[Obj, FakeRedis], None], *numbers: int) -> Callable[[Obj, FakeRedis], None]:
    """Return a change of a status that reports that the operator does not reach some nodes."""

    def hide_and_change(found: Obj, redis: FakeRedis) -> None:
        redis.hidden |= {f"{NAME}-{number}" for number in numbers}
        next(each for each in found["status"]["conditions"] if each["type"] == READY)["status"] = "False"
        change(found, redis)

    return hide_and_change


UNTRUE |= {
    f"{name}, and a node is hidden": hidden(UNTRUE[name], 5)
    for name in (
        *("node id", "address", "slots", "role"),
        *("a primary does not serve", "a primary ended", "a replica is elsewhere"),
    )
}
UNTRUE |= {f"{name}, and the cluster is not ready": hidden(UNTRUE[name]) for name in ("slots", "role")}
UNTRUE["a primary ended, and all nodes are hidden"] = hidden(UNTRUE["a primary ended"], *range(6))


def _lead_elsewhere(redis: FakeRedis) -> None:
    next(each for each in redis.running if each.node.me.primary).source = ("10.9.9.9", 6379)


async def test_judge_finds_each_untrue_value_of_a_status() -> None:
    course = await begun()
    judge_status(course.redis, course.mine)
    assert not list(undetected(UNTRUE, judge_status, course.redis, course.mine))


async def test_judge_requires_no_report_of_what_the_operator_cannot_see() -> None:
    course = await begun()
    found, redis = copy.deepcopy((course.mine, course.redis))
    hidden(UNTRUE["a primary does not serve"], *range(6))(found, redis)
    judge_status(redis, found)


async def test_judge_requires_no_owners_of_slots_while_most_primaries_are_hidden() -> None:
    """The status keeps what it had: the nodes that the operator does not reach may have elected others."""
    course = await begun()
    found, redis = copy.deepcopy((course.mine, course.redis))
    primaries = [int(shard_of(redis, number)[0].rpartition("-")[2]) for number in range(3)]
    hidden(UNTRUE["slots"], *primaries[:2])(found, redis)
    judge_status(redis, found)
    redis.hidden.remove(f"{NAME}-{primaries[0]}")
    with pytest.raises(AssertionError, match="slots 0-16383 instead of"):
        judge_status(redis, found)


async def test_judge_finds_another_owner() -> None:
    course = await begun()
    objects = course.play.world.server.objects()
    judge_owners(course.mine, objects)
    for at, (kind, obj) in enumerate(objects):
        if obj["metadata"].get("ownerReferences"):
            orphan = {**obj, "metadata": {**obj["metadata"], "ownerReferences": []}}
            with pytest.raises(AssertionError, match=f"{kind} {obj['metadata']['name']} has owners"):
                judge_owners(course.mine, [*objects[:at], (kind, orphan), *objects[at + 1 :]])
