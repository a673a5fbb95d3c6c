"""Benchmark of the memcached operator: speed, memory and requests. `make bench ARGS=--quick` takes a minute."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from e2e.bench.measures import MIB, Account, Goal, Race, Run, goals, median
from e2e.bench.output import goals_table, run
from e2e.bench.trials import REFERENCE_WORKERS, Advance, measure_account, race
from tools.local.paths import REPOSITORY

RESULT = REPOSITORY / ".bench" / "memcached.json"
RATIOS = ("ratio", "ratio_of_work", "rate", "load", "cpu", "share_of_memory")
"""Properties of a race in the results."""

WRITES = 4
"""Estimated writes per creation, for the progress bars."""


class Results(NamedTuple):
    """Results of a benchmark."""

    account: Account
    races: list[Race]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.stages, options.rounds, options.idle = [500], [500, 1000], 1, 10.0
    if max(options.sizes) > max(options.stages):
        parser.error(
            f"--sizes {max(options.sizes)} exceeds --stages {max(options.stages)}: the replayed writes are recorded"
            " during the stages; increase the last stage"
        )
    if len(options.stages) < 2 or sorted(set(options.stages)) != options.stages:
        parser.error("--stages needs two or more numbers in ascending order")
    return run(
        lambda console: _measure(console, options),
        goals=lambda found: goals(found.races, found.account),
        show=_show,
        figures=_figures,
        output=options.output,
    )


def _measure(console: Console, options: argparse.Namespace) -> Results:
    races: list[Race] = []
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("writes"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:

        def bar(text: str, total: int) -> Advance:
            if not console.is_terminal:
                console.print(f"… {text}")
            task = progress.add_task(text, total=total)
            return lambda count: progress.advance(task, count)

        stages = options.stages
        shown = ", ".join(map(str, stages))
        account, recorded = measure_account(
            stages,
            workers=options.workers,
            idle=options.idle,
            advance=bar(
                f"Memory and requests with {shown} resources, restart, {options.idle:g} s idle", WRITES * stages[-1]
            ),
        )
        for number in range(1, options.rounds + 1):
            for size in options.sizes:
                text = f"{size} resources at once: operator, references, bare client ({number} of {options.rounds})"
                advance = bar(text, (2 + len(REFERENCE_WORKERS)) * WRITES * size)
                is_reversed = number % 2 == 0
                races.append(race(size, recorded, workers=options.workers, is_reversed=is_reversed, advance=advance))
    return Results(account, races)


def _show(console: Console, found: Results, results: list[Goal]) -> None:
    account, races = found
    console.print()
    columns = ["resources", "client", "rate", "API server and etcd, CPU", "client, CPU", "client, memory"]
    table = Table(*columns, box=None, pad_edge=False)
    for size in sorted({one.size for one in races}):
        for name, several in _runs([one for one in races if one.size == size]).items():
            run = _median_run(several)
            table.add_row(
                *(str(size), name, f"{size / run.seconds:.0f}/s"),
                *(f"{used / size * 1000:.1f} ms" for used in (run.server, run.client)),
                f"{run.memory / MIB:.0f} MiB" if run.memory else "",
            )
    console.print(table)
    console.print("CPU: time per resource", style="dim")
    console.print()
    resident = [f"{value / MIB:.0f} MiB with {count} resources" for count, value in sorted(account.memory.items())]
    console.print(
        f"resident memory: {', '.join(resident)}; peak {account.peak / MIB:.0f} MiB; "
        f"after a restart with {account.size} resources {account.restarted / MIB:.0f} MiB"
    )
    console.print()
    console.print(goals_table(results))
    if account.idle_calls:
        console.print(f"requests while idle: {', '.join(account.idle_calls[:10])}")


def _runs(races: list[Race]) -> dict[str, list[Run]]:
    """Return the runs of each client."""
    found = {"operator": [one.operator for one in races], "bare client": [one.bare for one in races]}
    for workers in races[0].references:
        found[f"reference, {workers} at once"] = [one.references[workers] for one in races]
    return found


def _median_run(runs: list[Run]) -> Run:
    return Run(*(median(figure) for figure in zip(*map(astuple, runs), strict=True)))


def _figures(found: Results) -> dict[str, Any]:
    account, races = found
    return {
        "races": [asdict(one) | {name: getattr(one, name) for name in RATIOS} for one in races],
        "account": asdict(account) | {"per_creation": account.per_creation, "per_further": account.per_further},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 resources, one round, 10 idle seconds")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[500, 2000],
        help="numbers of resources created at once (default: 500 2000)",
    )
    parser.add_argument(
        "--stages",
        type=int,
        nargs="+",
        default=[1000, 2000],
        help="numbers of resources at which memory is measured (default: 1000 2000)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="repetitions per size; the output shows medians (default: 3)"
    )
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to observe the idle operator (default: 60)")
    parser.add_argument("--workers", type=int, default=0, help="workers of the operator; 0 for its default")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file for the results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
