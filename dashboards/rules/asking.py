"""How rules ask: nothing counted twice, and no series mistaken for another program's."""

from __future__ import annotations

from dashboards.promql import ID, KINDS, OWNER
from dashboards.rules.model import Subject

__all__ = ["ID", "NAMED", "OWNER", "SERVER", "about_resources", "about_servers", "largest", "of_operator", "told"]

SERVER = f"{OWNER}, pod"
"""What tells servers apart, whatever address they have today."""

OWNED = {"namespace": "namespace", "name": "app_kubernetes_io_instance"}
"""A dashboard's variables, by the labels of what servers tell."""

NAMED = {"namespace": "namespace", "name": "name"}
"""The same of what operators tell of resources."""


def about_servers(kind: str) -> Subject:
    """The servers of a kind, as they tell of themselves."""
    return Subject(KINDS[kind], OWNED, {"kind": kind, "name": "{{ $labels.app_kubernetes_io_instance }}"})


def about_resources(kind: str) -> Subject:
    """The resources of a kind, as their operator tells of them."""
    return Subject(KINDS[kind], NAMED)


def told(metric: str, kinds: str, *conditions: str, by: str = "") -> str:
    """What the operator tells of resources: of two replicas that lead for a moment, one.

    Args:
        kinds: a kind, or some with | between.
        conditions: on further labels.
        by: further labels to keep.
    """
    labels = ",".join((f'kind=~"{kinds}"', *conditions))
    return f"max by ({f'{ID}, {by}' if by else ID}) ({metric}{{{labels}}})"


def largest(expr: str, by: str = SERVER) -> str:
    """One series a server, though its target may have changed a moment ago."""
    return f"max by ({by}) ({expr})"


def of_operator(expr: str, operator: str) -> str:
    """Only what this operator's own replicas tell: others have metrics of these names, too."""
    return f'({expr} and on (cluster, job, instance) leader_election_master_status{{name="{operator}-operator"}})'
