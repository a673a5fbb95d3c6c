"""Continuous client load on a Redis Cluster, with a history of all operations."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions

from e2e.scenarios.redis.consistency import Death, Operation, Read, Write, lost, violations
from e2e.scenarios.redis.session import FAILURES, TIMEOUT, Access, Address, Client, Resolve, ignore_unclosed
from e2e.scenarios.redis.workload import MIX, Command, Key, Kind, Workload

PATIENCE = 30.0
"""Seconds within which an operation must succeed, with any number of attempts."""

PAUSE = 0.01
"""Seconds between two operations of one client, so that the load suits a small machine."""

SEEDS = 600
"""Number of keys that are written before the clients start, by default."""

BATCH = 500
"""Number of commands of a pipeline, before the clients start and after they ended."""

SEEDING_SECONDS = 120.0
"""Maximum time until the old keys are written."""

Find = Callable[[], Sequence[Address]]
"""Returns the current addresses of the nodes' pods."""


def is_connection_failure(error: BaseException) -> bool:
    """Whether an attempt failed to connect, by the message of redis-py."""
    return isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError) and "connecting to" in str(error)


def is_refusal(error: BaseException) -> bool:
    """Whether the server rejected a command, which therefore had no effect."""
    return isinstance(error, exceptions.ResponseError | exceptions.BusyLoadingError)


