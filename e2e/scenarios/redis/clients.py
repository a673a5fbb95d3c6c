"""Continuous client load on a Redis Cluster, with a history of all operations."""

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
from e2e.scenarios.redis.session import FAILURES, TIMEOUT, Access, Address, Client, Resolve, ignore_unclosed

PATIENCE = 30.0
"""Seconds within which an operation must succeed, with any number of attempts."""

PAUSE = 0.01
"""Seconds between two operations of one client, so that the load suits a small machine."""

REGISTERS = 5
"""Keys that each client overwrites; every other write is to a new key."""

Find = Callable[[], Sequence[Address]]
"""Returns the current addresses of the nodes' pods."""


def is_connection_failure(error: BaseException) -> bool:
    """Whether an attempt failed to connect, by the message of redis-py."""
    return isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError) and "connecting to" in str(error)


@dataclass
class Register:
    """Key that a single client overwrites."""

    name: str
    generation: int = 0
    number: int = 0

    @property
    def key(self) -> str:
        return f"{self.name}.{self.generation}"

    def give_up(self) -> None:
        """Continue with another key: an unanswered write may take effect at any time."""
        self.generation, self.number = self.generation + 1, 0


@dataclass
class Load:
    """Operations of all clients, and their results.

    Attributes:
        find: returns the addresses of the nodes.
        access: credentials that clients use from their next connection on.
        resolve: returns the address of a node by the name that servers announce.
        prefix: prefix of all keys; a hash tag in it puts them into one slot.
        patience: seconds within which an operation must succeed, see PATIENCE.
        size: minimum size of a value, in bytes.
        history: every attempt, including those without an answer.
        waits: seconds that each operation took, with all its attempts.
        errors: failed attempts by error; `MOVED` and `ASK` are not errors.
        connection_failures: attempts that did not connect and sent nothing: the client's slot map named a removed node.
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
    connection_failures: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _registers: list[Register] = field(default_factory=list)
    _addresses: Sequence[Address] = ()
    _found_at: float = float("-inf")
    _finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def running(cls, find: Find, access: Access | None = None, *, clients: int = 3, **settings: Any) -> Iterator[Load]:
        """Run clients that write and read within the block, which starts after the first answer.

        Args:
            settings: attributes of the load.
        """
        load = cls(find, access or Access(), **settings)
        load.prefix += f"{secrets.token_hex(3)}-"  # keys of an earlier load belong to that load
        load._registers = [Register(f"{load.prefix}register-{number}") for number in range(clients * REGISTERS)]
        working = threading.Thread(target=load._run_thread, args=(clients,), daemon=True)
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
        """Number of acknowledged writes."""
        return sum(each.write and each.returned is not None for each in self.history)

    @property
    def slowest(self) -> float:
        """Duration of the slowest operation, in seconds."""
        return max(self.waits, default=0.0)

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of the operations succeeded."""
        ordered = sorted(self.waits) or [float("nan")]
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def summary(self) -> str:
        """Return a summary in one line."""
        p50, p99 = (1000 * self.percentile(share) for share in (0.5, 0.99))
        errors = dict(self.errors + self.connection_failures) or "none"
        return (
            f"{self.written} writes, p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {self.slowest:.2f} s, errors {errors}"
        )

    def is_undisturbed(self, *, removed: int = 0) -> bool:
        """Assert that no attempt failed, except one failed connection per client for each removed primary.

        Args:
            removed: number of primaries that handed over their slots and were removed or restarted.
        """
        assert self.errors == Counter(), self.summary()
        assert self.connection_failures.total() <= removed * len(self._registers) // REGISTERS, self.summary()
        return True

    def check(self, *, loss_windows: Iterable[Interval] = ()) -> int:
        """Read every key, and assert that no acknowledged write is lost and no read is stale.

        Args:
            loss_windows: times around the crash of a primary, in which acknowledged writes may be lost.

        Returns:
            Number of acknowledged writes that were checked.
        """
        intervals = tuple(loss_windows)
        assert not self.failures, self.failures[:3]
        finals = self.finals()
        found = violations([*forgiving(self.history, intervals), *finals])
        print(f"{self.summary()}, lost {len(lost(self.history, finals))}")
        assert not found, f"{len(found)} violations, the first: " + "\n".join(found[:5])
        assert self.written > 0, "no write was acknowledged"
        return self.written

    def finals(self) -> list[Operation]:
        """Read every key once."""
        keys = sorted({each.key for each in self.history if each.write})
        self._finding = asyncio.Lock()  # the former lock belongs to a closed event loop
        return asyncio.run(self._read_all(keys))

    # Clients.

    def _run_thread(self, clients: int) -> None:
        try:
            asyncio.run(self._run(clients))
        except Exception as error:  # an exception in a thread is reported nowhere else
            self.failures.append(f"the clients stopped: {error!r}")

    async def _run(self, clients: int) -> None:
        asyncio.get_running_loop().set_exception_handler(ignore_unclosed)
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
                    counter = self.connection_failures if is_connection_failure(error) else self.errors
                    counter[last.splitlines()[0][:200]] += 1
                    if session is not None and attempts > 1:  # redis-py rediscovers only known addresses
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
        asyncio.get_running_loop().set_exception_handler(ignore_unclosed)
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
        async with self._finding:
            if time.monotonic() - self._found_at > 0.5:
                self._addresses = await asyncio.to_thread(self._find) or self._addresses
                self._found_at = time.monotonic()
        return await Client.connected(self._addresses, self.access, self.resolve)

    def _find(self) -> Sequence[Address]:
        try:
            return self.find()
        except Exception:  # the API may be down; the nodes keep their addresses
            return ()

    async def _read(self, session: Client, key: str) -> Operation:
        called = time.monotonic()
        value = await session.get(key)
        number = int(value.partition(":")[0]) if isinstance(value, str) else 0
        return Operation(key, number, False, called, time.monotonic())
