"""Any failures at any time: no step of the operator loses data or the quorum, and the cluster recovers afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st

from tests.etcd.unit.membership.abstract import World, numbers
from tests.etcd.unit.membership.abstract_view import observe

NUMBERS = st.integers(0, 4)

EVENTS = st.one_of(
    st.tuples(st.just("reconcile")),
    st.tuples(st.just("reconcile")),
    st.tuples(st.just("run_kubelet")),
    st.tuples(st.just("run_kubelet")),
    st.tuples(st.just("crash"), st.integers(0, 3)),
    st.tuples(st.just("resize"), st.integers(1, 5)),
    st.tuples(st.just("change")),
    st.tuples(st.just("away"), NUMBERS),
    st.tuples(st.just("back"), NUMBERS),
    st.tuples(st.just("kill"), NUMBERS),
    st.tuples(st.just("lose"), NUMBERS),
    st.tuples(st.just("wipe"), NUMBERS),
    st.tuples(st.just("break"), NUMBERS),
    st.tuples(st.just("repair"), NUMBERS),
    st.tuples(st.just("hide"), NUMBERS),
    st.tuples(st.just("show")),
)


def trigger(world: World, what: str, *values: int) -> None:
    triggers: dict[str, Callable[..., object]] = {
        "reconcile": world.reconcile,
        "crash": lambda after: world.reconcile(crash_after=after),
        "run_kubelet": world.run_kubelet,
        "resize": world.resize,
        "change": world.change,
        "away": lambda number: world.leave(number, away=True),
        "back": lambda number: world.leave(number, away=False),
        "kill": world.kill,
        "lose": world.lose,
        "wipe": world.wipe,
        "break": world.broken.add,
        "repair": world.broken.discard,
        "hide": world.hidden.add,
        "show": world.hidden.clear,
    }
    triggers[what](*values)


def verdict(world: World) -> str:
    made = world.reconcile()
    return f"{made.verdict.reason}: {made.verdict.message}" if made else "refused"


def is_desired(world: World) -> bool:
    return numbers(world.voters, world) == list(range(world.size)) == numbers(world.up, world)


@pytest.mark.nightly
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    size=st.integers(1, 5),
    medium=st.sampled_from(["Volume", "Volume", "Memory"]),
    events=st.lists(EVENTS, max_size=40),
)
@example(size=3, medium="Volume", events=[("lose", 0), ("run_kubelet",), ("reconcile",), ("away", 1), ("reconcile",)])
@example(size=3, medium="Volume", events=[("resize", 1), ("reconcile",), ("away", 0), ("reconcile",), ("run_kubelet",)])
def test_operator_causes_no_loss_and_reaches_the_desired_state_after_failures(
    size: int, medium: str, events: list[tuple[Any, ...]]
) -> None:
    world = World(size=size, medium=medium)
    assert world.settle() is not None, "the cluster is created"
    assert is_desired(world)
    for occurrence in events:
        trigger(world, *occurrence)
    world.heal()
    if medium == "Memory":
        world.size = max(world.size, 3)  # the only member in memory is never restarted
    assume(world.can_recover)
    for what in world.counts:
        event(what)
    made = world.settle()
    assert made is not None, f"the cluster did not reach its desired state: {verdict(world)}"
    assert is_desired(world)
    assert {instance.number for instance in observe(world).instances if instance.volume or instance.pod} == set(
        range(world.size)
    )
    before = (world.counts.copy(), world.status, world.stateful_set)
    world.reconcile()
    assert before == (world.counts, world.status, world.stateful_set), "nothing changes afterwards"


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 3, 5, 3, 1),
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ((3, 5, 3, 1), (2, 4, 1), (5, 1, 5))),
    ],
)
def test_size_changes_during_scaling_reach_the_last_size(sizes: tuple[int, ...]) -> None:
    for turns in range(12):
        world = World(size=sizes[0])
        for size in sizes:
            world.resize(size)
            world.settle(turns=turns)
        assert world.settle() is not None
        assert is_desired(world)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_change_restarts_every_member_once(size: int) -> None:
    world = World(size=size)
    world.settle()
    world.change()
    assert world.settle() is not None
    assert world.counts["voters restarted"] == size
    assert world.counts.get("leader moved", 0) == (size > 1), "the leader is the last"


@pytest.mark.parametrize("size", [2, 3, 5])
def test_in_memory_change_replaces_every_member(size: int) -> None:
    world = World(size=size, medium="Memory")
    world.settle()
    world.counts.clear()
    world.change()
    assert world.settle() is not None
    assert world.counts["voters removed"] == world.counts["learners promoted"] == size


def test_operator_uses_these_transitions_of_the_member_lifecycle() -> None:
    world = World(size=3)
    assert world.settle() is not None
    world.leader = world.disks[2].member
    for size in (2, 3):
        world.resize(size)
        assert world.settle() is not None
    world.lose(0)
    assert world.settle() is not None
    world.resize(5)
    for _ in range(100):  # a learner that never starts is removed
        world.broken.update({3})
        world.reconcile()
        world.run_kubelet()
    done = {(before.name, event.name) for before, event in world.transitions}
    assert done == {
        ("VACANT", "ADD"),
        ("CAUGHT_UP", "PROMOTE"),
        ("LEADER", "HAND_OVER"),
        ("VOTER", "REMOVE"),
        ("LOST", "REMOVE"),
        ("ADDED", "REMOVE"),
        ("REMOVED", "DELETE"),
    }


def test_in_memory_only_member_is_not_restarted() -> None:
    world = World(size=1, medium="Memory")
    world.settle()
    world.change()
    assert world.settle(turns=10) is None
    made = world.reconcile()
    assert made is not None
    assert made.verdict.reason == "UpgradeBlocked"
    assert "Set spec.size to 3" in made.verdict.message


@pytest.mark.parametrize("number", [0, 1, 2])
def test_lost_member_is_replaced(number: int) -> None:
    world = World()
    world.settle()
    former = world.disks[number].member
    world.lose(number)
    assert world.settle() is not None
    assert world.disks[number].member not in (0, former), "a new member replaces the lost one"


def test_members_are_not_changed_after_a_majority_lost_their_volumes() -> None:
    world = World()
    world.settle()
    world.lose(0)
    world.lose(1)
    before = dict(world.members)
    assert world.settle(turns=20) is None
    assert world.members == before
    assert world.disks[2].member in before
