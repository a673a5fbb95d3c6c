"""Benchmark of the etcd operator: creation, scale-up, upgrade, snapshot and restore of EtcdClusters.

Usage: python -m e2e.bench.etcd. It needs the local cluster (`make up`). Slow results are no error; a lost acknowledged
write is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from e2e.bench.etcd_measures import Figures, Growth, Transfer, figures, goals
from e2e.bench.etcd_trials import Bench
from e2e.bench.measures import MIB, Goal, median, percentile
from e2e.bench.output import goals_table, run
from e2e.scenarios.etcd.versions import NEWEST_36, NEWEST_37
from tools.local.paths import REPOSITORY

RESULT = REPOSITORY / ".bench" / "etcd.json"

MEMBERS = 3


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.rounds, options.size = 1, 20

    def measure(console: Console) -> Figures:
        with Bench.on_cluster() as bench:
            return _measure(console, bench, options)

    return run(measure, goals=goals, show=_show, figures=figures, output=options.output)


def _measure(console: Console, bench: Bench, options: argparse.Namespace) -> Figures:
    def progress(text: str) -> None:
        console.print(f"… {text}")

    created, grown = [], []
    for number in range(1, options.rounds + 1):
        progress(
            f"Creating a cluster of {MEMBERS}, then scaling one from 1 to {MEMBERS} ({number} of {options.rounds})"
        )
        created.append(bench.creation(MEMBERS))
        grown.append(bench.growth(MEMBERS))
    progress(f"Upgrading {MEMBERS} members from {NEWEST_36} to {NEWEST_37} under load")
    upgrade = bench.upgrade(MEMBERS)
    progress(f"Taking and restoring snapshots of {options.size} MiB")
    transfers = list(bench.transfers(options.size * MIB, options.rounds))
    return Figures(created, grown, upgrade, transfers)


def _show(console: Console, found: Figures, results: list[Goal]) -> None:
    console.print()
    table = Table("", "seconds", "pod starts, s", "ratio", box=None, pad_edge=False)
    for text, several in (
        (f"create {MEMBERS} members", found.created),
        (f"scale from 1 to {MEMBERS} members", found.grown),
    ):
        table.add_row(text, *_growth(several))
    console.print(table)
    upgrade = found.upgrade
    console.print(
        f"\nUpgrade of {MEMBERS} members from {NEWEST_36} to {NEWEST_37} with {len(upgrade.writes)} concurrent writes: "
        f"{upgrade.seconds:.1f} s, {upgrade.failed} operations failed, {upgrade.repeated} attempts repeated; write "
        f"latency {percentile(upgrade.writes, 0.5) * 1000:.0f} ms (median), {upgrade.p99 * 1000:.0f} ms (p99); longest "
        f"pause {upgrade.pause:.2f} s\n"
    )
    console.print(_transfers(found.transfers))
    console.print(
        "times include the start of the processes; the operator's program also verifies and syncs the data\n",
        style="dim",
    )
    console.print(goals_table(results))


def _growth(several: Sequence[Growth]) -> tuple[str, str, str]:
    own = [median(times) for times in zip(*(one.own for one in several), strict=False)]
    return (
        f"{median(one.seconds for one in several):.1f}",
        " + ".join(f"{seconds:.1f}" for seconds in own),
        f"{median(one.ratio for one in several):.2f}",
    )


def _transfers(several: Sequence[Transfer]) -> Table:
    mib = median(one.size for one in several) / MIB
    table = Table(f"{mib:.0f} MiB", "operator", "etcdctl, etcdutl", "ratio", box=None, pad_edge=False)
    operator, tool = median(one.operator for one in several), median(one.etcdctl for one in several)
    snapshot, restore = (
        median(one.snapshot_ratio for one in several),
        median(one.restore_ratio for one in several),
    )
    table.add_row(
        "snapshot",
        f"{operator:.2f} s, {mib / operator:.0f} MiB/s",
        f"{tool:.2f} s, {mib / tool:.0f} MiB/s",
        f"{snapshot:.2f} of the rate",
    )
    operator, tool = median(one.restored for one in several), median(one.etcdutl_restored for one in several)
    table.add_row(
        "restore",
        f"{operator:.2f} s, {mib / operator:.0f} MiB/s",
        f"{tool:.2f} s, {mib / tool:.0f} MiB/s",
        f"{restore:.2f} of the time",
    )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.etcd", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, 20 MiB of data")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; the output shows medians (default: 3)")
    parser.add_argument("--size", type=int, default=100, metavar="MIB", help="size of the snapshot (default: 100 MiB)")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file for the results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
