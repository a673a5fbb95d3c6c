"""Series of runs in which etcd's own robustness tests judge clusters that the operator changes.

    python -m e2e.judge --runs 200 --minutes 120

Every run creates an EtcdCluster on the local cluster and performs one action of e2e/scenarios/etcd/actions.py. The
actions take turns, each time with requests of the other kind. The table at the end shows for each action in how many
runs all six results hold. The report of a run that fails is kept. Nothing remains in the cluster.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.progress import Progress
from e2e.scenarios.etcd.actions import ACTIONS, Action
from e2e.scenarios.etcd.judge import KINDS, Verdict
from e2e.scenarios.support.commands import local_environment, new_namespace
from tools.local.environment import forget_clusters

REPORTS = Path(tempfile.gettempdir()) / "etcd-judge"


@dataclass
class Row:
    """Runs of one action.

    Attributes:
        passed: runs in which all results hold.
        seconds: duration of all runs.
        verdicts: of the runs that the judge judged.
        failures: message of each other run, with the directory of its report.
    """

    passed: int = 0
    seconds: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        runs, judged = self.passed + len(self.failures), len(self.verdicts)
        requests, failed, events = (
            sum(getattr(verdict, name) for verdict in self.verdicts) for name in ("requests", "failed", "events")
        )
        mean = self.seconds / max(1, runs)
        return str(runs), str(judged), str(self.passed), str(requests), str(failed), str(events), f"{mean:.0f} s"


HEADING = ("action", "runs", "judged", "all six hold", "requests", "failed", "events", "mean")


def main(arguments: list[str] | None = None) -> int:
    """Run the series; return 1 if a run did not pass."""
    parser = argparse.ArgumentParser(prog="python -m e2e.judge", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="runs, each with a new cluster (default: 200)")
    parser.add_argument("--minutes", type=float, default=240, help="begin no run after this time (default: 240)")
    names = [action.name for action in ACTIONS]
    parser.add_argument("--actions", nargs="*", choices=names, default=names, help="actions (default: all)")
    parser.add_argument("--reports", type=Path, default=REPORTS, help=f"directory of reports (default: {REPORTS})")
    options = parser.parse_args(arguments)
    forget_clusters()
    if (environment := local_environment()) is None:
        return 1
    chosen = [action for action in ACTIONS if action.name in options.actions]
    rows = {action.name: Row() for action in chosen}
    progress, ends = Progress(options.runs), time.monotonic() + 60 * options.minutes
    for number in range(options.runs):
        if time.monotonic() > ends:
            break
        turn, index = divmod(number, len(chosen))
        action, kind = chosen[index], KINDS[(turn + index) % len(KINDS)]
        result = run(environment, action, kind, options.reports / f"{number + 1}", rows[action.name])
        progress.show(number + 1, f"{action.name}, {kind}: {result}")
    sys.stdout.write(f"\n{table(rows)}\n")
    failures = [failure for row in rows.values() for failure in row.failures]
    for failure in failures:
        sys.stdout.write(f"\n{failure}\n")
    return 1 if failures else 0


def run(environment: dict[str, str], action: Action, kind: str, directory: Path, row: Row) -> str:
    """Judge one action, add the result to its row, and return it in words."""
    began = time.monotonic()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        with new_namespace(environment) as kubectl:
            verdict = action.judged(kubectl, directory, kind)
        row.verdicts.append(verdict)
        result = f"holds, {verdict}"
        if verdict.failures:
            result = f"FAILED: {verdict.failures}"
    except Exception as error:  # any: the results of the other runs are kept
        result = f"FAILED: {error!r}"
    row.seconds += time.monotonic() - began
    if result.startswith("FAILED"):
        row.failures.append(f"{action.name}, {kind}, report in {directory}: {result}")
    else:
        row.passed += 1
        shutil.rmtree(directory)
    return result


def table(rows: dict[str, Row]) -> str:
    """Return a table in Markdown with a line for each action."""
    lines: list[Sequence[str]] = [HEADING, ["---"] * len(HEADING)]
    lines += [(name, *row.cells()) for name, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
