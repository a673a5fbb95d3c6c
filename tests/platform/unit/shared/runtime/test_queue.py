"""Guarantees of the queue, in particular for a failing resource among healthy ones."""

import asyncio
import time

import pytest
from prometheus_client import REGISTRY

from shared.kubernetes.fair_queue import LOWER_SHARE, MAX_QUICK_SLOTS, SLOW_SECONDS, Priority
from shared.kubernetes.kinds import Key
from shared.runtime.queue import (
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    TURN_SECONDS,
    Queue,
    expose,
)

A, B, C = Key("default", "a"), Key("default", "b"), Key("default", "c")


@pytest.fixture
async def queue() -> Queue:
    return Queue("test", jitter=lambda: 1.0)


async def test_waiting_key_that_is_added_again_is_processed_once(queue: Queue) -> None:
    for _ in range(3):
        queue.add(A)
    assert await queue.get() == A
    assert len(queue) == 0


async def test_key_is_processed_by_one_worker_at_a_time(queue: Queue) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.02)
    queue.done(A)
    assert await queue.get() == A


async def test_key_that_was_not_added_again_does_not_return(queue: Queue) -> None:
    queue.add(A)
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_earlier_of_two_delays_applies(queue: Queue) -> None:
    queue.add_after(A, 30)
    queue.add_after(A, 0.01)
    queue.add_after(A, 60)
    assert await asyncio.wait_for(queue.get(), 1) == A


async def test_event_does_not_wait_for_a_retry(queue: Queue) -> None:
    queue.retry(A, at_least=30)
    queue.add(A)
    assert await asyncio.wait_for(queue.get(), 1) == A
    queue.done(A)
    await asyncio.sleep(0)
    assert len(queue) == 0, "the timer of the retry is cancelled"


async def test_retries_double_up_to_the_limit_and_reset_after_a_success(queue: Queue) -> None:
    delays = [queue.retry(A) for _ in range(12)]
    assert delays[:3] == [FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS]
    assert delays[-1] == MAX_RETRY_SECONDS
    assert queue.retry(B) == FIRST_RETRY_SECONDS, "failures of one key do not delay another"
    queue.forget_failures(A)
    assert queue.retry(A) == FIRST_RETRY_SECONDS
    queue.close()


async def test_retry_after_of_the_server_is_respected(queue: Queue) -> None:
    assert queue.retry(A, at_least=7) == 7
    queue.close()


async def test_age_of_running_work_is_measured() -> None:
    now = 0.0
    queue = Queue("aged", clock=lambda: now)
    assert queue.oldest_work() == 0
    queue.add(A)
    await queue.get()
    now = 5.0
    assert queue.oldest_work() == 5


async def test_closed_queue_accepts_and_returns_nothing_and_drops_waiting_keys(queue: Queue) -> None:
    queue.add(A)
    queue.close()
    for add in (queue.add, lambda key: queue.add_after(key, 0), queue.retry):
        add(B)
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.02)
    queue.open()
    queue.add(B)
    assert await queue.get() == B


async def test_suspended_queue_returns_nothing_and_loses_no_key(queue: Queue) -> None:
    for key in (A, B):
        queue.add(key)
    in_process = await queue.get()
    queue.suspend()
    queue.add_after(C, 0)
    queue.done(in_process)  # its worker is cancelled
    await asyncio.sleep(0)
    assert not queue.is_open
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.02)
    queue.open()
    assert {await queue.get() for _ in range(3)} == {A, B, C}


async def test_rest_returns_when_all_processed_keys_are_done(queue: Queue) -> None:
    await queue.rest()
    for key in (A, B):
        queue.add(key)
        await queue.get()
    resting = asyncio.create_task(queue.rest())
    queue.add(A)
    queue.close()
    queue.done(A)
    await asyncio.sleep(0)
    assert not resting.done()
    queue.done(B)
    await asyncio.wait_for(resting, 0.1)
    assert len(queue) == 0


async def test_change_by_a_user_overtakes_ten_thousand_resyncs(queue: Queue) -> None:
    for number in range(10_000):
        queue.add(Key("default", f"cache-{number}"), Priority.BACKGROUND)
    await queue.get()
    queue.add(A)
    assert await queue.get() == A


async def test_change_of_a_resource_that_waits_for_its_resync_goes_first(queue: Queue) -> None:
    """Whether it waits, or is added while a worker processes it."""
    for number in range(100):
        queue.add(Key("default", f"cache-{number}"), Priority.BACKGROUND)
    changed = Key("default", "cache-99")
    queue.add(changed)
    queue.add(changed, Priority.BACKGROUND)
    assert await queue.get() == changed
    queue.add(changed, Priority.BACKGROUND)
    queue.add(changed)
    queue.done(changed)
    assert await queue.get() == changed
    assert len(queue) == 99


