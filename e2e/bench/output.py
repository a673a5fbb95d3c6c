"""Common parts of the benchmarks: run, show the results, write them to a file."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from e2e.bench.measures import Goal
from tools.local.errors import ClusterError

Results = TypeVar("Results")


def run(
    measure: Callable[[Console], Results],
    *,
    goals: Callable[[Results], list[Goal]],
    show: Callable[[Console, Results, list[Goal]], None],
    figures: Callable[[Results], dict[str, Any]],
    output: Path,
) -> int:
    """Run a benchmark, show its results and write them to a file.

    A missed goal is no error; incorrect work of an operator is.

    Args:
        measure: performs the measurements.
        goals: returns the goals with the measured values.
        show: prints the results.
        figures: returns the results as JSON.
        output: JSON file for the results.

    Returns:
        Exit code.
    """
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    began = time.monotonic()
    try:
        found = measure(console)
    except (AssertionError, ClusterError) as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; all processes and resources of the benchmark were removed", file=sys.stderr)
        return 130
    results = goals(found)
    show(console, found, results)
    took = time.monotonic() - began
    write(output, figures(found), results, took)
    console.print(f"\nFinished in {took:.0f} s; full results: {os.path.relpath(output)}")
    return 0


def goals_table(results: Iterable[Goal]) -> Table:
    """Return a table of the goals and the measured values."""
    table = Table("", "goal", "target", "measured", box=None, pad_edge=False)
    for goal in results:
        table.add_row("[green]✓" if goal.met else "[red]✗", goal.name, goal.target, f"{goal.value:.3g}")
    return table


def write(path: Path, found: dict[str, Any], results: Iterable[Goal], took: float) -> None:
    """Write the results as JSON.

    Args:
        path: file to write.
        found: measured values.
        results: goals with the measured values.
        took: duration of the benchmark, in seconds.
    """
    content = {
        "machine": {"processors": os.cpu_count(), "python": platform.python_version()},
        "seconds": took,
        **found,
        "goals": [asdict(goal) | {"met": goal.met} for goal in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
