"""Migrations between real servers whose source or target is killed at a command, while clients read and write."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from redis.crc import key_slot

from e2e.scenarios.redis.clients import Load
from e2e.scenarios.redis.consistency import Death, Read, Write, violations
from e2e.scenarios.redis.replication_monitor import ReplicationMonitor
from e2e.scenarios.redis.session import ignore_unclosed
from e2e.scenarios.redis.workload import Kind
from operators.redis.api.engine_versions import Engine, features
from operators.redis.client.commands import execute
from operators.redis.client.errors import RedisError, Refused
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Server
from operators.redis.migration.commands import MoveSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.support.containers.redis_killing import Killer, Point
from tests.support.containers.redis_moving import FEW, close_arrived
from tools.databases.redis_programs import VERSIONS
from tools.databases.redis_servers import NEWEST, OLDEST, Cluster, Node, Redis, all_know, key_in

pytestmark = pytest.mark.nightly

SEEDS = 90
"""Number of old keys in the slots that move."""

WINDOW_SECONDS = 0.5
"""Time in which clients write after a replica was promoted, and after the migration is complete."""

RESUME_SECONDS = 30.0

KEY_BY_KEY = (
    Point("IMPORTING", 1, after=True),
    Point("MIGRATING", 1, after=True),
    Point("MIGRATE", 1, after=False),
    Point("MIGRATE", 1, after=True),
    Point("MIGRATE", 2, after=True),
    Point("MIGRATE", 8, after=True),
    Point("NODE", 1, after=False),
    Point("NODE", 1, after=True),
    Point("NODE", 2, after=True),
    Point("NODE", 4, after=True),
)
ATOMIC = (
    Point("MIGRATESLOTS", 1, after=False),
    Point("MIGRATESLOTS", 1, after=True),
    Point("GETSLOTMIGRATIONS", 3, after=True),
    Point("GETSLOTMIGRATIONS", 5, after=True, optional=True),
)


_KNOWS_PROMOTED = "promoted" in {each.name for each in fields(MoveSlots)}
"""Whether a call has a field for the slots of a promoted replica of their source."""


@dataclass
class Trial:
    """A migration with a crash.

    Attributes:
        victim: `source` or `target`.
        promoted: whether the replica of the victim takes over before the victim starts again.
        number: number of the trial in its cluster; each moves other slots.
        active: whether clients do not pause although the promoted source does not know that slots migrate. Then their
            reads prove nothing, and only what is left of the copies at both ends is checked.
        target: node id of the target, or of its promoted replica.
        spent: whether the cluster cannot be used for another trial.
        targets: node ids of the target, and its promoted replica: a slot may have been handed over before the crash.
    """

    cluster: Cluster
    victim: str
    promoted: bool
    point: Point
    number: int = 0
    active: bool = False
    problems: list[str] = field(default_factory=list)
    spent: bool = False
    target: str = ""
    targets: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.victim} {'promoted' if self.promoted else 'restarted'} {self.point}"

    @property
    def quiet(self) -> bool:
        """Whether clients pause from the crash until the slots are marked as migrating again.

        Before Valkey 8 a replica does not know that slots of its primary migrate. A promoted one answers "missing" for
        keys that already moved, until the operator marks the slots again, and no operator can be faster than clients.
        """
        return self.promoted and self.victim == "source" and self.cluster.engine == "redis" and not self.active

    @property
    def slots(self) -> Slots:
        return Slots.of(*range(10 * self.number, 10 * self.number + 3))

    async def run(self) -> list[str]:
        """Return the problems; empty if nothing was lost and every slot arrived."""
        reports = await self.cluster.settled()
        primaries = [node for node in self.cluster.nodes if reports[node.id].me.slots]
        source = next(node for node in primaries if not self.slots - reports[node.id].me.slots)
        target = next(node for node in primaries if node is not source)
        self.target, self.targets = target.id, {target.id}
        victim = source if self.victim == "source" else target
        successor = next(node for node, report in reports.items() if report.me.primary == victim.id)
        await self._elect(successor, allowed=self.promoted)
        tags = [key_in(slot).partition(b":")[0].decode() for slot in self.slots]
        with (
            ReplicationMonitor.running(lambda: by_name(self.cluster)) as replication,
            Load.running(lambda: list(by_name(self.cluster).values()), clients=2, tags=tags, seeds=SEEDS) as load,
        ):
            await asyncio.sleep(0.3)

            def kill() -> None:
                load.paused = self.quiet
                replication.crash(victim.name)
                victim.end()

            killer = Killer(self.point, kill)
            with suppress(RedisError):
                await self._moved(killer, Move(source.id, target.id, self.slots))
            if not killer.killed:
                return [] if self.point.optional else [f"{self} was not reached: {len(killer.sent)} commands"]
            if self.promoted:
                await self._failed_over(victim, successor)
            if not self.promoted or victim is target:  # the operator waits for the former target, which may have keys
                await asyncio.to_thread(victim.start)
            await self._resume(load)
            load.paused = False
            if not victim.alive:
                await asyncio.to_thread(victim.start)
            if self.active:
                load.paused = True
                return await self._destroyed(load, replication.deaths())
            if not self.problems:
                await self._settled(source)
                await asyncio.sleep(WINDOW_SECONDS)
        if self.problems:  # slots are not served, or not by the expected node
            return self.problems
        deaths = [replace(each, slots=each.slots | set(self.slots)) for each in replication.deaths()]
        await self._judge(load, deaths)
        return self.problems

    async def _elect(self, replica: str, *, allowed: bool) -> None:
        """Let a replica be elected or not: a restarted server may be away for longer than the node timeout."""
        node = next(each for each in self.cluster.nodes if each.id == replica)
        async with node.connected(self.cluster.access) as server:
            await server.execute("CONFIG", "SET", "cluster-replica-no-failover", "no" if allowed else "yes")

    async def _failed_over(self, victim: Node, successor: str) -> None:
        """Wait until the replica of the victim is a primary, and let clients write to it."""
        await self.cluster.until(
            lambda found: found[successor].me.is_primary and found[successor].state_ok and all_know(found, successor)
        )
        if self.target == victim.id:
            self.target = successor
            self.targets.add(successor)
        await asyncio.sleep(WINDOW_SECONDS)

    async def _resume(self, load: Load) -> None:
        """Complete the migration as the operator does: again and again, from the present owners."""
        deadline = asyncio.get_running_loop().time() + (RESUME_SECONDS / 10 if self.active else RESUME_SECONDS)
        last = "the slots never had an owner"
        while asyncio.get_running_loop().time() < deadline:
            reports = await self._reports()
            left = self.slots - reports[self.target].me.slots
            if not self.slots - Slots.union(reports[node].me.slots for node in self.targets if node in reports):
                return
            for (owner, target), slots in self._planned(reports, left).items():
                marked = Killer(Point("MIGRATING", len(slots), after=True), lambda: setattr(load, "paused", False))
                try:
                    await self._moved(marked, Move(owner, target, Slots.of(*slots)), again=True)
                except RedisError as error:
                    last = str(error)
            await asyncio.sleep(0.2)
        self.problems += [] if self.active else [f"slots {left} did not arrive: {last}"]

    def _planned(self, reports: dict[str, NodeReport], left: Slots) -> dict[tuple[str, str], list[int]]:
        """Return the slots to move by owner and target; the target of an open slot is the node that it is moving to."""
        planned: dict[tuple[str, str], list[int]] = {}
        for node, report in reports.items():
            for slot in report.me.slots & left:
                begun = reports.get(report.me.migrating.get(slot, ""))
                target = self.target if begun is None else begun.me.primary or begun.id
                planned.setdefault((node, target), []).append(slot)
        return planned

    async def _moved(self, killer: Killer, move: Move, *, again: bool = False) -> None:
        """Run a call of the operator.

        Args:
            again: whether the call continues a migration after a crash.
        """
        source_lost = self.promoted and self.victim == "source"
        more: dict[str, Any] = {"promoted": move.slots} if again and source_lost and _KNOWS_PROMOTED else {}
        nodes = {node.id: node.endpoint for node in self.cluster.nodes if node.alive}
        call = MoveSlots(self.cluster.access, (move,), nodes, FEW, 20, **more)
        await execute(killer.connect, call)

    async def _settled(self, source: Node) -> None:
        try:
            await self.cluster.settled()
            await close_arrived(self.cluster, source.id, self.target)
            await self._replicated(await self.cluster.settled())
            self.cluster.check()
        except (AssertionError, RedisError) as error:
            self.problems.append(f"{type(error).__name__}: {str(error)[-300:]}")

    async def _replicated(self, reports: dict[str, NodeReport]) -> None:
        """Make a primary that lost its slots a replica again, as the operator does."""
        nodes = {node.id: node for node in self.cluster.nodes}
        followed = {report.me.primary for report in reports.values()}
        alone = [node for node, report in reports.items() if report.me.slots and node not in followed]
        for node, report in reports.items():
            if report.me.is_primary and not report.me.slots:
                if report.keys:  # the operator deletes no keys without a confirmation
                    self.spent = True
                    return
                await self.cluster.replicate(nodes[node], nodes[alone.pop()])
        await self.cluster.settled()

    async def _destroyed(self, load: Load, deaths: list[Death]) -> list[str]:
        """Return the elements of lists and hashes of which no copy is left.

        Not of counters: if clients added as much at one end as at the other, both copies have the same value, and the
        operator removes one of them.
        """
        await asyncio.sleep(WINDOW_SECONDS)
        found: dict[str, Counter[str]] = {}
        nodes = {node.id: node for node in self.cluster.nodes if node.alive}
        for node, report in (await self.cluster.until(self._covered)).items():
            if report.me.is_primary:
                async with nodes[node].connected() as server:
                    await copies(server, load, report, found)
        writes = [each for each in load.history if isinstance(each, Write) and each.key in found]
        now = time.monotonic()
        return [
            each
            for each in violations([*writes, *(Read(key, count, now, now) for key, count in found.items())], deaths)
            if "misses" in each
        ]

    def _covered(self, reports: dict[str, NodeReport]) -> bool:
        """Return whether every node knows an owner of each slot.

        A heartbeat that the target sent before it took a slot, and that arrives after SETSLOT NODE, makes 7.0 forget
        the owner until the next one.
        """
        return not any(self.slots - Slots.union(node.slots for node in each.nodes) for each in reports.values())

    async def _judge(self, load: Load, deaths: list[Death]) -> None:
        try:
            await asyncio.to_thread(load.check, deaths)
        except AssertionError as error:
            self.problems.append(str(error)[:600])

    async def _reports(self) -> dict[str, NodeReport]:
        return await self.cluster.until(lambda _: True)


async def copies(server: Server, load: Load, report: NodeReport, found: dict[str, Counter[str]]) -> None:
    """Add the elements of the lists and hashes that a primary has, even of slots that it does not own."""
    for name, key in load.workload.keys.items():
        if key.kind not in (Kind.LIST, Kind.HASH):
            continue
        count = found.setdefault(name, Counter())
        if (slot := key_slot(name.encode())) not in report.me.slots:
            owner = next(node.id for node in report.nodes if slot in node.slots)
            await server.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", owner)
        _, reply = await server.pipe([("ASKING",), key.read()])
        if isinstance(reply, Refused) or reply is None:
            continue  # the reply redirects: the key is at the other end
        if key.kind is Kind.HASH:
            reply = dict(zip(reply[::2], reply[1::2], strict=True))
        value = key.found(reply)
        assert not isinstance(value, int)
        count.update(value)


def by_name(cluster: Cluster) -> dict[str, tuple[str, int]]:
    return {node.name: ("127.0.0.1", node.port) for node in cluster.nodes}


async def matrix(
    redis: Redis, engine: tuple[str, str], victim: str, points: Sequence[Point], *, promoted: bool
) -> None:
    """Run trials, in the same cluster as far as possible, and assert that none has a problem."""
    asyncio.get_running_loop().set_exception_handler(ignore_unclosed)
    problems: dict[str, list[str]] = {}
    waiting = list(enumerate(points))
    while waiting:
        with redis.cluster(engine) as cluster:
            await cluster.form(3, 1)
            while waiting:
                number, point = waiting.pop(0)
                trial = Trial(cluster, victim, promoted, point, number)
                if found := await trial.run():
                    problems[str(trial)] = found
                if found or trial.spent:
                    break
    listed = "\n".join(f"{trial}: {'; '.join(found)}" for trial, found in problems.items())
    assert not problems, f"{len(problems)} of {len(points)} crashes:\n{listed}"


EVERY = [
    (engine, victim, promoted)
    for engine in VERSIONS
    if engine == NEWEST or features(Engine.parse(" ".join(engine))).migration == "keys"
    for victim in ("source", "target")
    for promoted in (False, True)
]


@pytest.mark.parametrize(
    ("victim", "promoted", "point"),
    [("source", True, KEY_BY_KEY[4]), ("target", True, KEY_BY_KEY[4]), ("target", False, KEY_BY_KEY[7])],
    ids=str,
)
async def test_crash_of_an_end_loses_nothing(redis: Redis, victim: str, promoted: bool, point: Point) -> None:
    await matrix(redis, OLDEST, victim, [point], promoted=promoted)


@pytest.mark.weekly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "victim", "promoted"), EVERY, ids=str)
async def test_crash_of_an_end_at_any_stage_loses_nothing(
    redis: Redis, engine: tuple[str, str], victim: str, promoted: bool
) -> None:
    points = ATOMIC if engine == NEWEST else KEY_BY_KEY
    await matrix(redis, engine, victim, points, promoted=promoted)


@pytest.mark.parametrize("point", [KEY_BY_KEY[4], pytest.param(KEY_BY_KEY[5], marks=pytest.mark.weekly)], ids=str)
async def test_keys_that_moved_are_not_replaced_by_those_of_a_promoted_source(redis: Redis, point: Point) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3, 1)
        assert await Trial(cluster, "source", True, point, active=True).run() == []
