"""Benchmark of the redis operator's planning: primaries and replicas of large clusters on random hosts and zones.

Usage: python -m e2e.bench.redis_planning. It needs no server. Each time is CPU time in one piece, during which the
event loop of the operator is blocked.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from e2e.bench.measures import Goal
from e2e.bench.output import goals_table, run
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.improvement import next_change
from operators.redis.slots.pairing import pair
from operators.redis.slots.placement import Location, choose_primaries
from tools.local.paths import REPOSITORY

RESULT = REPOSITORY / ".bench" / "redis-planning.json"

SIZES = ((250, 250), (100, 400))
"""Primaries and replicas: 500 nodes, the maximum of the CRD."""

HOSTS, ZONES = 100, 3

ROUNDS = 5
"""Random clusters of each size; the slowest counts."""

FIRST_MILLISECONDS, UNCHANGED_MILLISECONDS = 100, 30
"""Goals for a cluster that is planned for the first time, and for one in which little has to change."""


@dataclass(frozen=True)
class Planning:
    """Slowest plans of the placement of a cluster, in seconds.

    Attributes:
        primaries: number of primaries.
        replicas: number of replicas.
        first: choice of the primaries, and of the primary of each replica, for empty nodes.
        unchanged: the same for a cluster that has its best placement, with the check that no change improves it.
        moved: the same after five pods were rescheduled to one host, up to the first change.
    """

    primaries: int
    replicas: int
    first: float = 0.0
    unchanged: float = 0.0
    moved: float = 0.0


def measure(primaries: int, replicas: int, *, hosts: int = HOSTS, rounds: int = ROUNDS) -> Planning:
    """Plan random clusters of one size."""
    found = [_plan(primaries, replicas, hosts, random.Random(seed)) for seed in range(rounds)]
    slowest = (max(getattr(each, name) for each in found) for name in ("first", "unchanged", "moved"))
    return Planning(primaries, replicas, *slowest)


def _plan(primaries: int, replicas: int, hosts: int, chance: random.Random) -> Planning:
    nodes = [f"node-{number}" for number in range(primaries + replicas)]
    at = {node: _location(chance.randrange(hosts)) for node in nodes}
    shards: dict[str, list[str]] = {}

    def first() -> None:
        chosen = choose_primaries(nodes, primaries, at, {})
        pairs = pair(chosen, [node for node in nodes if node not in set(chosen)], at, {})
        shards.update(_shards(chosen, pairs))

    first_seconds = _seconds(first)
    assert next_change(shards, at) is None, "the first placement is the best"
    moved = at | dict.fromkeys(chance.sample(nodes, 5), at[nodes[0]])
    return Planning(
        primaries,
        replicas,
        first_seconds,
        _seconds(lambda: _again(shards, at)),
        _seconds(lambda: _again(shards, moved)),
    )


def _again(shards: Mapping[str, Sequence[str]], at: Mapping[str, Location]) -> None:
    """Plan an existing cluster as a reconcile does."""
    owners = {primary: Slots.of(number) for number, primary in enumerate(shards)}
    current = {replica: primary for primary, replicas in shards.items() for replica in replicas}
    chosen = choose_primaries(tuple(at), len(shards), at, owners, current)
    pair(chosen, tuple(current), at, current, keep=True)
    next_change(shards, at)


def _location(host: int) -> Location:
    return Location(f"host-{host}", f"zone-{host % ZONES}")


def _shards(primaries: Sequence[str], pairs: Mapping[str, str]) -> dict[str, list[str]]:
    shards: dict[str, list[str]] = {primary: [] for primary in primaries}
    for replica, primary in pairs.items():
        shards[primary].append(replica)
    return shards


def _seconds(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def goals(found: Sequence[Planning]) -> list[Goal]:
    """Return the goals with the measured values."""
    results = []
    for each in found:
        size = f"{each.primaries} primaries, {each.replicas} replicas"
        results += [
            Goal(f"{size}: placement of new nodes, ms", 1000 * each.first, FIRST_MILLISECONDS),
            Goal(f"{size}: unchanged, ms", 1000 * each.unchanged, UNCHANGED_MILLISECONDS),
            Goal(f"{size}: five pods rescheduled, ms", 1000 * each.moved, UNCHANGED_MILLISECONDS),
        ]
    return results


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.redis_planning", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one random cluster of each size")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file for the results")
    options = parser.parse_args(arguments)

    def measure_all(console: Console) -> list[Planning]:
        console.print("… Planning redis clusters of 500 nodes")
        return [measure(*size, rounds=1 if options.quick else ROUNDS) for size in SIZES]

    return run(
        measure_all,
        goals=goals,
        show=lambda console, _, results: console.print(goals_table(results)),
        figures=lambda found: {"placement": [asdict(each) for each in found]},
        output=options.output,
    )


if __name__ == "__main__":
    sys.exit(main())
