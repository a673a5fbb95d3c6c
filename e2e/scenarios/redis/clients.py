"""Clients of Redis Cluster that never rest: they write and read wherever a slot is, and note what they were told."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions

from e2e.scenarios.redis.consistency import Interval, Operation, forgiving, lost, violations
from e2e.scenarios.redis.session import FAILURES, TIMEOUT, Access, Address, Client, Resolve, unless_unclosed

PATIENCE = 30.0
"""Seconds within which an operation must succeed, by whatever number of attempts."""

PAUSE = 0.01
"""Seconds between two operations of one client: the machine is small."""

REGISTERS = 5
"""Keys that each client writes again and again; every other write is of a key of its own."""

Find = Callable[[], Sequence[Address]]
"""Where nodes are now: the addresses of their pods."""


def is_unreached(error: BaseException) -> bool:
    """Whether an attempt came to nobody at an address, by the words of redis-py."""
    return isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError) and "connecting to" in str(error)


@dataclass
class Register:
    """A key that one client writes again and again."""

    name: str
    generation: int = 0
    number: int = 0

    @property
    def key(self) -> str:
        return f"{self.name}.{self.generation}"

    def give_up(self) -> None:
        """Go on with another key: nobody knows when a write that was not answered comes about."""
        self.generation, self.number = self.generation + 1, 0


@dataclass
class Load:
    """What clients did and were told.

    Attributes:
        find: tells where nodes are.
        access: what clients bring from their next connection on.
        resolve: tells the addresses of nodes by what servers call them.
        prefix: what the keys begin with; with a hash tag in it, they are all in one slot.
        patience: seconds; see PATIENCE.
        size: bytes of a value, at least.
        history: every attempt; those without an answer too.
        waits: seconds that each operation took, its repetitions counted in.
        errors: attempts that were not answered with success, by what was said instead; MOVED and ASK are none.
        unreached: attempts that came to nobody, and sent nothing: the client's map named a node that was gone by then.
        failures: operations that did not succeed within `patience`.
    """

    find: Find
    access: Access = field(default_factory=Access)
    resolve: Resolve = str
    prefix: str = ""
    patience: float = PATIENCE
    size: int = 20
    history: list[Operation] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    unreached: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _registers: list[Register] = field(default_factory=list)
    _addresses: Sequence[Address] = ()
    _looked: float = float("-inf")
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def going_on(cls, find: Find, access: Access | None = None, *, clients: int = 3, **settings: Any) -> Iterator[Load]:
        """So many clients write and read within the block; there is a first answer when it begins.

        Args:
            settings: attributes of the load.
        """
        load = cls(find, access or Access(), **settings)
        load.prefix += f"{secrets.token_hex(3)}-"  # what an earlier load left is none of its own
        load._registers = [Register(f"{load.prefix}register-{number}") for number in range(clients * REGISTERS)]
        working = threading.Thread(target=load._go_on, args=(clients,), daemon=True)
        working.start()
        try:
            deadline = time.monotonic() + load.patience
            while not load.waits and time.monotonic() < deadline:
                time.sleep(0.05)
            yield load
        finally:
            load._ending.set()
            working.join(load.patience + 2 * TIMEOUT)

    @property
    def written(self) -> int:
        """How many writes were acknowledged."""
        return sum(each.write and each.returned is not None for each in self.history)

    @property
    def slowest(self) -> float:
        """The longest that an operation took, in seconds."""
        return max(self.waits, default=0.0)

    def percentile(self, share: float) -> float:
        """The seconds within which such a share of the operations succeeded."""
        ordered = sorted(self.waits) or [float("nan")]
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def told(self) -> str:
        """What came of it, in a line for people."""
        p50, p99 = (1000 * self.percentile(share) for share in (0.5, 0.99))
        errors = dict(self.errors + self.unreached) or "none"
        return (
            f"{self.written} writes, p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {self.slowest:.2f} s, errors {errors}"
        )

    def unfelt(self, *, gone: int = 0) -> bool:
        """See that no attempt failed; but where masters went, each client may have found out by coming to nobody, once.

        Args:
            gone: how many masters handed over their slots and went, or were restarted.
        """
        assert self.errors == Counter(), self.told()
        assert self.unreached.total() <= gone * len(self._registers) // REGISTERS, self.told()
        return True

    def check(self, *, loses: Iterable[Interval] = ()) -> int:
        """Read every key that was ever written, and see that nothing acknowledged is lost, and no read went back.

        Args:
            loses: when a master crashed: what was acknowledged then may be lost.

        Returns:
            How many acknowledged writes were checked.
        """
        intervals = tuple(loses)
        assert not self.failures, self.failures[:3]
        finals = self.finals()
        found = violations([*forgiving(self.history, intervals), *finals])
        print(f"{self.told()}, lost {len(lost(self.history, finals))}")
        assert not found, f"{len(found)} violations, the first: " + "\n".join(found[:5])
        assert self.written > 0, "nothing was ever written"
        return self.written

    def finals(self) -> list[Operation]:
        """A read of every key that was ever written."""
        keys = sorted({each.key for each in self.history if each.write})
        self._looking = asyncio.Lock()  # the one that there was belongs to the loop that has ended
        return asyncio.run(self._read_all(keys))

    # The clients.

    def _go_on(self, clients: int) -> None:
        try:
            asyncio.run(self._run(clients))
        except Exception as error:  # nobody else hears of what ends a thread
            self.failures.append(f"the clients broke off: {error!r}")

    async def _run(self, clients: int) -> None:
        asyncio.get_running_loop().set_exception_handler(unless_unclosed)
        await asyncio.gather(*(self._work(number) for number in range(clients)))

    async def _work(self, client: int) -> None:
        own = self._registers[client * REGISTERS :][:REGISTERS]
        session: Client | None = None
        access = self.access
        for turn in itertools.count():
            if self._ending.is_set():
                break
            if session is not None and access is not self.access:
                await session.end()
                session, access = None, self.access
            began, attempts, last = time.monotonic(), 0, ""
            while time.monotonic() - began < self.patience:
                try:
                    session = session or await self._connected()
                    await session.drop_closed()
                    await self._operate(session, client, turn, own)
                    self.waits.append(time.monotonic() - began)
                    break
                except FAILURES as error:
                    attempts, last = attempts + 1, f"{type(error).__name__}: {error}"
                    (self.unreached if is_unreached(error) else self.errors)[last.splitlines()[0][:200]] += 1
                    if session is not None and attempts > 1:  # redis-py looks around by itself, but only where it was
                        await session.end()
                        session = None
                    await asyncio.sleep(5 * PAUSE)
            else:
                self.failures.append(f"client {client}: {attempts} attempts in {self.patience:g} s, the last: {last}")
            await asyncio.sleep(PAUSE)
        if session is not None:
            await session.end()

    async def _operate(self, session: Client, client: int, turn: int, own: Sequence[Register]) -> None:
        if turn % 3 == 0:
            await self._write(session, Register(f"{self.prefix}own-{client}-{turn}"))
        elif turn % 3 == 1:
            await self._write(session, own[turn % len(own)])
        else:
            self.history.append(await self._read(session, random.choice(self._registers).key))

    async def _write(self, session: Client, register: Register) -> None:
        register.number += 1
        key, number, called = register.key, register.number, time.monotonic()
        try:
            await session.set(key, f"{number}:".ljust(self.size, "."))
        except BaseException:
            self.history.append(Operation(key, number, write=True, called=called))
            register.give_up()
            raise
        self.history.append(Operation(key, number, True, called, time.monotonic()))

    async def _read_all(self, keys: Sequence[str]) -> list[Operation]:
        asyncio.get_running_loop().set_exception_handler(unless_unclosed)
        deadline = time.monotonic() + self.patience
        session: Client | None = None
        found: dict[str, Operation] = {}
        try:
            while len(found) < len(keys):
                try:
                    session = session or await self._connected()
                    for key in keys:
                        if key not in found:
                            found[key] = await self._read(session, key)
                except FAILURES:
                    if time.monotonic() > deadline:
                        raise
                    if session is not None:
                        await session.end()
                    session = None
                    await asyncio.sleep(0.2)
            return list(found.values())
        finally:
            if session is not None:
                await session.end()

    async def _connected(self) -> Client:
        async with self._looking:
            if time.monotonic() - self._looked > 0.5:
                self._addresses = await asyncio.to_thread(self._find) or self._addresses
                self._looked = time.monotonic()
        return await Client.connected(self._addresses, self.access, self.resolve)

    def _find(self) -> Sequence[Address]:
        try:
            return self.find()
        except Exception:  # the API may be away; the nodes are where they were
            return ()

    async def _read(self, session: Client, key: str) -> Operation:
        called = time.monotonic()
        value = await session.get(key)
        number = int(value.partition(":")[0]) if isinstance(value, str) else 0
        return Operation(key, number, False, called, time.monotonic())
