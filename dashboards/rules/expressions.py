"""PromQL building blocks of the rules: no series counted twice, none mistaken for that of another program."""

from __future__ import annotations

from dashboards.promql import ID, KINDS, OWNER, ending
from dashboards.rules.model import Subject

__all__ = [
    "ID",
    "NAMED",
    "OWNER",
    "SERVER",
    "about_resources",
    "about_servers",
    "condition",
    "ending",
    "largest",
    "leaders",
    "of_operator",
    "state",
]

SERVER = f"{OWNER}, pod"
"""Labels that identify a server independently of its address."""

OWNED = {"namespace": "namespace", "name": "app_kubernetes_io_instance"}
"""Labels of servers' own metrics, by the dashboard variable that they set."""

NAMED = {"namespace": "namespace", "name": "name"}
"""Labels of resource states, by the dashboard variable that they set."""


def about_servers(kind: str) -> Subject:
    """Subject of alerts on servers' own metrics."""
    return Subject(KINDS[kind], OWNED, {"kind": kind, "name": "{{ $labels.app_kubernetes_io_instance }}"})


def about_resources(kind: str) -> Subject:
    """Subject of alerts on resource states, which the operator exports."""
    return Subject(KINDS[kind], NAMED)


def state(metric: str, kinds: str, *conditions: str, by: str = "") -> str:
    """Return a resource state with one series per resource, even if two replicas lead for a moment.

    Args:
        kinds: a kind, or several separated by |.
        conditions: additional label matchers.
        by: additional labels to keep.
    """
    labels = ",".join((f'kind=~"{kinds}"', *conditions))
    return f"max by ({f'{ID}, {by}' if by else ID}) ({metric}{{{labels}}})"


def condition(kinds: str, name: str, status: str, *conditions: str, by: str = "") -> str:
    """Return 1 for each resource whose condition `name` has this status.

    Args:
        kinds: a kind, or several separated by |.
        conditions: additional label matchers, such as one of the reason.
        by: additional labels to keep.
    """
    found = state("platform_resource_condition", kinds, f'type="{name}"', f'status="{status}"', *conditions, by=by)
    return f"{found} == 1"


def largest(expr: str, by: str = SERVER) -> str:
    """Return one series per server, even if its scrape target has just changed."""
    return f"max by ({by}) ({expr})"


def of_operator(expr: str, operator: str) -> str:
    """Restrict `expr` to the replicas of one operator; other programs expose metrics with the same names."""
    return f"({expr} and on (cluster, job, instance) {leaders(operator)})"


def leaders(operator: str) -> str:
    """Return 1 for each replica that leads the operator or, if it has several shards, one of them; else 0."""
    return f'leader_election_master_status{{name=~"{operator}-operator(-shard-[0-9]+)?"}}'
