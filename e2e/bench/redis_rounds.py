"""What is measured: a fourth master joins three, on servers of their own on loopback, beside clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from e2e.bench.redis_measures import Race, Side
from e2e.cluster.paths import REPOSITORY
from e2e.databases.redis_servers import Cluster
from e2e.scenarios.redis.clients import Load
from operators.redis.slots.hash_slots import SLOTS, key_slot

VALUE = b"x" * 100

PIPELINE = 100
"""Keys that the servers' own client moves at once, which is the fastest that it was seen to be."""

BATCH = 5_000

WINDOW = 5.0
"""Seconds for which clients are watched, at least: of a few operations, the slowest alone would be told."""

PATIENCE = 300.0
"""Seconds after which slots that do not move are a failure."""


class Bench:
    """Three masters with keys, and a fourth with none."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @classmethod
    @contextmanager
    def started(cls, cluster: Cluster, keys: int) -> Iterator[Bench]:
        """With so many keys."""

        async def prepare() -> None:
            await cluster.form(3)
            await _fill(cluster, keys)
            await cluster.join()

        asyncio.run(prepare())
        yield cls(cluster)
        cluster.check()

    def race(self, *, ours_first: bool) -> Race:
        """Both, one after the other, beside clients whose every acknowledged write is looked for afterwards.

        Raises:
            AssertionError: one of them failed, or a write is lost.
        """
        with Load.going_on(self._addresses, size=len(VALUE)) as load:
            found: dict[str, Side] = {}
            for side in ("ours", "theirs") if ours_first else ("theirs", "ours"):
                found[side] = self._measured(
                    load, self._mover(masters=4) if side == "ours" else nullcontext(self._by_client)
                )
                with self._mover(masters=3) as move:
                    move()
                asyncio.run(self.cluster.settled())
        load.check()
        return Race(found["ours"], found["theirs"])

    def _measured(self, load: Load, mover: AbstractContextManager[Callable[[], float]]) -> Side:
        asyncio.run(self.cluster.settled())
        with mover as move:  # ready before anything is measured: an operator does not start for a move
            time.sleep(1)
            before, errors = len(load.waits), Counter(load.errors)
            began = time.monotonic()
            seconds = move()
            time.sleep(max(0.0, WINDOW - (time.monotonic() - began)))
            waits, after = load.waits[before:], Counter(load.errors)
        said = asyncio.run(self.cluster.settled())
        slots = len(said[self.cluster.nodes[3].id].me.slots)
        assert slots == SLOTS // 4, f"the fourth master has {slots} slots"
        return Side(seconds, slots, waits, dict(after - errors))

    def _by_client(self) -> float:
        """The servers' own client, which starts in no time; the seconds that it took."""
        began = time.monotonic()
        self.cluster.cli(
            *("--cluster", "rebalance", f"127.0.0.1:{self.cluster.nodes[0].port}", "--cluster-use-empty-masters"),
            *("--cluster-pipeline", str(PIPELINE)),
        )
        return time.monotonic() - began

    @contextmanager
    def _mover(self, masters: int) -> Iterator[Callable[[], float]]:
        """The operator's engine, ready to begin; it tells the seconds that it took."""
        nodes = [(node.id, node.name, node.port) for node in self.cluster.nodes]
        told = {"nodes": nodes, "masters": [node.id for node in self.cluster.nodes[:masters]]}
        command = [sys.executable, "-m", "e2e.bench.redis_mover"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(told), file=process.stdin, flush=True)
            assert process.stdout.readline() == "ready\n"

            def move() -> float:
                seconds, _ = process.communicate("\n", timeout=PATIENCE)
                assert process.returncode == 0, "the operator's engine failed"
                return float(seconds)

            yield move

    def _addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", node.port) for node in self.cluster.nodes]


async def _fill(cluster: Cluster, keys: int) -> None:
    said = await cluster.says()
    owner = {slot: node_id for node_id, each in said.items() for slot in each.me.slots}
    theirs: dict[str, list[tuple[str, bytes, bytes]]] = {node_id: [] for node_id in said}
    for number in range(keys):
        key = b"key:%d" % number
        theirs[owner[key_slot(key)]].append(("SET", key, VALUE))
    for node in cluster.nodes:
        async with node.asked() as server:
            for at in range(0, len(theirs[node.id]), BATCH):
                assert set(await server.pipe(theirs[node.id][at : at + BATCH])) == {"OK"}