@dataclass
class Load:
    """Operations of all clients, and their results.

    Attributes:
        find: returns the addresses of the nodes.
        access: credentials that clients use from their next connection on.
        resolve: returns the address of a node by the name that servers announce.
        workload: keys, and what the clients do with them.
        patience: seconds within which an operation must succeed, see PATIENCE.
        seeds: number of keys that are written before the clients start.
        paused: whether the clients start no more operations.
        history: every attempt that may have had an effect, including those without an answer.
        waits: seconds that each operation took, with all its attempts.
        errors: failed attempts by error; `MOVED` and `ASK` are not errors.
        connection_failures: attempts that did not connect and sent nothing: the client's slot map named a removed node.
        failures: operations that did not succeed within `patience`.
    """

    find: Find
    access: Access = field(default_factory=Access)
    resolve: Resolve = str
    workload: Workload = field(default_factory=lambda: Workload(1, ""))
    patience: float = PATIENCE
    seeds: int = SEEDS
    paused: bool = False
    history: list[Operation] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    connection_failures: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _addresses: Sequence[Address] = ()
    _found_at: float = float("-inf")
    _finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def running(
        cls,
        find: Find,
        access: Access | None = None,
        *,
        clients: int = 3,
        prefix: str = "",
        tags: Sequence[str] = (),
        kinds: Sequence[Kind] = MIX,
        size: int = 20,
        **settings: Any,
    ) -> Iterator[Load]:
        """Write old keys, and run clients within the block, which starts after their first answer.

        Args:
            prefix: prefix of all keys; a hash tag in it puts them into one slot.
            tags, kinds, size: see `Workload`.
            settings: attributes of the load.
        """
        unique = f"{prefix}{secrets.token_hex(3)}-"  # keys of an earlier load belong to that load
        load = cls(find, access or Access(), workload=Workload(clients, unique, tags, kinds, size), **settings)
        working = threading.Thread(target=load._run_thread, daemon=True)
        working.start()
        try:
            deadline = time.monotonic() + load.patience + SEEDING_SECONDS
            while not load.waits and working.is_alive() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield load
        finally:
            load._ending.set()
            working.join(load.patience + 2 * TIMEOUT)

    @property
    def written(self) -> int:
        """Number of acknowledged writes of the clients, without the old keys."""
        answered = sum(isinstance(each, Write) and each.returned is not None for each in self.history)
        return max(0, answered - self.seeds)

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
        assert self.connection_failures.total() <= removed * self.workload.clients, self.summary()
        return True

    def check(self, deaths: Sequence[Death] = ()) -> int:
        """Read every key, and assert that nothing acknowledged is lost, except for the budget of these deaths.

        Returns:
            Number of acknowledged writes of the clients that were checked.
        """
        assert not self.failures, self.failures[:3]
        finals = self.finals()
        found = violations([*self.history, *finals], deaths)
        print(f"{self.summary()}, lost {len(lost(self.history, finals))} of {len(self.workload.keys)} keys' writes")
        for death in deaths:
            print(
                f"{death.name}: {len(death.slots)} slots, at most {death.until - death.replicated:.2f} s unreplicated"
            )
        assert not found, f"{len(found)} violations, the first: " + "\n".join(found[:5])
        assert self.written > 0, "no write was acknowledged"
        return self.written

    def finals(self) -> list[Read]:
        """Read every key once."""
        wrote = {each.key for each in self.history if isinstance(each, Write)}
        self._finding = asyncio.Lock()  # the former lock belongs to a closed event loop
        return asyncio.run(self._read_all([key for name, key in self.workload.keys.items() if name in wrote]))

    # Clients.

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:  # an exception in a thread is reported nowhere else
            self.failures.append(f"the clients stopped: {error!r}")

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(ignore_unclosed)
        await self._seed()
        await asyncio.gather(*(self._work(number) for number in range(self.workload.clients)))

    async def _seed(self) -> None:
        """Write the old keys."""
        keys = list(self.workload.seeds(self.seeds))
        session = await self._connected()
        try:
            for begin in range(0, len(keys), BATCH):
                batch = keys[begin : begin + BATCH]
                commands = [key.seed(self.workload.size) for key in batch]
                called = time.monotonic()
                replies = await self._pipe(session, commands)
                for key, command, reply in zip(batch, commands, replies, strict=True):
                    self.history += key.wrote(command, called, time.monotonic(), reply)
        finally:
            await session.end()

    async def _work(self, client: int) -> None:
        session: Client | None = None
        access = self.access
        for turn in itertools.count():
            if self._ending.is_set():
                break
            if self.paused:
                await asyncio.sleep(PAUSE)
                continue
            if session is not None and access is not self.access:
                await session.end()
                session, access = None, self.access
            began, attempts, last = time.monotonic(), 0, ""
            while time.monotonic() - began < self.patience:
                try:
                    session = session or await self._connected()
                    await session.drop_closed()
                    await self._operate(session, client, turn)
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

    async def _operate(self, session: Client, client: int, turn: int) -> None:
        if turn % 3 == 2:
            await self._read(session, self.workload.to_read())
        else:
            await self._write(session, self.workload.to_write(client, turn - turn // 3))

    async def _write(self, session: Client, key: Key) -> None:
        command, called = key.next(self.workload.size), time.monotonic()
        try:
            reply = await session.execute_command(*command)
        except BaseException as error:
            if not is_refusal(error) and not is_connection_failure(error):
                self.history += key.wrote(command, called, None, None)
            raise
        self.history += key.wrote(command, called, time.monotonic(), reply)
        if command[0] == "DEL":
            await self._read(session, key)

    async def _read(self, session: Client, key: Key) -> None:
        called = time.monotonic()
        reply = await session.execute_command(*key.read())
        self.history.append(Read(key.name, key.found(reply), called, time.monotonic()))

    async def _read_all(self, keys: Sequence[Key]) -> list[Read]:
        asyncio.get_running_loop().set_exception_handler(ignore_unclosed)
        deadline = time.monotonic() + self.patience
        session: Client | None = None
        found: list[Read] = []
        try:
            while len(found) < len(keys):
                try:
                    session = session or await self._connected()
                    batch, called = keys[len(found) : len(found) + BATCH], time.monotonic()
                    replies = await self._pipe(session, [key.read() for key in batch])
                    ended = time.monotonic()
                    found += [
                        Read(key.name, key.found(reply), called, ended)
                        for key, reply in zip(batch, replies, strict=True)
                    ]
                except FAILURES:
                    if time.monotonic() > deadline:
                        raise
                    if session is not None:
                        await session.end()
                    session = None
                    await asyncio.sleep(0.2)
            return found
        finally:
            if session is not None:
                await session.end()

    @staticmethod
    async def _pipe(session: Client, commands: Sequence[Command]) -> list[Any]:
        pipeline = session.pipeline()
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute())

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
