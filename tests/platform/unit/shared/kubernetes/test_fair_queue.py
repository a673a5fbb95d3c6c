"""Which item is next, and how many one namespace may hold: by namespace, priority and time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shared.kubernetes.fair_queue import (
    LOWER_SHARE,
    MAX_NAMESPACE_BYTES,
    MAX_QUICK_SLOTS,
    SLOW_MEMORY_SECONDS,
    SLOW_SECONDS,
    FairQueue,
    Priority,
)

SLOTS = 256
SPEC, CHANGE, BACKGROUND = Priority


def filled(namespaces: dict[str, int], slots: int = SLOTS) -> FairQueue[str]:
    """Return a queue with items such as `a-0`, by namespace."""
    queue = FairQueue[str](slots)
    for namespace, count in namespaces.items():
        for number in range(count):
            queue.add(f"{namespace}-{number}", namespace, CHANGE, 0.0)
    return queue


def take_all(queue: FairQueue[str], now: float) -> list[str]:
    taken = []
    while queue.is_ready:
        taken.append(queue.take(now))
    return taken


def by_namespace(items: list[str]) -> Counter[str]:
    return Counter(item.split("-")[0] for item in items)


def test_namespaces_take_turns() -> None:
    queue = filled({"a": 3, "b": 1, "c": 2})
    assert take_all(queue, 0.0) == ["a-0", "b-0", "c-0", "a-1", "c-1", "a-2"]
    assert (len(queue), queue.is_ready) == (0, False)


def test_namespace_holds_all_quick_slots_while_no_other_waits() -> None:
    queue = filled({"a": 1000})
    assert len(take_all(queue, 0.0)) == MAX_QUICK_SLOTS
    queue.add("b-0", "b", CHANGE, 0.1)
    queue.done("a-0", 0.1)
    queue.done("a-1", 0.1)
    assert by_namespace(take_all(queue, 0.1)) == {"a": 1, "b": 1}


def test_item_that_is_not_done_leaves_its_slot_to_others() -> None:
    queue = filled({"a": 1000})
    taken = take_all(queue, 0.0)
    queue.add("b-0", "b", CHANGE, 0.1)
    assert not queue.is_ready
    assert queue.note_slow(0.1) == pytest.approx(SLOW_SECONDS - 0.1)
    assert queue.note_slow(SLOW_SECONDS) is None
    more = take_all(queue, SLOW_SECONDS)
    assert "b-0" in more
    assert by_namespace([*taken, *more])["a"] == MAX_QUICK_SLOTS, "more at once would make a slow server slower"


def test_slow_namespace_takes_quick_slots_again_when_nothing_was_slow_for_a_while() -> None:
    queue = filled({"a": 1})
    queue.take(0.0)
    queue.note_slow(1.0)
    queue.done("a-0", 10.0)
    for now, is_slow in ((11.0, True), (10.0 + SLOW_MEMORY_SECONDS, False)):
        for number in range(1000):
            queue.add(f"a-{number}", "a", CHANGE, now)
        taken = take_all(queue, now)
        assert len(taken) == (MAX_QUICK_SLOTS // 2 if is_slow else MAX_QUICK_SLOTS)
        for item in taken:
            queue.done(item, now)
        queue.clear()
    assert not queue._namespaces, "it is forgotten"


def test_namespaces_that_were_slow_are_forgotten_without_further_items() -> None:
    queue = FairQueue[str](SLOTS)
    for number in range(1000):
        begin = number * 2.0
        queue.add(f"former{number}-0", f"former{number}", CHANGE, begin)
        queue.take(begin)
        queue.note_slow(begin + 1.0)
        queue.done(f"former{number}-0", begin + 1.0)
    assert len(queue._namespaces) <= SLOW_MEMORY_SECONDS / 2.0 + 1


def test_slow_namespaces_leave_quick_slots_to_any_number_of_others() -> None:
    queue = filled({f"slow{number}": 20 for number in range(100)})
    now, slow = 0.0, 0
    while now < 10.0:
        slow += len(take_all(queue, now))
        queue.note_slow(now)
        now += 0.05
    assert slow <= SLOTS
    for number in range(MAX_QUICK_SLOTS):
        queue.add(f"b-{number}", "b", CHANGE, now)
    assert by_namespace(take_all(queue, now))["b"] == MAX_QUICK_SLOTS


@pytest.mark.parametrize("count", [1, 10])
def test_concurrency_stays_bounded_while_everything_is_slow(count: int) -> None:
    """A loaded API server that gets more work at once becomes slower, and so would never recover."""
    queue = filled({f"n{number}": 1000 for number in range(count)})
    now, began = 0.0, dict[str, float]()
    for _ in range(400):
        began |= dict.fromkeys(take_all(queue, now), now)
        queue.note_slow(now)
        now += 0.05
        for item in [item for item, at in began.items() if now - at >= 2 * SLOW_SECONDS]:
            queue.done(item, now)
            del began[item]
        if now > 5.0:
            assert len(began) <= MAX_QUICK_SLOTS + count


def test_hung_namespaces_do_not_stop_another_one_that_was_slow() -> None:
    queue = filled({"a": 1000, "b": 1000, "c": 1})
    for now in (0.0, 1.0, 2.0, 3.0):
        take_all(queue, now)
        queue.note_slow(now)
    queue.done("c-0", 3.0)
    queue.add("c-1", "c", SPEC, 3.1)
    assert take_all(queue, 3.1) == ["c-1"]


def test_slow_items_beyond_the_slow_slots_move_as_soon_as_these_are_free() -> None:
    queue = filled({f"slow{number}": 1 for number in range(4)}, slots=4)
    queue.add("b-0", "b", CHANGE, 0.0)
    taken = take_all(queue, 0.0)
    queue.note_slow(1.0)
    taken += take_all(queue, 1.0)
    queue.note_slow(2.0)
    assert not queue.is_ready, "slow items have both kinds of slots"
    queue.done(taken[0], 3.0)
    assert take_all(queue, 3.0) == ["b-0"]


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_everything_is_processed_with_few_slots(slots: int) -> None:
    """Although everything is slow: with one slot, none is set apart."""
    queue = filled({"a": 5, "b": 5}, slots)
    now, processed = 0.0, 0
    while len(queue):
        for item in take_all(queue, now):
            queue.note_slow(now + 1.0)
            queue.done(item, now + 1.0)
            processed += 1
        now += 1.0
    assert processed == 10


def test_higher_priority_goes_first_in_every_namespace() -> None:
    queue = filled({"a": 2})
    queue.add("b-0", "b", BACKGROUND, 0.0)
    queue.add("c-0", "c", SPEC, 0.0)
    queue.add("a-1", "a", SPEC, 0.0)
    queue.add("a-1", "a", BACKGROUND, 0.0)
    assert take_all(queue, 0.0) == ["c-0", "a-1", "a-0", "b-0"]


def test_constant_changes_do_not_stop_a_lower_priority() -> None:
    queue = filled({"a": 100})
    queue.add("b-0", "b", BACKGROUND, 0.0)
    assert "b-0" in [queue.take(0.0) for _ in range(LOWER_SHARE)]


@pytest.mark.parametrize("lower", [CHANGE, BACKGROUND])
def test_namespace_that_keeps_changing_specs_leaves_every_second_turn_to_others(lower: Priority) -> None:
    """A tenant may patch 1,000 resources all the time, and others need a failover."""
    queue = FairQueue[str](2)
    for number in range(1_000):
        queue.add(f"a-{number}", "a", SPEC, 0.0)
    for number in range(100):
        queue.add(f"n{number}-0", f"n{number}", lower, 0.0)
    taken: list[str] = []
    while any(not item.startswith("a-") for item in queue._waiting):
        taken.append(queue.take(0.0))
        queue.done(taken[-1], 0.0)
        if taken[-1].startswith("a-"):
            queue.add(taken[-1], "a", SPEC, 0.0)
    assert len(taken) <= 201


def test_changed_spec_of_a_namespace_that_waits_for_its_turn_overtakes_all_others() -> None:
    queue = FairQueue[str](2)
    for number in range(1_000):
        queue.add(f"n{number}-0", f"n{number}", BACKGROUND, 0.0)
    for number in range(10):
        queue.add(f"s{number}-0", f"s{number}", SPEC, 0.0)
    first = []
    for _ in range(12):
        first.append(queue.take(0.0))
        queue.done(first[-1], 0.0)
    assert by_namespace([item[0] + "-" for item in first]) == {"s": 10, "n": 2}, "one in eight is background"


def test_items_are_neither_lost_nor_doubled() -> None:
    """Random additions, slow and quick work: every item is processed once, and every slot is free at the end."""
    chance = random.Random(7)
    for slots in (1, 3, 40):
        queue, now, added, processed = FairQueue[str](slots), 0.0, 0, Counter[str]()
        taken: dict[str, float] = {}
        while added < 2000 or len(queue) or taken:
            now += 0.05
            for _ in range(chance.randrange(6) if added < 2000 else 0):
                namespace = chance.choice("abcdef")
                queue.add(f"{namespace}-{added}", namespace, chance.choice(list(Priority)), now)
                added += 1
            for item in take_all(queue, now):
                taken[item] = now + (chance.choice((0.01, 3.0)) if item[0] in "ab" else 0.01)
            assert len(taken) <= slots
            queue.note_slow(now)
            for item in [item for item, until in taken.items() if until <= now]:
                del taken[item]
                processed[item] += 1
                queue.done(item, now)
        assert len(processed) == added
        assert processed.most_common(1)[0][1] == 1
        assert (queue._quick_used, queue._slow_used) == (0, 0)


def test_namespace_begins_nothing_while_its_items_need_much_memory() -> None:
    queue = FairQueue[str](SLOTS, lambda item: MAX_NAMESPACE_BYTES // 2 if item.startswith("a") else 0)
    for number in range(4):
        for namespace in ("a", "b"):
            queue.add(f"{namespace}-{number}", namespace, CHANGE, 0.0)
    assert take_all(queue, 0.0) == ["a-0", "b-0", "a-1", "b-1", "b-2", "b-3"]
    queue.add("a-4", "a", SPEC, 0.0)
    assert not queue.is_ready
    queue.done("a-0", 0.1)
    assert take_all(queue, 0.1) == ["a-4"]
    for item in ("a-1", "a-4"):
        queue.done(item, 0.2)
    assert take_all(queue, 0.2) == ["a-2", "a-3"]


def test_item_that_alone_needs_much_memory_is_taken_in_its_turn() -> None:
    queue = FairQueue[str](SLOTS, lambda item: 10 * MAX_NAMESPACE_BYTES if item == "a-1" else 1)
    for number in range(3):
        queue.add(f"a-{number}", "a", CHANGE, 0.0)
    assert take_all(queue, 0.0) == ["a-0", "a-1"]
    queue.done("a-1", 0.1)
    assert take_all(queue, 0.1) == ["a-2"]
