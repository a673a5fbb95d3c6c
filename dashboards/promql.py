"""PromQL building blocks of the dashboards: consistent label selectors, and no series counted twice.

The leading replica of an operator exports resource states; during a leadership change two replicas may. `states`
deduplicates them. Metrics of servers carry the labels of their targets, including the resource's name, which the
charts' ServiceMonitors copy from the Service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import operators
from charts.values.rules import Thresholds
from dashboards.model import NONE, Query, Variable

RESOURCE = 'cluster=~"$cluster",namespace=~"$namespace",name=~"$name"'
"""Selector of resource states, which operators export."""

SERVER = (
    'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance",app_kubernetes_io_instance=~"$name"'
)
"""Selector of servers' own metrics."""

SERVED = 'cluster=~"$cluster",namespace=~"$namespace",app_kubernetes_io_instance=~"$name"'
"""Selector of servers' own metrics on dashboards whose job and instance select operators."""

OPERATOR = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance"'
"""Selector of operators' own metrics."""

OPERATOR_TARGET = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
"""Selector of operators' targets in any namespace."""

STOPPED = "Hibernated|Hibernating"
"""Reasons of Available while all pods are stopped on purpose, as a regular expression."""

ID = "cluster, kind, namespace, name"
"""Labels that identify a resource in states."""

OWNER = "cluster, namespace, app_kubernetes_io_instance"
"""Labels that identify a resource in servers' own metrics."""

EACH = f"{OWNER}, pod"
"""Labels that identify a server in its own metrics."""

POD = "{{namespace}}/{{pod}}"
NAME = "{{namespace}}/{{app_kubernetes_io_instance}}"
RESOURCE_NAME = "{{namespace}}/{{name}}"
KIND_NAME = "{{kind}} {{namespace}}/{{name}}"

KINDS = {
    operator.main.kind.name: f"platform-{operator.name}"
    for operator in sorted(operators.installed(), key=lambda operator: operator.main.kind.group)
}
"""Dashboard uid of each operator's main kind, ordered by API group."""

ALL = "|".join(KINDS)


def select(metric: str, labels: str, *more: str) -> str:
    """Return a selector of `metric` with label matchers."""
    return f"{metric}{{{','.join((labels, *more))}}}"


def states(metric: str, kinds: str, *more: str, by: str = "") -> str:
    """Return a state of resources with one series per resource.

    Args:
        kinds: a kind, or several separated by |.
        more: additional label matchers.
        by: additional labels to keep.
    """
    of_kinds = f'kind=~"{kinds}"'
    return f"max by ({f'{ID}, {by}' if by else ID}) ({select(metric, RESOURCE, of_kinds, *more)})"


def leading(selector: str) -> str:
    """Return 1 for each operator that leads all of its shards, else 0.

    An operator whose rules are installed is expected: if it exposes no metrics, it is 0 as well.

    Args:
        selector: label matchers of the operators' targets.
    """
    named = select("leader_election_master_status", selector)
    of_operator = f'label_replace({named}, "operator", "$1", "name", "(.+)-operator(-shard-[0-9]+)?")'
    leads = f"min by (cluster, operator) (max by (cluster, operator, name) ({of_operator}))"
    return f'({leads} or max by (cluster, operator) (operator:expected:info{{cluster=~"$cluster"}}) * 0)'


def ready(kinds: str) -> str:
    """Return an expression that selects the resources that are Ready."""
    return states("platform_resource_condition", kinds, 'type="Ready"', 'status="True"') + " == 1"


def total(expr: str) -> str:
    """Return the number of series, 0 if there are none."""
    return f"(count({expr}) or vector(0))"


def rate(metric: str, labels: str, *more: str, by: str = OWNER) -> str:
    """Return the per-second rate of a counter, summed by labels."""
    return f"sum by ({by}) (rate({select(metric, labels, *more)}[$__rate_interval]))"


