"""Cost of a piece of work: how long it occupies the event loop, and how much memory it needs.

One request, Secret, custom resource, scrape or connection may occupy the event loop for at most 100 ms, and may need at
most 20 MiB, with any content. `bounded` judges any asynchronous work:

    async with bounded():
        await handler(request)

What blocks the loop is measured in CPU time of the process, without the time for which the loop's thread had no CPU:
other processes on the machine do not lengthen it, and a thread that holds the interpreter's lock in a call of C blocks
the loop as a callback does. A timer of the loop notes the time since it last ran, so that many small callbacks in one
turn count as one occupation. Work that sleeps while it blocks the loop, such as a file system that hangs, is not
measured. The event loop must run in the main thread.

A core that another process shares executes the same code in up to 1.8 times the CPU time, and machines differ. So the
time is given for a core of the machine that the limit was set on, which nothing else uses: while the work runs, the
time of a fixed computation shows how much slower the present core is. On a faster core, nothing is added.

Memory is what the kernel kills for: the peak of the resident memory of this process. It includes the memory of OpenSSL
and pydantic, which tracemalloc does not see, and tracemalloc would multiply the CPU time that is judged with it. Free
memory of the allocators is returned or filled before, so that the work cannot use it unseen. Objects that exist before
are not collected meanwhile: the time of a full collection depends on the tests that ran before.

In a process of some gigabytes, each judgement takes seconds, and the peak depends on the memory that earlier tests left
in the allocators. `alone` runs work with many judgements in a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import itertools
import multiprocessing
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_SECONDS = 0.1
"""Longest time in seconds for which a piece of work may occupy the event loop."""

MAX_BYTES = 20 * 1024 * 1024
"""Largest peak of the memory of a piece of work."""

_TICK_SECONDS, _SAMPLE_SECONDS = 0.005, 0.02

_REFERENCE_SECONDS = 0.00033
"""CPU time of `_reference_seconds` on a core for itself, of a Xeon with 2.1 GHz (turbo: more) and Python 3.11."""

_FRAMES = 5
_MIB = 1024 * 1024
_JUDGEMENTS_PER_COLLECTION = 32
_judgements = itertools.count()
_PROCESS = Path("/proc/self")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 128 * 1024
"""Initial thresholds of glibc. It raises them to 32 and 64 MiB when large blocks are freed, and then keeps as much free
memory of each thread: malloc_trim does not return what is at the end of a thread's heap."""


class CostExceeded(AssertionError):
    """A piece of work exceeds a limit; the message has the figure, the limit and where it was.

    pytest repeats a test that raises it (pyproject.toml), and the least cost counts.
    """


@dataclass(slots=True)
class Cost:
    """Cost of a piece of work; complete when `bounded` has ended.

    Attributes:
        seconds: longest occupation of the event loop, in seconds of CPU time on a core for itself.
        where: innermost frames during that occupation; empty if it was too short for a sample.
        peak_bytes: peak of the resident memory, above that before the work.
    """

    seconds: float = 0.0
    where: str = ""
    peak_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.seconds * 1000:.0f} ms of the event loop, {self.peak_bytes / _MIB:.1f} MiB"


@contextlib.asynccontextmanager
async def bounded(*, seconds: float = MAX_SECONDS, size: int = MAX_BYTES) -> AsyncIterator[Cost]:
    """Judge the work within the context, in the running event loop. An exception of the work is raised as it is.

    Args:
        seconds: longest permitted occupation of the event loop.
        size: permitted peak of memory, in bytes.

    Raises:
        CostExceeded: the work exceeds a limit.
    """
    cost = Cost()
    await asyncio.sleep(0)  # the loop keeps the result for which the task waited last
    with _memory(cost), _Watch(cost):
        yield cost
    if cost.seconds > seconds:
        raise CostExceeded(
            f"the event loop was occupied for {cost.seconds * 1000:.0f} ms, more than {seconds * 1000:.0f} ms"
            f"{cost.where and ', in:'}\n{cost.where}"
        )
    if cost.peak_bytes > size:
        raise CostExceeded(f"{cost.peak_bytes / _MIB:.1f} MiB were needed, more than {size / _MIB:.1f} MiB")


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Do not count the work within the context: that of a server which the test runs in the same event loop."""
    began = time.process_time()
    try:
        yield
    finally:
        if _Watch.active is not None:
            _Watch.active.uncounted += time.process_time() - began


def alone(work: Callable[P, Coroutine[object, object, T]], *arguments: P.args, **named: P.kwargs) -> T:
    """Run work in a new process, and return its result. An exception of the work is raised as it is.

    Args:
        work: a function of a module, which the new process imports.
        arguments: arguments that can be pickled.
        named: arguments by name.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # at its end, also at a timeout, the process is killed
        result: T = pool.apply(_run, (functools.partial(work, *arguments, **named),))
    return result


def _run(work: Callable[[], Coroutine[object, object, T]]) -> T:
    return_free_memory()
    return asyncio.run(work())


def return_free_memory() -> None:
    """Let the C library return free memory to the kernel, from now on. A process that judges calls it when it starts.

    What a thread has freed before stays with its heap, and the work of a later thread could use it unseen.
    """
    with contextlib.suppress(AttributeError):  # another C library
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, _KEPT_BYTES)


