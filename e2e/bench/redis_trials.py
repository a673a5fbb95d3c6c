"""Measurement of slot migration under load: a fourth primary joins three, on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from redis.crc import key_slot

from e2e.bench.redis_measures import Race, Side
from e2e.scenarios.redis.clients import Load
from e2e.scenarios.redis.workload import Kind
from operators.redis.slots.hash_slots import SLOTS
from tools.databases.redis_servers import Cluster
from tools.local.paths import REPOSITORY

PIPELINE = 100
"""Keys that redis-cli moves per command (--cluster-pipeline); the fastest of the tried values."""

BATCH = 5_000

WINDOW = 5.0
"""Minimum duration of a measurement in seconds: with few operations the p99 would be the slowest one."""

MIGRATION_TIMEOUT = 300.0
"""Time allowed for a migration, in seconds."""


class Bench:
    """Three primaries with keys, and an empty fourth one."""

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster = cluster
        self._size = size

    @classmethod
    @contextmanager
    def started(cls, cluster: Cluster, keys: int, size: int) -> Iterator[Bench]:
        """Create the primaries and write `keys` keys of `size` bytes; check the cluster at the end of the context."""

        async def prepare() -> None:
            await cluster.form(3)
            await _fill(cluster, keys, b"x" * size)
            await cluster.join()

        asyncio.run(prepare())
        yield cls(cluster, size)
        cluster.check()

    def race(self, *, operator_first: bool) -> Race:
        """Measure the operator and the command-line client in turn, under load; then verify every acknowledged write.

        Raises:
            AssertionError: a migration failed, or an acknowledged write is lost.
        """
        with Load.running(self._addresses, kinds=(Kind.PLAIN,), seeds=0, size=self._size) as load:
            found: dict[str, Side] = {}
            for side in ("operator", "cli") if operator_first else ("cli", "operator"):
                found[side] = self._measured(
                    load, self._by_operator(primaries=4) if side == "operator" else nullcontext(self._by_cli)
                )
                with self._by_operator(primaries=3) as move:
                    move()
                asyncio.run(self.cluster.settled())
        load.check()
        return Race(found["operator"], found["cli"])

    def _measured(self, load: Load, mover: AbstractContextManager[Callable[[], float]]) -> Side:
        asyncio.run(self.cluster.settled())
        with mover as move:  # start the process before the measurement: an operator is already running
            time.sleep(1)
            before, errors = len(load.waits), Counter(load.errors)
            began = time.monotonic()
            seconds = move()
            time.sleep(max(0.0, WINDOW - (time.monotonic() - began)))
            waits, after = load.waits[before:], Counter(load.errors)
        reports = asyncio.run(self.cluster.settled())
        slots = len(reports[self.cluster.nodes[3].id].me.slots)
        assert slots == SLOTS // 4, f"the fourth primary has {slots} slots, expected {SLOTS // 4}"
        return Side(seconds, slots, waits, dict(after - errors))

    def _by_cli(self) -> float:
        """Rebalance with redis-cli or valkey-cli; return the duration in seconds."""
        began = time.monotonic()
        self.cluster.cli(
            *("--cluster", "rebalance", f"127.0.0.1:{self.cluster.nodes[0].port}", "--cluster-use-empty-masters"),
            *("--cluster-pipeline", str(PIPELINE)),
        )
        return time.monotonic() - began

    @contextmanager
    def _by_operator(self, primaries: int) -> Iterator[Callable[[], float]]:
        """Start the operator's migration process; the yielded function rebalances and returns the seconds."""
        nodes = [(node.id, node.name, node.port) for node in self.cluster.nodes]
        task = {"nodes": nodes, "primaries": [node.id for node in self.cluster.nodes[:primaries]]}
        command = [sys.executable, "-m", "e2e.bench.redis_mover"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(task), file=process.stdin, flush=True)
            assert process.stdout.readline() == "ready\n"

            def move() -> float:
                seconds, _ = process.communicate("\n", timeout=MIGRATION_TIMEOUT)
                assert process.returncode == 0, "the operator's migration failed"
                return float(seconds)

            yield move

    def _addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", node.port) for node in self.cluster.nodes]


async def _fill(cluster: Cluster, keys: int, value: bytes) -> None:
    reports = await cluster.reports()
    owner = {slot: node_id for node_id, each in reports.items() for slot in each.me.slots}
    commands: dict[str, list[tuple[str, bytes, bytes]]] = {node_id: [] for node_id in reports}
    for number in range(keys):
        key = b"key:%d" % number
        commands[owner[key_slot(key)]].append(("SET", key, value))
    for node in cluster.nodes:
        async with node.connected() as server:
            for at in range(0, len(commands[node.id]), BATCH):
                assert set(await server.pipe(commands[node.id][at : at + BATCH])) == {"OK"}
