"""Durations of all changes of a run, predicted and taken, in one JSON file.

python -m e2e.plans.report build/plans-20261201-120000.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.plans.comparison import Duration
from simulator.plan import Plan
from tools.local.environment import forget_clusters

SCHEMA = "platform.ydzs.io/plan-durations/v1"

FILE = Path(__file__).resolve().parents[2] / "build" / f"plans-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
"""File of this run."""

_changes: list[dict[str, Any]] = []


def add(plan: Plan, spec: Mapping[str, Any], found: Sequence[Duration]) -> None:
    """Add a change to the file of this run."""
    _changes.append(change(plan, spec, found))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(report(_changes), indent=2, ensure_ascii=False) + "\n")


def change(plan: Plan, spec: Mapping[str, Any], found: Sequence[Duration]) -> dict[str, Any]:
    """Return the durations of a change.

    Args:
        spec: changed fields.
    """
    total = Duration("all", plan.seconds, round(sum(each.taken for each in found), 1))
    return {
        "resource": f"{plan.kind} {plan.namespace}/{plan.name}",
        "spec": dict(spec),
        "source": plan.assumptions[0] if plan.assumptions else "",
        **_entry(total),
        "steps": [{"step": each.step, **_entry(each)} for each in found],
    }


def _entry(each: Duration) -> dict[str, Any]:
    return {"predicted": each.predicted, "taken": each.taken, "ratio": each.ratio, "agrees": each.agrees}


def report(changes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report of a run: the share of steps whose durations agree, and all of them."""
    found = list(changes)
    steps = [step for each in found for step in each["steps"]]
    agreeing = sum(step["agrees"] for step in steps)
    share = round(agreeing / len(steps), 3) if steps else None
    return {"schema": SCHEMA, "steps": len(steps), "agreeing": agreeing, "share": share, "changes": found}


def text(found: Mapping[str, Any]) -> str:
    """Return a report as a table, with the steps that do not agree."""
    lines = [f"{found['agreeing']} of {found['steps']} steps agree (within 25 %, or 1 s): share {found['share']}"]
    for each in found["changes"]:
        lines.append(f"{each['resource']} {json.dumps(each['spec'])}: {each['predicted']} s, took {each['taken']} s")
        lines += [
            f"    {step['predicted']:6.1f} s, took {step['taken']:6.1f} s: {step['step']}"
            for step in each["steps"]
            if not step["agrees"]
        ]
    return "\n".join(lines)


def main(paths: Sequence[str]) -> None:
    """Print the files."""
    forget_clusters()
    for path in paths:
        print(text(json.loads(Path(path).read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