class _Watch:
    """Measures the longest occupation of the event loop: the time between two runs of a timer.

    Attributes:
        uncounted: seconds of the present occupation that do not count.
    """

    active: ClassVar[_Watch | None] = None

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        self._start()
        _Watch.active = self
        self._handler = signal.signal(signal.SIGPROF, self._take_sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._handler)
        _Watch.active = None
        self._note()
        self._timer.cancel()

    def _start(self) -> None:
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        self._began = _Moment()
        self._sample, self._references, self.uncounted = "", list[float](), 0.0

    def _tick(self) -> None:
        self._note()
        self._start()

    def _note(self) -> None:
        """End an occupation."""
        if self._began.cpu_seconds() - self.uncounted > max(self._cost.seconds, _SAMPLE_SECONDS):
            # A thread that has just released the interpreter's lock is still where it had it.
            where = "\nand at its end:\n".join(filter(None, (self._sample, _frames(sys._getframe()))))
            speed = min(1.0, _REFERENCE_SECONDS / min(self._references, default=_REFERENCE_SECONDS))
            if (spent := (self._began.occupied_seconds() - self.uncounted) * speed) > self._cost.seconds:
                self._cost.seconds, self._cost.where = spent, where
        else:
            self._cost.seconds = max(self._cost.seconds, self._began.cpu_seconds() - self.uncounted)

    def _take_sample(self, _signal: int, frame: FrameType | None) -> None:
        """Record how fast the core is, and where a long occupation is. A call of C is seen when it returns.

        The signal follows CPU time: another thread would have to wait for a CPU, and could come too late.
        """
        self._references.append(_reference_seconds())
        if frame is not None and not self._sample and self._began.cpu_seconds() > _SAMPLE_SECONDS:
            self._sample = _frames(frame)


def _reference_seconds() -> float:
    """Return the CPU time of a computation that is always the same, and allocates nothing."""
    began, total = time.thread_time(), 0
    for number in range(10_000):
        total += number
    return time.thread_time() - began


def _frames(main: FrameType) -> str:
    """Return the innermost frames of all threads, those of the event loop first."""
    others = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]
    return "\nwhile another thread is in:\n".join(map(_innermost, [main, *others]))


class _Moment:
    """Moment from which costs are measured."""

    def __init__(self) -> None:
        self._cpu, self._wall, self._waits = time.process_time(), time.perf_counter(), _waits()

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process since then."""
        return time.process_time() - self._cpu

    def occupied_seconds(self) -> float:
        """Return for how long the event loop has been occupied since then.

        When the timer is due, the main thread waits for a CPU first. A thread that would let it run may use another
        CPU meanwhile, which occupies nothing. Only then does it wait for the interpreter's lock, and for a CPU each
        time it looks for the lock. The first wait is taken to be their mean.
        """
        waited, runs = (now - before for now, before in zip(_waits(), self._waits, strict=True))
        return min(self.cpu_seconds(), time.perf_counter() - self._wall - waited / max(1, runs))


def _waits() -> tuple[float, int]:
    """Return for how many seconds the main thread could run and had no CPU, and how often it got one."""
    _, waited, runs = (_PROCESS / "schedstat").read_text(encoding="ascii").split()
    return int(waited) / 1e9, int(runs)


def _innermost(frame: FrameType) -> str:
    """Describe the innermost frames. No file is read for it: the threads would continue meanwhile."""
    frames = [inner for inner, _ in itertools.islice(traceback.walk_stack(frame), _FRAMES)]
    return "\n".join(
        f'  File "{at.f_code.co_filename}", line {at.f_lineno}, in {at.f_code.co_name}' for at in frames[::-1]
    )


@contextlib.contextmanager
def _memory(cost: Cost) -> Iterator[None]:
    """Measure the peak of the resident memory."""
    _collect()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    filling = _fill_pools()
    (_PROCESS / "clear_refs").write_text("5", encoding="ascii")  # the peak becomes the present value
    before = _status("VmRSS")
    try:
        yield
    finally:
        cost.peak_bytes = max(0, _status("VmHWM") - before)
        filling.clear()


def _collect() -> None:
    """Free unused objects, and exempt all others from later collections.

    The modules and tests of a session are so many objects that a full collection takes longer than most judgements.
    So only some begin with one, which frees what earlier tests have left.
    """
    if next(_judgements) % _JUDGEMENTS_PER_COLLECTION == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def _fill_pools() -> list[list[bytes]]:
    """Allocate small objects of each size until the process grows: Python's allocator has no free memory then.

    The largest come first: unused pools, which serve any size, take the fewest of them.
    """
    filling, resident, header = [], _status("VmRSS"), sys.getsizeof(b"")
    for size in range(512, 47, -16):  # it serves sizes up to 512 bytes, in steps of 16
        grown = 0
        while grown < _MIB // 4:  # the kernel counts the pages in batches
            filling.append([bytes(size - header) for _ in range(_MIB // 2 // size)])
            before, resident = resident, _status("VmRSS")
            grown = resident - before
    return filling


def _status(name: str) -> int:
    """Return a number of bytes of the process's status."""
    found = re.search(rf"^{name}:\s*(\d+) kB$", (_PROCESS / "status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
