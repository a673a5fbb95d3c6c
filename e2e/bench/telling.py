"""How a bench shows and writes down what it measured, whatever that is."""

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
from e2e.cluster.errors import ClusterError

Found = TypeVar("Found")


def carry_out(
    measure: Callable[[Console], Found],
    *,
    goals: Callable[[Found], list[Goal]],
    show: Callable[[Console, Found, list[Goal]], None],
    figures: Callable[[Found], dict[str, Any]],
    output: Path,
) -> int:
    """Measure, show and write down; slow is no failure, work that was not done right is.

    Args:
        goals: what is wanted of what was found, met or not.
        figures: what was found, as JSON.
        output: the JSON file.

    Returns:
        The exit status.
    """
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    began = time.monotonic()
    try:
        found = measure(console)
    except (AssertionError, ClusterError) as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; nothing is left behind", file=sys.stderr)
        return 130
    held = goals(found)
    show(console, found, held)
    took = time.monotonic() - began
    write(output, figures(found), held, took)
    console.print(f"\n{took:.0f} s; all of it in {os.path.relpath(output)}")
    return 0


def goals_table(held: Iterable[Goal]) -> Table:
    """Each goal with what was measured."""
    table = Table("", "goal", "wanted", "measured", box=None, pad_edge=False)
    for goal in held:
        table.add_row("[green]✓" if goal.met else "[red]✗", goal.name, goal.wanted, f"{goal.value:.3g}")
    return table


def write(path: Path, found: dict[str, Any], held: Iterable[Goal], took: float) -> None:
    """Keep all of it as JSON.

    Args:
        took: seconds that the run took.
    """
    whole = {
        "machine": {"processors": os.cpu_count(), "python": platform.python_version()},
        "seconds": took,
        **found,
        "goals": [asdict(goal) | {"met": goal.met} for goal in held],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=2) + "\n")