async def test_change_of_a_spec_overtakes_thousands_of_other_observed_changes(queue: Queue) -> None:
    """Such as the events of the objects of thousands of resources that were just created."""
    for number in range(10_000):
        queue.add(Key("default", f"cache-{number}"))
    await queue.get()
    queue.add(A, Priority.SPEC)
    queue.add(Key("default", "cache-9999"), Priority.SPEC)
    assert [await queue.get(), await queue.get()] == [A, Key("default", "cache-9999")]
    assert len(queue) == 9998


async def test_constant_changes_of_specs_stop_nothing_else(queue: Queue) -> None:
    queue.add(A)
    queue.add(B, Priority.BACKGROUND)
    processed = []
    for number in range(2 * LOWER_SHARE):
        queue.add(Key("default", f"cache-{number}"), Priority.SPEC)
        queue.add(Key("default", f"other-{number}"), Priority.SPEC)
        processed.append(await queue.get())
    assert {A, B} <= set(processed)


async def test_resync_of_a_processed_resource_waits_behind_changes(queue: Queue) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A, Priority.BACKGROUND)
    queue.done(A)
    queue.add(B)
    assert [await queue.get(), await queue.get()] == [B, A]


async def test_constant_changes_do_not_stop_background_work(queue: Queue) -> None:
    queue.add(A, Priority.BACKGROUND)
    processed = []
    for number in range(LOWER_SHARE):
        queue.add(Key("default", f"cache-{number}"))
        queue.add(Key("default", f"other-{number}"))
        processed.append(await queue.get())
    assert A in processed


async def test_gauges_cover_every_queue_of_a_controller() -> None:
    """Shards have a queue each."""
    queues = [Queue("split"), Queue("split")]
    expose("split", queues)
    for queue, key in zip(queues, (A, B), strict=True):
        queue.add(key)
    labels = {"name": "split", "controller": "split"}
    assert REGISTRY.get_sample_value("workqueue_depth", labels) == 2
    await queues[0].get()
    await asyncio.sleep(0.01)
    assert REGISTRY.get_sample_value("workqueue_depth", labels) == 1
    assert REGISTRY.get_sample_value("workqueue_longest_running_processor_seconds", labels) > 0  # type: ignore[operator]


async def test_change_is_processed_although_all_resyncs_hang() -> None:
    """A reconcile that hangs leaves its slot to the next one."""
    queue, begun = Queue("hung", slots=512), list[Key]()

    async def work() -> None:
        while True:
            begun.append(await queue.get())
            await asyncio.sleep(10)

    workers = [asyncio.create_task(work()) for _ in range(512)]
    for number in range(1000):
        queue.add(Key("default", f"cache-{number}"), Priority.BACKGROUND)
    await asyncio.sleep(0.1)
    assert len(begun) == MAX_QUICK_SLOTS
    queue.add(Key("shop", "a"))
    await asyncio.sleep(SLOW_SECONDS + 0.1)
    assert Key("shop", "a") in begun
    assert MAX_QUICK_SLOTS < len(begun) <= MAX_QUICK_SLOTS + 512 // 2
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)


async def test_key_wakes_one_of_the_waiting_workers() -> None:
    """To wake 512 workers takes more CPU time than most reconciles."""

    class Counting(Queue):
        looked = 0

        @property
        def _has_next(self) -> bool:
            self.looked += 1
            return super()._has_next

    queue = Counting("counting")

    async def work() -> None:
        while True:
            queue.done(await queue.get())

    workers = [asyncio.create_task(work()) for _ in range(100)]
    await asyncio.sleep(0.01)
    before = queue.looked
    queue.add(A)
    await asyncio.sleep(0.05)
    assert 0 < queue.looked - before < 10
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)


async def test_worker_does_not_wait_awake_for_the_next_turn_of_the_event_loop() -> None:
    """Of 512 workers that did, each took some microseconds of each turn: a quarter of the CPU time of a creation."""

    class Counting(Queue):
        looked = 0

        @property
        def _is_turn_over(self) -> bool:
            self.looked += 1
            return super()._is_turn_over

    queue, turns, is_done = Counting("counting", slots=512), 0, asyncio.Event()

    async def work() -> None:
        while True:
            key = await queue.get()
            until = time.thread_time() + TURN_SECONDS / 3
            while time.thread_time() < until:
                pass
            await asyncio.sleep(0)
            queue.done(key)
            if not len(queue):
                is_done.set()

    workers = [asyncio.create_task(work()) for _ in range(512)]
    await asyncio.sleep(0.01)
    before = queue.looked
    for number in range(200):
        queue.add(Key(f"shop-{number % 4}", f"cache-{number}"))
    while not is_done.is_set():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 200 // 4, "the others have their turns"
    assert queue.looked - before < 200 * 10
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)


async def test_key_of_a_worker_that_is_cancelled_is_left_for_another_one(queue: Queue) -> None:
    one, other = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)  # wakes the one that waits for the shortest time
    other.cancel()
    assert await asyncio.wait_for(one, 1) == A
    await asyncio.wait({other})