class Servers:
    """Metrics of one kind of servers, which share a name prefix.

    Args:
        prefix: prefix of the metric names, such as `etcd`.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __call__(self, metric: str, *more: str) -> str:
        """Return a selector of a metric of the selected servers."""
        return select(f"{self._prefix}_{metric}", SERVER, *more)

    def rate(self, metric: str, *more: str, by: str = EACH) -> str:
        """Return the per-second rate of a counter."""
        return rate(f"{self._prefix}_{metric}", SERVER, *more, by=by)

    def quantile(self, share: float, metric: str, by: str = EACH) -> str:
        """Return a quantile of a histogram."""
        return quantile(share, f"{self._prefix}_{metric}", SERVER, by=by)


def quantile(share: float, metric: str, labels: str, *more: str, by: str) -> str:
    """Return a quantile of a histogram."""
    buckets = rate(f"{metric}_bucket", labels, *more, by=f"{by}, le")
    return f"histogram_quantile({share:g}, {buckets})"


def ending(begins: str, ends: str, share: str) -> str:
    """Return the seconds that are left of each certificate of which less than a share of the validity is left.

    Args:
        begins, ends: Unix times, as expressions with the same labels.
        share: share of the validity, 0 to 1.
    """
    return f"({ends} - time() < {share} * ({ends} - {begins}))"


def to_renew(begins: str, ends: str) -> str:
    """Return the seconds that are left of each certificate that its owner should have renewed: the alerts' defaults.

    Args:
        begins, ends: Unix times, as expressions with the same labels.
    """
    defaults = Thresholds()
    return f"({ending(begins, ends, f'{defaults.certificate_share:g}')} < {defaults.certificate_seconds:.15g})"


def of_targets_with(metric: str, expr: str) -> str:
    """Restrict `expr` to targets that expose `metric`: many programs share names such as process_*."""
    return f"({expr} and on (cluster, job, instance) {metric})"


def dashboard_of(expr: str, kinds: str) -> str:
    """Add a label with the uid of each resource's dashboard.

    Args:
        kinds: a kind, or several separated by |.
    """
    for kind in kinds.split("|"):
        expr = f'label_replace({expr}, "dashboard", "{KINDS[kind]}", "kind", "{kind}")'
    return expr


def variables(metric: str, *, kinds: str = "") -> tuple[Variable, ...]:
    """Return the variables of a dashboard, in order; each limits the values of the next.

    Args:
        metric: a metric that every selectable target exposes.
        kinds: kinds of the selectable resources, separated by |. Their clusters and namespaces are selectable even
            if their servers are not scraped. Empty: no variable for resources.
    """
    either = f'__name__=~"{metric}|platform_resource_info",kind=~"{kinds}|"' if kinds else f'__name__="{metric}"'
    cluster, namespace, job = (f'{name}=~"${name}"' for name in ("cluster", "namespace", "job"))
    chosen = (
        Variable("cluster", "cluster", f"{{{either}}}", "Kubernetes cluster, from Prometheus's external label."),
        Variable("namespace", "namespace", f"{{{either},{cluster}}}", "Kubernetes namespace."),
        Variable("job", "job", select(metric, cluster, namespace), "Prometheus scrape job."),
        Variable("instance", "instance", select(metric, cluster, namespace, job), "Prometheus scrape target."),
    )
    if not kinds:
        return chosen
    resources = select("platform_resource_info", cluster, namespace, f'kind=~"{kinds}"')
    return (*chosen, Variable("name", "name", resources, "Name of the custom resource."))


def or_none(expr: str, source: str) -> Query:
    """Return a query whose value is `NONE` if `expr` has no series although `source` has.

    Without `source`, nothing is known, and there is no series.
    """
    return Query(f"({expr}) or (count({source}) * 0 - {-NONE})")


def quiet(expr: str, legend: str = "") -> Query:
    """Return a query that may have no result on a healthy platform."""
    return Query(expr, legend, quiet=True)


def filled(expr: str, chosen: Mapping[str, str] | None = None, *, interval: str = "1m") -> str:
    """Substitute the variables of an expression.

    Args:
        chosen: regular expressions of values, by variable; every other variable matches all values.
        interval: value of $__rate_interval; at least four scrape intervals.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return interval if name == "__rate_interval" else (chosen or {}).get(name, ".*")

    return re.sub(r"\$([A-Za-z_]\w*)", value, expr)  # not $1 of label_replace
