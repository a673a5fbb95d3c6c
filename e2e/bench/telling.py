"""How a bench shows and writes down what it measured, whatever that is."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from e2e.bench.measures import Goal


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
