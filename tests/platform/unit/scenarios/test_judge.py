"""Verdicts of etcd's own judge and the table of a series."""

from __future__ import annotations

from e2e.judge import HEADING, Row, table
from e2e.scenarios.etcd.actions import ACTIONS
from e2e.scenarios.etcd.judge import RESULTS, SUCCESS, Verdict

HOLDS = Verdict(dict.fromkeys(RESULTS, SUCCESS), requests=100, failed=3, events=50)


def test_verdict_without_a_failure_has_all_results() -> None:
    assert not HOLDS.failures
    assert len(RESULTS) == 6


def test_result_that_was_not_checked_is_a_failure() -> None:
    assert Verdict({**HOLDS.results, "watch": ""}, 100, 3, 50).failures == {"watch": ""}
    assert Verdict({}, 0, 0, 0).failures.keys() == RESULTS.keys()


def test_table_counts_runs_that_were_not_judged() -> None:
    row = Row(passed=2, seconds=90.0, verdicts=[HOLDS, HOLDS], failures=["the cluster did not become Ready"])
    heading, _, line = table({"leader deleted": row}).splitlines()
    assert dict(zip(HEADING, line.strip("| ").split(" | "), strict=True)) == {
        "action": "leader deleted",
        "runs": "3",
        "judged": "2",
        "all six hold": "2",
        "requests": "200",
        "failed": "6",
        "events": "100",
        "mean": "30 s",
    }
    assert heading.startswith("| action | runs |")


def test_every_action_has_a_name_of_its_own() -> None:
    assert len({action.name for action in ACTIONS}) == len(ACTIONS)
