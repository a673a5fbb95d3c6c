"""The monitor of cost finds each way to block the event loop, and each way to use memory."""

from __future__ import annotations

import asyncio
import functools
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import cost as judge
from tests.harness.cost import MAX_SECONDS, alone, bounded, uncounted

MIB = 1024 * 1024


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def add() -> None:
    """Keep the interpreter's lock in calls of C, which allocate nothing: a callback of a collection ends them.

    After a call, any thread of the process may get the lock before the event loop's: some calls show it where they are.
    """
    for _ in range(4):
        sum(range(20_000_000))
    time.sleep(0.2)  # and the thread is still here when the event loop runs


async def test_work_within_the_limits_passes_and_its_cost_is_known() -> None:
    async with bounded() as cost:
        compute(0.03)
        await asyncio.sleep(0.05)
        kept = bytearray(5 * MIB)
    assert 0.01 <= cost.seconds <= MAX_SECONDS
    assert len(kept) - MIB <= cost.peak_bytes <= 8 * MIB


async def compute_between_pauses() -> None:
    await asyncio.sleep(0.02)
    compute(0.4)
    await asyncio.sleep(0.02)


async def test_long_callback_is_found_with_its_frames() -> None:
    with pytest.raises(AssertionError, match=r"occupied for \d{3} ms, more than 100 ms, in:(?s:.*) in compute"):
        async with bounded():
            await asyncio.create_task(compute_between_pauses())


async def test_core_that_is_slower_for_all_work_does_not_lengthen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_REFERENCE_SECONDS", judge._reference_seconds() / 8)
    async with bounded() as found:
        compute(0.4)
    assert found.seconds > 0.02


async def test_work_of_the_tests_own_server_does_not_count() -> None:
    async with bounded() as found:
        with uncounted():
            compute(0.4)
        compute(0.04)
    assert found.seconds > 0.015


async def test_many_short_callbacks_in_one_turn_are_one_occupation() -> None:
    async def callback() -> None:
        compute(0.005)

    with pytest.raises(AssertionError, match="occupied for"):
        async with bounded():
            await asyncio.gather(*(callback() for _ in range(40)))


async def test_work_that_lets_the_loop_run_is_no_occupation() -> None:
    async with bounded() as cost:
        for _ in range(60):
            compute(0.005)
            await asyncio.sleep(0)
    assert cost.seconds < MAX_SECONDS / 2


async def test_thread_that_holds_the_interpreters_lock_is_found_with_its_frames() -> None:
    with pytest.raises(AssertionError, match=r"occupied for(?s:.*) in add"):
        async with bounded():
            await asyncio.to_thread(add)


async def test_thread_that_lets_the_loop_run_is_no_occupation() -> None:
    async with bounded() as cost:
        await asyncio.to_thread(compute, 0.3)
    assert cost.seconds < MAX_SECONDS


def small_objects() -> object:
    return [str(number) for number in range(700_000)]


@pytest.mark.parametrize("allocate", [lambda: bytearray(25 * MIB), small_objects])
async def test_memory_is_found_even_if_it_is_free_again_at_the_end(allocate: Callable[[], object]) -> None:
    for _ in range(2):  # the second time, the allocators may reuse what was free
        with pytest.raises(AssertionError, match=r"MiB were needed, more than 20.0 MiB"):
            async with bounded(seconds=10):
                allocate()


def blocks() -> object:
    return [b"x" * (MIB // 2) for _ in range(50)]


async def test_memory_of_a_thread_is_found_each_time() -> None:
    bytearray(30 * MIB)  # by default, glibc keeps as much free memory of each thread from now on
    await asyncio.to_thread(blocks)
    for _ in range(3):
        with pytest.raises(AssertionError, match="MiB were needed"):
            async with bounded(seconds=10):
                await asyncio.to_thread(blocks)


def test_memory_of_a_thread_is_found_in_a_new_process() -> None:
    alone(test_memory_of_a_thread_is_found_each_time)


def own_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


async def resident_bytes() -> int:
    async with bounded() as cost:
        pass
    assert cost.peak_bytes < MIB
    return own_bytes()


async def test_work_in_a_new_process_has_none_of_the_memory_of_this_one() -> None:
    heap = [str(number) for number in range(2_000_000)]
    assert alone(resident_bytes) < 100 * MIB < await resident_bytes()
    assert heap


@pytest.mark.parametrize("excess", [small_objects, functools.partial(compute, 0.4)])
def test_excess_in_a_new_process_is_found(excess: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match=r"(needed|occupied for \d+ ms), more than"):
        alone(judged, excess)


async def judged(work: Callable[[], object]) -> None:
    async with bounded():
        work()


async def test_memory_of_an_unused_heap_does_not_hide_the_works_own() -> None:
    heap = [str(number) for number in range(2_000_000)]
    del heap[::2]
    with pytest.raises(AssertionError, match="MiB were needed"):
        async with bounded(seconds=10):
            small_objects()
    assert heap


async def test_exception_of_the_work_is_raised_as_it_is() -> None:
    async def fail() -> None:
        compute(0.4)
        raise KeyError("work")

    with pytest.raises(KeyError):
        async with bounded():
            await fail()
