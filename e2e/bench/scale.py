"""Benchmark of scale: thousands of resources on an API server without nodes, faults, and one to four shards.

Usage: python -m e2e.bench.scale. Pods stay pending, so that every resource waits for its servers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from e2e.bench.measures import KIB, MIB, Goal
from e2e.bench.output import goals_table, run
from e2e.bench.scale_faults import PROBLEMS, measure_neighbours, measure_outage
from e2e.bench.scale_measures import Neighbours, Outage, Scale, Sharded, goals
from e2e.bench.scale_trials import measure, measure_shards
from tools.local.paths import REPOSITORY

RESULT = REPOSITORY / ".bench" / "scale.json"
SIZES = {"memcached": 10_000, "etcd": 1_000, "redis": 1_000}
SHARDS = (1, 2, 4)
OTHERS = 600
"""Number of resources that are changed while those of another namespace have a fault."""


class Results(NamedTuple):
    """Results of the benchmark."""

    scales: list[Scale]
    sharded: list[Sharded]
    neighbours: list[Neighbours]
    outages: list[Outage]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.size, options.seconds, options.sharded, options.faulty = 500, 10.0, 500, 200
    return run(
        lambda console: _measure(console, options),
        goals=lambda found: goals((*found.scales, *found.neighbours, *found.outages)),
        show=_show,
        figures=_figures,
        output=options.output,
    )


def _measure(console: Console, options: argparse.Namespace) -> Results:
    scales, sharded, neighbours, outages = [], [], list[Neighbours](), list[Outage]()
    for operator in options.operators:
        count = options.size or SIZES[operator]
        scales.append(
            measure(
                operator,
                count,
                options.seconds,
                lambda text, of=operator: console.print(f"… {of}: {text}"),  # type: ignore[misc]
                failing=count // 9 if options.failing else 0,
            )
        )
    for shards in options.shards:
        console.print(f"… {options.sharded} resources at once, {shards} shards")
        sharded.append(measure_shards("memcached", shards, options.sharded))
    for problem in PROBLEMS if options.faulty else ():
        console.print(f"… {options.faulty} resources of a namespace: {problem}")
        neighbours.append(measure_neighbours(problem, options.faulty, OTHERS, options.seconds))
    for seconds in options.outages if options.faulty else ():
        console.print(f"… {seconds:g} s without API server, {options.faulty} resources")
        outages.append(measure_outage(options.faulty, seconds))
    return Results(scales, sharded, neighbours, outages)


def _show(console: Console, found: Results, results: list[Goal]) -> None:
    console.print()
    columns = [
        "resources",
        "created",
        "at rest",
        "memory",
        "restarted",
        "queue p99",
        "reconcile p99",
        "reported p50, p99",
    ]
    table = Table(*columns, "start", "SIGTERM", "SIGKILL", "blocks, ms (CPU)", box=None, pad_edge=False)
    for each in found.scales:
        changes = each.changes
        blocks = (changes.blocks, changes.scrape_blocks, each.load_blocks, each.start_blocks, each.takeover_blocks)
        table.add_row(
            f"{each.count} {each.operator}",
            f"{each.count / each.loaded:.0f}/s",
            f"{each.rested:.0f} s",
            f"{each.memory / KIB:.1f} KiB",
            f"{each.restarted / KIB:.1f} KiB",
            f"{changes.queue_p99:.3f} s",
            f"{changes.reconcile_p99:.3f} s",
            f"{changes.reported_p50:.2f} s, {changes.reported_p99:.2f} s",
            f"{each.synced:.1f} s, {each.reconciled:.1f} s",
            f"{each.handover:.2f} s",
            f"{each.crash:.1f} s",
            ", ".join(f"{1000 * wall:.0f} ({1000 * cpu:.0f})" for wall, cpu in blocks),
        )
    console.print(table)
    for each in found.scales:
        console.print(f"{each.operator}: /metrics was read in {each.changes.scraped:.1f} s")
    console.print("start: until the cache is filled, until all are reconciled")
    console.print("blocks: during changes, a read of /metrics, creation, start, takeover")
    console.print()
    table = Table("shards", "rate", "CPU, ms", "memory of each replica", "reconciles", box=None, pad_edge=False)
    for one in found.sharded:
        table.add_row(
            str(one.shards),
            f"{one.rate:.0f}/s",
            f"{1000 * one.client / one.count:.1f} + {1000 * one.server / one.count:.1f}",
            ", ".join(f"{value / MIB:.0f} MiB" for value in one.memory),
            ", ".join(f"{value:.0f}" for value in one.reconciles),
        )
    console.print(table)
    console.print()
    table = Table("another namespace", "alone p50, p99", "among p50, p99", box=None, pad_edge=False)
    for each_of in found.neighbours:
        figures = (f"{p50:.2f} s, {p99:.2f} s" for p50, p99 in (each_of.alone, each_of.among))
        table.add_row(f"{each_of.count} resources: {each_of.problem}", *figures)
    console.print(table)
    console.print()
    columns = ["outage", "observed", "change reported", "all reconciled", "requests per resource", "events"]
    table = Table(*columns, box=None, pad_edge=False)
    for outage in found.outages:
        table.add_row(
            f"{outage.seconds:.0f} s, {outage.count} resources",
            *(f"{value:.1f} s" for value in (outage.observed, outage.reported, outage.reconciled)),
            *(f"{outage.requests:.2f}", str(outage.events)),
        )
    console.print(table)
    console.print()
    console.print(goals_table(results))


def _figures(found: Results) -> dict[str, Any]:
    return {
        "scale": [asdict(each) for each in found.scales],
        "shards": [asdict(one) for one in found.sharded],
        "neighbours": [asdict(each) for each in found.neighbours],
        "outages": [asdict(each) for each in found.outages],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 resources of each kind, 10 seconds of changes")
    parser.add_argument(
        "--operators", nargs="*", choices=sorted(SIZES), default=list(SIZES), help="operators to measure"
    )
    parser.add_argument(
        "--size", type=int, default=0, help="number of resources (default: 10000 Memcached, 1000 others)"
    )
    parser.add_argument("--failing", action="store_true", help="add resources that fail, so that one in ten does")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of the changes (default: 30)")
    parser.add_argument(
        "--shards", type=int, nargs="*", default=list(SHARDS), help="numbers of shards (default: 1 2 4)"
    )
    parser.add_argument("--sharded", type=int, default=2000, help="resources per number of shards (default: 2000)")
    parser.add_argument(
        "--faulty", type=int, default=1000, help="resources with a fault, or in an outage; 0: none (default: 1000)"
    )
    parser.add_argument(
        "--outages", type=float, nargs="*", default=[60.0], help="seconds without an API server (default: 60)"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file for the results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
