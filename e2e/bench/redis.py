"""Benchmark of the redis operator: slot migration, creation of clusters, and failover.

Usage: python -m e2e.bench.redis. Slot migration: three primaries have 300,000 keys of 100 bytes, and a fourth primary
joins. The operator's migration is compared with `redis-cli --cluster rebalance` (or `valkey-cli`), on servers on the
loopback interface. The rest needs the local cluster (`make up`). Slow results are no error; a lost acknowledged write
is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from e2e.bench.measures import Goal, median
from e2e.bench.output import goals_table, run
from e2e.bench.redis_cluster import ClusterBench
from e2e.bench.redis_measures import Creation, Figures, Loss, Moves, Side, figures, goals, p99
from e2e.bench.redis_trials import Bench
from tools.databases.redis_servers import NEWEST, OLDEST, Redis
from tools.local.paths import REPOSITORY

RESULT = REPOSITORY / ".bench" / "redis.json"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.rounds, options.keys = 1, 30_000

    def measure(console: Console) -> Figures:
        created: list[Creation] = []
        losses: list[Loss] = []
        if not options.moves:
            with ClusterBench.on_cluster() as bench:
                created, losses = _on_cluster(console, bench, options)
        return Figures([_measure(console, engine, options) for engine in (OLDEST, NEWEST)], created, losses)

    return run(measure, goals=goals, show=_show, figures=figures, output=options.output)


def _on_cluster(
    console: Console, bench: ClusterBench, options: argparse.Namespace
) -> tuple[list[Creation], list[Loss]]:
    created = []
    for number in range(1, options.rounds + 1):
        console.print(f"… Creating three primaries with a replica each ({number} of {options.rounds})")
        created.append(bench.creation())
    console.print(f"… Stopping primaries and waiting for the failover ({options.rounds} times)")
    return created, list(bench.losses(options.rounds))


def _show(console: Console, found: Figures, results: list[Goal]) -> None:
    console.print()
    console.print(_table(found.moves))
    if found.created:
        console.print(f"\n{_summary(found)}")
    console.print()
    console.print(goals_table(results))


def _summary(found: Figures) -> str:
    seconds, own = (median(getattr(each, name) for each in found.created) for name in ("seconds", "own"))
    served = median(each.seconds for each in found.losses)
    return (
        f"3 primaries and 3 replicas: {seconds:.1f} s from apply to Ready, pod starts {own:.1f} s. "
        f"Failover: the slots of a lost primary accept writes again after {served:.1f} s, with a cluster-node-timeout "
        f"of {found.losses[0].timeout:g} s."
    )


def _measure(console: Console, engine: tuple[str, str], options: argparse.Namespace) -> Moves:
    races = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-redis-") as directory,
        Redis(Path(directory)).cluster(engine, cluster_node_timeout="5000", appendfsync="everysec") as cluster,
        Bench.started(cluster, options.keys, options.size) as bench,
    ):
        for number in range(1, options.rounds + 1):
            console.print(f"… {' '.join(engine)}: Adding a fourth primary to three ({number} of {options.rounds})")
            races.append(bench.race(operator_first=number % 2 == 0))
    return Moves(" ".join(engine), options.keys, races)


def _table(found: Sequence[Moves]) -> Table:
    table = Table("", "operator", "redis-cli or valkey-cli", "speedup", box=None, pad_edge=False)
    for moves in found:
        table.add_row(moves.engine, _shown(moves.operator), _shown(moves.cli), f"{moves.ratio:.1f}")
    return table


def _shown(side: Side) -> str:
    errors = sum(side.errors.values())
    return f"{side.seconds:.2f} s, client p99 {p99(side) * 1000:.0f} ms, {errors} client errors"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.redis", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, 30,000 keys")
    parser.add_argument("--moves", action="store_true", help="slot migration only, which needs no local cluster")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; the output shows medians (default: 3)")
    parser.add_argument("--keys", type=int, default=300_000, help="keys of the three primaries (default: 300000)")
    parser.add_argument(
        "--size",
        type=int,
        default=100,
        help="bytes of a key's value (default: 100); primaries with more than 64 MiB look for large keys first",
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file for the results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
