"""`python -m e2e.bench.etcd`: how fast EtcdClusters come to be, grow, are upgraded, backed up and restored.

It needs the local cluster (`make up`). Slow is no failure; a write that was acknowledged and is lost is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from e2e.bench.etcd_measures import Figures, Growth, Transfer, figures, goals
from e2e.bench.etcd_rounds import Bench
from e2e.bench.measures import MIB, Goal, median, percentile
from e2e.bench.telling import carry_out, goals_table
from e2e.cluster.paths import REPOSITORY
from e2e.scenarios.etcd.versions import NEWEST_36, NEWEST_37

RESULT = REPOSITORY / ".bench" / "etcd.json"

MEMBERS = 3


def main(arguments: list[str] | None = None) -> int:
    """Measure as the arguments say; the exit status."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.rounds, options.size = 1, 20

    def measure(console: Console) -> Figures:
        with Bench.on_cluster() as bench:
            return _measure(console, bench, options)

    return carry_out(measure, goals=goals, show=_show, figures=figures, output=options.output)


def _measure(console: Console, bench: Bench, options: argparse.Namespace) -> Figures:
    def under_way(text: str) -> None:
        console.print(f"… {text}")

    created, grown = [], []
    for number in range(1, options.rounds + 1):
        under_way(f"a cluster of {MEMBERS}, then one of 1 that grows to {MEMBERS} ({number} of {options.rounds})")
        created.append(bench.creation(MEMBERS))
        grown.append(bench.growth(MEMBERS))
    under_way(f"{MEMBERS} members from {NEWEST_36} to {NEWEST_37}, beside clients")
    upgrade = bench.upgrade(MEMBERS)
    under_way(f"snapshots of {options.size} MiB, and restores")
    transfers = list(bench.transfers(options.size * MIB, options.rounds))
    return Figures(created, grown, upgrade, transfers)


def _show(console: Console, found: Figures, held: list[Goal]) -> None:
    console.print()
    table = Table("", "seconds", "the pods' own", "ratio", box=None, pad_edge=False)
    for text, several in ((f"apply to Ready of {MEMBERS}", found.created), (f"1 to {MEMBERS}", found.grown)):
        table.add_row(text, *_growth(several))
    console.print(table)
    upgrade = found.upgrade
    console.print(
        f"\n{NEWEST_36} to {NEWEST_37} of {MEMBERS} members in {upgrade.seconds:.1f} s, under {len(upgrade.writes)} "
        f"writes: {upgrade.failed} operations failed, {upgrade.repeated} attempts were repeated; a write took "
        f"{percentile(upgrade.writes, 0.5) * 1000:.0f} ms, p99 {upgrade.p99 * 1000:.0f} ms; longest pause "
        f"{upgrade.pause:.2f} s\n"
    )
    console.print(_transfers(found.transfers))
    console.print(
        "each with the start of its processes; ours also verifies, and leaves what a crash cannot lose\n", style="dim"
    )
    console.print(goals_table(held))


def _growth(several: Sequence[Growth]) -> tuple[str, str, str]:
    own = [median(times) for times in zip(*(one.own for one in several), strict=False)]
    return (
        f"{median(one.seconds for one in several):.1f}",
        " + ".join(f"{seconds:.1f}" for seconds in own),
        f"{median(one.ratio for one in several):.2f}",
    )


def _transfers(several: Sequence[Transfer]) -> Table:
    mib = median(one.size for one in several) / MIB
    table = Table(f"{mib:.0f} MiB", "ours", "etcd's own", "ratio", box=None, pad_edge=False)
    ours, theirs = median(one.ours for one in several), median(one.theirs for one in several)
    snapshot, restore = (
        median(one.snapshot_ratio for one in several),
        median(one.restore_ratio for one in several),
    )
    table.add_row(
        "snapshot",
        f"{ours:.2f} s, {mib / ours:.0f} MiB/s",
        f"{theirs:.2f} s, {mib / theirs:.0f} MiB/s",
        f"{snapshot:.2f} of its rate",
    )
    ours, theirs = median(one.restored for one in several), median(one.theirs_restored for one in several)
    table.add_row(
        "restore",
        f"{ours:.2f} s, {mib / ours:.0f} MiB/s",
        f"{theirs:.2f} s, {mib / theirs:.0f} MiB/s",
        f"{restore:.2f} of its time",
    )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.etcd", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and 20 MiB")
    parser.add_argument("--rounds", type=int, default=3, help="how often what is short is measured; medians are shown")
    parser.add_argument("--size", type=int, default=100, metavar="MIB", help="of the data that is backed up")
    parser.add_argument("--output", type=Path, default=RESULT, help="the JSON file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
