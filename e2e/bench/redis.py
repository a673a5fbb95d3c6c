"""`python -m e2e.bench.redis`: how fast slots move, and clusters come to be and outlive the loss of a master.

Three masters hold 300,000 keys of 100 bytes, and a fourth gets its part of them, on servers of their own on loopback,
once by the operator's engine and once by the servers' own client. The rest needs the local cluster (`make up`). Slow is
no failure; a write that was acknowledged and is lost is.
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
from e2e.bench.redis_cluster import ClusterBench
from e2e.bench.redis_measures import Creation, Figures, Loss, Moves, Side, figures, goals, p99
from e2e.bench.redis_rounds import Bench
from e2e.bench.telling import carry_out, goals_table
from e2e.cluster.paths import REPOSITORY
from e2e.databases.redis_servers import NEWEST, OLDEST, Redis

RESULT = REPOSITORY / ".bench" / "redis.json"


def main(arguments: list[str] | None = None) -> int:
    """Measure as the arguments say; the exit status."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.rounds, options.keys = 1, 30_000

    def measure(console: Console) -> Figures:
        with ClusterBench.on_cluster() as bench:
            created, losses = _on_cluster(console, bench, options)
        return Figures([_measure(console, engine, options) for engine in (OLDEST, NEWEST)], created, losses)

    return carry_out(measure, goals=goals, show=_show, figures=figures, output=options.output)


def _on_cluster(
    console: Console, bench: ClusterBench, options: argparse.Namespace
) -> tuple[list[Creation], list[Loss]]:
    created = []
    for number in range(1, options.rounds + 1):
        console.print(f"… three masters with a replica each come to be ({number} of {options.rounds})")
        created.append(bench.creation())
    console.print("… masters fall silent")
    return created, list(bench.losses(options.rounds))


def _show(console: Console, found: Figures, held: list[Goal]) -> None:
    console.print()
    console.print(_table(found.moves))
    console.print(f"\n{_told(found)}")
    console.print()
    console.print(goals_table(held))


def _told(found: Figures) -> str:
    seconds, own = (median(getattr(each, name) for each in found.created) for name in ("seconds", "own"))
    served = median(each.seconds for each in found.losses)
    return (
        f"3 masters and 3 replicas: {seconds:.1f} s from apply to Ready, the pods' own start {own:.1f} s; "
        f"a lost master's slots are served again after {served:.1f} s, with a cluster-node-timeout of "
        f"{found.losses[0].timeout:g} s"
    )


def _measure(console: Console, engine: tuple[str, str], options: argparse.Namespace) -> Moves:
    races = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-redis-") as directory,
        Redis(Path(directory)).cluster(engine, cluster_node_timeout="5000", appendfsync="everysec") as cluster,
        Bench.started(cluster, options.keys) as bench,
    ):
        for number in range(1, options.rounds + 1):
            console.print(f"… {' '.join(engine)}: a fourth master joins three ({number} of {options.rounds})")
            races.append(bench.race(ours_first=number % 2 == 0))
    return Moves(" ".join(engine), options.keys, races)


def _table(found: Sequence[Moves]) -> Table:
    table = Table("", "ours", "their own client", "times as fast", box=None, pad_edge=False)
    for moves in found:
        table.add_row(moves.engine, _shown(moves.ours), _shown(moves.theirs), f"{moves.ratio:.1f}")
    return table


def _shown(side: Side) -> str:
    errors = sum(side.errors.values())
    return f"{side.seconds:.2f} s, p99 {p99(side) * 1000:.0f} ms, {errors} errors"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.redis", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and 30,000 keys")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is measured; medians are shown")
    parser.add_argument("--keys", type=int, default=300_000, help="that the three masters hold")
    parser.add_argument("--output", type=Path, default=RESULT, help="the JSON file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
